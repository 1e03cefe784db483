"""Builds a tokenizer from a ``tokenizer.json``.

Supported is what the common chat models use: BPE, byte-level or with byte fallback. Anything else is refused by name,
because a tokenizer that is nearly right gives wrong positions.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.regular_files import MIB, read_file
from cachedoctor.prompts.tokenizers.bpe import SPACE, Change, Pipeline, WordEncoder, split_units
from cachedoctor.prompts.tokenizers.pretokens import GPT2, Cutter, Special, Specials

_INSTEAD = "give the model's .gguf, or http://host:port of a server that has it loaded"
MAX_MIB = 64
"""Of a file; the largest in use have 33."""
_Spec = dict[str, Any]
_Cut = Callable[[str], list[str]]


class _UnsupportedError(Exception):
    """Names the part of the file that is not supported."""


def from_json(path: Path) -> Pipeline:
    """Read a ``tokenizer.json``; raises ``CacheDoctorError`` for another file and for kinds that are not supported."""
    try:
        spec = json.loads(read_file(path, MAX_MIB * MIB, _INSTEAD))
    except OSError as error:
        raise CacheDoctorError(f"cannot read {path}: {error.strerror or error}", "check the path") from None
    except (ValueError, RecursionError):
        hint = "give a tokenizer.json or a .gguf; the file may be a Git LFS pointer"
        raise CacheDoctorError(f"{path} is not JSON", hint) from None
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), dict):
        hint = "give the tokenizer.json from the model's folder, or a .gguf"
        raise CacheDoctorError(f"{path} is not a tokenizer.json", hint)
    try:
        return _build(spec, path.name)
    except _UnsupportedError as error:
        raise CacheDoctorError(f"{path} uses {error}, which is not supported", _INSTEAD) from None
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError, re.error) as error:
        raise CacheDoctorError(f"{path} is not a valid tokenizer.json: {error!r}", _INSTEAD) from None


def _build(spec: _Spec, name: str) -> Pipeline:
    model = spec["model"]
    vocab: dict[str, int] = model.get("vocab") or {}
    if model.get("type", "BPE") != "BPE" or not isinstance(vocab, dict):
        raise _UnsupportedError(f"a model of the kind {model.get('type')}")
    for option in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(option):
            raise _UnsupportedError(option)
    parts = _PreTokenizer(spec.get("pre_tokenizer"))
    if not parts.bytelevel and not model.get("byte_fallback"):
        raise _UnsupportedError("a BPE without bytes")
    ranks = {_pair(merge): rank for rank, merge in reversed(list(enumerate(model["merges"])))}
    words = WordEncoder(
        vocab,
        lambda a, b: ranks.get((a, b)),
        bytelevel=parts.bytelevel,
        whole="always" if model.get("ignore_merges") else "never",
        unknown=vocab.get(model.get("unk_token") or ""),
    )
    cut = parts.cut if parts.bytelevel else _chain(parts.cut, split_units(vocab))
    normal = _normalizer(spec.get("normalizer"))
    return Pipeline(name, _added(spec, normal), (normal, parts.change), cut, words, bos=_first_added(spec))


def _pair(merge: str | list[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _added(spec: _Spec, normal: Change | None) -> tuple[Specials, Specials | None]:
    """Added tokens that are searched for in the text, and those that are searched for after the normalizer."""
    vocab = spec["model"]["vocab"]
    early, late = [], []
    for token in spec.get("added_tokens") or []:
        text = str(token["content"])
        # the library prefers the id in the vocabulary to the one written here
        number = vocab.get(text, token["id"])
        if type(number) is not int:  # nor a bool
            raise ValueError("the id of an added token is not an integer")
        strips = bool(token.get("lstrip")), bool(token.get("rstrip"))
        alone = bool(token.get("single_word"))
        if token.get("normalized"):
            late.append(Special(normal(text, False)[0] if normal else text, number, *strips, alone))
        else:
            early.append(Special(text, number, *strips, alone))
    return Specials(early, longest_first=False), Specials(late, longest_first=False) if late else None


def _first_added(spec: _Spec) -> str | None:
    """Text of the token that the post-processor puts in front."""
    post = spec.get("post_processor") or {}
    for step in [post, *(post.get("processors") or [])]:
        single = step.get("single") or []
        if step.get("type") == "TemplateProcessing" and single and "SpecialToken" in single[0]:
            return str(single[0]["SpecialToken"]["id"])
    return None


class _PreTokenizer:
    """The ``pre_tokenizer`` as patterns, and what it does to the text before."""

    def __init__(self, spec: _Spec | None) -> None:
        self.bytelevel = False
        self.change: Change | None = None
        self._cuts = False
        self.cut: _Cut = lambda text: [text]
        for step in _steps(spec, "pretokenizers"):
            self._add(step)

    def _add(self, step: _Spec) -> None:
        kind = step["type"]
        if kind == "ByteLevel":
            self.bytelevel = True
            if step.get("add_prefix_space"):
                self._before(_blank_before)
            if step.get("use_regex", True):
                self._then(Cutter((GPT2,)))
        elif kind == "Split":
            self._then(_splitter(step))
        elif kind == "Digits":
            self._then(Cutter((r"\p{N}" if step.get("individual_digits") else r"\p{N}+",)))
        elif kind == "Metaspace":
            self._metaspace(step)
        else:
            raise _UnsupportedError(f"the pre-tokenizer {kind}")

    def _metaspace(self, step: _Spec) -> None:
        scheme = step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never")
        if step.get("replacement", SPACE) != SPACE:
            raise _UnsupportedError("an unusual Metaspace")
        self._before(partial(_metaspace, scheme))
        if step.get("split", True):
            self._then(re.compile(f"(?<=.)(?={SPACE})", re.DOTALL).split)

    def _before(self, change: Change) -> None:
        # after a cut it would be done to every piece
        if self._cuts or self.change:
            raise _UnsupportedError("a space before every piece")
        self.change = change

    def _then(self, cut: _Cut) -> None:
        self._cuts = True
        self.cut = _chain(self.cut, cut)


def _chain(first: _Cut, second: _Cut) -> _Cut:
    return lambda text: [piece for part in first(text) for piece in second(part)]


def _steps(spec: _Spec | None, key: str) -> list[_Spec]:
    if not spec:
        return []
    return [inner for step in spec[key] for inner in _steps(step, key)] if spec["type"] == "Sequence" else [spec]


def _pattern(spec: _Spec) -> str:
    return str(spec["Regex"]) if "Regex" in spec else re.escape(str(spec["String"]))


def _splitter(step: _Spec) -> _Cut:
    pattern, behavior = _pattern(step["pattern"]), step.get("behavior", "Isolated")
    # with invert the matches are the pieces; these patterns match every character, so that nothing is removed
    if behavior == "Isolated" or (behavior == "Removed" and step.get("invert")):
        return _cutter(pattern)
    if behavior == "MergedWithPrevious":
        return _cutter(f"(?<={pattern})")
    if behavior == "MergedWithNext":
        return _cutter(f"(?={pattern})")
    raise _UnsupportedError(f"a Split that is {behavior}")


def _cutter(pattern: str) -> _Cut:
    try:
        return Cutter((pattern,))
    except ValueError as error:
        raise _UnsupportedError(f"the pattern {pattern[:60]!r} ({error})") from None


def _blank_before(text: str, _begins: bool) -> tuple[str, list[int] | None]:
    return (text, None) if text.startswith(" ") else (" " + text, [0, *range(len(text))])


def _metaspace(scheme: str, text: str, begins: bool) -> tuple[str, list[int] | None]:
    text = text.replace(" ", SPACE)
    if text.startswith(SPACE) or scheme == "never" or (scheme == "first" and not begins):
        return text, None
    return SPACE + text, [0, *range(len(text))]


def _normalizer(spec: _Spec | None) -> Change | None:
    steps = [_normal_step(step) for step in _steps(spec, "normalizers")]
    if not steps:
        return None

    def change(text: str, begins: bool) -> tuple[str, list[int] | None]:
        source: list[int] | None = None
        for step in steps:
            text, inner = step(text, begins)
            source = inner if source is None else source if inner is None else [source[at] for at in inner]
        return text, source

    return change


def _normal_step(step: _Spec) -> Change:
    kind = step["type"]
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return partial(_unicode, kind)
    if kind == "Lowercase":
        return lambda text, _begins: _by_part(text, list(text), str.lower)
    if kind == "Prepend":
        front = str(step["prepend"])
        return lambda text, _begins: (front + text, [0] * len(front) + list(range(len(text)))) if text else ("", None)
    if kind == "Replace":
        pattern, content = re.compile(_pattern(step["pattern"])), str(step["content"])
        return lambda text, _begins: _replace(pattern, content, text)
    raise _UnsupportedError(f"the normalizer {kind}")


def _by_part(text: str, parts: list[str], change: Callable[[str], str]) -> tuple[str, list[int] | None]:
    out, source, at = [], [], 0
    for part in parts:
        changed = change(part)
        out.append(changed)
        source += [at + min(i, len(part) - 1) for i in range(len(changed))]
        at += len(part)
    return "".join(out), source if len(source) != len(text) or source != list(range(len(text))) else None


def _unicode(form: Any, text: str, _begins: bool) -> tuple[str, list[int] | None]:
    if text.isascii() or unicodedata.is_normalized(form, text):
        return text, None
    parts: list[str] = []
    for char in text:
        if parts and _joins(char):
            parts[-1] += char
        else:
            parts.append(char)
    return _by_part(text, parts, partial(unicodedata.normalize, form))


def _joins(char: str) -> bool:
    """A character that may change or be composed with what comes before it."""
    return not char.isascii() and (unicodedata.combining(char) != 0 or char in _seconds())


@lru_cache(maxsize=1)
def _seconds() -> frozenset[str]:
    """Characters of combining class 0 that compose with the one before: Hangul vowels and tails, some vowel signs."""
    found = {chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.add(chr(int(parts[1], 16)))
    return frozenset(found)


def _replace(pattern: re.Pattern[str], content: str, text: str) -> tuple[str, list[int] | None]:
    if len(content) == 1 and len(pattern.pattern.replace("\\", "")) == 1:
        return pattern.sub(lambda _: content, text), None
    out, source, at = [], [], 0
    for match in pattern.finditer(text):
        out += [text[at : match.start()], content]
        source += [*range(at, match.start()), *[match.start()] * len(content)]
        at = match.end()
    source += range(at, len(text))
    return "".join([*out, text[at:]]), source
