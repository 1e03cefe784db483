"""Counters over live logs: they equal the report, whatever happens to the logs and to the exporter meanwhile."""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from command import FIRST, LOG, SECOND, THIRD, one_line, run, start, wait_for
from conftest import ROOT
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import cachedoctor
from cachedoctor.cli import exporter as exporter_command
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.knowledge.libraries import install
from cachedoctor.live.exporter import many_logs, request_counts
from cachedoctor.live.exporter.followed_log import SavedState, decoded, encoded
from cachedoctor.live.exporter.log_places import Places
from cachedoctor.live.exporter.many_logs import ManyLogs
from cachedoctor.live.exporter.request_counts import Counts, LabelValues, RequestCounts
from cachedoctor.live.exporter.scrape_server import MetricsPage
from cachedoctor.model import CacheDoctorError

CASES = ROOT / "fixtures" / "cases"
Sample = tuple[str, frozenset[tuple[str, str]]]


class Clock:
    """Moves on only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counts, "SETTLED", -1.0)


class Exporter:
    """One without a process and without a network."""

    def __init__(
        self, *logs: Path, folders: tuple[Path, ...] = (), saved: SavedState | None = None, most: int = 100
    ) -> None:
        self.said: list[str] = []
        saved = saved or SavedState()

        def complain(message: str, hint: str) -> None:
            self.said.append(message)

        self.clock = Clock()
        self.many = ManyLogs(
            Places([str(log) for log in logs], [str(folder) for folder in folders], complain),
            lambda listener: Analyzer(listener=listener),
            LabelValues(most, saved.labels),
            saved,
            complain,
            self.clock,
        )

    def read(self) -> Exporter:
        """Read all that is there, after a look for new logs."""
        self.clock.now += many_logs.LOOK
        while self.many.round():
            pass
        self.many.show()
        return self

    def page(self) -> bytes:
        registry = CollectorRegistry()
        registry.register(MetricsPage(lambda: self.many.shown))
        return generate_latest(registry)

    def samples(self) -> dict[Sample, float]:
        return parsed(self.page().decode())

    def state(self) -> SavedState:
        """What the next run reads, once round the disk."""
        return decoded("state.json", encoded(self.many.state()))


def parsed(page: str) -> dict[Sample, float]:
    """The page as the client library of Prometheus reads it; labels without a value are left out."""
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = sample.name, frozenset((label, value) for label, value in sample.labels.items() if value)
            assert key not in found
            found[key] = sample.value
    return found


def total(samples: dict[Sample, float], name: str, **labels: str) -> float:
    return sum(value for (of, said), value in samples.items() if of == name and set(labels.items()) <= said)


TOKENS, SECONDS = "cachedoctor_prompt_tokens_total", "cachedoctor_prompt_processing_seconds_total"


def sums(samples: dict[Sample, float]) -> dict[str, float]:
    """What a report has in its totals, out of the counters."""
    return {
        "requests": total(samples, "cachedoctor_requests_total"),
        "reused": total(samples, TOKENS, outcome="reused"),
        "computed": total(samples, TOKENS, outcome="new") + total(samples, TOKENS, outcome="avoidable"),
        "avoidable": total(samples, TOKENS, outcome="avoidable"),
        "seconds": round(total(samples, SECONDS), 3),
        "avoidable seconds": round(total(samples, SECONDS, outcome="avoidable"), 3),
        "lines": total(samples, "cachedoctor_log_lines_total"),
        "unread": total(samples, "cachedoctor_log_lines_unrecognised_total"),
    }


def reported(*logs: Path) -> dict[str, float]:
    """The same of the report over the same logs."""
    report = cachedoctor.analyze(*logs)
    totals = report.totals
    assert not totals.unknown_tokens
    return {
        "requests": totals.requests,
        "reused": totals.cached_tokens,
        "computed": totals.processed_tokens,
        "avoidable": totals.avoidable_tokens,
        "seconds": round(totals.prompt_ms / 1000, 3),
        "avoidable seconds": round((totals.avoidable_ms or 0) / 1000, 3),
        "lines": sum(info.lines for info in report.inputs),
        "unread": sum(info.lines - info.recognised for info in report.inputs),
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(LOG)
    return path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


# ---- what is counted


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "case",
    ["cache-ram-evicts-nothing-missed", "checkpoint-evicted-three-depths-b8672", "wrapped-compose-two-services"],
)
def test_counters_are_the_totals_of_the_report(case: str) -> None:
    log = CASES / case / "server.log"
    exporter = Exporter(log).read()
    assert sums(exporter.samples()) == reported(log)
    assert exporter.said == []


def test_every_avoidable_token_has_its_cause_and_every_finding_its_gauge(log: Path) -> None:
    append(log, THIRD)
    report = cachedoctor.analyze(log)
    samples = Exporter(log).read().samples()
    for finding in report.findings:
        labels = {"cause": finding.name}
        assert total(samples, TOKENS, outcome="avoidable", **labels) == finding.cost.tokens
        assert total(samples, "cachedoctor_findings", severity=finding.severity, server=str(log), **labels) == 1
    assert {finding.code for finding in report.findings} == {"CD101", "CD102"}
    assert total(samples, "cachedoctor_findings") == len(report.findings)
    assert total(samples, TOKENS, model="hybrid.gguf") == total(samples, TOKENS) == report.totals.prompt_tokens
    assert total(samples, "cachedoctor_build_info", version=cachedoctor.__version__) == 1
    assert total(samples, "cachedoctor_log_readable", server=str(log)) == 1


def test_sglang_counts_the_tokens_of_its_batches() -> None:
    log = CASES.parent / "measured" / "sglang-healthy.log"
    report = cachedoctor.analyze(log)
    assert report.batches is not None
    batches = [msgspec.json.decode(row) for row in report.batches.lines()]
    samples = Exporter(log).read().samples()
    for outcome, column in {"reused": "cached_tokens", "computed": "new_tokens"}.items():
        assert total(samples, TOKENS, outcome=outcome) == sum(batch[column] or 0 for batch in batches) > 0
    assert total(samples, "cachedoctor_requests_total") == 0, "a batch is not a request"


def test_vllm_has_its_last_hit_rate_and_the_tokens_that_its_lines_show() -> None:
    """The rate is the last one that the log has."""
    log = CASES.parent / "vllm" / "vllm032_dense_healthy.log"
    (last,) = re.findall(r"Prefix cache hit rate: ([\d.]+)%", log.read_text())[-1:]
    (session,) = cachedoctor.analyze(log).sessions
    samples = Exporter(log).read().samples()
    assert total(samples, "cachedoctor_prefix_cache_hit_ratio", engine="000") == pytest.approx(float(last) / 100)
    computed = sum(period.computed_tokens or 0 for period in session.periods)
    assert computed > 0
    assert total(samples, TOKENS, outcome="computed") == pytest.approx(computed, abs=2)


def test_nothing_but_the_version_is_shown_before_all_logs_are_read(log: Path) -> None:
    exporter = Exporter(log)
    assert [name for name, _ in exporter.samples()] == ["cachedoctor_build_info"]
    assert total(exporter.read().samples(), "cachedoctor_requests_total") == 2


def test_a_counter_that_comes_later_begins_at_0(log: Path) -> None:
    """Else Prometheus would not see that it rose."""
    exporter = Exporter(log).read()
    page = MetricsPage(lambda: exporter.many.shown)
    registry = CollectorRegistry()
    registry.register(page)

    def avoidable(cause: str) -> float | None:
        samples = parsed(generate_latest(registry).decode())
        found = [value for (name, labels), value in samples.items() if name == TOKENS and ("cause", cause) in labels]
        return found[0] if found else None

    assert avoidable("billing-header") == 1900
    assert avoidable("volatile-prefix") is None
    append(log, THIRD)
    exporter.read()
    assert [avoidable("volatile-prefix"), avoidable("billing-header")] == [0, 1900]
    assert avoidable("volatile-prefix") == 2035


def test_who_asked_is_known_before_a_request_is_counted(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counts, "SETTLED", 2.0)
    clock = Clock()
    counts = RequestCounts("server.log", LabelValues(), clock)
    analyzer = Analyzer(listener=counts)
    analyzer.open("server.log")
    analyzer.feed(LOG)
    clock.now = 1.0
    analyzer.feed(THIRD.encode())
    analyzer.idle()

    def requests(found: Counts) -> int:
        return sum(amount for series, amount in found.items() if series.metric == "requests")

    assert (requests(counts.settled()), requests(counts.everything()), counts.waits) == (0, 3, True)
    clock.now = 2.5
    assert (requests(counts.settled()), requests(counts.everything()), counts.waits) == (2, 3, True)
    clock.now = 3.5
    assert (requests(counts.settled()), requests(counts.everything()), counts.waits) == (3, 3, False)


def test_a_log_is_shown_when_what_it_had_at_first_is_counted(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that began lower than it was shown before would be taken for one that fell."""
    monkeypatch.setattr(request_counts, "SETTLED", 60.0)
    exporter = Exporter(log).read()
    assert [name for name, _ in exporter.samples()] == ["cachedoctor_build_info"]
    monkeypatch.setattr(request_counts, "SETTLED", -1.0)
    assert sums(exporter.read().samples()) == reported(log)


