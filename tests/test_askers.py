"""Which client a request belongs to: by its body, else by the log; and the account of each, whatever their number."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from command import run
from conftest import FIXTURES, content_of, report_of
from made import request
from msgspec.structs import replace

from cachedoctor.diagnosis.account.asking import count_caller, logged
from cachedoctor.diagnosis.account.ledger import KEPT, SHOWN, Ledger
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.model import ClientName, Judged, Session
from cachedoctor.prompts import client_habits
from cachedoctor.prompts.prompt import Prompt

CASE = FIXTURES / "cases" / "shared-prefix-steal-bodies-b8672"
SYSTEM = {"role": "system", "content": "You are a careful coding helper. Today is 2026-11-23."}
ASKS = {"role": "user", "content": "Hello."}


def asker(**body: Any) -> ClientName | None:
    return client_habits.asker(Prompt("x", "openai-chat", "", body={"messages": [SYSTEM, ASKS], **body}))


def test_the_surest_name_comes_first() -> None:
    """Session before user before salt before system prompt."""
    body: dict[str, Any] = {"session_id": "s-1", "user": "alice", "cache_salt": "secret"}
    assert asker(**body) == ClientName("session", "s-1")
    del body["session_id"]
    assert asker(**body) == ClientName("user", "alice")
    del body["user"]
    found = asker(**body)
    assert found is not None
    assert (found.by, "secret" in found.name) == ("salt", False)
    assert found == asker(cache_salt="secret") != asker(cache_salt="other")
    family = asker()
    assert family is not None
    assert (family.by, "careful" in family.name) == ("system_prompt", False)
    assert client_habits.asker(Prompt("x", "openai-chat", "", body={"messages": [ASKS]})) is None
    assert client_habits.asker(Prompt("x", "slots", "")) is None


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"metadata": {"user_id": "user_1f_account__session_5d3e"}}, ("session", "user_1f_account__session_5d3e")),
        ({"metadata": {"user_id": "u-7"}}, ("user", "u-7")),
        ({"metadata": {"session_id": 42}}, ("session", "42")),
        ({"session_params": {"id": "a"}}, ("session", "a")),
        ({"prompt_cache_key": "k"}, ("session", "k")),
        ({"safety_identifier": "x@example.org"}, ("user", "x@example.org")),
    ],
)
def test_where_bodies_name_a_client(body: dict[str, Any], name: tuple[str, str]) -> None:
    found = asker(**body)
    assert found is not None
    assert (found.by, found.name) == name


@pytest.mark.parametrize("odd", [None, "", "  ", True, [], {}, 10**40, {"x": "y"}])
def test_what_names_nobody(odd: object) -> None:
    """A field of another kind is none: the next one tells."""
    assert asker(user=odd, session_id=odd, metadata=odd, session_params=odd) == asker()


@pytest.mark.parametrize("hostile", ["a\x1b[31mb", "a b", "x" * 65, "<script>", "\ud800"])
def test_a_name_that_is_not_fit_to_be_shown_is_hashed(hostile: str) -> None:
    found = asker(user=hostile)
    assert found is not None
    assert found.name.startswith("#")
    assert len(found.name) == 13


def test_names_can_be_hashed() -> None:
    """The same client has the same hash, another one another."""

    def hashed(**body: Any) -> ClientName | None:
        return client_habits.asker(
            Prompt("x", "openai-chat", "", body={"messages": [SYSTEM, ASKS], **body}), hashed=True
        )

    alice = hashed(user="alice")
    assert alice == ClientName("user", "#" + hashlib.sha256(b"alice").hexdigest()[:12])
    assert alice != hashed(user="bob")
    assert hashed(cache_salt="a") == asker(cache_salt="a")


def test_families_of_system_prompts() -> None:
    """Dates, ids and a billing header do not part them; other words do."""

    def family(text: str, **body: Any) -> ClientName | None:
        return asker(messages=[{"role": "system", "content": text}, ASKS], **body)

    same = family("You are a careful coding helper. Today is 2026-11-23. Session 5d3e1f.")
    assert same == family(
        "x-anthropic-billing-header: cch=1c8b4;\nYou are a careful coding helper. Today is 2026-11-24. Session 77."
    )
    assert same == asker(
        messages=[ASKS], system=[{"type": "text", "text": "You are a careful coding helper. Today is 1. Session 2"}]
    )
    assert same != family("You are a friendly translator. Today is 2026-11-23. Session 5d3e1f.")
    assert family("Hi.") is None


def test_the_log_shows_route_before_address() -> None:
    """What comes before the interface is a tenant's; the interface alone is everybody's."""
    assert logged("/team-a/v1/chat/completions", "10.0.0.7") == ClientName("route", "/team-a")
    assert logged("/team-a/completion?x=1", None) == ClientName("route", "/team-a")
    for path in ("/v1/chat/completions", "/completion", "/v1/messages?beta=true", "/chat/completions", None, "/odd"):
        assert logged(path, "10.0.0.7") == ClientName("address", "10.0.0.7"), path
    assert logged("/v1/messages", None) is None


def bodies(tmp_path: Path, **names: Any) -> GivenPrompts:
    """The bodies of the case; every third one has the user, every third one the session."""
    found = [json.loads(line) for line in (CASE / "requests.jsonl").read_text("utf-8").splitlines()]
    for at, body in enumerate(found):
        if at % 3 < 2:
            body |= [{"user": "alice"}, {"metadata": {"session_id": "s-42"}}][at % 3]
    path = tmp_path / "bodies.jsonl"
    path.write_text("\n".join(map(json.dumps, found)), "utf-8")
    return GivenPrompts([str(path)])


def test_the_accounts_of_clients_add_up(tmp_path: Path) -> None:
    """Rows of the clients are those of the log; each request has the name of its client."""
    report = report_of((CASE / "server.log").read_bytes(), bodies(tmp_path))
    found = {(c["by"], c["name"]): c for c in report["clients"]}
    assert {key: c["requests"] for key, c in found.items() if key[0] != "system_prompt"} == {
        ("user", "alice"): 3, ("session", "s-42"): 3,
    }  # fmt: skip
    whole = next(a for a in report["accounts"] if a["scope"] == "log")
    assert sum(c["prompt_tokens"] for c in report["clients"]) == whole["prompt_tokens"]
    for row in {entry["row"] for entry in whole["entries"]}:
        parts = [e["tokens"] for c in report["clients"] for e in c["entries"] if e["row"] == row]
        assert sum(parts) == sum(e["tokens"] for e in whole["entries"] if e["row"] == row), row
    assert [r["client_name"] for r in report["requests"]][:2] == ["alice", "s-42"]
    assert {r["client_by"] for r in report["requests"]} == {"user", "session", "system_prompt"}


def test_without_bodies_the_address_tells() -> None:
    report = report_of((FIXTURES / "cases" / "cache-reuse-dense-b8672" / "server.log").read_bytes())
    assert [(c["by"], c["name"], c["clients"], c["requests"]) for c in report["clients"]] == [
        ("address", "127.0.0.1", 1, 5)
    ]
    assert report_of("nothing of a server\n")["clients"] == []


MADE = request(prompt_tokens=100, cached_tokens=40, processed_tokens=60)


def judged(name: str | None, at: int) -> Judged:
    made = replace(MADE, index=at)
    return Judged(made, asker=None if name is None else ClientName("user", name))


def test_fifty_thousand_clients_stay_few_rows() -> None:
    """The table has its rows, one for all others and one for the unknown; nothing is lost, and little is remembered."""
    ledger = Ledger()
    for name in [f"user-{at}" for at in range(50_000)] + ["user-7", None] * 3:
        one = judged(name, 0)
        ledger.add_client(one, ledger.add(one))
    assert len(ledger.clients) <= KEPT + 1
    rows = ledger.by_client({})
    assert len(rows) == SHOWN + 2
    assert [row.by for row in rows[-2:]] == ["other", "unknown"]
    assert rows[0].name == "user-7"
    assert sum(row.requests for row in rows) == 50_006
    assert sum(row.prompt_tokens for row in rows) == 5_000_600


def test_ledgers_of_two_parts_add_up() -> None:
    """Each client's sums are those of the whole."""
    whole, first, rest = Ledger(), Ledger(), Ledger()
    for at in range(40):
        one = judged(f"user-{at % 7}", at)
        for ledger in (whole, first if at < 20 else rest):
            ledger.add_client(one, ledger.add(one))
    first.merge(rest, 20, 0)
    assert first.by_client({}) == whole.by_client({})


