"""Turns literal texts into patterns: blanks match any run of blanks, many literals share one trie.

``ab cd`` and ``ab ce`` become one pattern: ``ab``, blanks, ``c``, then ``d`` or ``e``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set

_SHORT = 1 << 16
"""Bytes of a log for which fewer heads are compiled: in a longer one, looking for them costs more."""
NEVER = rb"(?!)"
"""Fits nowhere."""
_BLANK = b"[ \t]++"
"""Possessive: with several blank runs in a row, a line of blanks would cost the cube of its length."""


def literal_pattern(text: str) -> bytes:
    """Pattern of a literal; each run of blanks in it matches one or more blanks or tabs."""
    return _BLANK.join(re.escape(part).encode() for part in re.split(r"[ \t]+", text))


def trie_pattern(texts: list[str]) -> bytes:
    """One pattern for all ``texts``, longest first, without trying them one after the other."""
    root: dict[str, dict] = {}  # type: ignore[type-arg]  # a trie is recursive
    for text in texts:
        node = root
        for char in " ".join(text.split()):
            node = node.setdefault(char, {})
        node[""] = {}
    return _render(root)


def _render(node: dict[str, dict]) -> bytes:  # type: ignore[type-arg]
    ends = "" in node
    branches = []
    for char, child in node.items():
        if char:
            branches.append((_BLANK if char == " " else re.escape(char).encode()) + _render(child))
    if not branches:
        return b""
    if len(branches) == 1 and not ends:
        return branches[0]
    return b"(?:" + b"|".join(branches) + (b"|" if ends else b"") + b")"


class HeadPattern:
    """A pattern over many heads, compiled on demand: to compile all takes a fifth of the analysis of a short log."""

    def __init__(
        self, groups: Mapping[str, Set[str]], build: Callable[[Mapping[str, bytes], bool], re.Pattern[bytes]]
    ) -> None:
        """Begin without a pattern.

        Args:
            groups: the heads by the place in which they stand.
            build: makes the pattern out of one for each group; the other argument says whether it has all heads.
        """
        self._groups = {group: {_plain(head): head for head in heads} for group, heads in groups.items()}
        self._build = build
        self._missing: Set[bytes] = set().union(*self._groups.values())
        self._size = 0
        self._pattern: re.Pattern[bytes] | None = None

    def finditer(self, data: bytes) -> Iterator[re.Match[bytes]]:
        """Match as a pattern of all heads does."""
        if self._missing:
            self._size += len(data)
            self._add(data)
        return (self._pattern or self.whole()).finditer(data)

    def whole(self) -> re.Pattern[bytes]:
        """Return the pattern of all heads."""
        return self._compiled(set())

    def _add(self, data: bytes) -> None:
        if self._size > _SHORT:
            self._missing = set()
        else:
            text = b" ".join(data.split())
            missing = {head for head in self._missing if head not in text}
            # a log that continues needs more and more of them: all at once then
            self._missing = missing if self._pattern is None or missing == self._missing else set()
        if self._pattern is None or not self._missing:
            self._pattern = self._compiled(self._missing)

    def _compiled(self, missing: Set[bytes]) -> re.Pattern[bytes]:
        left = {group: sorted(heads[h] for h in heads.keys() - missing) for group, heads in self._groups.items()}
        tries = {group: trie_pattern(heads) if heads else NEVER for group, heads in left.items()}
        return self._build(tries, not missing)


def _plain(head: str) -> bytes:
    """Write a head with single blanks, as it is in a text with single blanks."""
    return " ".join(head.split()).encode()
