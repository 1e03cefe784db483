"""A fault of our own, in what reads one server or in one rule, costs that part of the report and is said in it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from command import LOG, SECOND
from schemas import schema_of
from sglang_logs import START

from cachedoctor.diagnosis.rules import registry
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.engines.llamacpp.server_run import ServerRun
from cachedoctor.engines.llamacpp.tracker import Tracker as LlamaTracker
from cachedoctor.engines.sglang.tracker import Tracker as SglangTracker
from cachedoctor.model import CacheDoctorError
from cachedoctor.redaction import sanitize
from cachedoctor.report.wire import report_v1

OTHERS = "".join(f"{line}\n" for line in START).encode()


def reported(*inputs: bytes) -> tuple[dict[str, Any], bool]:
    """The report of several logs, and whether it says that a part of us failed."""
    analyzer, out = Analyzer(), io.BytesIO()
    for number, data in enumerate(inputs):
        analyzer.open(f"server-{number}.log")
        analyzer.feed(data)
    report_v1.render(sanitize.report(analyzer.finish()), out)
    found: dict[str, Any] = json.loads(out.getvalue())
    schema_of("report").validate(found)
    return found, analyzer.crashed


def fails(*_: object, **__: object) -> None:
    """Fail on text of a log."""
    raise ValueError("sk-secret of the log")


def test_a_fault_costs_one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one in the same log, and the next log, are reported."""
    whole, _ = reported(LOG + OTHERS)
    monkeypatch.setattr(SglangTracker, "feed", fails)
    found, crashed = reported(LOG + OTHERS, LOG)
    assert crashed
    assert len(found["requests"]) == 2 * len(whole["requests"])
    assert [f["code"] for f in found["findings"]] == ["CD101", "CD101"]
    assert [s["engine"] for s in whole["sessions"]] == ["llama.cpp", "sglang"]
    assert [s["engine"] for s in found["sessions"]] == ["llama.cpp", "llama.cpp"]
    error = found["inputs"][0]["error"]
    assert error.startswith("internal error, lines of sglang are ignored from here on: ValueError")
    assert "secret" not in error
    assert found["inputs"][1]["error"] is None


def test_what_came_before_a_fault_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines after it are ignored: what they are about is not known any more."""
    whole, _ = reported(LOG)
    monkeypatch.setattr(ServerRun, "purge", fails)
    line = b"0.00.637.500 W srv  operator(): purging slot 0 with 20 tokens\n"
    found, crashed = reported(LOG + line + SECOND.encode().replace(b"task 9 ", b"task 12 "))
    assert crashed
    assert "llama.cpp are ignored" in found["inputs"][0]["error"]
    assert [r["prompt_tokens"] for r in found["requests"]] == [r["prompt_tokens"] for r in whole["requests"]]


def test_a_fault_costs_one_of_several_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one compose log."""
    feed = LlamaTracker.feed
    monkeypatch.setattr(
        LlamaTracker, "feed", lambda self, event: (fails if self.origin == "llama-b" else feed)(self, event)
    )
    lines = [f"llama-{name}  | {line}\n" for line in LOG.decode().splitlines() for name in "ab"]
    found, crashed = reported("".join(lines).encode())
    assert crashed
    assert {s["origin"] for s in found["sessions"] if s["n_requests"]} == {"llama-a"}
    assert "lines of llama.cpp of llama-b are ignored" in found["inputs"][0]["error"]


@pytest.mark.parametrize("step", ["close_open", "quiet", "give_up"])
def test_a_fault_at_the_end_of_a_log(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(LlamaTracker, step, fails)
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed(LOG)
    analyzer.idle()
    report = analyzer.finish()
    assert analyzer.crashed is (step != "give_up")
    assert len(report.findings) == 1


@pytest.mark.parametrize("step", ["decide", "prove", "say", "needs"])
def test_a_fault_costs_one_rule(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    rules, _ = registry.load()
    broken = next(rule for rule in rules if rule.code == "CD101")
    monkeypatch.setattr(broken, step, fails)
    found, crashed = reported(LOG)
    assert crashed
    (left,) = [left for left in found["not_evaluated"] if left["code"] == "CD101"]
    assert left["reason"].startswith("the rule failed: ValueError")
    assert "secret" not in left["reason"]
    assert len(found["requests"]) == 2


def test_what_the_user_can_fix_is_not_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise CacheDoctorError("no space left")

    monkeypatch.setattr(SglangTracker, "feed", full)
    with pytest.raises(CacheDoctorError):
        reported(OTHERS)
