"""Packed files made to fill the memory: unpacked in pieces, stopped at a limit that a flag raises."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from command import LOG, PYTHON, one_line, run

from cachedoctor.cli.terminal import size
from cachedoctor.inputs.sources.base import SourceError
from cachedoctor.inputs.sources.file import FileSource

zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

MIB = 1024**2
ZEROS = b"." * 3 * MIB


def _zstd_window(data: bytes, log: int) -> bytes:
    options = {zstd.CompressionParameter.window_log: log, zstd.CompressionParameter.compression_level: 1}
    return bytes(zstd.compress(data, options=options))


def _gzip_in_gzip(data: bytes) -> bytes:
    return gzip.compress(gzip.compress(data))


def _xz_of_members(data: bytes) -> bytes:
    third = len(data) // 3
    return b"".join(lzma.compress(part, preset=0) for part in (data[:third], data[third:]))


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": lambda data: bytes(zstd.compress(data)),
    "members of gzip": lambda data: gzip.compress(data[: len(data) // 2]) * 2,
    "members of xz": _xz_of_members,
    "members of zstd": lambda data: _zstd_window(data[: len(data) // 2], 20) * 2,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_stops_at_the_limit_and_the_hint_names_the_flag(tmp_path: Path, name: str) -> None:
    """Members one after another count together."""
    path = tmp_path / "server.log"
    path.write_bytes(BOMBS[name](LOG + ZEROS))
    with pytest.raises(SourceError, match="unpacks to more than 2,097,152 bytes") as caught:
        list(FileSource(str(path), 2 * MIB).chunks())
    assert "--max-unpacked 1G" in caught.value.hint
    assert len(b"".join(FileSource(str(path), 4 * MIB).chunks())) == len(LOG + ZEROS)


@pytest.mark.sweep
def test_what_comes_before_the_limit_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(gzip.compress(LOG + ZEROS))
    done = run("analyze", path, "--max-unpacked", "2M")
    assert done.returncode == 2
    assert b"warning[CD101]" in done.stdout
    one_line(done, "unpacks to more than 2,097,152 bytes", "--max-unpacked 1G")
    assert run("analyze", path, "--max-unpacked", "4M").stderr == b""


def test_the_limit_holds_for_tables_and_standard_input(tmp_path: Path) -> None:
    packed = gzip.compress(LOG + ZEROS)
    piped = run("analyze", "-", "--max-unpacked", "100K", stdin=packed)
    assert piped.returncode == 2
    one_line(piped, "more than 102,400 bytes", "--max-unpacked 1G")
    path = tmp_path / "server.log.gz"
    path.write_bytes(packed)
    done = run("analyze", path, "--max-unpacked", "1M", "-o", tmp_path / "t.csv")
    assert done.returncode == 2
    one_line(done, "more than 1,048,576 bytes")


@pytest.mark.sweep
def test_a_bomb_in_a_file_that_is_packed_twice_is_never_opened(tmp_path: Path) -> None:
    """One layer is unpacked; what is in it is not a log."""
    path = tmp_path / "server.log.gz.gz"
    path.write_bytes(_gzip_in_gzip(LOG + ZEROS))
    done = run("analyze", path)
    assert done.returncode == 2
    one_line(done, "compressed twice", "unpack the file once")


CLAIMS = {
    # an .xz block whose header asks for a dictionary of 4 GiB - 1, with and without content
    "xz": lambda data: _xz_with_dictionary(data, 40),
    "zstd window of 2 GiB": lambda data: b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00",
    "zstd window of 1 TiB": lambda data: b"\x28\xb5\x2f\xfd\x00" + bytes([(40 - 10) << 3]) + b"\x01\x00\x00",
    "zstd content of 2^63": lambda data: b"\x28\xb5\x2f\xfd\xe0" + (2**63).to_bytes(8, "little") + b"\x01\x00\x00",
}


def _xz_with_dictionary(data: bytes, code: int) -> bytes:
    """A stream whose first block claims the dictionary size ``code`` (40: 4 GiB - 1)."""
    packed = bytearray(lzma.compress(data, lzma.FORMAT_XZ, preset=0))
    size = (packed[12] + 1) * 4
    at = packed.index(b"\x21\x01", 12, 12 + size) + 2
    packed[at] = code
    import zlib

    packed[12 + size - 4 : 12 + size] = zlib.crc32(packed[12 : 12 + size - 4]).to_bytes(4, "little")
    return bytes(packed)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CLAIMS)
def test_a_header_that_claims_gigabytes_costs_none(tmp_path: Path, name: str) -> None:
    """In a process that may use 1 GiB: it ends with a word, or with what the small content is."""
    path = tmp_path / "server.log"
    path.write_bytes(CLAIMS[name](LOG))
    limited = textwrap.dedent(
        f"""
        import resource
        resource.setrlimit(resource.RLIMIT_AS, ({1024 * MIB}, {1024 * MIB}))
        import sys
        sys.argv = ["cachedoctor", "analyze", {str(path)!r}]
        from cachedoctor.cli import main
        main()
        """
    )
    done = subprocess.run([PYTHON[0], "-c", limited], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert b"internal error" not in done.stderr
    one_line(done, "memory" if name != "zstd content of 2^63" else "data")


def test_a_large_window_that_is_needed_is_unpacked(tmp_path: Path) -> None:
    """``zstd --long=27`` is what people pack logs with."""
    path = tmp_path / "server.log"
    path.write_bytes(_zstd_window(LOG * 10, 27))
    assert b"".join(FileSource(str(path)).chunks()) == LOG * 10
    path.write_bytes(lzma.compress(LOG * 10, preset=9))  # a dictionary of 64 MiB
    assert b"".join(FileSource(str(path)).chunks()) == LOG * 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200G", 200 * 1024**3), ("5", 5), ("1k", 1024), ("2MiB", 2 * MIB), ("3 TB".replace(" ", ""), 3 * 1024**4)],
)
def test_sizes(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "G", "-1", "0", "1.5G", "9" * 5000, "²", "1GG", "x", "1e9", "1\n2"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a size"):
        size(text)


@pytest.mark.sweep
def test_a_wrong_size_is_wrong_usage() -> None:
    done = run("analyze", os.devnull, "--max-unpacked", "1\x1b[31mG")
    assert done.returncode == 2
    assert b"is not a size" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stderr


def test_a_damaged_bomb_is_an_error_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(gzip.compress(ZEROS)[:-20] + b"\xff" * 20)
    with pytest.raises(SourceError, match="the gzip data "):
        list(FileSource(str(path)).chunks())
