"""The texts of a program's binary: strings of an ELF file's read-only sections, ended by a zero byte."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from scripts.drift.texts import Text, filled, lines

_STRING = re.compile(rb"[\t\n\x1b\x20-\x7e\x80-\xff]{4,}(?=\0)")


def texts(data: bytes) -> Iterator[Text]:
    """Give every line of every string once.

    Raises:
        ELFError: it is no ELF file, or a broken one.
    """
    seen: set[bytes] = set()
    for section in ELFFile(io.BytesIO(data)).iter_sections():
        if section.name.startswith(".rodata"):
            for raw in _STRING.findall(section.data()):
                if raw not in seen:
                    seen.add(raw)
                    yield from lines(filled(raw.decode("utf-8", "replace")), logged=False)


def is_binary(data: bytes) -> bool:
    """Whether it begins like an ELF file."""
    return data.startswith(b"\x7fELF")


__all__ = ["ELFError", "is_binary", "texts"]
