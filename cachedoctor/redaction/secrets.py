"""Hides what looks like a secret in a quoted text, keys, passwords, mail addresses, and what a user wants to be hidden.

How secrets look is in ``credentials.py``, as data. A text is read as it is written and as it is meant
(``decoding.py``); what is hidden is cut out of it as it is written. What it does not know it
shows; ``cachedoctor redact`` hides whole logs. Patterns are compiled when a text may hold what they look for.

In a pattern of a user ``#`` is a digit, ``?`` any character, ``*`` the rest of a word; nothing in it can take long.
Small and capital letters are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.redaction.credentials import CONTEXTS, CREDENTIALS, Context, Credential, MustBe
from cachedoctor.redaction.decoding import changes, decoded, is_random, is_random_short, is_word

_WILD = "#?*"
_PLAIN_LEAST = 3
"""Minimum non-wildcard characters of a pattern: with fewer it would redact the whole report."""
_LONGEST, _MOST = 200, 200
_pattern: re.Pattern[str] | None = None


def hide_also(patterns: list[str]) -> None:
    """Hide ``patterns`` from now on, and nothing else of a user's own.

    Raises:
        ValueError: one of them says too little, or too much; the text says what is wrong.
    """
    global _pattern  # noqa: PLW0603  # a setting of the process, as its colours are
    if len(patterns) > _MOST:
        raise ValueError(f"more than {_MOST} patterns")
    _pattern = re.compile("(?<!<)(?:" + "|".join(map(_translated, patterns)) + ")", re.I) if patterns else None


def own_words(text: str) -> Iterable[tuple[int, int]]:
    """Give where ``text`` holds one of them."""
    return () if _pattern is None else (match.span() for match in _pattern.finditer(text))


def _translated(pattern: str) -> str:
    """Return a regular expression in which a star ends before the character after it: it never has to go back."""
    if sum(char not in _WILD and not char.isspace() for char in pattern) < _PLAIN_LEAST:
        raise ValueError(f"{pattern!r} has fewer than {_PLAIN_LEAST} characters besides wildcards")
    if len(pattern) > _LONGEST:
        raise ValueError(f"a pattern has more than {_LONGEST} characters")
    out = []
    for at, char in enumerate(pattern):
        if char == "#":
            out.append("[0-9]")
        elif char == "?":
            out.append(".")
        elif char == "*":
            out.append(_star(pattern[at + 1 :].lstrip("*?")))
        else:
            out.append(re.escape(char))
    return "".join(out)


def _star(rest: str) -> str:
    end = "0-9" if rest.startswith("#") else re.escape(rest[:1])
    return rf"[^\s\"'<>{end}]{{0,{_LONGEST}}}+"


_BAR = late(r" \| ([\w.-]+)", re.ASCII)
"""A server that prints the divergence of two prompts may print its bar inside a key."""
_LONG_WORD = late(r"(?<![A-Za-z0-9_.+/=~:$%!-])[A-Za-z0-9_.+/=~:$%!-]{8,}")
"""A word that may contain a credential which is known by its own shape."""
_DIGIT = late(r"\d", re.ASCII)
_PIECE = late(r"[A-Za-z0-9]+")
_JOINED = late(r"[A-Za-z0-9]+(?:[+/_=-]{1,2}[A-Za-z0-9]+)*")
_BASE64 = late(r"(?<![\w/+.-])[A-Za-z0-9+/]{40,}={0,2}(?![\w/+-]|\.\w)", re.ASCII)
_HEX = late(r"(?<![\w/+.-])(?:[0-9a-f]{32,}|[0-9A-F]{32,})(?![\w/+-]|\.\w)", re.ASCII)
_KINDS = {
    _BASE64: [late(kind) for kind in ("[a-z]", "[A-Z]", "[0-9]")],
    _HEX: [late(kind) for kind in ("[A-Fa-f]", "[0-9]")],
}
"""Kinds of characters that must all occur in a string for it to be treated as a key."""
_NEEDS: dict[str, set[str]] = {}
"""Strings that contexts require, by their keyword; most texts contain none."""
for _context in CONTEXTS:
    for _need in _context.needs:
        _NEEDS.setdefault(_need.rstrip("=:\"'`\\]").rstrip(), set()).add(_need)
_IDS = late(
    r"(?:media|toolu|call|chatcmpl|cmpl|msg|req|resp|run|thread|asst|file|batch|fc|rs|ctc|gen|session|conv|evt|srvtoolu"
    r"|tooluse)[_-](?:[0-9a-f]{2}_)?\Z"
)
"""Ids of answers and calls of tools are not secrets, and may be why prompts diverge."""
_UUID = late(r"[0-9A-Fa-f]{1,12}(?:-[0-9A-Fa-f]{4}){1,3}-[0-9A-Fa-f]{4,12}")
_EDGE = 6
"""Minimum characters of a truncated word's part that is hidden."""
_NO_SECRET = frozenset({
    "required", "incorrect", "wrong", "invalid", "missing", "not", "the", "set", "empty", "none", "null", "true",
    "false", "optional", "protected", "correct", "changed", "expired", "secret", "hidden", "also", "only", "used",
    "stored", "sent", "given", "needed", "based", "hashed", "encrypted", "being", "valid", "too", "unknown",
    "password", "authentication", "auth", "string", "file", "field", "here", "there", "what", "that", "this",
    "your", "from", "same",
})  # fmt: skip
"""Words that follow ``password is``."""


