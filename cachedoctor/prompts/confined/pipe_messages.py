"""Messages between the process and its confined child, and the child's limits of time and memory."""

from __future__ import annotations

import json
import struct
import sys
from typing import IO, Any, NamedTuple

CPU_SECONDS = 8
"""CPU time for all requests to the child, in addition to what ``CHARS_PER_SECOND`` adds."""
WALL_SECONDS = 10.0
"""The same as wall-clock time that the parent waits."""
CHARS_PER_SECOND = 50_000
"""Characters that add one second to both limits; a large vocabulary reads about 350,000 a second."""
MEMORY_MIB = 400
"""MiB of the child's own memory; the largest vocabularies in use (Gemma, 262,000 tokens and 515,000 merges) need about
300."""
_SHARED_MIB = 1024
"""Address space of libraries and of the interpreter, most of which is never touched."""


def confine() -> None:
    """Limit this process, where the platform can: memory, processor time, no file written and no core dumped."""
    if sys.platform == "win32":
        return
    import resource

    for name, most in (
        ("RLIMIT_DATA", MEMORY_MIB << 20),
        ("RLIMIT_AS", MEMORY_MIB + _SHARED_MIB << 20),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_CORE", 0),
    ):
        _lower(getattr(resource, name, None), most)
    allow(0)


def memory_mib() -> int:
    """Return the memory that a child may take, in MiB: less than ``MEMORY_MIB`` where the user has a lower limit."""
    if sys.platform == "win32":
        return MEMORY_MIB
    import resource

    hard = (resource.getrlimit(limit)[1] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min([MEMORY_MIB, *(limit >> 20 for limit in hard if limit != resource.RLIM_INFINITY)])


def allow(chars: int) -> None:
    """Set the processor time for texts of so many characters in all; a limit of the user's own stays."""
    if sys.platform == "win32":
        return
    import resource

    _lower(resource.RLIMIT_CPU, CPU_SECONDS + chars // CHARS_PER_SECOND)


def _lower(limit: int | None, most: int) -> None:
    """Set the soft limit, at most as high as the hard one; if the platform refuses it, only the clock limits."""
    if sys.platform == "win32" or limit is None:
        return
    import resource

    _, hard = resource.getrlimit(limit)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(limit, (soft, hard))
    except (OSError, ValueError):
        return


MAX_BYTES = 1 << 30
"""Maximum bytes of either part of a message."""
_LENGTHS = struct.Struct("<QQ")


class PipeMessage(NamedTuple):
    """A JSON object and the bytes that belong to it."""

    head: dict[str, Any]
    data: bytes = b""


def write(out: IO[bytes], message: PipeMessage) -> None:
    """Write a message; raises ``OSError`` if there is no reader."""
    head = json.dumps(message.head).encode()
    out.write(_LENGTHS.pack(len(head), len(message.data)))
    out.write(head)
    out.write(message.data)
    out.flush()


def read(source: IO[bytes]) -> PipeMessage | None:
    """Read a message; None if the other side has gone, or writes something else."""
    lengths = source.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    sizes = _LENGTHS.unpack(lengths)
    if max(sizes) > MAX_BYTES:
        return None
    head, data = source.read(sizes[0]), source.read(sizes[1])
    if (len(head), len(data)) != sizes:
        return None
    found = json.loads(head)
    return PipeMessage(found, data) if isinstance(found, dict) else None


def text_bytes(text: str) -> bytes:
    """A text as bytes, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    """The text that ``text_bytes`` made bytes of."""
    return data.decode("utf-8", "surrogatepass")
