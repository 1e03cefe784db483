from __future__ import annotations

import json
import threading
import unicodedata
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_gguf import ARRAY, BOOL, F32, I32, STRING, U32, gguf

from cachedoctor.diff.bpe import BYTE_LETTERS, SPACE
from cachedoctor.diff.pretokens import TABLE, Cutter, Special, Specials
from cachedoctor.diff.tokenize import Tokenizer, Tokens, common_prefix, first_difference, load, pieces
from cachedoctor.model import CacheDoctorError

TINY = Path(__file__).parents[1] / "fixtures" / "tokenizers" / "tiny.json"
SPEC: dict[str, Any] = json.loads(TINY.read_text())
IM_START, IM_END, THINK = 268, 269, 270
KINDS = ("pieces", "json", "gguf", "sentencepiece", "sentencepiece with prefix", "gemma4")
PROMPTS = st.lists(
    st.one_of(
        st.sampled_from(
            ["hello", " world", "  ", "\n\n", "\r\n", "12", "it's ", "<|im_start|>", "<|im_", "<think>", "é"]
        ),
        st.sampled_from(["a b", " x y ", "e\u0301", "\u1112\u1161\u11ab", "日本 語", "😀", "\t", "_", "...", "low er"]),
        st.text(max_size=4),
    ),
    max_size=12,
).map("".join)


def save(folder: Path, **changes: Any) -> str:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(SPEC | changes))
    return str(path)


def save_gguf(folder: Path, name: str = "m.gguf", **changes: tuple[int, Any]) -> str:
    vocab = SPEC["model"]["vocab"]
    added = [token["content"] for token in SPEC["added_tokens"]]
    entries = {
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "qwen2"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, [*vocab, *added])),
        "tokenizer.ggml.token_type": (ARRAY, (I32, [1] * len(vocab) + [3, 3, 4])),
        "tokenizer.ggml.merges": (ARRAY, (STRING, SPEC["model"]["merges"])),
        "tokenizer.ggml.bos_token_id": (U32, IM_START),
        "tokenizer.chat_template": (STRING, "{{ messages }}"),
    }
    entries |= {"tokenizer.ggml." + key: changed for key, changed in changes.items()}
    path = folder / name
    path.write_bytes(gguf({key: entry for key, entry in entries.items() if entry[1] is not None}))
    return str(path)


