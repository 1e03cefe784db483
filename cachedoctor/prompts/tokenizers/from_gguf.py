"""Reads the metadata of a GGUF file and builds the tokenizer that llama.cpp would build from it."""

from __future__ import annotations

import os
import re
import struct
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.regular_files import open_file
from cachedoctor.prompts.tokenizers.bpe import SPACE, Change, Pipeline, Whole, WordEncoder, split_units
from cachedoctor.prompts.tokenizers.pretokens import TABLE, Cutter, Special, Specials

MAGIC = b"GGUF"
MAX_ENTRIES = 65_536
"""Metadata entries; models have 20 to 60."""
MAX_KEY = 65_535
"""Bytes of a key, by the specification."""
MAX_STRINGS = 4 * 1024 * 1024
"""Strings of one array; the largest vocabularies have some 260,000 tokens and 600,000 merges."""
MAX_BYTES = 256 * 1024 * 1024
"""Bytes of the whole metadata; the largest vocabularies need about 20 MiB."""
MAX_TEMPLATE = 4 * 1024 * 1024
"""Characters; the longest in use have some 30,000."""
MAX_DEPTH = 3
"""Arrays inside each other."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_HINT = "give a .gguf that llama-server can load; the download may be incomplete, or the file is a Git LFS pointer"


class _DamagedError(Exception):
    """The bytes are not what the specification says; the message says where."""


class _GgufReader:
    """Little-endian values from a file whose end is known."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = min(size, MAX_BYTES)
        self._cut = size > MAX_BYTES

    def take(self, count: int) -> bytes:
        if count > self._left:
            raise _DamagedError(
                f"its metadata exceeds {MAX_BYTES // 1024**2} MiB" if self._cut else "it ends inside its metadata"
            )
        data = self._file.read(count)
        if len(data) != count:
            raise _DamagedError("it ends inside its metadata")
        self._left -= count
        return data

    def scalar(self, kind: int) -> Any:
        code = _SCALARS.get(kind)
        if code is None:
            raise _DamagedError(f"it has a value of the unknown type {kind}")
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def u32(self) -> int:
        return int(self.scalar(4))

    def u64(self) -> int:
        return int(self.scalar(10))

    def string(self, limit: int = MAX_BYTES) -> str:
        length = self.u64()
        if length > limit:
            raise _DamagedError(f"it has a string of {length:,} bytes")
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string()
        return self.array(depth) if kind == _ARRAY else self.scalar(kind)

    def array(self, depth: int) -> Any:
        kind, count = self.u32(), self.u64()
        if kind in _SCALARS:
            return self.numbers(_SCALARS[kind], count)
        if kind not in (_STRING, _ARRAY):
            raise _DamagedError(f"it has an array of the unknown type {kind}")
        # 8 bytes is the least that a string or an array takes in the file
        if count > MAX_STRINGS or count * 8 > self._left or depth + 1 >= MAX_DEPTH:
            raise _DamagedError(f"it has an array of {count:,} elements that are not valid")
        return [self.value(kind, depth + 1) for _ in range(count)]

    def numbers(self, code: str, count: int) -> Any:
        data = self.take(count * struct.calcsize("<" + code))
        values = array("B" if code == "?" else code)
        values.frombytes(data)
        if sys.byteorder == "big":
            values.byteswap()
        return values


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Read the key-value pairs of a GGUF file (version 2 or 3).

    Strings come as ``str`` (bytes that are not UTF-8 as U+FFFD), arrays of strings as ``list``, arrays of numbers as
    ``array.array``. Tensors are never read. Raises ``CacheDoctorError`` for everything that is not a sound GGUF.
    """
    try:
        with open_file(path, _HINT) as file:
            return _entries(_GgufReader(file, os.fstat(file.fileno()).st_size))
    except _DamagedError as error:
        raise CacheDoctorError(f"{path} is not a usable GGUF file: {error}", _HINT) from None
    except OSError as error:
        raise CacheDoctorError(f"cannot read {path}: {error.strerror or error}", "check the path") from None


def chat_template(meta: dict[str, Any], path: str | Path) -> str | None:
    """The chat template among the metadata, if any; raises ``CacheDoctorError`` for one without measure."""
    found = meta.get("tokenizer.chat_template")
    if not isinstance(found, str):
        return None
    if len(found) > MAX_TEMPLATE:
        raise CacheDoctorError(f"{path} has a chat template of {len(found):,} characters, which is too long", _HINT)
    return found


def _entries(reader: _GgufReader) -> dict[str, Any]:
    if reader.take(4) != MAGIC:
        raise _DamagedError("it does not begin with GGUF")
    version = reader.u32()
    if version and version & 0xFFFF == 0:
        raise _DamagedError("it is big-endian, and only little-endian files are supported")
    if version not in (2, 3):
        raise _DamagedError(f"it has version {version}, and only 2 and 3 are supported")
    reader.u64()  # the number of tensors, which lie after the metadata
    count = reader.u64()
    if count > MAX_ENTRIES:
        raise _DamagedError(f"it claims {count:,} metadata entries")
    found: dict[str, Any] = {}
    for _ in range(count):
        key = reader.string(MAX_KEY)
        if key in found:
            raise _DamagedError(f"it has the key {key[:80]!r} twice")
        found[key] = reader.value(reader.u32())
    return found


_INSTEAD = "give the model's tokenizer.json, or http://host:port of a server that has it loaded"
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_BY_CHARACTER = ("gemma4", "sarvam-moe")
# llama.cpp treats these as control tokens whatever their type says, because many files have it wrong
_ALWAYS_SPECIAL = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> "
    "<EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> [e~[ "
    "<｜end▁of▁sentence｜> <|channel|> <|message|> <|start|> <|constrain|>"
)
# and these where the file does not name the token for filling in the middle
_FILL_IN = {
    "prefix": "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|>",
    "suffix": "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|>",
    "middle": "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>",
    "fim_pad": "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]",
    "fim_rep": "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>",
    "fim_sep": "<|file_sep|>",
}


def from_gguf(path: Path) -> Pipeline:
    """Build the tokenizer of a GGUF; raises ``CacheDoctorError`` for a damaged file and for kinds it cannot follow."""
    meta = read_metadata(path)
    kind = meta.get("tokenizer.ggml.model")
    tokens = _strings(meta, "tokens", path)
    vocab = {text or f"[EMPTY_{at}]": at for at, text in enumerate(tokens)}
    if kind == "llama":
        made = _sentencepiece(meta, vocab, path)
    elif kind in ("gpt2", "gemma4"):
        made = _by_merges(meta, vocab, path)
    else:
        raise CacheDoctorError(f"{path} has a tokenizer of type {kind!r}, which is not supported", _INSTEAD)
    words, cut, change, bos = made
    specials = Specials(_specials(meta, tokens), longest_first=True)
    tokenizer = Pipeline(path.name, (specials, None), (None, change), cut, words, bos=_text(tokens, bos))
    tokenizer.chat_template = chat_template(meta, path)
    return tokenizer


_Made = tuple[WordEncoder, Callable[[str], list[str]], Change | None, int | None]


def _by_merges(meta: dict[str, Any], vocab: dict[str, int], path: Path) -> _Made:
    pre = "gemma4" if meta.get("tokenizer.ggml.model") == "gemma4" else meta.get("tokenizer.ggml.pre") or "default"
    row = TABLE.get(str(pre))
    if row is None:
        raise CacheDoctorError(f"{path} needs the pre-tokenizer {str(pre)[:60]!r}, which is not supported", _INSTEAD)
    ranks: dict[tuple[str, str], float] = {}
    for rank, pair in enumerate(_strings(meta, "merges", path)):
        # the first half may itself begin with the blank that separates the halves
        middle = pair.find(" ", 1)
        if middle > 0:
            ranks.setdefault((pair[:middle], pair[middle + 1 :]), rank)
    by_character = pre in _BY_CHARACTER
    whole: Whole = "always" if row.ignore_merges else "newlines" if pre == "gemma4" else "never"
    words = WordEncoder(vocab, lambda a, b: ranks.get((a, b)), bytelevel=not by_character, whole=whole)
    cut: Callable[[str], list[str]] = Cutter(row.patterns)
    if by_character:
        lines, units = cut, split_units(vocab)
        cut = lambda text: [unit for line in lines(text) for unit in units(line)]  # noqa: E731
    adds_bos = pre == "gemma4" or bool(meta.get("tokenizer.ggml.add_bos_token", row.add_bos))
    return words, cut, _escape if by_character else None, _bos(meta, 11) if adds_bos else None


def _sentencepiece(meta: dict[str, Any], vocab: dict[str, int], path: Path) -> _Made:
    scores = meta.get("tokenizer.ggml.scores")
    if not isinstance(scores, array) or len(scores) < len(vocab):
        raise CacheDoctorError(f"{path} has no scores for its tokens", _INSTEAD)

    def rank(left: str, right: str) -> float | None:
        token = vocab.get(left + right)
        return None if token is None else -float(scores[token])

    change = _escape_with_prefix if meta.get("tokenizer.ggml.add_space_prefix", True) else _escape
    adds_bos = meta.get("tokenizer.ggml.add_bos_token", True)
    words = WordEncoder(vocab, rank, bytelevel=False, whole="never")
    return words, split_units(vocab), change, _bos(meta, 1) if adds_bos else None


def _escape(text: str, _begins: bool) -> tuple[str, None]:
    return text.replace(" ", SPACE), None


def _escape_with_prefix(text: str, _begins: bool) -> tuple[str, list[int]]:
    return SPACE + text.replace(" ", SPACE), [0, *range(len(text))]


def _strings(meta: dict[str, Any], key: str, path: Path) -> list[str]:
    found = meta.get(f"tokenizer.ggml.{key}")
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        hint = "a multimodal projector has no tokenizer; a split model has the tokenizer in its first file"
        raise CacheDoctorError(f"{path} has no tokenizer ({key} missing)", hint)
    return found


def _bos(meta: dict[str, Any], default: int) -> int:
    found = meta.get("tokenizer.ggml.bos_token_id", default)
    return found if isinstance(found, int) else default


def _text(tokens: list[str], token: int | None) -> str | None:
    return tokens[token] if token is not None and 0 <= token < len(tokens) else None


def _specials(meta: dict[str, Any], tokens: list[str]) -> list[Special]:
    types = meta.get("tokenizer.ggml.token_type")
    always = set(_ALWAYS_SPECIAL.split())
    # in Gemma 4 this one is ordinary text
    if "<|tool_response>" in tokens:
        always.discard("</s>")
    for role, texts in _FILL_IN.items():
        keys = (f"tokenizer.ggml.{role}_token_id", f"tokenizer.ggml.fim_{role[:3]}_token_id")
        if not any(key in meta for key in keys):
            always.update(texts.split())
    swallows = re.search("phi-?3", str(meta.get("general.name", "")).lower()) is not None
    marked = dict(enumerate(types)) if isinstance(types, array) else {}
    return [
        Special(text, at, rstrip=swallows and text not in ("<unk>", "<s>", "<|endoftext|>"))
        for at, text in enumerate(tokens)
        if text in always or marked.get(at) in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]
