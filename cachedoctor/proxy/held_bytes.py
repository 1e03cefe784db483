"""Copies of what passes by, bounded each and together. Knows no network."""

from __future__ import annotations

import re

EACH = 32 << 20
"""Bytes of one body: more is passed on and not looked at."""
TOGETHER = 64 << 20
"""Bytes of all bodies that are held at one time."""
ANSWER = 4 << 20
"""Bytes of one answer, or of one line of a stream: more says nothing here."""

_TELLS = re.compile(
    rb'"usage"\s*:\s*\{|"timings"|"meta_info"|\[DONE\]|"message_st|"response\.(?:created|completed|incomplete)"'
)
"""What a line of a stream has that ``metrics/responses.py`` reads."""


class Held:
    """The room that all copies share."""

    def __init__(self, together: int = TOGETHER) -> None:
        self._left = together

    def take(self, size: int) -> bool:
        """Take room for so many bytes; False where there is none."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Room is free again."""
        self._left += size


class BodyCopy:
    """The copy of one request's body, given up as soon as it is too long."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._parts: list[bytes] = []
        self.size = 0
        """Bytes of room that it takes."""
        self.untold = ""
        """Why there is no copy, in words; empty where there is one."""

    def add(self, part: bytes) -> None:
        """Take the next part."""
        if self.untold:
            return
        if self.size + len(part) > EACH:
            self.untold = f"the body is longer than {EACH >> 20} MiB"
        elif not self._held.take(len(part)):
            self.untold = "other long bodies took the room"
        else:
            self.size += len(part)
            self._parts.append(part)
            return
        self.drop()

    def whole(self) -> bytes | None:
        """The body, None where it was given up. Its parts become one: nothing is held twice for long."""
        if self.untold:
            return None
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    def drop(self) -> None:
        """Give the room back."""
        self._held.give_back(self.size)
        self._parts, self.size = [], 0


class AnswerCopy:
    """What of an answer may say how long its prompt was: all of a short one, the telling lines of a stream."""

    def __init__(self, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._kept = bytearray()
        self._line = bytearray()
        self._skips = False
        """The line, or the answer, is too long."""

    def add(self, part: bytes) -> None:
        """Take the next part of the answer's body."""
        if not self._is_stream:
            self._skips = self._skips or len(self._kept) + len(part) > ANSWER
            self._kept += b"" if self._skips else part
            return
        *whole, rest = part.split(b"\n")
        for end in whole:
            self._grow(end)
            self._end_line()
        self._grow(rest)

    def told(self) -> bytes:
        """What was kept; nothing of an answer that was too long."""
        if self._is_stream:
            self._end_line()
        return b"" if self._skips and not self._is_stream else bytes(self._kept)

    def _grow(self, part: bytes) -> None:
        if len(self._line) + len(part) > ANSWER:
            self._skips = True
        if not self._skips:
            self._line += part

    def _end_line(self) -> None:
        if not self._skips and _TELLS.search(self._line) and len(self._kept) + len(self._line) < 2 * ANSWER:
            self._kept += self._line + b"\n"
        self._line.clear()
        self._skips = False