def save_sentencepiece(folder: Path, prefix: bool, kind: str = "llama") -> str:
    """Scored pieces, ties included; ``▁`` only ever begins one."""
    words = ["he", "ll", "hell", "hello", "▁w", "or", "▁wor", "ld", "▁world", "▁▁", "12", "lo", "lowe", "▁a", "日本"]
    letters = sorted({char for word in words for char in word} | set("it'swordy.12"))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *words, "<|im_start|>"]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(letters) + len(words)), 3]
    scores = [0.0] * (259 + len(letters)) + [-float(rank // 2) for rank in range(len(words))] + [0.0]
    merges = ["h e", "l l", "he ll", "hell o", "▁ w", "o r", "▁w or", "l d", "▁wor ld", "▁ ▁", "1 2", "日 本"]
    return save_gguf(
        folder,
        f"{kind}-{prefix}.gguf",
        model=(STRING, kind),
        tokens=(ARRAY, (STRING, tokens)),
        token_type=(ARRAY, (I32, types)),
        scores=(ARRAY, (F32, scores)),
        merges=(ARRAY, (STRING, merges)),
        add_space_prefix=(BOOL, prefix),
        bos_token_id=(U32, 1),
    )


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("tokenizers")
    made = (
        pieces(),
        load(str(TINY)),
        load(save_gguf(folder)),
        load(save_sentencepiece(folder, False)),
        load(save_sentencepiece(folder, True)),
        load(save_sentencepiece(folder, False, "gemma4")),
    )
    return dict(zip(KINDS, made, strict=True))


EXPECTED = [
    ("", [], []),
    ("hello world", [259, 264], [0, 5]),
    ("<|im_start|>hello\n<|im_end|>", [IM_START, 259, 10, IM_END], [0, 12, 17, 18]),
    ("12", [49, 50], [0, 1]),  # digits stand alone, though the merges would join them
    ("it's", [105, 116, 267], [0, 1, 2]),
    ("é日", [0xC3, 0xA9, 0xE6, 0x97, 0xA5], [0, 0, 1, 1, 1]),
    ("   hello", [265, 32, 259], [0, 2, 3]),
    ("<think><|im_", [THINK, *b"<|im_"], [0, 7, 8, 9, 10, 11]),
]


@pytest.mark.parametrize(("text", "ids", "starts"), EXPECTED)
@pytest.mark.parametrize("kind", ["json", "gguf"])
def test_ids_and_offsets_are_those_of_the_model(
    tokenizers: dict[str, Tokenizer], kind: str, text: str, ids: list[int], starts: list[int]
) -> None:
    assert tokenizers[kind].encode(text) == Tokens(ids, starts)
    assert tokenizers[kind].exact


def test_tokens_composed_by_the_normalizer_point_at_the_text(tokenizers: dict[str, Tokenizer]) -> None:
    text = "xe\u0301y"
    assert tokenizers["json"].encode(text) == Tokens([120, 0xC3, 0xA9, 121], [0, 1, 1, 3])
    # llama.cpp does not normalize
    assert tokenizers["gguf"].encode(text) == Tokens([120, 101, 0xCC, 0x81, 121], [0, 1, 2, 2, 3])


@settings(deadline=None)
@given(st.text(alphabet="a\u0301\u0323\u0327é한\u1112\u1161\u11ab\u09c7\u09be \u212b", max_size=8))
def test_normalized_in_parts_is_normalized_as_a_whole(tokenizers: dict[str, Tokenizer], text: str) -> None:
    tokens = tokenizers["json"].encode(text)
    raw = bytes(ord("\x00") + token if token < 256 else 0 for token in _bytes_of(tokens.ids))
    assert raw.decode() == unicodedata.normalize("NFC", text)


def _bytes_of(ids: list[int] | list[str]) -> Iterator[int]:
    names = list(SPEC["model"]["vocab"])
    for token in ids:
        yield from (BYTE_LETTERS.index(letter) for letter in names[int(token)])


def test_pieces_cover_the_text_and_are_approximate() -> None:
    tokens = pieces().encode("It's 12345 o'clock,\n\n  déjà vu: 日本")
    assert tokens.ids == ["It", "'s", " ", "123", "45", " o", "'clock", ",\n\n", " ", " déjà", " vu", ":", " 日本"]
    assert tokens.starts == [0, 2, 4, 5, 8, 10, 12, 18, 21, 22, 27, 30, 31]
    assert (pieces().exact, pieces().leading("x")) == (False, 0)


@settings(deadline=None)
@given(st.text())
@example("\x00\ud800 \u2028\u0085")
def test_pieces_joined_are_the_text(text: str) -> None:
    tokens = pieces().encode(text)
    assert "".join(str(piece) for piece in tokens.ids) == text
    assert all(text.startswith(str(piece), at) for piece, at in zip(tokens.ids, tokens.starts, strict=True))


@settings(deadline=None)
@given(PROMPTS)
def test_offsets_rise_and_lie_in_the_text(tokenizers: dict[str, Tokenizer], text: str) -> None:
    for tokenizer in tokenizers.values():
        tokens = tokenizer.encode(text)
        assert tokens.starts == sorted(tokens.starts)
        assert len(tokens.ids) == len(tokens.starts)
        assert all(0 <= start < len(text) for start in tokens.starts)


@settings(deadline=None)
@given(PROMPTS)
def test_byte_tokens_joined_are_the_text(tokenizers: dict[str, Tokenizer], text: str) -> None:
    names = [*SPEC["model"]["vocab"], *(token["content"] for token in SPEC["added_tokens"])]
    tokens = tokenizers["gguf"].encode(text)
    raw = b"".join(
        names[int(i)].encode() if int(i) >= IM_START else bytes(map(BYTE_LETTERS.index, names[int(i)]))
        for i in tokens.ids
    )
    assert raw == text.encode("utf-8", "surrogatepass")


def naive(tokenizer: Tokenizer, a: str, b: str) -> int | None:
    ours, theirs = tokenizer.encode(a).ids, tokenizer.encode(b).ids
    for at, (x, y) in enumerate(zip(ours, theirs, strict=False)):
        if x != y:
            return at
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


@settings(deadline=None, max_examples=300)
@given(PROMPTS, PROMPTS, PROMPTS)
@example("it is a low ", "e", "er")
@example("hello wor", "", "ld")
@example("a b \n", "\n", " x y")
@example("a b caf", "e\u0301", "é")
@example("a b ", " ", "  ")
def test_the_first_difference_is_that_of_the_full_encodings(
    tokenizers: dict[str, Tokenizer], common: str, ours: str, theirs: str
) -> None:
    a, b = common + ours, common + theirs
    for tokenizer in tokenizers.values():
        found = first_difference(tokenizer, a, b)
        assert (found.token if found else None) == (naive(tokenizer, a, b) if a != b else None)
        if found:
            assert found.char == common_prefix(a, b)
            assert a[: found.start] == b[: found.start]
            assert found.start <= found.char


def test_which_tokenizers_work_in_parts(tokenizers: dict[str, Tokenizer]) -> None:
    assert [tokenizers[kind].local for kind in KINDS] == [True, True, True, True, False, True]


def test_the_difference_names_token_and_characters(tokenizers: dict[str, Tokenizer]) -> None:
    found = first_difference(tokenizers["gguf"], "say hello world", "say hello worlds")
    assert found is not None
    assert (found.token, found.char, found.start) == (6, 15, 15)
    found = first_difference(tokenizers["gguf"], "say hello worl", "say hello world")
    assert found is not None
    assert (found.token, found.char, found.start) == (5, 14, 9)  # the last token before it became another one
    assert first_difference(tokenizers["json"], "e\u0301", "é") is None  # other text, same tokens


@given(st.text(max_size=6), st.text(alphabet="ab", max_size=9), st.text(alphabet="ab", max_size=9))
def test_the_common_prefix_is_the_naive_one(start: str, a: str, b: str) -> None:
    a, b = start + a, start + b
    assert common_prefix(a, b) == next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(
    tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    tokens = tokenizers["sentencepiece"].encode("hello world é")
    assert tokens.starts == [0, 5, 11, 12, 12]
    assert tokens.ids[-2:] == [3 + 0xC3, 3 + 0xA9]
    prefixed = tokenizers["sentencepiece with prefix"].encode("hello<|im_start|>world")
    assert prefixed.starts == [0, 0, 5, 17]  # a blank before the text, and again behind a special token
    assert tokenizers["sentencepiece"].leading("hello") == 1
    assert tokenizers["sentencepiece"].leading("<s>hello") == 0


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
    assert load(save_gguf(tmp_path)).leading("hello") == 0
    for changes in ({"add_bos_token": (BOOL, True)}, {"pre": (STRING, "llama-bpe")}):
        tokenizer = load(save_gguf(tmp_path, **changes))
        assert (tokenizer.leading("hello"), tokenizer.leading("<|im_start|>hello")) == (1, 0)


def test_gguf_knows_what_the_file_has_wrong(tmp_path: Path) -> None:
    types = [1] * len(SPEC["model"]["vocab"]) + [3, 1, 4]
    tokenizer = load(save_gguf(tmp_path, token_type=(ARRAY, (I32, types))))
    assert tokenizer.encode("<|im_end|>").ids == [IM_END]
    assert tokenizer.chat_template == "{{ messages }}"


def test_json_options_of_common_models(tmp_path: Path) -> None:
    bytelevel = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    assert load(save(tmp_path, pre_tokenizer=bytelevel)).encode("world").starts == [0]
    assert load(save(tmp_path, pre_tokenizer=bytelevel)).encode("world").ids == [264]
    steps = [{"type": "Digits", "individual_digits": True}, bytelevel | {"add_prefix_space": False}]
    digits = {"type": "Sequence", "pretokenizers": steps}
    assert load(save(tmp_path, pre_tokenizer=digits)).encode(" 12").ids == [32, 49, 50]
    post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}]}
    assert load(save(tmp_path, post_processor=post)).leading("x") == 1
    lists = SPEC["model"] | {"merges": [merge.split(" ") for merge in SPEC["model"]["merges"]]}
    assert load(save(tmp_path, model=lists)).encode("hello world").ids == [259, 264]


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
    assert load(save(tmp_path, normalizer=replace, **spec)).encode("b aé") == Tokens(
        [3, 4, 5 + 0xC3, 5 + 0xA9], [0, 1, 3, 3]
    )
    assert load(save(tmp_path, normalizer=prepend, **spec)).encode("a b") == Tokens([4, 1, 3], [0, 1, 2])
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}
    spec["pre_tokenizer"] = metaspace
    assert load(save(tmp_path, normalizer=None, **spec)).encode("a b") == Tokens([4, 1, 3], [0, 1, 2])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": SPEC["model"] | {"type": "Unigram"}}, "a model of the kind Unigram"),
        ({"model": SPEC["model"] | {"continuing_subword_prefix": "##"}}, "continuing_subword_prefix"),
        ({"pre_tokenizer": {"type": "BertPreTokenizer"}}, "the pre-tokenizer BertPreTokenizer"),
        ({"pre_tokenizer": None}, "a BPE without bytes"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Metaspace"}]}},
            "a blank in front of every piece",
        ),
        ({"normalizer": {"type": "Precompiled"}}, "the normalizer Precompiled"),
        ({"model": {"type": "BPE", "vocab": {}}}, "no sound tokenizer.json"),
        ({"model": 1}, "is no tokenizer.json"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}}}, "the pattern"),
    ],
)
def test_a_tokenizer_json_that_cannot_be_followed_is_refused(tmp_path: Path, changes: Any, says: str) -> None:
    with pytest.raises(CacheDoctorError, match=says) as caught:
        load(save(tmp_path, **changes))
    assert caught.value.hint


