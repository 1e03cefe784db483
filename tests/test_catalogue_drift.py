"""scripts/catalogue-drift: what came and went in made-up binaries, wheels and sources, in both directions."""

from __future__ import annotations

import runpy
import struct
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from cachedoctor.engines.catalogue.base import Message

sys.path.insert(0, str(ROOT))

from scripts.drift import catalogue, compare
from scripts.drift.artefact import Artefact, DriftError, load
from scripts.drift.texts import HOLE, filled

SLOT = "slot %12.*s: id %2d | task %d | "
OLD = [f"{SLOT}clearing slot with %zu tokens\n", f"{SLOT}selected slot by LRU, t_last = %ld\n"]
NEW = [f"{SLOT}clearing prompt with %zu tokens\n", OLD[1], f"{SLOT}draft cache of %d tokens dropped\n"]
"""The wording of slot_clear up to b7710, and that from b7827 on; one that both have; and one that is in no row."""
PREFIXES = """
#define SLT_INF(slot, fmt, ...) LOG_INF("slot %12.*s: id %2d | task %d | " fmt, 12, __func__, (slot).id, __VA_ARGS__)
#define SLT_TRC(slot, fmt, ...) LOG_TRC("slot %12.*s: id %2d | task %d | " fmt, 12, __func__, (slot).id, __VA_ARGS__)
#define SRV_WRN(fmt, ...) LOG_WRN("srv  %12.*s: " fmt, 12, __func__, __VA_ARGS__)
"""


def elf(*strings: str) -> bytes:
    """Make an ELF file with these strings in .rodata, and one outside of it."""
    names = b"\0.rodata\0.shstrtab\0"
    data = b"\0\1\2" + b"".join(text.encode() + b"\0" for text in strings) + b"\xff\0"
    other = b"slot %12.*s: id %2d | task %d | only in the text section\n\0"
    at_data, at_names = 64 + len(other), 64 + len(other) + len(data)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at_names + len(names), 0, 64, 0, 0, 64, 3, 2)
    sections = [(0, 0, 0, 0), (1, 1, at_data, len(data)), (9, 3, at_names, len(names))]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 2, 0, at, size, 0, 0, 1, 0) for name, kind, at, size in sections
    )
    return head + other + data + names + table


def program(path: Path, *strings: str, build: str | None = None) -> Artefact:
    path.write_bytes(elf(*strings))
    return load(path, None, build)


def ids(rows: list[catalogue.Row]) -> list[tuple[str, int, int]]:
    return [(row.message.id, row.message.first, row.message.last) for row in rows]


def unknown(found: list[compare.Unknown]) -> list[str]:
    return [one.text.text for one in found]


@pytest.fixture(scope="module")
def rows() -> list[catalogue.Row]:
    return catalogue.rows("llama.cpp")


def test_what_came_and_what_went(tmp_path: Path, rows: list[catalogue.Row]) -> None:
    """One wording for another and one message that no row has; read the other way round, the reverse."""
    old, new = program(tmp_path / "old", *OLD), program(tmp_path / "new", *NEW)
    found = compare.changes(rows, old, new)
    assert ids(found.came) == [("slot_clear", 7827, 11549)]
    assert ids(found.went) == [("slot_clear", 7079, 7710)]
    assert unknown(found.unknown) == [f"draft cache of {HOLE} tokens dropped"]
    assert found.unknown_went == []
    back = compare.changes(rows, new, old)
    assert (ids(back.came), ids(back.went)) == (ids(found.went), ids(found.came))
    assert [text.text for text in back.unknown_went] == unknown(found.unknown)
    assert not any(compare.changes(rows, new, new))


def test_what_the_table_says_of_two_releases(tmp_path: Path, rows: list[catalogue.Row]) -> None:
    """What came and went here, and by the table alone; how others print a message is not a message of its own."""
    abort = "failed to restore context checkpoint\n"
    known = [_format(row.message) for row in rows if row.message.last == 11549 and row.message.first <= 9713]
    went = [row for row in rows if row.is_known_at(10229) and not row.is_known_at(11549)]
    old = program(tmp_path / "old", *known, *[_format(row.message) for row in went[1:]], build="10229")
    new = program(tmp_path / "new", *known, abort, f"{SLOT}clearing slot with %zu tokens\n", build="11549")
    found = compare.changes(rows, old, new)
    assert ids(found.went) == ids(went[1:])
    assert ("ckpt_abort", 11549, 11549) in ids(found.came)
    assert [row.message.levels for row in found.came if row.message.id == "ckpt_abort"] == ["E11549"]
    assert [how for how, row in found.not_seen if row is went[0]] == ["went"]
    assert [(how, row.message.id) for how, row in found.not_told] == [("came", "slot_clear")]
    assert ("came", "ckpt_abort") not in [(how, row.message.id) for how, row in found.not_seen]