_WALLET = 10
"""Minimum words of a wallet that are hidden: it has 12 and more, and a server may truncate it."""


class Region(msgspec.Struct, frozen=True):
    """A part of a text that is hidden."""

    start: int
    end: int
    shown: str
    rest: str
    """Its placeholder in a later piece of text, if the secret continues there."""

    def moved(self, by: int) -> Region:
        """Return where it is in a text that begins so many characters earlier."""
        return Region(self.start + by, self.end + by, self.shown, self.rest)


def hidden(text: str) -> str:
    """Return ``text`` with whatever looks like a secret replaced by what it is, ``<key>``, ``<user>`` ..."""
    parts: list[str] = []
    end = 0
    for region in regions(text):
        parts += text[end : region.start], region.shown
        end = region.end
    return "".join([*parts, text[end:]])


def parted(pieces: list[str]) -> list[str]:
    """Return the pieces of a text as they may be shown; a secret that lies in several is hidden in each of them."""
    shown, found, begin = list(pieces), [], 0
    for piece in pieces:  # by itself a piece begins and ends a word
        found += [region.moved(begin) for region in regions(piece)]
        begin += len(piece)
    found += regions("".join(pieces))
    for region in reversed(merged(found)):  # what comes before a change keeps its place
        new, begin = region.shown, 0
        for at, piece in enumerate(pieces):
            first, last = max(region.start - begin, 0), min(region.end - begin, len(piece))
            if first < last:
                shown[at] = shown[at][:first] + new + shown[at][last:]
                new = region.rest
            begin += len(piece)
    return shown


def without_cut_words(pieces: list[str]) -> list[str]:
    """Hide the first and the last word of a text that a server truncated anywhere, if they look random.

    A key that is cut has lost what it could be known by, so that little is asked: a part of six characters that is not
    a word. A word that reaches up to where two pieces meet is left: it is what the prompts differ in.
    """
    if len(pieces) == 1:
        return [_without_last(_without_first(pieces[0], None), None)]
    return [_without_first(pieces[0], len(pieces[0])), *pieces[1:-1], _without_last(pieces[-1], 0)]


_SPACE = late(r"[\s\"'`,;(){}\[\]<>|]|\\{1,4}[nrt]")


def _without_first(text: str, kept: int | None) -> str:
    start = len(text) - len(text.lstrip(" ."))
    found = _SPACE.search(text, start)
    end = len(text) if found is None else found.start()
    return text if end == kept or not _is_cut_key(text[start:end]) else f"{text[:start]}<cut>{text[end:]}"