# ---- rotations and restarts


def rename(log: Path) -> None:
    log.rename(f"{log}.1")
    log.touch()


def copy_and_cut(log: Path) -> None:
    shutil.copyfile(log, f"{log}.1")
    os.truncate(log, 0)


def rename_and_pack(log: Path) -> None:
    Path(f"{log}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    log.touch()


@pytest.mark.sample(3)
@pytest.mark.parametrize("rotate", [rename, copy_and_cut, rename_and_pack])
@pytest.mark.parametrize("meanwhile", ["follows", "stands still"])
def test_a_rotated_log_is_counted_once(
    log: Path, tmp_path: Path, rotate: Callable[[Path], None], meanwhile: str
) -> None:
    whole = tmp_path / "whole"
    whole.write_text(FIRST + SECOND + THIRD)
    exporter = Exporter(log).read()
    if meanwhile == "stands still":
        exporter = Exporter(log, saved=exporter.state())
    rotate(log)
    append(log, THIRD)
    exporter.read()
    assert sums(exporter.samples()) == reported(whole)
    # and once more, with all of it known
    assert sums(Exporter(log, saved=exporter.state()).read().samples()) == reported(whole)


def test_what_came_after_the_last_save_is_counted_once_after_a_kill(log: Path) -> None:
    exporter = Exporter(log).read()
    state = exporter.state()
    append(log, THIRD[:300])
    exporter.read()
    append(log, THIRD[300:])
    before = sums(exporter.read().samples())
    assert sums(Exporter(log, saved=state).read().samples()) == before == reported(log)


def test_a_rotation_that_is_gone_stays_counted(log: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.write_text(FIRST + SECOND + THIRD)
    exporter = Exporter(log).read()
    log.unlink()
    log.write_text(THIRD)
    samples = Exporter(log, saved=exporter.state()).read().samples()
    assert total(samples, "cachedoctor_requests_total") == 3
    assert total(samples, TOKENS, outcome="new") + total(samples, TOKENS, outcome="avoidable") == 6070
    assert total(samples, "cachedoctor_log_lines_total") == reported(whole)["lines"]


def test_without_a_state_the_rotations_that_are_there_are_counted(log: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.write_text(FIRST + SECOND + THIRD)
    rename(log)
    append(log, THIRD)
    assert sums(Exporter(log).read().samples()) == reported(whole)


def torture(log: Path, source: Path, seed: int) -> Exporter:
    """Write ``source`` to ``log`` in pieces, rotate it in every way, stop and kill the exporter in between."""
    chance = random.Random(seed)
    data, at = source.read_bytes(), 0
    log.touch()
    state = Exporter(log).read().state()
    exporter: Exporter | None = None
    shown: Counter[str] = Counter()
    while at < len(data):
        end = at + chance.choice((1, 200, 5000, 20000))
        if chance.random() < 0.7:  # whole lines
            end = data.find(b"\n", end) + 1 or len(data)
        with log.open("ab") as file:
            file.write(data[at:end])
        at = min(end, len(data))
        if exporter is not None and chance.random() < 0.7:
            now = Counter({name: int(value) for name, value in sums(exporter.read().samples()).items()})
            assert now >= shown  # it never falls
            shown = now
        if chance.random() < 0.25 and data[at - 1 : at] == b"\n":
            if exporter is not None:
                exporter.read()  # a rotation that nobody had the time to see may be cut away
            for number in range(20, 0, -1):
                for ending in ("", ".gz"):
                    if os.path.exists(f"{log}.{number}{ending}"):
                        os.rename(f"{log}.{number}{ending}", f"{log}.{number + 1}{ending}")
            chance.choice((rename, copy_and_cut, rename_and_pack if exporter is None else rename))(log)
        if exporter is None:
            exporter = Exporter(log, saved=state) if chance.random() < 0.6 else None
            continue
        if chance.random() < 0.3:
            state = exporter.read().state()
        if chance.random() < 0.2:
            exporter = None
    return (exporter or Exporter(log, saved=state)).read()


@pytest.mark.sample(2)
@pytest.mark.spread(9)
@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_the_counters_are_the_totals(tmp_path: Path, seed: int) -> None:
    cases = ("wrapped-compose-two-services", "checkpoint-evicted-three-depths-b8672", "cache-ram-evicts-nothing-missed")
    source = CASES / cases[seed % 3] / "server.log"
    assert sums(torture(tmp_path / "server.log", source, seed).samples()) == reported(source)


# ---- labels


def test_values_of_a_label_are_bounded_also_over_a_restart(tmp_path: Path) -> None:
    values = LabelValues(3)
    said = [values.bounded("client_address", f"10.0.0.{n}") for n in range(50)]
    assert said == ["10.0.0.0", "10.0.0.1", "10.0.0.2", *["other"] * 47]
    again = LabelValues(3, values.known())
    assert again.bounded("client_address", "10.0.0.49") == "other"
    assert again.bounded("client_address", "10.0.0.1") == "10.0.0.1"
    assert again.bounded("model", "10.0.0.49") == "10.0.0.49"
    assert again.bounded("client_address", None) == ""


def test_a_log_of_many_models_and_clients_makes_few_series(tmp_path: Path) -> None:
    lives = [FIRST.replace("hybrid.gguf", f"m{n}.gguf") for n in range(30)]
    log = tmp_path / "server.log"
    log.write_text("".join(lives))
    samples = Exporter(log, most=4).read().samples()
    models = {dict(labels).get("model") for name, labels in samples if name == "cachedoctor_requests_total"}
    assert models == {"m0.gguf", "m1.gguf", "m2.gguf", "m3.gguf", "other"}
    assert total(samples, "cachedoctor_requests_total") == 30


def test_hostile_names_are_masked(tmp_path: Path) -> None:
    key = "hf_" + "A1b2C3d4" * 4 + "ab"
    name = f'evil\x1b]0;x\x07"}} 1\\n{key}.gguf'
    log = tmp_path / 'a"\n\x1b[2J\udcff.log'
    log.write_text(FIRST.replace("hybrid.gguf", name), errors="surrogateescape")
    page = Exporter(log).read().page()
    assert key.encode() not in page
    assert not any(byte < 0x20 and byte != 0x0A for byte in page)
    samples = parsed(page.decode())
    assert total(samples, "cachedoctor_requests_total") == 1
    assert LabelValues().bounded("model", f"a\x1b[2J\n\u202e{key}") == r"a\x1b[2J\x0a\u202ehf_<key>"
    assert len(LabelValues().bounded("model", "m" * 1_000_000)) < 200


# ---- logs that come and go


def test_a_missing_log_is_named_once_and_counted_when_it_comes(log: Path, tmp_path: Path) -> None:
    late = tmp_path / "late.log"
    exporter = Exporter(late, log)
    for _ in range(3):
        exporter.read()
    assert exporter.said == [f"{late}: no such file"]
    assert total(exporter.samples(), "cachedoctor_log_readable", server=str(late)) == 0
    assert total(exporter.samples(), "cachedoctor_requests_total") == 2
    late.write_bytes(LOG)
    assert total(exporter.read().samples(), "cachedoctor_requests_total") == 4
    assert total(exporter.samples(), "cachedoctor_log_readable") == 2


def test_a_log_that_is_missing_after_a_restart_keeps_its_counters(log: Path) -> None:
    before = Exporter(log).read()
    log.unlink()
    after = Exporter(log, saved=before.state()).read()
    assert sums(after.samples()) == sums(before.samples())
    assert decoded("", encoded(after.many.state())).logs == before.state().logs


def test_a_log_that_cannot_be_followed_does_not_stop_the_others(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "old.log"
    packed.write_bytes(gzip.compress(LOG))
    exporter = Exporter(packed, log).read().read()
    assert exporter.said == [f"{packed}: is compressed and cannot be followed"]
    assert total(exporter.samples(), "cachedoctor_requests_total") == 2


def test_a_bug_in_one_log_does_not_stop_the_others(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.log"
    other.write_bytes(LOG)
    feed = Analyzer.feed

    def broken(analyzer: Analyzer, chunk: bytes) -> list[str]:
        if analyzer._inputs[-1].path == str(other):
            raise RuntimeError("no")
        return feed(analyzer, chunk)

    monkeypatch.setattr(Analyzer, "feed", broken)
    exporter = Exporter(other, log).read().read()
    assert exporter.said == [f"{other}: RuntimeError: no"]
    assert total(exporter.samples(), "cachedoctor_requests_total", server=str(log)) == 2
    monkeypatch.setattr(Analyzer, "feed", feed)
    assert total(exporter.read().samples(), "cachedoctor_requests_total") == 4


def test_a_folder_has_its_logs_with_new_ones_and_no_other_files(log: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.log").write_text("nothing of a server\n" * 9)
    (tmp_path / "server.log.1").write_text("".join([FIRST]))
    (tmp_path / "folder.log").mkdir()
    exporter = Exporter(folders=(tmp_path,)).read()
    assert total(exporter.samples(), "cachedoctor_log_readable") == 1
    assert total(exporter.samples(), "cachedoctor_requests_total", server=str(log)) == 3
    (tmp_path / "new.log").write_bytes(LOG)
    assert total(exporter.read().samples(), "cachedoctor_requests_total") == 5
    assert exporter.said == []


def test_a_folder_that_is_missing_is_named_once(log: Path, tmp_path: Path) -> None:
    exporter = Exporter(log, folders=(tmp_path / "none",)).read().read()
    assert exporter.said == [f"{tmp_path}/none: cannot be listed (No such file or directory)"]
    assert total(exporter.samples(), "cachedoctor_requests_total") == 2


def cri(text: str) -> str:
    return "".join(f"2026-11-23T03:10:00.000000000Z stderr F {line}" for line in text.splitlines(keepends=True))


def test_logs_of_pods_have_the_name_of_their_container(tmp_path: Path) -> None:
    container = tmp_path / "prod_llama-0_5d1f" / "server"
    container.mkdir(parents=True)
    (container / "0.log").write_text(cri(FIRST))
    sidecar = tmp_path / "prod_llama-0_5d1f" / "proxy"
    sidecar.mkdir()
    (sidecar / "0.log").write_text("2026-11-23T03:10:00.0Z stdout F GET / 200\n" * 20)
    exporter = Exporter(folders=(tmp_path,)).read()
    (container / "0.log.20260101-120000.gz").write_bytes(gzip.compress((container / "0.log").read_bytes()))
    (container / "0.log").write_text(cri(SECOND))
    (container / "1.log").write_text(cri(FIRST))  # the container was started again
    exporter = Exporter(folders=(tmp_path,), saved=exporter.state()).read()
    samples = exporter.samples()
    assert total(samples, "cachedoctor_requests_total", server="prod/llama-0/server") == 3
    assert total(samples, "cachedoctor_requests_total") == 3

    (container / "0.log").unlink()  # as the kubelet does: what it counted stays with its server
    for _ in range(round(many_logs.GONE / many_logs.LOOK) + 2):
        exporter.read()
    assert len(exporter.many) == 1
    assert total(exporter.samples(), "cachedoctor_requests_total", server="prod/llama-0/server") == 3
    again = Exporter(folders=(tmp_path,), saved=exporter.state()).read()
    assert total(again.samples(), "cachedoctor_requests_total") == 3

    shutil.rmtree(tmp_path / "prod_llama-0_5d1f")  # the pod is gone, and so are its series
    for _ in range(round(many_logs.GONE / many_logs.LOOK) + 2):
        exporter.read()
    assert total(exporter.samples(), "cachedoctor_requests_total") == 0
    assert exporter.state().labels["server"] == []


def test_a_log_that_does_not_come_back_after_a_restart_makes_room_for_others(log: Path, tmp_path: Path) -> None:
    """A log of the next pod would be called "other" for good."""
    (tmp_path / "old.log").write_bytes(LOG)
    saved = Exporter(folders=(tmp_path,)).read().state()
    assert len(saved.labels["server"]) == 2
    (tmp_path / "old.log").unlink()
    exporter = Exporter(folders=(tmp_path,), saved=saved, most=2).read()
    exporter.clock.now += many_logs.GONE
    assert exporter.read().state().labels["server"] == [str(log)]
    (tmp_path / "new.log").write_bytes(LOG)
    assert total(exporter.read().samples(), "cachedoctor_requests_total", server=str(tmp_path / "new.log")) == 2


def test_a_log_that_could_never_be_read_makes_room_for_others(log: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.log"
    bad.write_bytes(LOG)
    exporter = Exporter(folders=(tmp_path,))
    exporter.many._look(exporter.clock.now)  # it is found, and then packed under its name
    bad.write_bytes(gzip.compress(LOG))
    exporter.read()
    assert str(bad) in exporter.state().labels["server"]
    bad.unlink()
    exporter.clock.now += many_logs.GONE
    assert exporter.read().state().labels["server"] == [str(log)]


def test_files_that_are_not_logs_are_not_remembered_when_they_are_gone(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.log"
    other.write_text("nothing of a server\n")
    exporter = Exporter(folders=(tmp_path,)).read()
    assert list(exporter.many._places._others) == [str(other)]
    other.unlink()
    assert not exporter.read().many._places._others


def test_a_name_that_is_not_an_utf8_is_kept_in_the_state(log: Path, tmp_path: Path) -> None:
    try:
        odd = log.rename(tmp_path / os.fsdecode(b"odd-\xff.log"))
    except OSError:
        pytest.skip("names are UTF-8 here")
    saved = Exporter(odd).read().state()
    append(odd, THIRD)
    assert sums(Exporter(odd, saved=saved).read().samples()) == reported(odd)


def gone_for_long(exporter: Exporter) -> None:
    for _ in range(round(many_logs.GONE / many_logs.LOOK) + 2):
        exporter.read()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_log_that_was_away_for_long_continues_where_it_stood(tmp_path: Path, restarted: bool) -> None:
    """A rotation that was counted is not there any more: a counter that began again would fall, and rise twice."""
    folder = tmp_path / "logs"
    folder.mkdir()
    log = folder / "server.log"
    log.write_text(FIRST)
    exporter = Exporter(folders=(folder,)).read()
    log.rename(folder / "server.log.1")
    log.write_text(SECOND)
    before = sums(exporter.read().samples())
    assert before["requests"] == 2
    (folder / "server.log.1").unlink()
    log.rename(tmp_path / "elsewhere")
    gone_for_long(exporter)
    assert total(exporter.samples(), "cachedoctor_requests_total") == 0
    if restarted:
        exporter = Exporter(folders=(folder,), saved=exporter.state()).read()
        gone_for_long(exporter)
    (tmp_path / "elsewhere").rename(log)
    assert sums(exporter.read().samples()) == before
    append(log, THIRD)
    assert sums(exporter.read().samples())["requests"] == 3
    assert [saved.gone for saved in exporter.state().logs] == [False]


def test_a_log_that_comes_back_is_not_counted_by_its_heir_as_well(tmp_path: Path) -> None:
    container = tmp_path / "prod_llama-0_5d1f" / "server"
    container.mkdir(parents=True)
    (container / "0.log").write_text(cri(FIRST))
    (container / "1.log").write_text(cri(FIRST))
    exporter = Exporter(folders=(tmp_path,)).read()
    (container / "0.log").rename(tmp_path / ".elsewhere")
    gone_for_long(exporter)
    assert total(exporter.samples(), "cachedoctor_requests_total") == 2
    (tmp_path / ".elsewhere").rename(container / "0.log")
    append(container / "0.log", cri(SECOND))
    assert total(exporter.read().samples(), "cachedoctor_requests_total", server="prod/llama-0/server") == 3


def test_logs_that_are_gone_are_remembered_in_a_bounded_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_logs, "MOST_GONE", 2)
    logs = [tmp_path / f"{number}.log" for number in range(4)]
    for path in logs:
        path.write_bytes(LOG)
    exporter = Exporter(folders=(tmp_path,), most=4).read()
    for path in logs:
        path.unlink()
    gone_for_long(exporter)
    assert [log.path for log in exporter.state().logs] == [str(path) for path in logs[2:]]
    (tmp_path / "3.log").write_bytes(LOG)
    for name in "abcd":
        (tmp_path / f"{name}.log").write_bytes(LOG)
    samples = exporter.read().samples()
    assert total(samples, "cachedoctor_requests_total") == 10
    assert total(samples, "cachedoctor_requests_total", server=str(logs[3])) == 2
    assert total(samples, "cachedoctor_requests_total", server="other") == 2


# ---- the command


def counted(port: int) -> float:
    """Lines that a running exporter has counted."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return total(parsed(answer.read().decode()), "cachedoctor_log_lines_total")


@pytest.mark.sweep
def test_the_command_serves_and_continues_after_a_restart(log: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    for requests in (2, 3):
        with start("exporter", log, "--listen", "127.0.0.1:0", "--state", state, "--no-config") as process:
            assert process.stderr is not None
            said = process.stderr.readline().decode()
            assert said.startswith("cachedoctor: note: serving http://127.0.0.1:"), said
            port = int(said.rpartition(":")[2].partition("/")[0])
            lines = log.read_bytes().count(b"\n")
            wait_for(lambda: time.sleep(0.1) or counted(port) == lines, "counters")  # noqa: B023
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        (saved,) = decoded("", state.read_bytes()).logs
        assert saved.path == str(log)
        assert sum(counted for series, counted, _ in saved.counts if series.metric == "requests") == requests
        assert state.stat().st_mode & 0o777 == 0o600
        append(log, THIRD)


def test_a_state_file_of_another_kind_is_one_line_and_stays(log: Path) -> None:
    done = run("exporter", log, "--state", log, "--listen", "127.0.0.1:0")
    one_line(done, "is not an exporter state file")
    assert done.returncode == 2
    assert log.read_bytes() == LOG
    assert list(log.parent.iterdir()) == [log]


def test_a_state_file_that_another_exporter_has_is_one_line_and_stays(log: Path, tmp_path: Path) -> None:
    """Without the lock both would write their counters there, and after a restart those of one would be missing."""
    state = tmp_path / "state.json"
    state.write_bytes(encoded(Exporter(log).read().state()))
    before = state.read_bytes()
    with exporter_command._held(str(state), is_ours=False):
        done = run("exporter", log, "--state", state, "--listen", "127.0.0.1:0", "--no-config")
    one_line(done, f"{state}: another exporter keeps its counters in this file", "--state FILE")
    assert done.returncode == 2
    assert state.read_bytes() == before
    with exporter_command._held(str(state), is_ours=False):
        pass  # the first one has ended


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_a_state_that_is_not_a_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "state")
    with (
        pytest.raises(CacheDoctorError, match="is not a file"),
        exporter_command._held(f"{tmp_path}/state", is_ours=False),
    ):
        pass


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("server.log", "--listen", "9931"), "'9931' is not an address"),
        (("--no-config",), "give logs, or --follow DIR"),
        (("-",), "the exporter reads files"),
    ],
)
def test_wrong_use_is_one_line(args: tuple[str, ...], words: str) -> None:
    one_line(run("exporter", *args), words)


@pytest.mark.sweep
def test_an_address_in_use_is_one_line(log: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("exporter", log, "--state", tmp_path / "state.json", "--listen", address)
    one_line(done, f"--listen {address}: cannot be used")
    assert done.returncode == 2


def test_nobody_else_imports_the_library_and_without_it_there_is_a_hint(log: Path) -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from cachedoctor.cli import main\n"
        f"sys.argv = ['cachedoctor', 'exporter', {str(log)!r}]\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=False)
    one_line(done, "exporter needs prometheus-client", install("exporter"))
    assert done.returncode == 2