def test_a_message_that_is_joined_while_the_program_runs(tmp_path: Path, rows: list[catalogue.Row]) -> None:
    """b10229 puts texts after one another in a line; with one of them missing, the line cannot be printed."""
    parts = [", K (%s): %7.2f MiB", ", V (%s): %7.2f MiB", ", K_idx (%s): %7.2f MiB"]
    line = "%s: size = %7.2f MiB (%6u cells, %3d layers, %2u/%u seqs)%s%s%s\n"
    whole = "%s: size = %7.2f MiB (%6u cells, %3d layers, %2u/%u seqs), K (%s): %7.2f MiB, V (%s): %7.2f MiB\n"
    old = program(tmp_path / "old", whole, build="9713")
    new = program(tmp_path / "new", line, *parts, build="10229")
    found = compare.changes(rows, old, new)
    assert ids(found.came) == [("kv_size", 10229, 10229)]
    assert ("kv_size", 6180, 11549) not in ids(found.went)
    joined = {("kv_size", 6180, 11549), ("kv_size", 10229, 10229)}
    assert not joined & set(ids(compare.drift(rows, new).gone))
    less = program(tmp_path / "less", line, parts[0], parts[2], build="10229")
    assert joined <= set(ids(compare.drift(rows, less).gone))


def test_a_release_against_the_table(tmp_path: Path, rows: list[catalogue.Row]) -> None:
    """What has to be there and is not; what is there and should not be; what nobody knows."""
    found = compare.drift(rows, program(tmp_path / "server", *NEW, build="b9713"))
    assert not {("slot_clear", 7827, 11549), ("slot_select_lru", 6628, 11549)} & set(ids(found.gone))
    assert found.found == 2
    assert found.expected == len(found.gone) + 2
    assert unknown(found.unknown) == [f"draft cache of {HOLE} tokens dropped"]
    assert found.outside == []
    late = compare.drift(rows, program(tmp_path / "late", *OLD, build="b9713"))
    assert ids([row for row, _ in late.outside]) == [("slot_clear", 7079, 7710)]
    assert ("slot_clear", 7827, 11549) in ids(late.gone)


def test_everything_the_newest_build_prints_is_known(tmp_path: Path, rows: list[catalogue.Row]) -> None:
    """A program that holds every row of b11549 as its format differs in nothing: the table is its own judge."""
    own = [row for row in rows if row.is_known_at(11549)]
    texts = [_format(row.message) for row in own]
    found = compare.drift(rows, program(tmp_path / "server", *texts, build="11549"))
    assert (ids(found.gone), ids([row for row, _ in found.outside]), unknown(found.unknown)) == ([], [], [])
    assert found.found == found.expected == len(own)


def _format(row: Message) -> str:
    """Write a row as the string of a program, in which printf's conversions stand for values."""
    body = compare.HOLE.sub("%s", row.template.split("}: ", 1)[1] if row.has_func else row.template)
    place = "%s: " if row.has_func else ""
    macro = {"slot": SLOT, "srv": "srv  %12.*s: ", "que": "que  %12.*s: ", "cmn": "cmn  %12.*s: "}.get(
        row.component, ""
    )
    return f"{macro}{place}{body}\n"


def test_strings_that_no_zero_byte_begins(tmp_path: Path, rows: list[catalogue.Row]) -> None:
    """Numbers or a text in front, which are in real files; not words in front."""
    line = "%s: failed to find a memory slot for batch of size %d\n"
    there = compare.drift(
        rows, program(tmp_path / "a", "\u00e45" + line, f"grammar_triggers{SLOT}n_past was set to %d\n")
    )
    assert {"find_slot_fail", "npast_set"} & {row.message.id for row in there.gone} == set()
    words = compare.drift(rows, program(tmp_path / "b", "it " + line, "n_past = 5, n_past was set to %d\n"))
    assert {"find_slot_fail", "npast_set"} <= {row.message.id for row in words.gone}


def test_a_wheel_says_its_release(tmp_path: Path) -> None:
    path = tmp_path / "xllamacpp-2026.6.9713-cp310-abi3-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("xllamacpp/xllamacpp.abi3.so", elf(*NEW))
        wheel.writestr("xllamacpp/memory.py", "logger.info('not of the server')")
    found = load(path, None, None)
    assert (found.engine, found.release) == ("llama.cpp", 9713)
    assert [text.component for text in found.texts if text.logged] == ["slot"] * 3
    assert load(path, None, "v0.9.0").release == 12110


