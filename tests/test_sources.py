"""Files, compression and byte order marks."""

from __future__ import annotations

import bz2
import codecs
import gzip
import importlib
import lzma
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachedoctor.inputs.sources import unpack
from cachedoctor.inputs.sources import unpack as codec
from cachedoctor.inputs.sources.base import SourceError
from cachedoctor.inputs.sources.file import FileSource
from cachedoctor.inputs.sources.unpack import utf8

zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

Pack = Callable[[bytes], bytes]


def pack_zstd(data: bytes) -> bytes:
    return bytes(zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}))


def pack_xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


def log(lines: int, seed: int = 7) -> bytes:
    draw = random.Random(seed)
    return b"".join(b"slot %d: n_tokens = %x, progress\n" % (at, draw.getrandbits(200)) for at in range(lines))


LOG = log(3000)
PACKS: dict[str, Pack] = {"gzip": gzip.compress, "xz": pack_xz, "bzip2": bz2.compress, "zstd": pack_zstd}
ALL_PACKS = pytest.mark.parametrize("name", PACKS)


def drained(chunks: Iterator[bytes]) -> tuple[bytes, SourceError | None]:
    data = []
    try:
        for chunk in chunks:
            assert len(chunk) <= 1 << 20
            data.append(chunk)
    except SourceError as fault:
        return b"".join(data), fault
    return b"".join(data), None


def read(path: Path) -> tuple[bytes, SourceError | None]:
    return drained(FileSource(str(path)).chunks())


def written(tmp_path: Path, data: bytes, name: str = "server.log") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def dripped(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]
        yield b""


# Files


def test_a_plain_file_comes_back_in_chunks_of_at_most_one_mebibyte(tmp_path: Path) -> None:
    big = LOG * 20
    assert len(big) > 3 << 20
    assert read(written(tmp_path, big)) == (big, None)


def test_an_empty_file_yields_nothing(tmp_path: Path) -> None:
    assert list(FileSource(str(written(tmp_path, b""))).chunks()) == []


@pytest.mark.parametrize("head", [b"B", b"BZh9", b"BZh9 is how this log starts\n", b"(", b"\xef\xbb", b"\x1f"])
def test_bytes_that_only_begin_like_a_format_stay_plain(tmp_path: Path, head: bytes) -> None:
    assert read(written(tmp_path, head)) == (head, None)


@ALL_PACKS
def test_compression_is_known_by_content_not_by_name(tmp_path: Path, name: str) -> None:
    assert read(written(tmp_path, PACKS[name](LOG), "server.log")) == (LOG, None)


@ALL_PACKS
def test_members_one_after_another_are_one_log(tmp_path: Path, name: str) -> None:
    packed = b"".join(PACKS[name](part) for part in (LOG, b"", b"between\n", LOG)) + b"\0" * 512
    assert read(written(tmp_path, packed)) == (LOG + b"between\n" + LOG, None)


@ALL_PACKS
def test_an_empty_compressed_file_yields_nothing(tmp_path: Path, name: str) -> None:
    assert read(written(tmp_path, PACKS[name](b""))) == (b"", None)


@pytest.mark.sample(1)
@ALL_PACKS
def test_a_highly_compressible_log_is_bounded_per_chunk_and_complete(tmp_path: Path, name: str) -> None:
    flat = b"srv  update_slots: all slots are idle\n" * 60_000
    assert read(written(tmp_path, PACKS[name](flat))) == (flat, None)