def _without_last(text: str, kept: int | None) -> str:
    end = len(text.rstrip(" ."))
    start = max((found.end() for found in _SPACE.finditer(text, 0, end)), default=0)
    return text if start == kept or not _is_cut_key(text[start:end]) else f"{text[:start]}<cut>{text[end:]}"


def _is_cut_key(word: str) -> bool:
    return _UUID.search(word) is not None or any(map(_is_part_of_key, _PIECE.findall(word)))


def _is_part_of_key(piece: str) -> bool:
    return len(piece) >= _EDGE and (not is_word(piece) or (piece.isupper() and len(piece) > _EDGE))


# ---- where secrets are


def regions(text: str) -> list[Region]:
    """Return where secrets are in ``text``, in order, none of them overlapping."""
    view = decoded(text)
    if view is None:
        found = list(_found(text))
    else:
        found = [Region(*view.span(r.start, r.end), r.shown, r.rest) for r in _found(view.text)]
        # a path of Windows, or a password, is not text with escapes, and what nobody sees may stand between two words
        if "\\" in text or not text.isascii():
            found = [*_found(text, words=not text.isascii()), *found]
    return merged(found) if found else found


def merged(found: list[Region]) -> list[Region]:
    """Join regions that overlap; the widest decides the kind, of equally wide ones the first."""
    out: list[Region] = []
    widest = 0
    for region in sorted(found, key=lambda r: r.start):
        if out and region.start < out[-1].end:
            last, wide = out[-1], region.end - region.start
            words = region if wide > widest else last
            widest = max(wide, widest)
            out[-1] = Region(last.start, max(last.end, region.end), words.shown, words.rest)
        else:
            out.append(region)
            widest = region.end - region.start
    return out


def _found(text: str, *, words: bool = True) -> Iterator[Region]:
    """Find secrets by the text around them, and, if ``words`` are read, by their own shape."""
    for start, end in own_words(text):
        yield Region(start, end, "<hidden>", "<hidden>")
    low = text.lower()
    there = {need for stem, needs in _NEEDS.items() if stem in low for need in needs if need in low}
    longest = max(map(len, low.split()), default=0) if there else 0
    contexts = [c for c in CONTEXTS if not there.isdisjoint(c.needs) and _may_fit(c, low, longest)] if there else []
    early = [
        region for context in contexts if not context.yields and not context.is_late for region in _in(context, text)
    ]
    yield from early
    for word in _LONG_WORD.finditer(text) if words else ():
        if _may_be_key(word[0]):
            yield from _in_word(text, *word.span())
    for context in contexts:
        if context.is_late:
            yield from _in(context, text)
        elif context.yields:
            yield from (r for r in _in(context, text) if not any(r.start < o.end and o.start < r.end for o in early))


def _may_fit(context: Context, low: str, longest: int) -> bool:
    return context.longest <= longest and (not context.also or any(text in low for text in context.also))


def _may_be_key(word: str) -> bool:
    if _DIGIT.search(word) or (len(word) >= _CAPITALS and ("-" in word or "_" in word)):
        return True
    return not (word.islower() or word.istitle() or (word.isupper() and len(word) < _CAPITALS))


_CAPITALS = 16
"""Number of letters of one case that no longer count as a word if they are capitals, or joined."""


@cache
def place(context: Context) -> re.Pattern[str]:
    """Compile the pattern of a place."""
    flags = re.I if context.ignore_case else 0
    return re.compile(context.pattern, flags | re.S if context.is_of_lines else flags)


def _in(context: Context, text: str) -> Iterator[Region]:
    for found in place(context).finditer(text):
        for group, at in found.re.groupindex.items():
            if found[at] and _looks(context.must_be, found[at]):
                shown = "<user>" if group == "user" and context.name == "address" else context.instead
                yield Region(*found.span(at), shown, shown.removesuffix("@"))


