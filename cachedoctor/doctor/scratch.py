"""Temporary files of a run, leftovers of killed runs, and file names that any format can hold."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator

from cachedoctor.knowledge.late_patterns import late


def printable(name: str) -> str:
    """Return a text that holds names of files, which need not be UTF-8, so that any format can hold it."""
    return name.encode("utf-8", "backslashreplace").decode()


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None
_PREFIX = "cachedoctor-run-"
_ATTEMPTS = 3
_FOLDER = late(re.escape(_PREFIX) + r"[a-z0-9_]{8}")
_FILE = late(r"\.cachedoctor-[0-9a-f]{8}\.tmp")
"""Names of new files that are not whole yet."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Make a folder for temporary files that is removed after the block; those of killed runs are removed now.

    Raises:
        OSError: there is no room.
    """
    clear_folders()
    path, descriptor = _made()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _made() -> tuple[str, int | None]:
    """Make a folder and lock it, unless there are no locks; who clears up may come in between and remove it."""
    for _ in range(_ATTEMPTS):
        path = tempfile.mkdtemp(prefix=_PREFIX)
        descriptor = _opened(path, is_folder=True)
        if descriptor is not None and _locked_at(path, descriptor):
            return path, descriptor
        if descriptor is not None:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            os.rmdir(path)
    return tempfile.mkdtemp(prefix=_PREFIX), None


def new_name(folder: str) -> str:
    """Give the name of a new file in ``folder`` that is not whole yet."""
    import secrets  # brings much with it

    return os.path.join(folder, f".cachedoctor-{secrets.token_hex(4)}.tmp")


def lock(descriptor: int) -> bool:
    """Keep others from removing an open file; whether that was possible."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def clear_folders() -> None:
    """Remove folders of temporary files of runs that were killed."""
    with contextlib.suppress(OSError):
        _clear(tempfile.gettempdir(), _FOLDER)


def clear_files(folder: str) -> None:
    """Remove new files in ``folder`` of runs that were killed before they were whole."""
    _clear(folder, _FILE)


def _clear(folder: str, ours: re.Pattern[str]) -> None:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if ours.fullmatch(entry.name) is not None:
                _remove(entry.path, is_folder=ours is _FOLDER)


def _remove(path: str, *, is_folder: bool) -> None:
    descriptor = _opened(path, is_folder=is_folder)
    if descriptor is None:
        return
    with contextlib.suppress(OSError):
        if not _locked_at(path, descriptor):
            pass  # whose it is still runs
        elif is_folder:
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    os.close(descriptor)


def _opened(path: str, *, is_folder: bool) -> int | None:
    """Open it to lock it; None for what is of another kind or of another user, or cannot be opened."""
    if fcntl is None:
        return None
    try:
        before = os.lstat(path)
        if (stat.S_ISDIR if is_folder else stat.S_ISREG)(before.st_mode) and before.st_uid == os.geteuid():
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        pass
    return None


def _locked_at(path: str, descriptor: int) -> bool:
    """Lock what was opened; whether nobody else holds it and it still is what is at ``path``."""
    try:
        return lock(descriptor) and os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False
