"""cachedoctor probe against fakes: shapes of answers, limits, and everything that can be wrong with a server.

Real servers with planted faults: ``scripts/e2e probe``.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
import schemas
from command import LOG
from fake_servers import Fake, raw, served
from typer.testing import CliRunner

from cachedoctor.cli import make_app
from cachedoctor.diagnosis.rules import names
from cachedoctor.live.probe import connection, identity, judging, measuring, plan, probing, questioning
from cachedoctor.live.probe.connection import ProbeConnection, ProbeResponse
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.probed import Probe, ProbeCause, ProbedServer, ProbeQuestion, State
from cachedoctor.model.report import Tool

FIXTURES = Path(__file__).parent.parent / "fixtures"
APP = make_app(["probe"])
WANTED = questioning.ProbeLimits(None, 300, 20_000, False)

LATER = questioning._LATER
"""Seconds after which a template is rendered once more."""


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template without a clock renders the same at once."""
    monkeypatch.setattr(questioning, "_LATER", 0.0)


def probed(url: str, *options: str, status: int = 0) -> dict[str, Any]:
    """The JSON of a probe, held against its schema."""
    done = CliRunner().invoke(APP, ["probe", url, "-f", "json", "-q", "--prompt-tokens", "300", *options])
    assert done.exit_code == status, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    schemas.schema_of("probe").validate(found)
    return found


def fault(url: str, seconds: float = 5, key: str | None = None) -> CacheDoctorError:
    """What a probe of a bad server ends with."""
    with pytest.raises(CacheDoctorError) as caught:
        questioning.probe(ProbeConnection(url, key, seconds), WANTED, lambda _: None, "0")
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


def test_blocks_of_a_hybrid_vllm_are_those_of_its_attention() -> None:
    line = (FIXTURES / "vllm" / "cache-config-hybrid-0.32.0.txt").read_text()
    with served(engine="vllm", block=384, config=line.removeprefix("vllm:cache_config_info").rpartition(" ")[0]) as (
        url,
        seen,
    ):
        found = probed(url, "--prompt-tokens", "700")
    assert (found["server"]["block_tokens"], found["server"]["prefix_caching"]) == (384, True)
    assert (found["causes"], states(found)["again"]) == ([], "as expected")
    # Without a parser of calls vLLM refuses to choose by itself, and shows tools in the prompt all the same.
    assert {body["tool_choice"] for body in seen if "tools" in body} == {"none"}


@pytest.mark.parametrize(
    ("labels", "block"),
    [
        ('block_size="16",mamba_block_size="64"', 16),
        ('block_size="16",effective_attention_block_size="None",cache_hit_alignment_tokens="48"', 48),
        ('block_size="256",prefix_match_unit="32"', 32),
        ('block_size="99999999",mamba_block_size="64"', None),
        ('block_size="²"', None),
    ],
)
def test_what_vllm_reuses_as_a_whole(labels: str, block: int | None) -> None:
    with served(engine="vllm", config=f"{{{labels}}}") as (url, _):
        found, _ = identity.identify(ProbeConnection(url, None, 5), None)
    assert found.block_tokens == block


def test_where_caching_is_on_the_cache_is_not_called_off() -> None:
    with served(engine="vllm", reuses=False, config='{block_size="16",enable_prefix_caching="True"}') as (url, _):
        assert probed(url, status=3)["causes"] == []  # older ones leave the count out where it is 0: nothing is counted
    asked_of = ProbedServer("u", "vllm", prefix_caching=True)
    (cause,) = judging.causes(asked_of, asked(again=NONE, turn=NONE, tail=NONE), {})
    assert (cause.codes, "caching is on" in cause.says) == (["CD510"], True)


def test_reuse_that_ends_early_is_not_a_changed_head() -> None:
    early = asked(first=NONE, again=("less", 1024), turn=("less", 1024), tail=("less", 1024))
    (cause,) = judging.causes(ProbedServer("u", "vllm", prefix_caching=True), early, {"first": 1200})
    assert cause.codes[0] == "CD501"
    (cause,) = judging.causes(LLAMA, early, {"first": 1200})
    assert cause.says.startswith("the same prompt is different from token 1,024 on")


