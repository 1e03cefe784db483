"""A followed log loses no line and reads none twice, whatever happens between two looks."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import pytest
from conftest import ROOT
from following import POLL, Step, append, followed, one_by_one

from cachedoctor.inputs.sources import generations
from cachedoctor.inputs.sources.follow import FollowSource

sys.path.insert(0, str(ROOT / "benchmarks"))
import rotations

WRITER = Path(__file__).with_name("rotating_writer.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(b"start\n")
    return path


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(1, 4))
def test_every_line_comes_once_and_in_order(tmp_path: Path, seed: int) -> None:
    """Another process writes and rotates as fast as it can, by rename and by copy, with numbers and with dates."""
    path, count = tmp_path / "server.log", 2500
    path.write_bytes(b"start\n")
    writers: list[subprocess.Popen[bytes]] = []
    chunks = FollowSource(str(path), POLL / seed, lambda: bool(writers) and writers[0].poll() is not None).chunks()
    assert next(chunks) == b"start\n"
    writers.append(subprocess.Popen([sys.executable, WRITER, path, str(count), str(seed)]))
    lines = b"".join(chunks).splitlines()
    assert writers[0].returncode == 0
    assert len(list(tmp_path.iterdir())) > 60
    assert len(lines) >= count
    assert lines == [b"line %d" % number for number in range(len(lines))]


def rename(path: Path, to: str) -> Step:
    return lambda: path.rename(f"{path}.{to}")


def copy_and_cut(path: Path, to: str) -> Step:
    def step() -> None:
        shutil.copyfile(path, f"{path}.{to}")
        os.truncate(path, 0)

    return step


def at_once(*steps: Step) -> Step:
    """Between two looks, or within one: the follower must come to the same end."""

    def step() -> None:
        for each in steps:
            each()

    return step


@pytest.mark.parametrize("kind", [rename, copy_and_cut])
def test_the_last_copy_is_read_though_no_line_comes_after_it(path: Path, kind: Callable[[Path, str], Step]) -> None:
    """Twice: the second time nothing had been read of the file that is cut."""
    steps = [at_once(append(path, b"%d\n" % n), kind(path, f"2026010{n}"), path.touch) for n in (1, 2, 3)]
    assert followed(path, one_by_one(*steps)) == b"start\n1\n2\n3\n"


@pytest.mark.parametrize("kind", [rename, copy_and_cut])
def test_several_rotations_between_two_looks(path: Path, kind: Callable[[Path, str], Step]) -> None:
    steps = [append(path, b"1\n"), kind(path, "20260101"), append(path, b"2\n"), kind(path, "20260102"),
             append(path, b"3\n"), kind(path, "20260103"), append(path, b"4\n")]  # fmt: skip
    assert followed(path, one_by_one(at_once(*steps))) == b"start\n1\n2\n3\n4\n"


@pytest.mark.parametrize("kind", [rename, copy_and_cut])
def test_rotations_by_number_shift_the_names(path: Path, kind: Callable[[Path, str], Step]) -> None:
    (path.parent / "server.log.1").write_bytes(b"of yesterday\n")

    def rotate() -> None:
        for number in (3, 2, 1):
            old = path.with_name(f"server.log.{number}")
            if old.exists():
                old.rename(path.with_name(f"server.log.{number + 1}"))
        kind(path, "1")()

    steps = [append(path, b"1\n"), rotate, append(path, b"2\n"), rotate, append(path, b"3\n")]
    assert followed(path, one_by_one(at_once(*steps))) == b"start\n1\n2\n3\n"


def test_the_file_that_was_read_may_be_gone_after_two_rotations(path: Path) -> None:
    """One rotated file is kept: ours was deleted, the one after it has its name now."""
    rotate = at_once(rename(path, "1"), append(path, b"2\n"), rename(path, "1"), append(path, b"3\n"))
    assert followed(path, one_by_one(rotate)) == b"start\n2\n3\n"


def test_rotated_files_from_before_are_not_read(path: Path) -> None:
    for number in range(1, 4):
        path.with_name(f"server.log.{number}").write_bytes(b"old %d\n" % number)
    steps = (rename(path, "9"), append(path, b"new\n"), copy_and_cut(path, "10"), append(path, b"newer\n"))
    assert followed(path, one_by_one(*steps)) == b"start\nnew\nnewer\n"


def test_a_copy_ends_the_line_that_was_read_in_part(path: Path) -> None:
    steps = (
        append(path, b"unfin"),
        at_once(append(path, b"ished\n2\n"), copy_and_cut(path, "1"), append(path, b"3\n")),
    )
    assert followed(path, one_by_one(*steps)) == b"start\nunfinished\n2\n3\n"


CLOCKED = b"0.01.10 I slot begin\n0.01.11 I slot end\n"


@pytest.mark.parametrize("is_at_once", [False, True])
@pytest.mark.parametrize("before", [b"", CLOCKED])
def test_a_line_that_was_being_written_when_it_was_copied_is_whole(path: Path, before: bytes, is_at_once: bool) -> None:
    """Nothing is lost: its rest is the first that comes after the cut, and after a second cut that rest's rest."""
    steps = [append(path, before + b"0.01.12 I sl"), copy_and_cut(path, "20260101"), append(path, b"ot beg"),
             copy_and_cut(path, "20260102"), append(path, b"in\n0.01.13 I slot end\n")]  # fmt: skip
    write = one_by_one(at_once(*steps)) if is_at_once else one_by_one(*steps)
    assert followed(path, write) == b"start\n" + before + b"0.01.12 I slot begin\n0.01.13 I slot end\n"