def test_sources_of_llama_server(tmp_path: Path, rows: list[catalogue.Row]) -> None:
    """Prefixes come from the macros; comments hold no message; a level that is another one is told."""
    (tmp_path / "server-common.h").write_text(PREFIXES)
    (tmp_path / "server-context.cpp").write_text("""
    // SLT_INF(slot, "clearing slot with %zu tokens\\n", n);
    SLT_INF(slot, "clearing prompt with %zu tokens\\n", n);
    SLT_TRC(slot, "%s", "forcing full prompt re-processing due to lack of cache data "
        "(likely due to SWA or hybrid/recurrent memory, see " "https://x)\\n");
    SRV_WRN(" - cache size limit reached, removing oldest entry (size = %.3f MiB)\\n", 1.0);
    SRV_WRN("made up, %" PRIu64 " tokens\\n", n);
    throw std::runtime_error("Invalid argument: made up");
    """)
    found = compare.drift(rows, load(tmp_path, None, "11549"))
    there = {row.message.id for row in rows if row.is_known_at(11549) and row not in found.gone}
    assert there == {"slot_clear", "force_full", "pc_evict_size"}
    assert [(row.message.id, text.level) for row, text in found.levels] == [("slot_clear", "I")]
    assert [(one.text.component, one.text.text, one.text.where) for one in found.unknown] == [
        ("srv", f"made up, {HOLE} tokens", "server-context.cpp:7")
    ]
    assert found.outside == []


def test_sources_of_python(tmp_path: Path) -> None:
    """Per cent, f-strings, format, names; strings that are put together; no docstring, and nothing of a broken file."""
    wheel = tmp_path / "vllm-0.33.0-py3-none-any.whl"
    code = '''
"""Successfully reset prefix cache"""
log_parts = ["Avg prompt throughput: %.1f tokens/s", "Prefix cache hit rate: %.1f%%"]
logger.info("Using max model len %s", length)
logger.warning_once(f"Made up {value:.1f}")
self.logger.info("Chunked prefill is enabled with max_num_batched_tokens={}.".format(n))
message = f"init engine (profile, create kv cache, warmup model) took {t:.2f} s"
logger.info(message)
'''
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm/engine.py", code)
        archive.writestr("vllm/broken.py", "logger.info('Resolved architecture: %s'")
        archive.writestr("tests/test_engine.py", "logger.info('Resolved architecture: %s', x)")
    program, rows = load(wheel, None, None), catalogue.rows("vllm")
    found = compare.drift(rows, program)
    there = {row.message.id for row in rows if row.is_known_at(3300)} - {row.message.id for row in found.gone}
    assert (program.engine, program.release) == ("vllm", 3300)
    assert there == {"max_model_len", "chunked_prefill", "engine_ready"}
    assert [(one.text.text, one.text.level, one.text.where) for one in found.unknown] == [
        (f"Made up {HOLE}", "W", "vllm/engine.py:5")
    ]


def test_conversions() -> None:
    """Every kind that the server uses; a per cent sign is none."""
    assert filled("%12.*s|%2d|%zu|%.3f|%7zu|%-16s|%ld|%p|100%%|%c") == "|".join([HOLE] * 8 + ["100%", HOLE])


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"PK\x03\x04 no archive"])
def test_what_cannot_be_read(content: bytes, tmp_path: Path) -> None:
    """One line shows why; no traceback."""
    (tmp_path / "server").write_bytes(content)
    with pytest.raises(DriftError, match="server: "):
        load(tmp_path / "server", None, None)
    with pytest.raises(DriftError, match="no release"):
        load(tmp_path / "server", None, "v1.0.0")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what differs, with exit status 1; 2 where nothing can be read; escape codes reach no terminal."""
    (tmp_path / "old").write_bytes(elf(*OLD))
    (tmp_path / "new").write_bytes(elf(*NEW, f"{SLOT}\x1b[31mred alert\n"))

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["catalogue-drift", *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "scripts" / "catalogue-drift"), run_name="__main__")
        return int(ended.value.code or 0)

    assert run(str(tmp_path / "new"), "--since", str(tmp_path / "old")) == 1
    out = capsys.readouterr().out
    assert "known, went (1)\n  slot_clear  slot 7079-7710" in out
    assert "draft cache of <> tokens dropped" in out
    assert "\x1b" not in out
    assert "?[31mred alert" in out
    assert run(str(tmp_path / "new"), "--since", str(tmp_path / "new")) == 0
    capsys.readouterr()
    assert run(str(tmp_path / "none")) == 2
    assert capsys.readouterr().err.count("\n") == 1
