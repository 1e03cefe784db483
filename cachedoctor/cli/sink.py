"""Where a report goes: the standard output, or a file that appears only when it is whole."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from cachedoctor.cli.new_file import NewFile

_PACKED = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}
"""Suffixes of compressed files, which can be read but not written, and what writes them."""


class Sink:
    """One output. In a ``with`` block: left by an exception, or without a write, the file keeps its old content."""

    def __init__(self, path: str | None) -> None:
        _refuse_packed(path)
        self.path = None if path == "-" else path
        """The file, or None for the standard output."""
        self._new: NewFile | None = None
        self._stream: IO[bytes] | None = None
        self._written = False

    def __enter__(self) -> Sink:
        with self._faults():
            self._stream = self._standard() if self.path is None else self._opened(self.path)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self.path is None or self._stream is None:
            return
        file = self._stream if self._new is None else self._new
        if kind is not None:
            # What is still buffered fails again when the disk is full; the first error says it all.
            with contextlib.suppress(OSError):
                file.close()
            return
        with self._faults(), contextlib.closing(file):
            if self._new is not None and self._written:
                self._new.publish()

    @contextlib.contextmanager
    def writing(self) -> Iterator[IO[bytes]]:
        """Give the stream; a fault of the output ends the run with one line."""
        if self._stream is None:
            raise RuntimeError("a sink must be used in a with block")
        with self._faults():
            yield self._stream
            self._stream.flush()
            self._written = True

    def _standard(self) -> IO[bytes]:
        if sys.stdout is None:
            raise OSError(0, "it is closed")
        stream: IO[bytes] = sys.stdout.buffer
        if isinstance(stream, io.RawIOBase):
            # PYTHONUNBUFFERED: a write that a signal interrupts or a full disk stops ends early, without a word.
            return open(stream.fileno(), "wb", closefd=False)
        return stream

    def _opened(self, path: str) -> IO[bytes]:
        if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe has no old content to protect
            return open(path, "wb")
        target, mode = os.path.realpath(path), None
        if os.path.exists(target):
            if not os.access(target, os.W_OK):
                raise PermissionError(0, "Permission denied")
            mode = stat.S_IMODE(os.stat(target).st_mode)
        from cachedoctor.cli.new_file import NewFile

        self._new = NewFile(target, mode)
        return self._new.stream

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            from cachedoctor.model import CacheDoctorError

            name = "standard output" if self.path is None else self.path
            if self.path is None and sys.stdout is not None:
                from cachedoctor.cli.terminal import silence

                silence(sys.stdout)
            what = f"{name}: cannot be written ({fault.strerror or fault})"
            raise CacheDoctorError(what, _hint(fault, self.path)) from fault


def _refuse_packed(path: str | None) -> None:
    """Refuse a name that promises what nobody here writes.

    Raises:
        CacheDoctorError: it ends as packed files do.
    """
    ending = os.path.splitext((path or "").lower())[1]
    if path is not None and ending in _PACKED:
        from cachedoctor.model import CacheDoctorError

        plain = path[: -len(ending)]
        raise CacheDoctorError(
            f"{path}: cachedoctor does not compress its output",
            f"write with -o {plain}, and then run {_PACKED[ending]} {plain}",
        )


def spare_inputs(output: str | None, inputs: Iterable[str | None]) -> None:
    """Refuse to write over a file that is to be read, or that lies in a folder that is; ``-`` is standard input."""
    from cachedoctor.model import CacheDoctorError

    if output is None or not os.path.isfile(output):
        return
    target = os.stat(output)
    for path in inputs:
        if path is not None and any(os.path.samestat(target, found) for found in _files(path)):
            raise CacheDoctorError(f"{output}: is an input file and would be overwritten", "give another file with -o")


def _files(path: str) -> Iterator[os.stat_result]:
    """The file at ``path``, or those in the folder; nothing where there is none."""
    with contextlib.suppress(OSError, ValueError):
        yield os.fstat(0) if path == "-" else os.stat(path)
        if path != "-" and os.path.isdir(path):
            with os.scandir(path) as entries:
                yield from (entry.stat() for entry in entries)


def _hint(fault: OSError, path: str | None) -> str:
    if isinstance(fault, FileNotFoundError):
        return f"folder {os.path.dirname(path or '')} does not exist: create it"
    if isinstance(fault, IsADirectoryError):
        return f"give a file name, e.g. {os.path.join(path or '', 'report.txt')}"
    if isinstance(fault, PermissionError):
        return "give a file that you can write to, with -o FILE"
    return "free some space, or write elsewhere with -o FILE"
