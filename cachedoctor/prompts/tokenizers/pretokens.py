"""How text is split before merging: special tokens, and llama.cpp's pre-tokenizers by name.

A name is the value of ``tokenizer.ggml.pre``. The patterns are those of the models' own ``tokenizer.json``, in the
variants that llama.cpp evaluates. Each row was compared with llama-server b11549 on 273 texts, with a vocabulary whose
merges cross every border; what differed were characters newer than the server's Unicode tables and, for the two older
DeepSeek rows, blanks outside ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

_SUFFIX = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT2 = _GPT2
"""The pattern built into the ``ByteLevel`` pre-tokenizer."""


def _gpt4(numbers: str, head: str = _SUFFIX + "|", marks: str = _MARKS, spaces: str = _SPACES) -> str:
    return rf"{head}[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}|{marks}|{spaces}"


def _cased(upper: str, lower: str, suffix: str, numbers: str, marks: str = r" ?[^\s\p{L}\p{N}]+[\r\n/]*") -> str:
    start = r"[^\r\n\p{L}\p{N}]?"
    words = f"{start}{upper}*{lower}+{suffix}|{start}{upper}+{lower}*{suffix}"
    return f"{words}|{numbers}|{marks}|{_SPACES}"


def _ranges(text: str) -> str:
    """A set of code points, from hexadecimal ranges."""
    bounds = (part.partition("-") for part in text.split())
    return "[" + "".join(rf"\U{int(a, 16):08x}-\U{int(b or a, 16):08x}" for a, _, b in bounds) + "]"


_QWEN2 = _gpt4(r"\p{N}")
_LLAMA3 = _gpt4(r"\p{N}{1,3}")
_QWEN35 = rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_PUNCT_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_DEEPSEEK = rf"{_PUNCT_WORD}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
_HAN = _ranges("4E00-9FA5 3040-309F 30A0-30FF") + "+"
_EAST_ASIA = _ranges("4E00-9FA5 800-4E00 AC00-D7FF") + "+"
_ASCII_UPPER, _ASCII_LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
_MARK_UPPER, _MARK_LOWER = r"(?:(?=[\p{L}\p{M}])[^a-z])", r"(?:(?=[\p{L}\p{M}])[^A-Z])"
# the model's own pattern also splits at capitals; the server does not
_KIMI = rf"\p{{Han}}+|[^\r\n\p{{L}}\p{{N}}]?(?:(?!\p{{Han}})\p{{L}})+{_SUFFIX}?|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_GPT4O = _cased(_ASCII_UPPER, _ASCII_LOWER, f"{_SUFFIX}?", r"\p{N}{1,3}")
_BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
_ONE_DIGIT = (r"\p{N}", _GPT2)
_LINES = r"[^\n]+|\n+"
# hexadecimal, because several of them have a twin that an editor or a normalizer would put in their place
_DEEPSEEK_LETTERS = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A "
    "1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 "
    "1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F "
    "104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?{_ranges(_DEEPSEEK_LETTERS)}+",
    rf"\s?{_ranges('21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002')}+",
    r"\s+\Z",
    _EAST_ASIA,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIA, r"\p{N}")


class PreTokenizer(NamedTuple):
    """The pre-tokenizer of one value of ``tokenizer.ggml.pre``."""

    patterns: tuple[str, ...]
    """Applied one after the other, each to the pieces that the one before it left."""
    ignore_merges: bool = False
    """A piece that is a complete token is used without applying merges."""
    add_bos: bool = False
    """The server adds the BOS token in front unless the file specifies otherwise."""


def _table() -> dict[str, PreTokenizer]:
    rows = {
        "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9]{3}")),
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": PreTokenizer(
            (_LLAMA3,), True, True
        ),
        "dbrx smaug-bpe glm4 chatglm-bpe": PreTokenizer((_LLAMA3,)),
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": PreTokenizer((_QWEN2,)),
        "qwen35": PreTokenizer((_QWEN35,)),
        "ufakzeka": PreTokenizer((_gpt4(r"\p{N}", head=""),)),
        "laguna": PreTokenizer((_LINES, _QWEN2)),
        "minicpm5": PreTokenizer((r"\p{N}{1,3}", _gpt4(r"\p{N}+")), True),
        "seed-coder": PreTokenizer((_gpt4(r"\p{N}", marks=r" ?[^\s\p{L}\p{N}\r\n]+"),)),
        "bailingmoe bailingmoe2 llada-moe": PreTokenizer((_gpt4(r"\p{N}", spaces=r"\s*[\r\n]|\s+(?!\S)|\s+"),)),
        "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jina-v1-en jina-v2-code "
        "roberta-bpe mpt olmo jais trillion granite-docling exaone4": PreTokenizer((_GPT2,)),
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": PreTokenizer(_ONE_DIGIT),
        "falcon": PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9]{3}")),
        "deepseek-v3 hunyuan-dense joyai-llm hy_v4": PreTokenizer((r"\p{N}{1,3}", _HAN, _DEEPSEEK)),
        "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM),
        "deepseek-coder": PreTokenizer(_DEEPSEEK_CODER),
        "poro-chat bloom gpt3-finnish": PreTokenizer((_BLOOM,)),
        "viking": PreTokenizer((_BLOOM, r"\p{N}")),
        "tekken": PreTokenizer((_cased(_ASCII_UPPER, _ASCII_LOWER, "", r"\p{N}"),), True, True),
        "gpt-4o llama4 kanana2 talkie minimax-m2": PreTokenizer((_GPT4O,)),
        "granite-embed-multi-97m": PreTokenizer(
            (_cased(_MARK_UPPER, _MARK_LOWER, f"{_SUFFIX}?", r"\p{N}{1,3}"),), True
        ),
        "kimi-k2": PreTokenizer((_KIMI,)),
        "superbpe": PreTokenizer((r"\p{N}+", r"(?=(?:\d{3})+(?!\d))")),
        "gemma4 sarvam-moe": PreTokenizer((_LINES,)),
    }
    return {name: row for names, row in rows.items() for name in names.split()}


TABLE = _table()
"""Pre-tokenizers by the name that a GGUF gives them, without those that no pattern can express."""

PIECES = _LLAMA3
"""Word pieces for counting without a tokenizer: the GPT-4 class of pattern, which covers every character."""


class Cutter:
    """Cuts text by patterns, each applied to the pieces of the one before it."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        """Compile; raises ``ValueError`` for a pattern that is none."""
        import regex  # type: ignore[import-untyped]

        try:
            # only version 1 of the syntax has intersections of sets
            self._patterns = [regex.compile(p, regex.V1 if "&&" in p else 0) for p in patterns]
        except regex.error as error:
            raise ValueError(f"{error}") from None

    def __call__(self, text: str) -> list[str]:
        """Pieces of the text in order; together they are the text."""
        pieces = [text]
        for pattern in self._patterns:
            pieces = (
                _tile(pattern, text) if len(pieces) == 1 else [p for piece in pieces for p in _tile(pattern, piece)]
            )
        return pieces


def _tile(pattern: Any, text: str) -> list[str]:
    if not pattern.groups:
        # nearly all patterns cover the whole text, and then this is the whole answer, in one call
        pieces: list[str] = pattern.findall(text)
        if sum(map(len, pieces)) == len(text) and "" not in pieces:
            return pieces
    bounds = {0, len(text)}
    for match in pattern.finditer(text):
        bounds.update(match.span())
    cuts = sorted(bounds)
    return [text[start:end] for start, end in pairwise(cuts)]


class Special(NamedTuple):
    """A token whose text is recognised before anything else."""

    text: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    """True if it takes the spaces before or after it."""
    alone: bool = False
    """True if it counts only where no letter, digit or underscore touches it."""


Cut = tuple[int, int, int | None]
"""A stretch of the text: start, end, and the special token that it is, or None."""


class Specials:
    """Finds special tokens: at each place the longest, or (llama.cpp) the longest ones everywhere first."""

    def __init__(self, tokens: Sequence[Special], *, longest_first: bool) -> None:
        self._tokens = {token.text: token for token in tokens if token.text}
        self._longest_first = longest_first
        texts = sorted(self._tokens, key=len, reverse=True)
        self._order = texts
        self._any = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._first = re.compile("[" + re.escape("".join(sorted({text[0] for text in texts}))) + "]") if texts else None

    @property
    def local(self) -> bool:
        """None of them can cross, or reach over, a space between two letters."""
        return not any(
            t.alone
            or re.search("[A-Za-z] ", t.text)
            or (t.lstrip and t.text[0].isalnum())
            or (t.rstrip and t.text[-1].isalnum())
            for t in self._tokens.values()
        )

    def cut(self, text: str) -> Iterator[Cut]:
        """Stretches in the order of the text; spaces that a special token includes are in none of them."""
        if self._any is None or not text:
            return iter([(0, len(text), None)] if text else [])
        return iter(self._by_length(text)) if self._longest_first else self._leftmost(text)

    def _leftmost(self, text: str) -> Iterator[Cut]:
        assert self._any is not None  # noqa: S101 - cut() saw to it
        at = 0
        for match in self._any.finditer(text):
            token = self._tokens[match[0]]
            start, end = match.span()
            if start < at or (token.alone and _touched(text, start, end)):
                continue
            left = max(at, len(text[:start].rstrip())) if token.lstrip else start
            if left > at:
                yield at, left, None
            yield start, end, token.id
            at = len(text) - len(text[end:].lstrip()) if token.rstrip else end
        if at < len(text):
            yield at, len(text), None

    def _by_length(self, text: str) -> list[Cut]:
        cuts: list[Cut] = [(0, len(text), None)]
        for special in self._present(text):
            token = self._tokens[special]
            cuts = [
                part
                for start, end, found in cuts
                for part in ([(start, end, found)] if found is not None else _split(text, start, end, token))
            ]
        return cuts

    def _present(self, text: str) -> list[str]:
        assert self._any is not None and self._first is not None  # noqa: S101, PT018 - cut() saw to it
        longest = set()
        for match in self._first.finditer(text):
            hit = self._any.match(text, match.start())
            if hit:
                longest.add(hit[0])
        # a shorter one at the same place begins the longer one
        return [special for special in self._order if any(found.startswith(special) for found in longest)]


def _split(text: str, start: int, end: int, token: Special) -> Iterator[Cut]:
    blank = " \t\n\v\f\r"
    while (at := text.find(token.text, start, end)) >= 0:
        left = start + len(text[start:at].rstrip(blank)) if token.lstrip else at
        if left > start:
            yield start, left, None
        start = at + len(token.text)
        yield at, start, token.id
        if token.rstrip:
            start = end - len(text[start:end].lstrip(blank))
    if start < end:
        yield start, end, None


def _touched(text: str, start: int, end: int) -> bool:
    sides = text[max(0, start - 1) : start] + text[end : end + 1]
    return any(char.isalnum() or char == "_" for char in sides)
