"""Copies of what passes by, bounded each and together. Knows no network."""

from __future__ import annotations

import re

EACH = 32 << 20
"""Bytes of one body: more is passed on and not looked at."""
TOGETHER = 64 << 20
"""Bytes of all bodies and answers that are held at one time."""
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

    def __init__(self, held: Held, is_stream: bool) -> None:
        self._held, self._is_stream = held, is_stream
        self._kept = bytearray()
        self._line = bytearray()
        self._skips = False
        """The line, or the answer, is too long, or others took the room."""

    @property
    def size(self) -> int:
        """Bytes of room that it takes."""
        return len(self._kept) + len(self._line)

    def add(self, part: bytes) -> None:
        """Take the next part of the answer's body."""
        if not self._is_stream:
            self._grow(self._kept, part)
            return
        *whole, rest = part.split(b"\n")
        for end in whole:
            self._grow(self._line, end)
            self._end_line()
        self._grow(self._line, rest)

    def told(self) -> bytes:
        """What was kept; nothing of an answer that was too long."""
        if self._is_stream:
            self._end_line()
        elif self._skips:
            self._drop(self._kept)
        return bytes(self._kept)

    def _grow(self, copy: bytearray, part: bytes) -> None:
        self._skips = self._skips or len(copy) + len(part) > ANSWER or not self._held.take(len(part))
        if not self._skips:
            copy += part

    def _end_line(self) -> None:
        tells = not self._skips and self._line and _TELLS.search(self._line)
        if tells and len(self._kept) + len(self._line) < 2 * ANSWER and self._held.take(1):
            self._kept += self._line + b"\n"
            self._line.clear()
        self._drop(self._line)
        self._skips = False

    def _drop(self, copy: bytearray) -> None:
        self._held.give_back(len(copy))
        copy.clear()
