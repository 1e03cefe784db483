"""cachedoctor probe against fakes: shapes of answers, limits, and everything that can be wrong with a server.

Real servers with planted faults: ``scripts/e2e probe``.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import schemas
from command import LOG
from fake_servers import Fake, raw, served
from typer.testing import CliRunner

from cachedoctor.cli import app
from cachedoctor.doctor import probing
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.probed import Probe, ProbeCause, ProbedServer, ProbeQuestion, State
from cachedoctor.probe import identity, judging, measuring, questioning, reply
from cachedoctor.probe.connection import Answer, Connection
from cachedoctor.report.contract import Tool
from cachedoctor.report.forms.probe_forms import ProbeDocument
from cachedoctor.rules import names

WANTED = questioning.Wanted(None, 300, 20_000, False)


def probed(url: str, *options: str, status: int = 0) -> dict[str, Any]:
    """The JSON of a probe, held against its schema."""
    done = CliRunner().invoke(app, ["probe", url, "-f", "json", "-q", "--prompt-tokens", "300", *options])
    assert done.exit_code == status, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    schemas.schema_of("probe").validate(found)
    return found


def fault(url: str, seconds: float = 5, key: str | None = None) -> CacheDoctorError:
    """What a probe of a bad server ends with."""
    with pytest.raises(CacheDoctorError) as caught:
        questioning.probe(Connection(url, key, seconds), WANTED, lambda _: None, "0")
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def states(found: dict[str, Any]) -> dict[str, str]:
    return {q["name"]: q["state"] for q in found["questions"]}


def test_a_server_that_counts_is_healthy_within_twelve_requests() -> None:
    with served() as (url, seen):
        found = probed(url)
    assert (found["measure"], found["causes"]) == ("count", [])
    assert found["requests"] == len(seen) <= 12
    assert {"less", "more", "unknown"}.isdisjoint(states(found).values())
    assert states(found)["back"] == states(found)["pair-b"] == "as expected"
    assert {body["max_tokens"] for body in seen} == {1}
    assert found["sent_tokens"] == sum(q["prompt_tokens"] for q in found["questions"])


def test_two_runs_share_no_prompt() -> None:
    with served() as (url, _):
        first, second = probed(url), probed(url)
    assert states(first)["first"] == states(second)["first"] == "as expected"
    assert second["questions"][0]["reused_tokens"] < 10


def test_a_server_that_never_reuses_is_asked_less_and_the_request_asks_by_name() -> None:
    with served(reuses=False) as (url, seen):
        found = probed(url, "--fail-on", "deviation", status=1)
    assert found["causes"][0]["codes"][0] == "CD109"
    assert [body.get("cache_prompt") for body in seen] == [None] * 4 + [True, None]


@pytest.mark.parametrize("reuses", [True, False])
def test_vllm_leaves_a_count_of_zero_out_and_says_its_settings(reuses: bool) -> None:
    with served(engine="vllm", reuses=reuses) as (url, _):
        found = probed(url)
    assert (found["server"]["engine"], found["server"]["block_tokens"]) == ("vllm", 16)
    assert found["server"]["prefix_caching"] is reuses
    assert found["measure"] == ("count" if reuses else "none")
    assert [cause["codes"] for cause in found["causes"]] == ([] if reuses else [["CD503"]])
    assert found["questions"][0]["reused_tokens"] == (0 if reuses else None)


@pytest.mark.parametrize(("reuses", "code"), [(True, []), (False, ["CD601"])])
def test_sglang_says_its_settings(reuses: bool, code: list[str]) -> None:
    with served(engine="sglang", reuses=reuses) as (url, _):
        found = probed(url)
    assert (found["server"]["engine"], found["server"]["block_tokens"]) == ("sglang", 1)
    assert [one for cause in found["causes"] for one in cause["codes"]] == code


@pytest.mark.parametrize(("engine", "reuses"), [("ollama", True), ("lmstudio", False)])
def test_without_counts_the_time_tells(engine: str, reuses: bool) -> None:
    with served(engine=engine, reuses=reuses, second_per_token=0.0005) as (url, _):
        found = probed(url)
    assert (found["server"]["engine"], found["measure"]) == (engine, "time")
    assert states(found)["again"] == states(found)["turn"] == ("as expected" if reuses else "less")
    assert all(q["reused_tokens"] is None for q in found["questions"])
    assert bool(found["causes"]) is not reuses


def test_without_counts_and_without_a_difference_nothing_can_be_known() -> None:
    with served(engine="other", counts=False) as (url, _):
        done = CliRunner().invoke(app, ["probe", url, "--prompt-tokens", "300"])
    assert done.exit_code == 3
    assert "Cannot know whether prompts are reused here." in done.stdout
    assert "up to 12 requests of about 300 tokens" in done.stderr


def test_a_refusal_of_tools_is_no_fault_of_the_cache() -> None:
    with served(refuses="no tools\x1b[31m\u202e here") as (url, _):
        found = probed(url)
    assert (states(found)["tools"], "tools-again" in states(found), found["causes"]) == ("refused", False, [])
    note = next(q["note"] for q in found["questions"] if q["name"] == "tools")
    assert note == "400: no tools\\x1b[31m\\u202e here"


def test_an_error_in_an_answer_of_status_200_is_a_refusal() -> None:
    at = Connection("http://h", None, 1)
    found = reply.read(at, Answer(200, {"error": "Unexpected\nendpoint"}, b"{}", 0.1))
    assert found.refused == "200: Unexpected endpoint"


def test_a_busy_server_is_left_alone_unless_forced() -> None:
    with served(busy=True) as (url, seen):
        assert "busy" in fault(url).message
        assert seen == []
        assert probed(url, "--force")["server"]["busy"] is True


def test_the_budget_is_kept_and_what_was_left_out_is_named() -> None:
    with served() as (url, _):
        found = probed(url, "--budget", "1500")
    assert found["sent_tokens"] <= 1500
    left_out = found["notes"][0].partition(": ")[2].split(", ")
    assert {"head", "back"} <= set(left_out)
    assert set(left_out).isdisjoint(states(found))


def test_nothing_is_expected_of_what_was_never_sent() -> None:
    run = questioning._Run(Connection("http://h", None, 1), LLAMA, WANTED, "abcdef")
    assert run._shared(run.table["tools-again"]) == 0
    run.asked = asked(tools=OK)
    assert run._shared(run.table["tools-again"]) > 0


def test_a_cure_is_proved_against_the_stored_probe(tmp_path: Path) -> None:
    before = str(tmp_path / "before.json")
    with served(reuses=False) as (url, _):
        probed(url, "--save", before)
        assert probed(url, "--against", before)["cured"] is False
    with served() as (url, _):
        found = probed(url, "--against", before)
        assert found["cured"] is True
        assert {"name": "again", "before": "less", "after": "as expected"}.items() <= found["changes"][1].items()
        text = CliRunner().invoke(app, ["probe", url, "-q", "--prompt-tokens", "300", "--against", before]).stdout
    assert "cured: what deviated before no longer does" in text


@pytest.mark.parametrize(
    ("state", "cured"), [("as expected", True), ("less", False), ("more", False), ("unknown", None)]
)
def test_what_still_deviates_is_not_cured_though_its_cause_is_unknown(state: State, cured: bool | None) -> None:
    question = ProbeQuestion("again", "", state, 1200, 1190, True, 8)
    cause = ProbeCause("again", [], "", "")
    before = ProbeDocument(
        "cachedoctor.probe/1", Tool("cachedoctor", "0"), LLAMA, "count", 1, 1, 1, 1.0, [question], [cause], [], None,
        None, None,
    )  # fmt: skip
    now = Probe("0", LLAMA, "count", 1, 1, 1, 1.0, [question], [], [])
    probing.join_before(now, before)
    assert now.cured is cured


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff[", b'{"schema":"cachedoctor.report/1"}'])
def test_what_is_no_stored_probe_is_refused_before_anything_is_sent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with served() as (url, seen):
        done = CliRunner().invoke(app, ["probe", url, "--against", str(tmp_path / "x.json")])
    assert isinstance(done.exception, CacheDoctorError)
    assert "is no stored probe" in done.exception.message
    assert seen == []


def test_a_key_comes_from_a_variable_and_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_KEY", "open-sesame-77")
    with served(key="open-sesame-77", name="model of open-sesame-77") as (url, _):
        assert "--api-key-env" in fault(url).hint
        done = CliRunner().invoke(app, ["probe", url, "--prompt-tokens", "300", "--api-key-env", "PROBE_KEY"])
    assert done.exit_code == 0
    assert "open-sesame" not in done.output


@pytest.mark.parametrize("status", [401, 403, 302])
def test_a_gateway_may_keep_what_the_probe_can_do_without(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    send = Fake._send

    def guarded(self: Fake, code: int, value: Any) -> None:
        send(self, status if code == 404 else code, value)

    monkeypatch.setattr(Fake, "_send", guarded)
    with served(engine="ollama", key=None) as (url, _):
        found = questioning.probe(Connection(url, None, 5), WANTED, lambda _: None, "0")
    assert found.server.engine == "ollama"


def asked(**found: tuple[str, int | None]) -> dict[str, ProbeQuestion]:
    """Questions as they were answered: state, and tokens reused of 1,200; ``_`` stands for ``-``."""
    return {
        name.replace("_", "-"): ProbeQuestion(name, "", state, 1200, 1190, True, reused)
        for name, (state, reused) in found.items()
    }


OK, LESS, NONE, PART = ("as expected", 1190), ("less", 8), ("less", 0), ("noted", 700)
LLAMA = ProbedServer("u", "llama.cpp", slots=1)
PATTERNS = {
    "healthy": (LLAMA, asked(again=OK, turn=OK, tail=OK, head=OK, back=OK, pair_a=OK, pair_b=OK), None),
    "slot taken": (LLAMA, asked(again=OK, turn=OK, tail=OK, head=OK, back=LESS), "CD303"),
    "no checkpoints": (LLAMA, asked(again=NONE, turn=OK, tail=NONE), "CD202"),
    "one token too many": (LLAMA, asked(again=NONE, turn=OK, tail=PART), "CD206"),
    "two servers in turn": (LLAMA, asked(again=NONE, turn=OK, tail=OK), "CD508"),
    "slot by age": (ProbedServer("u", "llama.cpp", slots=2), asked(again=NONE, turn=OK, tail=OK), "CD301"),
    "reuse by name only": (LLAMA, asked(again=NONE, turn=NONE, tail=NONE, forced=OK), "CD109"),
    "head changes": (LLAMA, asked(again=LESS, turn=LESS, tail=LESS, forced=LESS), "CD102"),
    "history changes": (LLAMA, asked(again=OK, turn=LESS), "CD105"),
    "tools change": (LLAMA, asked(again=OK, turn=OK, tail=OK, tools_again=LESS), "CD103"),
    "contention": (LLAMA, asked(again=OK, turn=OK, tail=OK, back=OK, pair_a=OK, pair_b=LESS), "CD302"),
    "vLLM off": (ProbedServer("u", "vllm", prefix_caching=False), asked(again=NONE, turn=NONE), "CD503"),
    "SGLang off": (ProbedServer("u", "sglang", prefix_caching=False), asked(again=NONE, turn=NONE), "CD601"),
    "vLLM forgets": (ProbedServer("u", "vllm"), asked(again=OK, turn=OK, tail=OK, head=OK, back=NONE), "CD504"),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_has_one_cause_which_is_a_rule(name: str) -> None:
    server, found, code = PATTERNS[name]
    causes = judging.causes(server, found, {"first": 1200})
    assert [cause.codes[0] for cause in causes] == ([] if code is None else [code])
    assert {code for cause in causes for code in cause.codes} <= {code for code, _ in names.names()}


@pytest.mark.parametrize(
    ("slots", "used", "pinned"), [(2, (0, 0), True), (2, (0, 1), False), (1, (0, 0), False), (2, (0, None), False)]
)
def test_unlike_prompts_in_one_slot_of_several_are_pinned(
    slots: int, used: tuple[int, int | None], pinned: bool
) -> None:
    found = asked(tail=OK, head=OK)
    found["tail"].slot, found["head"].slot = used
    assert judging.one_slot(ProbedServer("u", "llama.cpp", slots=slots), found) is pinned


def test_counts_that_cannot_be_are_trusted_by_nobody() -> None:
    causes = judging.causes(LLAMA, asked(first=OK, head=("more", 1190), again=NONE, turn=NONE), {})
    assert [(cause.question, cause.codes) for cause in causes] == [("head", [])]


@pytest.mark.parametrize(
    ("reused", "inserted", "state"),
    [(1000, 0, "as expected"), (985, 0, "less"), (1000, 500, "unknown"), (1492, 500, "as expected"), (8, 500, "less")],
)
def test_a_head_that_stands_before_every_prompt_proves_nothing(reused: int, inserted: int, state: str) -> None:
    found = ProbeQuestion("back", "", "unknown", 1100 + inserted, 1000, True, reused)
    assert measuring.judge(found, LLAMA, False, inserted) == state


@pytest.mark.parametrize(("reused", "state"), [(0, "as expected"), (600, "as expected"), (950, "more")])
def test_the_control_is_doubted_only_where_what_was_sent_came_back(reused: int, state: str) -> None:
    found = ProbeQuestion("head", "", "unknown", 1000, None, False, reused)
    assert measuring.judge_control(found, 2800) == state


def test_a_log_is_put_beside(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(LOG)
    with served() as (url, _):
        found = probed(url, "--log", str(log))
        missing = CliRunner().invoke(app, ["probe", url, "-q", "--log", str(tmp_path / "none.log")])
    assert found["log_findings"][0].startswith("CD101 billing-header: ")
    assert isinstance(missing.exception, CacheDoctorError)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n"
BAD = {
    "garbage": (b"\x00\xff garbage \x1b[2J\r\n\r\n", "no answer of a server"),
    "nothing": (b"", "ended before it was whole"),
    "half": (HEAD + b'{"data": [', "ended before it was whole"),
    "page": (b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>", "has no /v1/models"),
    "redirect": (b"HTTP/1.1 302 x\r\nLocation: http://e\x1b[2J.example/\r\nContent-Length: 0\r\n\r\n", "redirects to"),
    "nested": (b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 200_000, "has no /v1/models"),
    "refused": (b"HTTP/1.1 403 x\r\nContent-Length: 0\r\n\r\n", "asks for a key"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_one_line_with_a_hint(name: str) -> None:
    answer, words = BAD[name]
    with raw(answer) as url:
        found = fault(url)
    assert words in found.message
    assert "\x1b" not in found.message


def test_a_slow_answer_ends_in_time() -> None:
    begun = time.monotonic()
    with raw(HEAD + b" " * 400, drip=0.05) as url:
        assert "no whole answer came in the time" in fault(url, seconds=0.4).message
    assert time.monotonic() - begun < 3


def test_nobody_there_and_no_tls() -> None:
    with raw(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        assert "TLS failed" in fault(url.replace("http:", "https:")).message
    assert "nothing listens there" in fault(url).message


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a:b@c", "http://h:99999", "http://h/?q", "http://h\x1b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(CacheDoctorError):
        Connection(url, None, 1)


def test_v1_at_the_end_of_an_address_is_taken_off() -> None:
    assert Connection("127.0.0.1:8080/api/v1/", None, 1).url == "http://127.0.0.1:8080/api"


def test_without_an_address_the_usual_ports_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw(b"no http\r\n\r\n") as other, served() as (url, _):
        ports = tuple(int(address.rpartition(":")[2]) for address in (other, url))
        monkeypatch.setattr(questioning, "PORTS", ports)
        assert questioning.find(None, 1).url == url
    assert identity.PORTS == (9931, 8080, 1234, 11434, 8000, 30000)
    with pytest.raises(CacheDoctorError, match="no server answers"):
        questioning.find(None, 1)
