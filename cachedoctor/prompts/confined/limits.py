"""How much time and memory the child may take, and how it is held to that.

The operating system ends a process that takes too long (``RLIMIT_CPU``) and refuses it more memory (``RLIMIT_DATA``,
``RLIMIT_AS``). Windows has no such limits, and macOS keeps those of memory for itself: there only the clock of the
parent (``WALL_SECONDS``) ends the child.
"""

from __future__ import annotations

import sys

CPU_SECONDS = 8
"""Processor time for all that the child is asked, but for what ``CHARS_PER_SECOND`` adds."""
WALL_SECONDS = 10.0
"""The same by the clock, of the time that the parent waits."""
CHARS_PER_SECOND = 50_000
"""Characters that earn another second of both; a large vocabulary reads some 350,000 a second."""
MEMORY_MIB = 400
"""Of its own; the largest vocabularies in use (Gemma, 262,000 tokens and 515,000 merges) take some 300."""
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
    """Set the soft limit, at most as high as the hard one; one that the platform refuses is left to the clock."""
    if sys.platform == "win32" or limit is None:
        return
    import resource

    _, hard = resource.getrlimit(limit)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(limit, (soft, hard))
    except (OSError, ValueError):
        return
