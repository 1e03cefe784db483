"""GGUF metadata: what is read of a model file, and what a broken one is answered with."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.tokenizers.from_gguf import read_metadata

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind: int, content: Any) -> bytes:
    if kind == STRING:
        return text(content)
    if kind == ARRAY:
        inner, items = content
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, item) for item in items)
    return struct.pack("<" + CODES[kind], content)


def gguf(entries: dict[str, tuple[int, Any]], version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, 0, len(entries))
    return head + b"".join(
        text(key) + struct.pack("<I", kind) + value(kind, content) for key, (kind, content) in entries.items()
    )


EVERYTHING: dict[str, tuple[int, Any]] = {
    "u8": (U8, 255),
    "i8": (I8, -1),
    "u16": (U16, 65535),
    "i16": (I16, -2),
    "u32": (U32, 4_000_000_000),
    "i32": (I32, -3),
    "f32": (F32, 0.5),
    "bool": (BOOL, True),
    "string": (STRING, "naïve ☃"),
    "u64": (U64, 2**63),
    "i64": (I64, -4),
    "f64": (F64, 0.25),
    "numbers": (ARRAY, (I32, [1, -2, 3])),
    "floats": (ARRAY, (F32, [0.5, -1.5])),
    "flags": (ARRAY, (BOOL, [True, False])),
    "strings": (ARRAY, (STRING, ["a", "", "ü"])),
    "nested": (ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["x"])])),
}
SOUND = gguf(EVERYTHING)


def read(path: Path, data: bytes) -> dict[str, Any]:
    path.write_bytes(data)
    return read_metadata(path)


@pytest.mark.parametrize("version", [2, 3])
def test_every_type_of_value_is_read(tmp_path: Path, version: int) -> None:
    found = read(tmp_path / "m.gguf", gguf(EVERYTHING, version) + b"tensors follow" * 100)
    assert {key: found[key] for key, (kind, _) in EVERYTHING.items() if kind != ARRAY} == {
        key: content for key, (kind, content) in EVERYTHING.items() if kind != ARRAY
    }
    assert list(found["numbers"]) == [1, -2, 3]
    assert list(found["floats"]) == [0.5, -1.5]
    assert list(found["flags"]) == [1, 0]
    assert found["strings"] == ["a", "", "ü"]
    assert [list(inner) for inner in found["nested"]] == [[1, 2], ["x"]]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it ends inside its metadata"),
        (b"GGUF", "it ends inside its metadata"),
        (b"version https://git-lfs.github.com/spec/v1\n", "does not begin with GGUF"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<III", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "1,152,921,504,606,846,976 metadata entries"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**50), "a string of 1,125,899,906,842,624 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 99), "the unknown type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IQ", STRING, 2**27), "ends inside"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", ARRAY, U64, 2**61), "ends inside"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", ARRAY, STRING, 2**61), "not valid"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + (text("k") + struct.pack("<IB", U8, 1)) * 2, "'k' twice"),
        (gguf({"deep": (ARRAY, (ARRAY, [(ARRAY, [(ARRAY, [(U8, [])])])]))}), "not valid"),
    ],
)
def test_what_is_not_a_sound_gguf_is_refused_in_one_line(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(CacheDoctorError, match=says) as caught:
        read(tmp_path / "m.gguf", data)
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(CacheDoctorError, match="cannot read"):
            read_metadata(path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(SOUND)))
def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path, end: int) -> None:
    if end < len(SOUND):
        with pytest.raises(CacheDoctorError):
            read(tmp_path / "m.gguf", SOUND[:end])


@pytest.mark.sweep
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
@example([(0, b"\xff" * 9)])
def test_a_mutated_file_is_read_or_refused(tmp_path: Path, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(SOUND)
    for at, new in changes:
        data[at : at + len(new)] = new
    with contextlib.suppress(CacheDoctorError):
        read(tmp_path / "m.gguf", bytes(data))