def test_files_that_are_no_tokenizer_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(CacheDoctorError, match="is not JSON"):
        load(str(tmp_path / "x.json"))
    with pytest.raises(CacheDoctorError, match="cannot read the tokenizer"):
        load(str(tmp_path / "none"))
    (tmp_path / "x.gguf").write_bytes(b"nothing")
    with pytest.raises(CacheDoctorError, match="does not begin with GGUF"):
        load(str(tmp_path / "x.gguf"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pre": (STRING, "afmoe")}, "the pre-tokenizer 'afmoe', which is not supported"),
        ({"model": (STRING, "bert")}, "a tokenizer of the kind 'bert'"),
        ({"tokens": (STRING, None)}, "holds no tokenizer"),
        ({"merges": (STRING, None)}, "holds no tokenizer"),
        ({"model": (STRING, "llama")}, "no scores"),
    ],
)
def test_a_gguf_that_cannot_be_followed_is_refused(tmp_path: Path, changes: Any, says: str) -> None:
    with pytest.raises(CacheDoctorError, match=says):
        load(save_gguf(tmp_path, **changes))


class _Server(BaseHTTPRequestHandler):
    """Answers as llama-server does, with the tiny tokenizer; ``mode`` makes it answer badly."""

    mode = "sound"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = [*SPEC["model"]["vocab"], *(token["content"] for token in SPEC["added_tokens"])]
        tokens: list[Any] = [{"id": IM_START, "piece": "<|im_start|>"}] if body["add_special"] else []
        for i in load(str(TINY)).encode(body["content"]).ids:
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
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize("text", ["", "<|im_start|>hello world é日\n<|im_end|>"])
def test_a_running_server_is_asked(server: str, tokenizers: dict[str, Tokenizer], text: str) -> None:
    tokenizer = load(server + "/")
    assert tokenizer.encode(text) == tokenizers["gguf"].encode(text)
    assert (tokenizer.leading("hello"), tokenizer.leading("<|im_start|>")) == (1, 0)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("old", "no pieces"),
        ("html", "did not answer with JSON"),
        ("loading", "503"),
        ("other", "do not spell the prompt"),
    ],
)
def test_a_server_that_answers_badly_is_refused(
    server: str, monkeypatch: pytest.MonkeyPatch, mode: str, says: str
) -> None:
    monkeypatch.setattr(_Server, "mode", mode)
    with pytest.raises(CacheDoctorError, match=says) as caught:
        load(server).encode("hello")
    assert caught.value.hint


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:x", "http://", "http://[::1"])
def test_a_server_that_is_not_there_is_refused(url: str) -> None:
    with pytest.raises(CacheDoctorError):
        load(url)
