"""Which tokenizers are understood: pre-tokenizers, files, servers, and what is said of the others."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from test_gguf import ARRAY, BOOL, I32, STRING
from tokenizer_files import IM_END, IM_START, SPEC, TINY, save, save_gguf

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.confined_worker import from_path
from cachedoctor.prompts.tokenizers.base import TokenArrays
from cachedoctor.prompts.tokenizers.bpe import BYTE_LETTERS, SPACE
from cachedoctor.prompts.tokenizers.pretokens import TABLE, Cutter, Special, Specials
from cachedoctor.prompts.tokenizers.server_calls import ServerTokenizer


@pytest.mark.sample(13)
@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_pre_tokenizer_compiles_and_keeps_the_text(name: str) -> None:
    text = "It's 1234567 fooBar HTTPServer,\n\n  x\t日本語 한국 é😀 '\u3000\u200b\r\n "
    assert "".join(Cutter(TABLE[name].patterns)(text)) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["I", "'m", " 1234", " été", "!!", "\n", "\n", "x"]),
        ("qwen2", ["I", "'m", " ", "1", "2", "3", "4", " été", "!!\n\n", "x"]),
        ("llama-bpe", ["I", "'m", " ", "123", "4", " été", "!!\n\n", "x"]),
        ("smollm", ["I", "'m", " ", "1", "2", "3", "4", " été", "!!", "\n", "\n", "x"]),
        ("deepseek-v3", ["I", "'m", " ", "123", "4", " été", "!!\n\n", "x"]),
        ("superbpe", ["I'm ", "1", "234", " été!!\n\nx"]),
        ("default", ["I", "'", "m", " ", "123", "4", " été", "!!", "\n", "\n", "x"]),
    ],
)
def test_the_pre_tokenizers_of_common_models(name: str, expected: list[str]) -> None:
    assert Cutter(TABLE[name].patterns)("I'm 1234 été!!\n\nx") == expected


def test_marks_belong_to_the_word_in_qwen35_only() -> None:
    assert Cutter(TABLE["qwen2"].patterns)("e\u0301t") == ["e", "\u0301t"]
    assert Cutter(TABLE["qwen35"].patterns)("e\u0301t") == ["e\u0301t"]


def test_special_tokens_overlap_as_in_their_program() -> None:
    tokens = [Special("ab", 1), Special("bcd", 2), Special("x", 3, rstrip=True), Special("y", 4, lstrip=True)]
    assert list(Specials(tokens, longest_first=False).cut("abcd")) == [(0, 2, 1), (2, 4, None)]
    assert list(Specials(tokens, longest_first=True).cut("abcd")) == [(0, 1, None), (1, 4, 2)]
    for longest_first in (False, True):
        specials = Specials(tokens, longest_first=longest_first)
        assert list(specials.cut("x 1 y")) == [(0, 1, 3), (2, 3, None), (4, 5, 4)]
    alone = Specials([Special("go", 9, alone=True)], longest_first=False)
    assert [cut[2] for cut in alone.cut("go gone")] == [9, None]


def test_gguf_adds_bos_where_the_file_or_the_kind_says_so(tmp_path: Path) -> None:
    assert from_path(save_gguf(tmp_path)).leading("hello") == 0
    for changes in ({"add_bos_token": (BOOL, True)}, {"pre": (STRING, "llama-bpe")}):
        tokenizer = from_path(save_gguf(tmp_path, **changes))
        assert (tokenizer.leading("hello"), tokenizer.leading("<|im_start|>hello")) == (1, 0)


def test_gguf_knows_what_the_file_has_wrong(tmp_path: Path) -> None:
    types = [1] * len(SPEC["model"]["vocab"]) + [3, 1, 4]
    tokenizer = from_path(save_gguf(tmp_path, token_type=(ARRAY, (I32, types))))
    assert tokenizer.encode("<|im_end|>").ids == [IM_END]
    assert tokenizer.chat_template == "{{ messages }}"


def test_json_options_of_common_models(tmp_path: Path) -> None:
    bytelevel = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    assert from_path(save(tmp_path, pre_tokenizer=bytelevel)).encode("world").starts == [0]
    assert from_path(save(tmp_path, pre_tokenizer=bytelevel)).encode("world").ids == [264]
    steps = [{"type": "Digits", "individual_digits": True}, bytelevel | {"add_prefix_space": False}]
    digits = {"type": "Sequence", "pretokenizers": steps}
    assert from_path(save(tmp_path, pre_tokenizer=digits)).encode(" 12").ids == [32, 49, 50]
    post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}]}
    assert from_path(save(tmp_path, post_processor=post)).leading("x") == 1
    lists = SPEC["model"] | {"merges": [merge.split(" ") for merge in SPEC["model"]["merges"]]}
    assert from_path(save(tmp_path, model=lists)).encode("hello world").ids == [259, 264]


def test_json_with_byte_fallback(tmp_path: Path) -> None:
    names = ["<unk>", SPACE, "a", "b", SPACE + "a", *(f"<0x{byte:02X}>" for byte in range(256))]
    model = {
        "type": "BPE",
        "vocab": {name: at for at, name in enumerate(names)},
        "merges": [f"{SPACE} a"],
        "byte_fallback": True,
        "unk_token": "<unk>",
    }
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]}
    spec = {"model": model, "pre_tokenizer": None, "added_tokens": []}
    assert from_path(save(tmp_path, normalizer=replace, **spec)).encode("b aé") == TokenArrays(
        [3, 4, 5 + 0xC3, 5 + 0xA9], [0, 1, 3, 3]
    )
    assert from_path(save(tmp_path, normalizer=prepend, **spec)).encode("a b") == TokenArrays([4, 1, 3], [0, 1, 2])
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}
    spec["pre_tokenizer"] = metaspace
    assert from_path(save(tmp_path, normalizer=None, **spec)).encode("a b") == TokenArrays([4, 1, 3], [0, 1, 2])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": SPEC["model"] | {"type": "Unigram"}}, "a model of the kind Unigram"),
        ({"model": SPEC["model"] | {"continuing_subword_prefix": "##"}}, "continuing_subword_prefix"),
        ({"pre_tokenizer": {"type": "BertPreTokenizer"}}, "the pre-tokenizer BertPreTokenizer"),
        ({"pre_tokenizer": None}, "a BPE without bytes"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Metaspace"}]}},
            "a space before every piece",
        ),
        ({"normalizer": {"type": "Precompiled"}}, "the normalizer Precompiled"),
        ({"model": {"type": "BPE", "vocab": {}}}, "not a valid tokenizer.json"),
        ({"model": 1}, "is not a tokenizer.json"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}}}, "the pattern"),
    ],
)
def test_a_tokenizer_json_that_cannot_be_followed_is_refused(tmp_path: Path, changes: Any, says: str) -> None:
    with pytest.raises(CacheDoctorError, match=says) as caught:
        from_path(save(tmp_path, **changes))
    assert caught.value.hint


def test_files_that_are_not_tokenizer_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(CacheDoctorError, match="is not JSON"):
        from_path(str(tmp_path / "x.json"))
    with pytest.raises(CacheDoctorError, match="cannot read the tokenizer"):
        from_path(str(tmp_path / "none"))
    (tmp_path / "x.gguf").write_bytes(b"nothing")
    with pytest.raises(CacheDoctorError, match="does not begin with GGUF"):
        from_path(str(tmp_path / "x.gguf"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pre": (STRING, "afmoe")}, "the pre-tokenizer 'afmoe', which is not supported"),
        ({"model": (STRING, "bert")}, "a tokenizer of type 'bert'"),
        ({"tokens": (STRING, None)}, "has no tokenizer"),
        ({"merges": (STRING, None)}, "has no tokenizer"),
        ({"model": (STRING, "llama")}, "no scores"),
    ],
)
def test_a_gguf_that_cannot_be_followed_is_refused(tmp_path: Path, changes: Any, says: str) -> None:
    with pytest.raises(CacheDoctorError, match=says):
        from_path(save_gguf(tmp_path, **changes))


class _Server(BaseHTTPRequestHandler):
    """Answers as llama-server does, with the tiny tokenizer; ``mode`` makes it answer badly."""

    mode = "sound"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = [*SPEC["model"]["vocab"], *(token["content"] for token in SPEC["added_tokens"])]
        tokens: list[Any] = [{"id": IM_START, "piece": "<|im_start|>"}] if body["add_special"] else []
        for i in from_path(str(TINY)).encode(body["content"]).ids:
            raw = names[int(i)].encode() if int(i) >= IM_START else bytes(map(BYTE_LETTERS.index, names[int(i)]))
            piece = raw.decode() if raw.isascii() else list(raw)
            tokens.append({"id": i, "piece": "?" if self.mode == "other" and body["content"] else piece})
        if self.mode == "old":
            tokens = [token["id"] for token in tokens]
        answer = b"<html>" if self.mode == "html" else json.dumps({"tokens": tokens}).encode()
        self.send_response(503 if self.mode == "loading" else 200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Server) as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize("text", ["", "<|im_start|>hello world é日\n<|im_end|>"])
def test_a_running_server_is_asked(server: str, tmp_path: Path, text: str) -> None:
    tokenizer = ServerTokenizer(server + "/")
    assert tokenizer.encode(text) == from_path(save_gguf(tmp_path)).encode(text)
    assert (tokenizer.leading("hello"), tokenizer.leading("<|im_start|>")) == (1, 0)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("old", "no token text"),
        ("html", "did not answer with JSON"),
        ("loading", "503"),
        ("other", "do not match the prompt"),
    ],
)
def test_a_server_that_answers_badly_is_refused(
    server: str, monkeypatch: pytest.MonkeyPatch, mode: str, says: str
) -> None:
    monkeypatch.setattr(_Server, "mode", mode)
    with pytest.raises(CacheDoctorError, match=says) as caught:
        ServerTokenizer(server).encode("hello")
    assert caught.value.hint


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:x", "http://", "http://[::1"])
def test_a_server_that_is_not_there_is_refused(url: str) -> None:
    with pytest.raises(CacheDoctorError):
        ServerTokenizer(url)