def _looks(must_be: MustBe, value: str) -> bool:
    if must_be == "any":
        return True
    plain = value.rstrip(".!?)")
    if must_be == "unlike":
        return plain.lower() not in _NO_SECRET and len(plain) >= 4
    if must_be == "no word":
        return not is_word(plain)
    if must_be == "mnemonic":
        return len(value.split()) >= _WALLET
    return _is_drawn(plain)


def _is_drawn(value: str) -> bool:
    return any(is_random_short(piece) for piece in _PIECE.findall(value)) or (
        len(value) >= 16 and not any(is_word(piece) for piece in _PIECE.findall(value))
    )


_APART = r"(?<![A-Za-z0-9])"
_GLUED = r"(?<=[A-Za-z0-9])"
_GROUP = late(r"\([^()]*\)")
_LITERAL = late(r"((?:\\\W|[^\\\[(.?*+{])+)(?![?*{])")
_UNNAMED = 30
"""Minimum characters of a credential without a literal prefix."""


@cache
def shape(row: Credential, before: str = _APART) -> re.Pattern[str]:
    """Compile the pattern of a credential after ``before``; its first group is what stays visible."""
    return re.compile(f"{before}({row.begin}){row.rest}", re.ASCII)


@cache
def needs() -> list[tuple[str, int]]:
    """Texts that credentials hold, each with a number of CREDENTIALS; an empty one for one that has none."""
    return [(text, at) for at, row in enumerate(CREDENTIALS) for text in row.needs or beginnings(row.begin) or ("",)]


def beginnings(pattern: str) -> tuple[str, ...]:
    """Literal texts with which the alternatives of a pattern begin; none if one begins otherwise."""
    while (flat := _GROUP.sub("[]", pattern)) != pattern:
        pattern = flat
    found = [_LITERAL.match(part) for part in pattern.split("|")]
    return tuple(text[1].replace("\\", "") for text in found if text) if all(found) else ()


def _possible(word: str) -> list[Credential]:
    """Credentials that may be in a word: the patterns of all take longer to compile than a short log to read."""
    is_long = len(word) >= _UNNAMED
    found = {at for text, at in needs() if text in word and (text or is_long)}
    return [CREDENTIALS[at] for at in sorted(found)]


def _credential(
    rows: list[Credential], before: str, text: str, start: int, end: int
) -> tuple[re.Match[str], Credential] | None:
    """Find the credential that begins first; of several, that of the first row."""
    found = [(match, row) for row in rows if (match := shape(row, before).search(text, start, end)) is not None]
    return min(found, key=lambda pair: pair[0].start(), default=None)


_MAY_BE_GLUED = late(r"[A-Za-z0-9][A-Za-z0-9_-]{20}")
_GLUED_REST, _GLUED_LONG, _GLUED_SHARE = 12, 40, 0.15
"""Characters required after a key's prefix if a letter precedes it (``tshpat_...``, but not ``task-1``); and the length
from which this share of characters must differ in class from the previous one."""
_WORD_IN_SK = late(r"(?<![A-Za-z])(?:ta|di|ri|de|ma|a|hu|du|whi|fla|sub-?ta|multi-?ta)\Z", re.I)
"""Start of a word that ends in ``sk``."""


def _glued(rows: list[Credential], text: str, start: int, end: int) -> Iterator[Region]:
    """Find credentials that a letter or a digit comes before."""
    if _MAY_BE_GLUED.search(text, start, end) is None or _HEX_ONLY.fullmatch(text, start, end) is not None:
        return
    at = start
    while (first := _credential(rows, _GLUED, text, at, end)) is not None:
        found = first[0]
        begin, rest = found[1], text[found.end(1) : found.end()]
        is_part = begin == "sk-" and _WORD_IN_SK.search(text, start, found.start()) is not None
        if not is_part and len(begin) > 1 and len(rest) >= _GLUED_REST and _is_glued_key(begin, rest):
            yield from _with_bar(text, Region(*found.span(), f"{begin}<key>", "<key>"))
            at = found.end()
        else:
            at = found.start() + 1


