"""What is given to look through: a binary, a wheel, another archive, a folder of sources; and which release it is."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from cachedoctor.knowledge import builds
from scripts.drift import binary, cpp_source, python_source
from scripts.drift.texts import Text

Engine = Literal["llama.cpp", "vllm", "sglang", "lmcache"]
_NAMED = re.compile(r"(vllm|sglang|lmcache)(?:[_-]cpu)?-(\d[\w.]*)", re.IGNORECASE)
_XLLAMACPP = re.compile(r"xllamacpp-20\d\d\.\d{1,2}\.(\d{4,6})\b")
_BUILD = re.compile(r"\bb(\d{4,6})\b")
_CPP = (".c", ".cc", ".cpp", ".h", ".hpp")
_LARGEST = 1 << 30
"""Bytes of one file that is read."""
_TESTS = frozenset({"test", "tests", "examples", "benchmark", "benchmarks", ".git", "vendor", "node_modules"})
"""Folders of a source tree that no server prints from."""
Read = Callable[[], bytes]


class DriftError(Exception):
    """What was given cannot be looked through; says why, in one line."""


class Artefact(NamedTuple):
    """A program of one release."""

    name: str
    engine: Engine
    release: int | None
    """Build of llama.cpp; of the others minor * 100 + patch, as their rows count. None where nothing says it."""
    texts: list[Text]


def load(path: Path, engine: Engine | None, release: str | None) -> Artefact:
    """Read all texts.

    Raises:
        DriftError: it is none of these, is broken, or holds nothing to look through.
    """
    named = _NAMED.match(path.name)
    kind = engine or (named[1].lower() if named else "llama.cpp")
    number = None if release is None else _release(release, kind)
    if release is not None and number is None:
        raise DriftError(f"{release!r} is no release of {kind}; give 11549 or v0.9.0, or 0.34.0 for vLLM and SGLang")
    try:
        found = list(dict.fromkeys(_texts(path, kind)))
    except (OSError, zipfile.BadZipFile, tarfile.TarError, EOFError, binary.ELFError, RuntimeError) as error:
        raise DriftError(f"{path}: cannot be read: {str(error) or type(error).__name__}") from error
    if not found:
        raise DriftError(f"{path}: holds no text of a program: no ELF binary, no C++ and no Python sources of {kind}")
    return Artefact(path.name, kind, number if number is not None else _of_name(path.name, kind), found)  # type: ignore[arg-type]


def _texts(path: Path, engine: str) -> Iterator[Text]:
    sources: list[tuple[str, str]] = []
    for name, read in _files(path):
        suffix = PurePosixPath(name).suffix
        if engine != "llama.cpp":
            if suffix == ".py":
                sources.append((name, read().decode("utf-8", "replace")))
        elif suffix in _CPP:
            sources.append((name, read().decode("utf-8", "replace")))
        elif suffix in ("", ".so") or ".so." in name:
            data = read()
            if binary.is_binary(data):
                yield from binary.texts(data)
    yield from (cpp_source if engine == "llama.cpp" else python_source).texts(sources)


def _files(path: Path) -> Iterator[tuple[str, Read]]:
    """Give names and what reads them, of a folder, of an archive, or of the file alone."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            inner = file.relative_to(path)
            if file.is_file() and not _TESTS & set(inner.parts) and file.stat().st_size < _LARGEST:
                yield inner.as_posix(), file.read_bytes
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and entry.file_size < _LARGEST and not _TESTS & set(entry.filename.split("/")):
                    yield entry.filename, lambda entry=entry: archive.read(entry)  # type: ignore[misc]
    elif path.name.endswith((".tar.gz", ".tgz", ".tar.xz")):
        with tarfile.open(path) as packed:
            for member in packed:
                if member.isfile() and member.size < _LARGEST and not _TESTS & set(member.name.split("/")):
                    yield member.name, lambda member=member: packed.extractfile(member).read()  # type: ignore[misc, union-attr]
    else:
        yield path.name, path.read_bytes


def _of_name(name: str, engine: str) -> int | None:
    if engine == "llama.cpp":
        found = _XLLAMACPP.match(name) or _BUILD.search(name)
        return int(found[1]) if found else None
    named = _NAMED.match(name)
    return _release(named[2], engine) if named else None


def _release(text: str, engine: str) -> int | None:
    if engine == "llama.cpp":
        return builds.number(text)
    found = re.match(r"v?0\.(\d{1,3})\.(\d{1,2})(?!\d)", text)
    return int(found[1]) * 100 + int(found[2]) if found else None