def test_callers_of_servers_without_requests() -> None:
    """A port is not a client, and 50,000 addresses are few."""
    session = Session(0, "x")
    for port in (40782, 40783):
        count_caller(session, "/v1/chat/completions", f"10.0.0.7:{port}")
    count_caller(session, "/team-a/v1/completions", "10.0.0.7:1")
    count_caller(session, "/v1/completions", "::1:5")
    assert session.callers == {
        ClientName("address", "10.0.0.7"): 2, ClientName("route", "/team-a"): 1, ClientName("address", "::1"): 1,
    }  # fmt: skip
    for at in range(5_000):
        count_caller(session, "/v1/completions", f"10.1.{at // 250}.{at % 250}:1")
    assert len(session.callers) == 4097
    assert sum(session.callers.values()) == 5_004
    rows = Ledger().by_client({}, callers=[session.callers])
    assert (rows[0].name, rows[0].not_placed, rows[-1].by) == ("10.0.0.7", 2, "other")
    assert sum(row.not_placed for row in rows) == 5_004


def test_bodies_beside_vllm_name_clients_better_than_addresses(tmp_path: Path) -> None:
    """Of vLLM, whose log has no requests, bodies are counted; nothing is said of their tokens."""
    log = 'INFO:     10.0.0.7:40782 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * 4
    start = "INFO 04-29 08:14:22 [api_server.py:1043] vLLM API server version 0.8.5\n"
    alone = report_of(start + log)["clients"]
    assert [(c["by"], c["name"], c["requests"], c["not_placed"]) for c in alone] == [("address", "10.0.0.7", 0, 4)]
    named = report_of(start + log, bodies(tmp_path))["clients"]
    assert [(c["by"], c["not_placed"], c["prompt_tokens"]) for c in named] == [
        ("session", 3, 0), ("user", 3, 0), ("system_prompt", 2, 0),
    ]  # fmt: skip


def test_a_redacted_log_has_redacted_clients() -> None:
    """The address is a token there, and so it is in the table."""
    log = (FIXTURES / "cases" / "cache-reuse-dense-b8672" / "server.log").read_bytes()
    redactor = Redactor()
    safe = redactor.feed(log) + redactor.finish()
    assert [(c["by"], c["name"]) for c in report_of(safe)["clients"]] == [("address", "<host-1>")]


@pytest.mark.parametrize("form", ["json", "jsonl", "html"])
def test_a_key_in_a_route_is_shown_in_no_form(form: str, tmp_path: Path) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz012345"
    content = content_of(FIXTURES / "cases" / "cache-prompt-off-dense")
    (tmp_path / "server.log").write_bytes(content.replace(b"POST /", f"POST /{key}/".encode()))
    done = run("analyze", "server.log", "-f", form, folder=str(tmp_path))
    assert key.encode() not in done.stdout
    assert b"sk-proj-" in done.stdout