def _is_glued_key(begin: str, rest: str) -> bool:
    is_mixed = any(not char.islower() for char in rest if char.isalnum())
    if is_mixed and (len(begin) > 5 or (len(begin) > 3 and not begin[-1].isalnum())):  # shpat_: no word ends so
        return True
    if begin.isupper() and len(begin) > 3 and rest.upper() == rest and len(rest) >= 16:  # AKIA
        return True
    if any(is_random_short(piece, 16) for piece in _PIECE.findall(rest)):
        return True
    if len(rest) >= _GLUED_LONG and _DIGIT.search(rest) is not None:
        return changes(rest) >= _GLUED_SHARE * len(rest)
    return len(rest) >= 24 and rest.upper() == rest and sum(char.isdigit() for char in rest) >= 3


def _in_word(text: str, start: int, end: int) -> Iterator[Region]:
    for found in _TOKEN.finditer(text, start, end):
        yield from _with_bar(text, Region(*found.span(), "<token>", "<token>"))
    rows, at = _possible(text[start:end]), start
    while (first := _credential(rows, _APART, text, at, end)) is not None:
        match, row = first
        if _fits(row.must_be, text[match.end(1) : match.end()]):
            yield from _with_bar(text, Region(*match.span(), f"{match[1]}<key>", "<key>"))
        at = match.end()
    yield from _glued(rows, text, start, end)
    for pattern in (_BASE64, _HEX):
        for found in pattern.finditer(text, start, end):
            if all(kind.search(found[0]) for kind in _KINDS[pattern]):
                yield _long(text, *found.span())
    for found in _JOINED.finditer(text, start, end):
        yield from _drawn(text, *found.span())


_TOKEN = late(r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{0,4000}){0,4}", re.ASCII)


def _with_bar(text: str, region: Region) -> Iterator[Region]:
    yield region
    bar = _BAR.match(text, region.end)
    if bar is not None:
        yield Region(*bar.span(1), region.rest, region.rest)


def _fits(must_be: str, rest: str) -> bool:
    if must_be == "mixed":
        return any(not char.islower() for char in rest if char.isalnum())
    return must_be == "any" or _is_drawn(rest)


def _drawn(text: str, start: int, end: int) -> Iterator[Region]:
    """Find parts of a word that look random; neighbouring parts that are not words belong to the same key."""
    pieces, last = list(_PIECE.finditer(text, start, end)), -1
    is_id = len(pieces) > 1 and _IDS.search(text, start, pieces[1].start()) is not None
    if not is_id and _is_drawn_whole([piece[0] for piece in pieces]):
        yield _long(text, start, end)
        return
    for at, piece in enumerate(pieces):
        if at <= last or not _is_drawn_piece(text, piece):
            continue
        first, last = at, at
        while first > 0 and not is_word(pieces[first - 1][0]):
            first -= 1
        while last + 1 < len(pieces) and not is_word(pieces[last + 1][0]):
            last += 1
        yield _long(text, pieces[first].start(), pieces[last].end())


_WHOLE = 40
"""Minimum characters of a key with dashes whose parts are all too short to judge."""


def _is_drawn_whole(pieces: list[str]) -> bool:
    whole = "".join(pieces)
    if len(whole) < _WHOLE or len(pieces) == 1 or _HEX_ONLY.match(whole) or not is_random(whole):
        return False
    return 5 * sum(len(piece) for piece in pieces if not is_word(piece)) >= 4 * len(whole)


def _is_drawn_piece(text: str, piece: re.Match[str]) -> bool:
    if not is_random(piece[0]) or _HEX_ONLY.match(piece[0]):
        return False
    return _IDS.search(text, max(0, piece.start() - 16), piece.start()) is None


_HEX_ONLY = late(r"(?:[0-9a-f]+|[0-9A-F]+)\Z")


def _long(text: str, start: int, end: int) -> Region:
    return Region(start, end, f"{text[start : start + 4]}<key>", "<key>")
