"""Ids, offsets and the first different token are those of the model's own tokenizer."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_files import IM_END, IM_START, SPEC, THINK, TINY, save_gguf, save_sentencepiece

from cachedoctor.prompts.confined_worker import from_path
from cachedoctor.prompts.tokenizers.base import TokenArrays, Tokenizer, common_prefix, first_difference, pieces
from cachedoctor.prompts.tokenizers.bpe import BYTE_LETTERS

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


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("tokenizers")
    made = (
        pieces(),
        from_path(str(TINY)),
        from_path(save_gguf(folder)),
        from_path(save_sentencepiece(folder, False)),
        from_path(save_sentencepiece(folder, True)),
        from_path(save_sentencepiece(folder, False, "gemma4")),
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
    assert tokenizers[kind].encode(text) == TokenArrays(ids, starts)
    assert tokenizers[kind].exact


def test_tokens_composed_by_the_normalizer_point_at_the_text(tokenizers: dict[str, Tokenizer]) -> None:
    text = "xe\u0301y"
    assert tokenizers["json"].encode(text) == TokenArrays([120, 0xC3, 0xA9, 121], [0, 1, 1, 3])
    # llama.cpp does not normalize
    assert tokenizers["gguf"].encode(text) == TokenArrays([120, 101, 0xCC, 0x81, 121], [0, 1, 2, 2, 3])


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
    assert list(tokens.starts) == [0, 2, 4, 5, 8, 10, 12, 18, 21, 22, 27, 30, 31]
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
        assert [*tokens.starts] == sorted(tokens.starts)
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


@pytest.mark.sweep
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
    assert prefixed.starts == [0, 0, 5, 17]  # a blank before the text, and again after a special token
    assert tokenizers["sentencepiece"].leading("hello") == 1
    assert tokenizers["sentencepiece"].leading("<s>hello") == 0
