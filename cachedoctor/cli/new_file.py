"""A file that gets its name when it is whole: until then it has none, where the system can do that.

Linux: ``O_TMPFILE`` and ``linkat``. A process that is killed leaves nothing then. Elsewhere, and on file systems that
cannot, the file has a name of its own beside its place; the next run that writes to the folder removes what is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import IO

from cachedoctor.doctor import scratch

_UNNAMED = getattr(os, "O_TMPFILE", None)


class NewFile:
    """What is written to ``stream`` is at ``target`` once ``publish`` was called; ``close`` comes last."""

    def __init__(self, target: str, mode: int | None) -> None:
        """Begin an empty file, with ``mode`` where that is not the usual one. Raises ``OSError``."""
        self._target = target
        self._folder = os.path.dirname(target)
        self._name: str | None = None
        scratch.clear_files(self._folder)
        try:
            self.stream = self._unnamed() or self._named()
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(self.stream.fileno(), mode)
        except BaseException:  # an interrupt, too: nobody calls close
            self._discard()
            raise

    def publish(self) -> None:
        """Put the file at its place, as a whole.

        Raises ``OSError``.
        """
        self.stream.flush()
        if self._name is None:
            if self._linked(self._target):
                return
            self._name = scratch.new_name(self._folder)
            if not self._linked(self._name):
                self._copy()
        # Some file systems say no sooner than now that there was no room. The lock is held on, where there are locks.
        held = os.dup(self.stream.fileno()) if scratch.HAS_LOCKS else None
        try:
            self.stream.close()
            os.replace(self._name, self._target)
            self._name = None
        finally:
            if held is not None:
                os.close(held)

    def close(self) -> None:
        """Close it; what was not published is gone.

        Raises ``OSError`` when something could not be written.
        """
        try:
            self.stream.close()
        finally:
            self._discard()

    def _discard(self) -> None:
        if self._name is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._name)

    def _unnamed(self) -> IO[bytes] | None:
        if _UNNAMED is None:
            return None
        try:
            descriptor = os.open(self._folder, _UNNAMED | os.O_RDWR, 0o666)
        except OSError:  # this file system has none; what else may be wrong says the attempt with a name
            return None
        scratch.lock(descriptor)  # for the moment between two names
        return open(descriptor, "w+b")

    def _named(self) -> IO[bytes]:
        while True:
            self._name = scratch.new_name(self._folder)
            stream = open(self._name, "xb")  # noqa: SIM115  # closed by close
            if not scratch.lock(stream.fileno()) or os.path.exists(self._name):
                return stream
            stream.close()  # who clears up was faster

    def _linked(self, name: str) -> bool:
        """Give the file without a name this one; False when that is taken, or cannot be done here."""
        try:
            # With dst_dir_fd it is linkat, which follows the link to the file.
            os.link(f"/proc/self/fd/{self.stream.fileno()}", name, dst_dir_fd=0)
        except OSError:
            return False
        return True

    def _copy(self) -> None:
        """Write the file once more, with a name: where there is no /proc."""
        unnamed, self.stream = self.stream, self._named()
        with unnamed:
            os.chmod(self.stream.fileno(), stat.S_IMODE(os.fstat(unnamed.fileno()).st_mode))
            unnamed.seek(0)
            shutil.copyfileobj(unnamed, self.stream)
        self.stream.flush()