def test_zstd_after_a_skippable_frame(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    assert read(written(tmp_path, skippable + pack_zstd(LOG))) == (LOG, None)


@pytest.mark.sample(1)
@ALL_PACKS
def test_a_cut_file_gives_its_beginning_and_then_the_error(tmp_path: Path, name: str) -> None:
    text = log(30_000)  # several blocks for bzip2 and zstd, which give nothing of an unfinished block
    packed = PACKS[name](text)
    data, fault = read(written(tmp_path, packed[: len(packed) * 2 // 3], "server.log.gz"))
    assert text.startswith(data)
    assert len(data) > len(text) // 3
    assert fault is not None
    assert fault.message == f"{tmp_path}/server.log.gz: the {name} data ends early (after {len(data):,} bytes)"
    assert fault.exit_code == 2
    assert fault.hint


@ALL_PACKS
def test_a_file_cut_in_the_checksum_loses_nothing(tmp_path: Path, name: str) -> None:
    data, fault = read(written(tmp_path, PACKS[name](LOG)[:-2]))
    assert data == LOG
    assert "ends early" in str(fault)


@pytest.mark.parametrize(("name", "from_end"), [("gzip", 8), ("xz", 30), ("zstd", 4)])
def test_a_wrong_checksum_loses_nothing(tmp_path: Path, name: str, from_end: int) -> None:
    packed = bytearray(PACKS[name](LOG))
    packed[-from_end] ^= 0xFF
    data, fault = read(written(tmp_path, bytes(packed)))
    assert data == LOG
    assert str(fault) == f"{tmp_path}/server.log: the {name} data is damaged (after {len(LOG):,} bytes)"


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "kept"), [("gzip", 0.4), ("xz", 0.4), ("bzip2", 0.3), ("zstd", 0.3)])
def test_damage_in_the_middle_keeps_everything_before_it(tmp_path: Path, name: str, kept: float) -> None:
    text = log(30_000)
    packed = bytearray(PACKS[name](text))
    middle = len(packed) // 2
    packed[middle : middle + 64] = b"\xff" * 64
    data, fault = read(written(tmp_path, bytes(packed)))
    assert "is damaged" in str(fault)
    # Deflate and LZMA can stumble a few bytes after the damage, so its last output may be nonsense.
    assert data[: int(len(text) * kept)] == text[: int(len(text) * kept)]


def test_damage_after_the_kept_beginning_still_gives_almost_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "_JOURNAL_BYTES", 1000)
    packed = bytearray(gzip.compress(LOG * 10))
    packed[-8] ^= 0xFF
    data, fault = read(written(tmp_path, bytes(packed)))
    assert "is damaged" in str(fault)
    assert (LOG * 10).startswith(data)
    assert len(data) > len(LOG) * 10 - (512 << 10)


def test_garbage_after_a_member_is_reported_after_the_log(tmp_path: Path) -> None:
    data, fault = read(written(tmp_path, gzip.compress(LOG) + b"no gzip member at all"))
    assert data == LOG
    assert "the gzip data is damaged" in str(fault)


@ALL_PACKS
def test_a_bomb_is_stopped(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, PACKS[name](b"\n" * 5_000_000))
    data, fault = drained(FileSource(str(path), max_bytes=2_000_000).chunks())
    assert len(data) <= 2_000_000
    assert "unpacks to more than 2,000,000 bytes" in str(fault)


def test_a_missing_decoder_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> codec.Codec:
        raise ImportError("No module named '_lzma'")

    monkeypatch.setitem(codec._LOADERS, "xz", absent)
    data, fault = read(written(tmp_path, lzma.compress(LOG)))
    assert data == b""
    assert "this Python cannot read xz data (No module named '_lzma')" in str(fault)


def test_a_directory(tmp_path: Path) -> None:
    _, fault = read(tmp_path)
    assert fault is not None
    assert fault.message == f"{tmp_path}: is a directory"
    assert fault.hint == f"give the log file itself, e.g. {tmp_path}/server.log"


def test_a_missing_file_suggests_the_nearest_name(tmp_path: Path) -> None:
    written(tmp_path, b"", "server.log")
    _, fault = read(tmp_path / "sever.log")
    assert fault is not None
    assert fault.message == f"{tmp_path}/sever.log: no such file"
    assert fault.hint == f"did you mean {tmp_path}/server.log?"


def test_a_missing_file_without_a_near_name(tmp_path: Path) -> None:
    assert getattr(read(tmp_path / "zzz")[1], "hint", "") == "check the path"
    assert "cannot be listed" in getattr(read(tmp_path / "gone" / "server.log")[1], "hint", "")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(tmp_path: Path) -> None:
    path = written(tmp_path, b"x")
    path.chmod(0)
    assert "permission denied" in str(read(path)[1])


def test_a_read_error_comes_after_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        parts = iter([LOG[:100]])

        def __enter__(self) -> Failing:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self, _: int) -> bytes:
            for part in self.parts:
                return part
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("cachedoctor.inputs.sources.file.FileIO", lambda *_: Failing())
    data, fault = read(tmp_path / "server.log")
    assert data == LOG[:100]
    assert "cannot be read further (Input/output error, after 100 bytes)" in str(fault)


@pytest.mark.parametrize("packed", [LOG, gzip.compress(LOG)], ids=["plain", "gzip"])
def test_a_named_pipe(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(packed,))
    writer.start()
    assert read(path) == (LOG, None)
    writer.join()


# Byte order marks


TEXT = "prompt: é 漢字 🎉\r\nsecond line\n" * 3
MARKED = {
    "utf-8": codecs.BOM_UTF8 + TEXT.encode(),
    "utf-16-le": codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
    "utf-16-be": codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
    "none": TEXT.encode(),
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("marked", MARKED.values(), ids=MARKED)
def test_marks_survive_any_cut_and_idle_chunks(marked: bytes, size: int) -> None:
    pieces = list(dripped(marked, size))
    out = list(utf8(pieces))
    assert b"".join(out) == TEXT.encode()
    assert out.count(b"") == pieces.count(b"")


def test_broken_utf_16_becomes_replacement_characters() -> None:
    lone_surrogate = codecs.BOM_UTF16_LE + "a".encode("utf-16-le") + b"\x00\xd8" + "b".encode("utf-16-le") + b"\x00"
    assert b"".join(utf8([lone_surrogate])).decode() == "a\ufffdb\ufffd"


def test_a_fault_does_not_swallow_held_back_bytes() -> None:
    def failing(head: bytes) -> Iterator[bytes]:
        yield head
        raise SourceError("x: ends early")

    assert drained(utf8(failing(b"\xef\xbb")))[0] == b"\xef\xbb"
    assert drained(utf8(failing(codecs.BOM_UTF16_LE + b"a\0b")))[0] == "a\ufffd".encode()
    assert drained(unpack.unpacked("x", failing(b"\x1f")))[0] == b"\x1f"


def test_utf_16_inside_gzip(tmp_path: Path) -> None:
    assert read(written(tmp_path, gzip.compress(MARKED["utf-16-le"]))) == (TEXT.encode(), None)


def test_chunks_of_large_utf_16_stay_below_the_limit(tmp_path: Path) -> None:
    text = "漢" * 1_500_000
    assert read(written(tmp_path, codecs.BOM_UTF16_BE + text.encode("utf-16-be"))) == (text.encode(), None)