def test_a_context_of_another_server_is_not_fixed_by_options_of_llama_server() -> None:
    with served(engine="vllm", context=300) as (url, _):
        found = probed(url)
    assert found["server"]["context_tokens"] == 300
    assert [(cause["codes"], cause["fix"]) for cause in found["causes"]] == [([], "a larger --max-model-len")]


@pytest.mark.parametrize(("reuses", "code"), [(True, []), (False, ["CD601"])])
def test_sglang_says_its_settings(reuses: bool, code: list[str]) -> None:
    with served(engine="sglang", reuses=reuses) as (url, _):
        found = probed(url)
    assert (found["server"]["engine"], found["server"]["block_tokens"]) == ("sglang", 1)
    assert [one for cause in found["causes"] for one in cause["codes"]] == code


@pytest.mark.parametrize(("engine", "reuses"), [("ollama", True), ("lmstudio", False)])
def test_without_counts_the_time_tells(engine: str, reuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(at: ProbeConnection, answer: ProbeResponse, least: int) -> connection.Reply:
        """Read an answer, with the seconds that the fake says instead of those that this machine took."""
        return connection.read(at, answer._replace(seconds=answer.value["took"]), least)

    monkeypatch.setattr(questioning, "read", timed)
    with served(engine=engine, reuses=reuses, second_per_token=0.0005) as (url, _):
        found = probed(url)
    assert (found["server"]["engine"], found["measure"]) == (engine, "time")
    assert states(found)["again"] == states(found)["turn"] == ("as expected" if reuses else "less")
    assert all(q["reused_tokens"] is None for q in found["questions"])
    assert bool(found["causes"]) is not reuses


def test_without_counts_and_without_a_difference_nothing_can_be_known() -> None:
    with served(engine="other", counts=False) as (url, _):
        done = CliRunner().invoke(APP, ["probe", url, "--prompt-tokens", "300"])
    assert done.exit_code == 3
    assert "It is unknown whether prompts are reused here." in done.stdout
    assert "up to 12 requests of about 300 tokens" in done.stderr


def test_questions_explain_themselves_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns in one table, with counts of up to six digits; a small screen has the names alone."""
    with served() as (url, _):
        monkeypatch.setenv("COLUMNS", "80")
        wide = CliRunner().invoke(APP, ["probe", url, "-q", "--prompt-tokens", "300"]).stdout.splitlines()
        monkeypatch.setenv("COLUMNS", "60")
        small = CliRunner().invoke(APP, ["probe", url, "-q", "--prompt-tokens", "300"]).stdout.splitlines()
    at = next(at for at, row in enumerate(wide) if row.startswith("question "))
    assert wide[at].split() == ["question", "prompt", "expected", "reused", "state"]
    names = [" ".join(row.split()[:7]) for row in wide[at + 2 : at + 12]]
    assert [name for name in names if name.startswith(("back: ", "pair-a: ", "tail: "))] == [
        "tail: the first prompt, its end edited",
        "back: the first chat after another one",
        "pair-a: two at once, the first chat",
    ]
    assert max(map(len, wide)) <= 80
    assert any(row.startswith("pair-a  ") for row in small)
    for question in [*(asked := plan.table("abcdef" * 2, 300)), plan.forced(asked[0]), plan.short("a")]:
        assert len(f"{question.name}: {question.asks}") <= 38


def test_a_refusal_of_tools_is_not_a_fault_of_the_cache() -> None:
    with served(refuses="no tools\x1b[31m\u202e here") as (url, _):
        found = probed(url)
    assert (states(found)["tools"], "tools-again" in states(found), found["causes"]) == ("refused", False, [])
    note = next(q["note"] for q in found["questions"] if q["name"] == "tools")
    assert note == "400: no tools\\x1b[31m\\u202e here"


def test_an_error_in_an_answer_of_status_200_is_a_refusal() -> None:
    at = ProbeConnection("http://h", None, 1)
    found = connection.read(at, ProbeResponse(200, {"error": "Unexpected\nendpoint"}, b"{}", 0.1))
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
    run = questioning._ProbeRun(ProbeConnection("http://h", None, 1), LLAMA, WANTED, "abcdef")
    assert run._shared(run.table["tools-again"]) == 0
    run.asked = asked(tools=OK)
    assert run._shared(run.table["tools-again"]) > 0


def test_a_fix_is_proved_against_the_stored_probe(tmp_path: Path) -> None:
    before = str(tmp_path / "before.json")
    with served(reuses=False) as (url, _):
        probed(url, "--save", before)
        assert probed(url, "--against", before)["cured"] is False
    with served() as (url, _):
        found = probed(url, "--against", before)
        assert found["cured"] is True
        assert {"name": "again", "before": "less", "after": "as expected"}.items() <= found["changes"][1].items()
        text = CliRunner().invoke(APP, ["probe", url, "-q", "--prompt-tokens", "300", "--against", before]).stdout
    assert "fixed: none of the earlier deviations remain" in text


@pytest.mark.parametrize(
    ("state", "cured"), [("as expected", True), ("less", False), ("more", False), ("unknown", None)]
)
def test_what_still_deviates_is_not_fixed_though_its_cause_is_unknown(state: State, cured: bool | None) -> None:
    question = ProbeQuestion("again", "", state, 1200, 1190, True, 8)
    cause = ProbeCause("again", [], "", "")
    before, now = (Probe(TOOL, LLAMA, "count", 1, 1, 1, 1.0, [question], causes) for causes in ([cause], []))
    probing.join_before(now, before)
    assert (now.cured, now.other_server) == (cured, [])


UNLIKE = {
    "build": (ProbedServer("u", "llama.cpp", "b9000-a", slots=1), 1200, "build: b9000-a, now b9001-b"),
    "model": (ProbedServer("u", "llama.cpp", "b9001-b", "other"), 1200, "model: other, now tiny"),
    "a build that is not said": (ProbedServer("u", "llama.cpp"), 1200, "build: unknown, now b9001-b"),
    "engine": (ProbedServer("u", "ollama", "b9001-b"), 1200, "server: ollama, now llama.cpp"),
    "prompts": (ProbedServer("u", "llama.cpp", "b9001-b"), 6000, "prompts: 6,000 tokens, now 1,200"),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_against_another_server_nothing_is_fixed(name: str) -> None:
    server, tokens, said = UNLIKE[name]
    found = {
        state: ProbeQuestion("first", "", state, length) for state, length in (("less", tokens), ("as expected", 1200))
    }
    before = Probe(TOOL, server, "count", 1, 1, 1, 1.0, [found["less"]], [ProbeCause("first", [], "", "")])
    here = ProbedServer("u", "llama.cpp", "b9001-b", "tiny")
    now = Probe(TOOL, here, "count", 1, 1, 1, 1.0, [found["as expected"]], [])
    probing.join_before(now, before)
    assert (now.cured, now.other_server) == (None, [said])


@pytest.mark.parametrize("model", [None, "tiny", "/models/tiny", "C:\\models\\tiny"])
def test_the_same_model_may_be_said_in_another_way(model: str | None) -> None:
    servers = [ProbedServer("u", "llama.cpp", "b9001-b", name) for name in (model, "tiny")]
    before, now = (Probe(TOOL, server, "count", 1, 1, 1, 1.0, [], []) for server in servers)
    probing.join_before(now, before)
    assert now.other_server == []


def test_that_the_stored_probe_is_of_another_build_stands_first(tmp_path: Path) -> None:
    before = str(tmp_path / "before.json")
    with served(reuses=False, build="b9000-old") as (url, _):
        probed(url, "--save", before)
    with served() as (url, _):
        text = CliRunner().invoke(APP, ["probe", url, "-q", "--prompt-tokens", "300", "--against", before]).stdout
    assert text.startswith("The saved probe is not comparable: build: b9000-old, now b11549-1234567.")
    assert "cured" not in text
    assert "compared with the saved probe: cannot tell" in text


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff[", b'{"schema":"cachedoctor.report/1"}'])
def test_what_is_not_a_stored_probe_is_refused_before_anything_is_sent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with served() as (url, seen):
        done = CliRunner().invoke(APP, ["probe", url, "--against", str(tmp_path / "x.json")])
    assert isinstance(done.exception, CacheDoctorError)
    assert "is not a saved probe" in done.exception.message
    assert seen == []


def test_a_key_comes_from_a_variable_and_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_KEY", "open-sesame-77")
    with served(key="open-sesame-77", name="model of open-sesame-77") as (url, _):
        assert "--api-key-env" in fault(url).hint
        done = CliRunner().invoke(APP, ["probe", url, "--prompt-tokens", "300", "--api-key-env", "PROBE_KEY"])
    assert done.exit_code == 0
    assert "open-sesame" not in done.output


@pytest.mark.parametrize("status", [401, 403, 302])
def test_a_gateway_may_keep_what_the_probe_can_do_without(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    send = Fake._send

    def guarded(self: Fake, code: int, value: Any) -> None:
        send(self, status if code == 404 else code, value)

    monkeypatch.setattr(Fake, "_send", guarded)
    with served(engine="ollama", key=None) as (url, _):
        found = questioning.probe(ProbeConnection(url, None, 5), WANTED, lambda _: None, "0")
    assert found.server.engine == "ollama"


def asked(**found: tuple[str, int | None]) -> dict[str, ProbeQuestion]:
    """Questions as they were answered: state, and tokens reused of 1,200; ``_`` stands for ``-``."""
    return {
        name.replace("_", "-"): ProbeQuestion(name, "", state, 1200, 1190, True, reused)
        for name, (state, reused) in found.items()
    }


PARTLY = ("less", 600)
OK, LESS, NONE, PART = ("as expected", 1190), ("less", 8), ("less", 0), ("noted", 700)
LLAMA = ProbedServer("u", "llama.cpp", slots=1)
TOOL = Tool("cachedoctor", "0")


def seeing(build: str | None) -> ProbedServer:
    """A llama-server with a projector."""
    return ProbedServer("u", "llama.cpp", build, slots=1, images=True)


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
    "template writes the time": (LLAMA, asked(again=OK, turn=OK, tail=OK, template=("less", 12)), "CD102"),
    "template writes no time": (LLAMA, asked(again=OK, turn=OK, tail=OK, template=OK), None),
    "tools change": (LLAMA, asked(again=OK, turn=OK, tail=OK, tools_again=LESS), "CD103"),
    "projector, old: no RAM cache": (seeing("b7964"), asked(again=OK, turn=OK, tail=OK, back=LESS), "CD303"),
    "projector, old: no checkpoints": (seeing("b7079-abc"), asked(again=NONE, turn=OK, tail=NONE), "CD209"),
    "projector, new: no checkpoints": (seeing("b8156"), asked(again=NONE, turn=OK, tail=NONE), "CD202"),
    "contention": (LLAMA, asked(again=OK, turn=OK, tail=OK, back=OK, pair_a=OK, pair_b=LESS), "CD302"),
    "vLLM off": (ProbedServer("u", "vllm", prefix_caching=False), asked(again=NONE, turn=NONE), "CD503"),
    "SGLang off": (ProbedServer("u", "sglang", prefix_caching=False), asked(again=NONE, turn=NONE), "CD601"),
    "vLLM forgets after a few": (ProbedServer("u", "vllm"), asked(again=OK, turn=OK, back=OK, pair_b=PARTLY), "CD504"),
    "vLLM forgets": (ProbedServer("u", "vllm"), asked(again=OK, turn=OK, tail=OK, head=OK, back=NONE), "CD504"),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_has_one_cause_which_is_a_rule(name: str) -> None:
    server, found, code = PATTERNS[name]
    causes = judging.causes(server, found, {"first": 1200})
    assert [cause.codes[0] for cause in causes] == ([] if code is None else [code])
    assert {code for cause in causes for code in cause.codes} <= {code for code, _ in names.names()}


@pytest.mark.parametrize(
    ("build", "fix"),
    [
        ("b7551-a52dc60ba", "b8156 or newer, or --no-mmproj, or one more slot (-np)"),
        ("b8156", "--cache-ram 8192 (0 is off; builds before b6751 have none), or -np 2"),
        (None, "--cache-ram 8192 (0 is off; with --mmproj from b8156 on), or -np 2"),
    ],
)
def test_a_ram_cache_is_not_a_fix_where_a_projector_switches_it_off(build: str | None, fix: str) -> None:
    causes = judging.causes(seeing(build), asked(again=OK, turn=OK, tail=OK, head=OK, back=LESS), {})
    assert [cause.fix for cause in causes] == [fix]


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
def test_a_head_that_comes_before_every_prompt_proves_nothing(reused: int, inserted: int, state: str) -> None:
    found = ProbeQuestion("back", "", "unknown", 1100 + inserted, 1000, True, reused)
    assert measuring.judge(found, LLAMA, False, inserted) == state


@pytest.mark.parametrize(("reused", "state"), [(0, "as expected"), (600, "as expected"), (950, "more")])
def test_the_control_is_doubted_only_where_what_was_sent_came_back(reused: int, state: str) -> None:
    found = ProbeQuestion("head", "", "unknown", 1000, None, False, reused)
    assert measuring.judge_control(found, 2800) == state


def in_slots(**slots: int | None) -> dict[str, ProbeQuestion]:
    """The next turn was recomputed, and each question used this slot."""
    found = asked(first=OK, again=OK, turn=("less", 8))
    for name, slot in slots.items():
        found[name].slot = slot
    return found


@pytest.mark.parametrize(
    ("slots", "code"),
    [
        ({"first": 1, "again": 1, "turn": 0}, "CD301"),
        ({"first": 1, "again": 1, "turn": 1}, "CD105"),  # the slot that held it was taken, and did not match
        ({"first": None, "again": None, "turn": 0}, "CD105"),
    ],
)
def test_a_turn_that_went_to_another_slot_is_not_rewritten(slots: dict[str, int | None], code: str) -> None:
    found = judging.causes(ProbedServer("u", "llama.cpp", slots=2), in_slots(**slots), {})
    assert [cause.codes[0] for cause in found] == [code]


def test_a_template_is_rendered_again_a_second_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questioning, "_LATER", LATER)
    with served(renders=True, ticks=True) as (url, _):
        found = probed(url)
    assert states(found)["template"] == "less"
    assert found["causes"][0]["codes"][0] == "CD102"
    with served(renders=True) as (url, _):
        found = probed(url)
    assert states(found)["template"] == "as expected"
    assert found["causes"] == []


def test_a_log_is_put_beside(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(LOG)
    with served() as (url, _):
        found = probed(url, "--log", str(log))
    assert found["log_findings"][0].startswith("CD101 billing-header: ")
    assert found["log_findings"][0].endswith("; the responses in this probe show no such fault")
    with served(reuses=False) as (url, _):
        assert not probed(url, "--log", str(log))["log_findings"][0].endswith("no such fault")


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        ("--log", "none.log", "no such file"),
        ("--log", ".", "is a directory"),
        ("--save", "none/x.json", "cannot be written"),
        ("--against", "none.json", "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_noticed_before_anything_is_sent(
    tmp_path: Path, option: str, name: str, words: str
) -> None:
    with served() as (url, seen):
        done = CliRunner().invoke(APP, ["probe", url, "-q", option, str(tmp_path / name)])
    assert isinstance(done.exception, CacheDoctorError)
    assert words in done.exception.message
    assert seen == []


def pictures(seen: list[dict[str, Any]]) -> list[str]:
    """The images that were sent, in order."""
    parts = [m["content"] for body in seen for m in body["messages"] if isinstance(m["content"], list)]
    return [part["image_url"]["url"] for content in parts for part in content if part["type"] == "image_url"]


@pytest.mark.parametrize("renders", [True, False])
def test_an_image_is_asked_for_twice_within_twelve_requests(renders: bool) -> None:
    with served(images="kept", renders=renders) as (url, seen):
        found = probed(url)
        sent = pictures(seen)
        probed(url)
        others = pictures(seen)[2:]
    assert (found["requests"], found["causes"], found["server"]["images"]) == (12, [], True)
    image = next(q for q in found["questions"] if q["name"] == "image")
    assert image["state"] == "as expected"
    assert image["reused_tokens"] == image["expected_tokens"] - 1 == image["prompt_tokens"] - 1
    # The template shows a system message in the middle: one request serves both. Else there is none left for it.
    assert ("system" in states(found), "look" in states(found)) == (renders, not renders)
    assert len(sent) == len(others) == 2
    assert sent[0] == sent[1] != others[0] == others[1]


def test_the_image_is_a_png() -> None:
    with served(images="kept") as (url, seen):
        probed(url)
    raw = base64.b64decode(pictures(seen)[0].removeprefix("data:image/png;base64,"))
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(raw):
        (size,) = struct.unpack_from(">I", raw, at)
        kind, data = raw[at + 4 : at + 8], raw[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", raw, at + 8 + size) == (zlib.crc32(kind + data),)
        chunks[kind], at = data, at + 12 + size
    width, height, depth, colour = struct.unpack(">2I2B3x", chunks[b"IHDR"])
    assert (list(chunks), depth, colour) == ([b"IHDR", b"IDAT", b"IEND"], 8, 2)
    assert len(zlib.decompress(chunks[b"IDAT"])) == height * (1 + 3 * width)


@pytest.mark.sample(2)
@pytest.mark.parametrize("renders", [True, False])
@pytest.mark.parametrize(
    ("images", "codes", "words"),
    [
        ("anew", ["CD110"], "the same image is different"),
        ("lost", [], "a prompt with an image is computed from the start"),
    ],
)
def test_what_happens_to_images_is_named(images: str, codes: list[str], words: str, renders: bool) -> None:
    with served(images=images, renders=renders) as (url, seen):
        found = probed(url)
    assert [(cause["question"], cause["codes"]) for cause in found["causes"]] == [("image", codes)]
    assert found["causes"][0]["says"].startswith(words)
    assert len(seen) == found["requests"] == 12


def test_no_image_is_sent_where_the_server_does_not_say_that_it_sees() -> None:
    with served() as (url, seen):
        found = probed(url)
    assert (pictures(seen), found["server"]["images"]) == ([], False)
    assert "system" in states(found)


def test_a_refusal_of_images_is_not_a_fault_of_the_cache() -> None:
    with served(images="refused", renders=True) as (url, seen):
        found = probed(url)
    assert (found["causes"], states(found)["system"], states(found)["look"]) == ([], "refused", "refused")
    assert "image" not in states(found)
    assert len(seen) == found["requests"] <= 12


def test_an_image_costs_budget() -> None:
    with served(images="kept") as (url, seen):
        found = probed(url, "--budget", "3500")
    assert pictures(seen) == []
    assert {"look", "image"} <= set(found["notes"][0].partition(": ")[2].split(", "))
    assert found["sent_tokens"] <= 3500


@pytest.mark.parametrize(
    ("modes", "sees"),
    [(["text", "image"], True), (["text"], False), ("image", None), (None, None), ([["image"]], False)],
)
def test_a_list_of_models_may_say_that_one_sees(modes: Any, sees: bool | None) -> None:
    listed = [7, {"id": "a"}, {"id": "b", "architecture": {"input_modalities": modes}}]
    assert identity._sees(listed, "b") is sees
    assert identity._sees(listed, "a") is None


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n"
BAD = {
    "garbage": (b"\x00\xff garbage \x1b[2J\r\n\r\n", "not a server response"),
    "nothing": (b"", "response is incomplete"),
    "half": (HEAD + b'{"data": [', "response is incomplete"),
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
        assert "no complete response within the time limit" in fault(url, seconds=0.4).message
    assert time.monotonic() - begun < 3


def test_nobody_there_and_no_tls() -> None:
    with raw(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        assert "TLS failed" in fault(url.replace("http:", "https:")).message
    assert "nothing listens at this address" in fault(url).message


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a:b@c", "http://h:99999", "http://h/?q", "http://h\x1b"])
def test_what_is_not_an_address_is_refused(url: str) -> None:
    with pytest.raises(CacheDoctorError):
        ProbeConnection(url, None, 1)


def test_v1_at_the_end_of_an_address_is_taken_off() -> None:
    assert ProbeConnection("127.0.0.1:8080/api/v1/", None, 1).url == "http://127.0.0.1:8080/api"


def test_without_an_address_the_usual_ports_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw(b"no http\r\n\r\n") as other, served() as (url, _):
        ports = tuple(int(address.rpartition(":")[2]) for address in (other, url))
        monkeypatch.setattr(questioning, "PORTS", ports)
        assert questioning.find(None, 1).url == url
    assert identity.PORTS == (9931, 8080, 1234, 11434, 8000, 30000)
    with pytest.raises(CacheDoctorError, match="no server answers"):
        questioning.find(None, 1)


@pytest.mark.sample(3)
@pytest.mark.parametrize("after", [1, 2, 6, 9])
@pytest.mark.parametrize("engine", ["llama.cpp", "vllm"])
def test_what_somebody_else_evicted_is_not_a_fault(engine: str, after: int) -> None:
    with served(engine=engine, others_after=after) as (url, _):
        found = probed(url)
    assert (found["causes"], [q for q in found["questions"] if q["state"] == "less"]) == ([], [])
    assert (
        "another client used the server during the probe: losses that may be evictions do not count as deviations"
        in found["notes"]
    )
    told = [q["name"] for q in found["questions"] if q["note"].startswith("unknown: another client")]
    assert told
    assert all(states(found)[name] == "unknown" for name in told)


def test_whether_there_were_others_is_said_where_it_cannot_be_seen() -> None:
    with served(others_after=6, shows_slots=False) as (url, _):
        found = probed(url)
    assert "other users of the server during the probe cannot be detected: probe again to be sure" in found["notes"]
    with served(reuses=False) as (url, _):
        assert not any("somebody else" in note for note in probed(url)["notes"])


def test_a_stored_answer_tells_nothing_of_the_cache() -> None:
    with served(stores=True) as (url, seen):
        found = probed(url)
    assert (found["causes"], len(seen)) == ([], found["requests"] - 2)
    assert (states(found)["again"], states(found)["tools-again"]) == ("unknown", "unknown")
    said = (
        "something between client and server caches responses: again, tools-again show nothing about the server's cache"
    )
    assert said in found["notes"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("budget", ["500", "800", "1200"])
def test_a_budget_for_a_few_questions_gives_no_cause_and_no_traceback(budget: str) -> None:
    with served() as (url, _):
        assert probed(url, "--budget", budget)["causes"] == []


ODD_USAGES = {
    "strings": {"prompt_tokens": "700", "prompt_tokens_details": {"cached_tokens": "1"}},
    "negative": {"prompt_tokens": 700, "prompt_tokens_details": {"cached_tokens": -3}},
    "null": {"prompt_tokens": None, "prompt_tokens_details": None},
    "huge": {"prompt_tokens": 1e308, "prompt_tokens_details": {"cached_tokens": 1e308}},
    "a long integer": {"prompt_tokens": 10**400, "prompt_tokens_details": {"cached_tokens": 0}},
    "more cached than there is": {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 301}},
    "no details": {"prompt_tokens": 300},
    "zero": {"prompt_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}},
    "a list": [1, 2],
    "true": {"prompt_tokens": True, "prompt_tokens_details": {"cached_tokens": True}},
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("engine", ["llama.cpp", "vllm", "other"])
@pytest.mark.parametrize("name", ODD_USAGES)
def test_counts_that_are_none_give_no_cause(name: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"choices": [{"message": {"content": "1"}}], "usage": ODD_USAGES[name]}
    monkeypatch.setattr(Fake, "_answer", lambda *_: answer)
    with served(engine=engine, renders=engine == "llama.cpp") as (url, _):
        found = questioning.probe(ProbeConnection(url, None, 5), WANTED, lambda _: None, "0")
    assert (found.causes, found.measure) == ([], "none")


@pytest.mark.parametrize("engine", ["llama.cpp", "vllm"])
def test_one_odd_count_among_sound_ones_is_unknown(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Fake._answer

    def odd(self: Fake, tokens: int, cached: int) -> dict[str, Any]:
        made = answer(self, tokens, cached)
        if len(self.seen) == 2:
            made = {
                **made,
                "timings": None,
                "usage": made["usage"] | {"prompt_tokens_details": {"cached_tokens": 1 << 40}},
            }
        return made

    monkeypatch.setattr(Fake, "_answer", odd)
    with served(engine=engine) as (url, _):
        found = probed(url)
    assert (found["measure"], found["causes"], states(found)["again"]) == ("count", [], "unknown")


def refusing(monkeypatch: pytest.MonkeyPatch, status: int, after: int) -> None:
    """Let fakes answer with a status from so many chats on."""
    send = Fake._send

    def guarded(self: Fake, code: int, value: Any) -> None:
        late = len(self.seen) >= after
        send(self, status if late else code, {"error": {"message": "Loading model"}} if late else value)

    monkeypatch.setattr(Fake, "_send", guarded)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("status", "words"), [(503, "is not ready"), (429, "overloaded")])
@pytest.mark.parametrize("after", [0, 1, 8])
def test_a_server_that_is_not_ready_or_overloaded_is_not_a_faulty_one(
    status: int, words: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, status, after)
    with served() as (url, _):
        found = fault(url)
    assert words in found.message
    assert str(status) in found.message


MODELS = b'{"data": [{"id": "m"}]}'
PACKED = gzip.compress(MODELS)
ANSWERS = {
    "half packed": (b"gzip", PACKED[:9], "has no /v1/models"),
    "not packed": (b"gzip", b"{}", "is not gzip, despite its header"),
    "a bomb": (b"gzip", gzip.compress(bytes(9 << 20)), "more than 8 MiB"),
    "brotli": (b"br", b"xx", "compressed as br"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_packed_badly_is_said(name: str) -> None:
    coding, body, words = ANSWERS[name]
    with raw(b"HTTP/1.0 200 OK\r\nContent-Encoding: " + coding + b"\r\n\r\n" + body) as url:
        assert words in fault(url).message


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + PACKED, id="packed"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n" + MODELS, id="plain"),
    ],
)
def test_answers_are_read_packed_and_without_a_length(answer: bytes) -> None:
    with raw(answer) as url:
        found = ProbeConnection(url, None, 5).get("/v1/models")
    assert found is not None
    assert found.value == json.loads(MODELS)


def test_a_stream_that_was_not_asked_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "_answer", lambda *_: 'data: {"choices": []}\n\ndata: [DONE]\n\n')
    with served(engine="other") as (url, _):
        assert "is a stream, which was not requested" in fault(url).message


def test_metrics_slots_and_names_of_any_kind_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Fake._said

    def odd(self: Fake) -> dict[str, Any]:
        return said(self) | {
            "/metrics": "llamacpp:requests_processing +\nllamacpp:requests_processing 1.2.3\n",
            "/slots": [None, {"id": "0"}, {"id": 1, "id_task": 1e308}, {"id": 2, "id_task": -5, "is_processing": "no"}],
            "/v1/models": {"data": [{"id": "m\ud800\x1b[2J", "max_model_len": "9", "owned_by": ["x"]}, 5]},
        }

    monkeypatch.setattr(Fake, "_said", odd)
    with served() as (url, _):
        found = probed(url)
    assert (found["causes"], "\x1b" in found["server"]["model"]) == ([], False)