def test_a_line_whose_rest_was_lost_at_a_cut_takes_no_other_with_it(path: Path) -> None:
    """What was written between the copy and the cut is lost; the next line is known by how lines begin."""
    steps = [append(path, CLOCKED + b"0.01.12 I sl"), copy_and_cut(path, "1"), append(path, b"0.02.13 I slot begin\n")]
    assert followed(path, one_by_one(*steps)) == b"start\n" + CLOCKED + b"0.01.12 I sl\n0.02.13 I slot begin\n"


def test_a_new_file_does_not_continue_a_line(path: Path) -> None:
    steps = (append(path, b"unfin"), at_once(rename(path, "1"), append(path, b"ished\n")))
    assert followed(path, one_by_one(*steps)) == b"start\nunfin\nished\n"


class Interrupted:
    """Opens files, and runs ``step`` right before the first time that ``name`` is opened."""

    def __init__(self, name: Path, step: Step) -> None:
        self._name, self._steps = str(name), [step]

    def __call__(self, name: str, mode: str) -> FileIO:
        if name == self._name and self._steps:
            self._steps.pop()()
        return FileIO(name, mode)


@pytest.mark.parametrize("copied", [b"", b"2"])
def test_a_copy_that_ends_while_the_files_are_opened(
    path: Path, copied: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one, empty or half made when it is opened; the log is cut before the log is opened."""
    second = path.with_name("server.log-20260102")

    def end_it() -> None:
        second.write_bytes(b"2\n")
        os.truncate(path, 0)
        append(path, b"3\n")()

    def begin_it() -> None:
        second.write_bytes(copied)
        monkeypatch.setattr(generations, "FileIO", Interrupted(path, end_it))

    looks = [0]

    def stop() -> bool:
        """Between two looks, in the follower's own thread: nothing else can come between."""
        looks[0] += 1
        if looks[0] == 3:
            at_once(append(path, b"1\n"), begin_it, copy_and_cut(path, "20260101"), append(path, b"2\n"))()
        return looks[0] >= 9

    assert b"".join(FollowSource(str(path), POLL, stop).chunks()) == b"start\n1\n2\n3\n"


def test_names_that_change_faster_than_they_can_be_opened_are_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file begins again while they do: what was copied before must come first."""
    listed, busy, names = [0], [False], os.listdir

    def listdir(folder: str) -> list[str]:
        listed[0] += busy[0]
        busy[0] &= listed[0] < 500
        return [name for name in names(folder) if name != "server.log.9" or not busy[0] or listed[0] % 2]

    def write(settle: Step) -> None:
        path.with_name("server.log.9").write_bytes(b"old\n")
        one_by_one(copy_and_cut(path, "1"))(settle)
        busy[0] = True
        one_by_one(at_once(append(path, b"1\n"), copy_and_cut(path, "20260101"), append(path, b"2\n")))(settle)

    monkeypatch.setattr(generations.os, "listdir", listdir)
    assert followed(path, write) == b"start\n1\n2\n"
    assert not busy[0]


@pytest.mark.parametrize("more", [b"s", b"start\nand more than before\n", b"START\n", b"x" * 70_000 + b"\n"])
def test_a_file_that_was_cut_and_has_grown_again(path: Path, more: bytes) -> None:
    """Shorter, longer or as long as before: what was read last is no longer at its place."""
    read = b"z" * 65_000 + b"\n"
    steps = (append(path, read), at_once(lambda: os.truncate(path, 0), append(path, more)), append(path, b"end\n"))
    assert followed(path, one_by_one(*steps)) == b"start\n" + read + more + b"end\n"


def test_a_server_that_does_not_append_leaves_a_hole(path: Path) -> None:
    """``llama-server > server.log`` continues at its old place after copytruncate: the file begins with zeros."""
    with path.open("r+b", buffering=0) as file:
        file.seek(0, os.SEEK_END)
        big = b"x" * 99 + b"\n"
        write = [lambda: file.write(big * 1000), lambda: file.write(b"after\n")]
        steps = (write[0], copy_and_cut(path, "1"), write[1], at_once(copy_and_cut(path, "2"), write[1]))
        assert followed(path, one_by_one(*steps)) == b"start\n" + big * 1000 + b"after\n" * 2
        assert path.stat().st_size == len(b"start\n") + len(big) * 1000 + len(b"after\n") * 2


def test_deleted_and_written_again_between_two_looks(path: Path) -> None:
    again = at_once(append(path, b"last words\n"), path.unlink, append(path, b"again\n"))
    assert followed(path, one_by_one(again, again)) == b"start\nlast words\nagain\nlast words\nagain\n"


def test_a_compressed_rotation_is_passed_over(path: Path) -> None:
    packed = path.with_name("server.log.1")
    steps = (rename(path, "2"), at_once(lambda: packed.write_bytes(gzip.compress(b"no")), append(path, b"new\n")))
    assert followed(path, one_by_one(*steps)) == b"start\nnew\n"


def test_a_rotation_that_may_not_be_read_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = generations.FileIO

    def refuse(name: str, mode: str) -> object:
        if name.endswith(".1"):
            raise PermissionError(13, "Permission denied")
        return opened(name, mode)

    monkeypatch.setattr(generations, "FileIO", refuse)
    assert followed(path, one_by_one(rename(path, "1"), append(path, b"new\n"))) == b"start\nnew\n"


def test_an_empty_file_at_rest_does_not_list_the_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a new file to be written costs two looks at names, however full the folder is."""
    listed, looks = [0], [0]
    names = os.listdir

    def listdir(folder: str) -> list[str]:
        listed[0] += 1
        return names(folder)

    def stop() -> bool:
        looks[0] += 1
        if looks[0] == 2:
            at_once(rename(path, "1"), path.touch)()
        return looks[0] == 60

    monkeypatch.setattr(generations.os, "listdir", listdir)
    assert [c for c in FollowSource(str(path), POLL / 10, stop).chunks() if c] == [b"start\n"]
    assert listed[0] <= 8


@pytest.mark.parametrize("kind", [rename, copy_and_cut])
def test_who_ends_it_gets_what_was_written_until_then(path: Path, kind: Callable[[Path, str], Step]) -> None:
    """Rotations between the last look and the end, the last of them after the last line."""
    looks = [0]

    def stop() -> bool:
        looks[0] += 1
        if looks[0] == 3:
            for number in (1, 2):
                at_once(append(path, b"%d\n" % number), kind(path, f"2026010{number}"), path.touch)()
        return looks[0] >= 3

    assert b"".join(FollowSource(str(path), POLL, stop).chunks()) == b"start\n1\n2\n"


def test_who_ends_it_does_not_wait_for_the_rest_of_a_long_log(path: Path) -> None:
    size = 20 << 20
    with path.open("ab") as file:
        file.truncate(6)
        file.write((b"x" * 99 + b"\n") * (size // 100))
    data = b"".join(FollowSource(str(path), POLL, lambda: True).chunks())
    assert 8 << 20 < len(data) < 9 << 20


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["copy", "rename"])
def test_a_storm_of_rotations_loses_no_request(kind: str, tmp_path: Path) -> None:
    """As the benchmark counts them, at the pace of the fastest."""
    found = rotations.storm(kind, 10, 300, tmp_path)
    assert (found.lost, found.twice) == (0, 0)
    assert found.left > 200
    assert found.rotations > 20
