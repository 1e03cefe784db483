"""Fixes that remember a conversation put nothing of one client, or of one conversation, into the request of another."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from proxy_talks import CHAT, Sending, clock, foreign, passed, requests

from cachedoctor.live.proxy import known_conversation
from cachedoctor.live.proxy.body_fixes import NAMES, BodyFixer
from cachedoctor.live.proxy.connections import SenderDigest
from cachedoctor.live.proxy.exchange import Exchange, ProxyOptions
from cachedoctor.live.proxy.looking import Looking

ONE = {"Authorization": "Bearer sk-one"}


def sent(*sendings: Sending, fixes: tuple[str, ...] = NAMES) -> list[bytes]:
    return asyncio.run(passed(sendings, fixes))[0]


def raw(body: Any) -> bytes:
    return json.dumps(body).encode()


@pytest.mark.sample(10)
@pytest.mark.parametrize(
    "other",
    [
        {"Authorization": "Bearer sk-two"},
        {},
        {**ONE, "x-api-key": "two"},
        {**ONE, "api-key": "two"},
        {**ONE, "X-Goog-Api-Key": "two"},
        {**ONE, "Cookie": "login=two"},
        {**ONE, "Proxy-Authorization": "Basic dHdv"},
        {**ONE, "X-Forwarded-For": "10.0.0.2"},
        {**ONE, "OpenAI-Organization": "two"},
        {**ONE, "X-Session-Id": "two"},
    ],
)
@pytest.mark.parametrize("fix", ["freeze-clock", "keep-tools", "keep-reasoning", "pin-mid-system"])
def test_another_key_is_another_client(fix: str, other: dict[str, str]) -> None:
    first, second = requests("abra"), requests("babel", number=9)
    sendings = [Sending(first[0], ONE), Sending(second[1], other), Sending(second[2], other), Sending(first[1], ONE)]
    found = sent(*sendings, fixes=(fix,))
    assert found[1] == raw(second[1])
    assert b"abra" not in found[1] + found[2]
    assert b"babel" not in found[3] != raw(first[1])


def test_a_conversation_of_one_client_is_fixed() -> None:
    bodies = requests("abra")
    found = [json.loads(body) for body in sent(*(Sending(body, ONE) for body in bodies))]
    assert all(clock(0, 0) in body["messages"][0]["content"] for body in found)
    assert found[2]["tools"][: len(found[0]["tools"])] == found[0]["tools"]
    assert found[1]["messages"][2] == bodies[0]["messages"][2]
    assert [one.get("reasoning_content") for one in found[1]["messages"]].count("Thinks of abra-b0") == 1


def test_clients_whose_conversations_begin_alike_are_all_fixed() -> None:
    """What another client says makes no conversation uncertain."""
    talks = {word: requests(word, number) for number, word in enumerate(("abra", "babel"))}
    sendings = [Sending(talks[word][n], {"x-api-key": word}) for n in range(3) for word in talks]
    found = sent(*sendings)
    changed = [body != raw(sending.body) for body, sending in zip(found, sendings, strict=True)]
    assert changed == [False, False, True, True, True, True]


@pytest.mark.parametrize("query", ["?key=one", "/sk-one"])
def test_keys_in_the_address_distinguish_clients(query: str) -> None:
    place = f"{CHAT}{query}" if query.startswith("?") else f"{query}{CHAT}"
    first, second = requests("abra"), requests("babel", number=9)
    other = Sending(second[1], {}, path=place.replace("one", "two"))
    found = sent(Sending(first[0], {}, path=place), other, Sending(first[1], {}, path=place))
    assert found[1] == raw(second[1])
    assert found[2] != raw(first[1])


@pytest.mark.parametrize("field", ["user", "session_id", "prompt_cache_key", "cache_salt", "api_key"])
def test_users_that_a_body_names_are_clients_of_their_own(field: str) -> None:
    for names in ({field: "%s"}, {"metadata": {field: "%s", "turn": 0}}):
        first, second = (
            [body | json.loads(json.dumps(names) % who) for body in requests(word, number)]
            for who, word, number in (("one", "abra", 0), ("two", "babel", 9))
        )
        found = sent(Sending(first[0], ONE), Sending(second[1], ONE), Sending(first[1], ONE))
        assert found[1] == raw(second[1])
        assert found[2] != raw(first[1])


def test_without_a_key_the_address_distinguishes_clients() -> None:
    first, second = requests("abra"), requests("babel", number=9)
    for key in ({}, ONE):  # a key that moves to another address is not trusted either
        found = sent(Sending(first[0], key), Sending(second[1], key, "127.0.0.2"), Sending(first[1], key))
        assert found[1] == raw(second[1])
        assert found[2] != raw(first[1])


@pytest.mark.parametrize("known", [0, 1, 2])
def test_what_may_continue_either_of_two_conversations_stays(known: int) -> None:
    """``known``: requests of the first conversation that passed before the second one begins."""
    first, second = requests("abra"), requests("babel", number=9)
    before = [Sending(body, ONE) for body in first[:known]]
    found = sent(*before, Sending(second[0], ONE), Sending(first[0], ONE), Sending(second[1], ONE))
    assert found[-1] == raw(second[1])


def test_the_second_conversation_of_a_client_takes_nothing_from_a_longer_one() -> None:
    """All that it has in common are turns that the first one has left behind."""
    first, second = requests("abra"), requests("babel", number=9)
    found = sent(*(Sending(body, ONE) for body in first[:2]), Sending(second[1], ONE))
    assert found[2] == raw(second[1])


def test_each_of_two_conversations_continues_once_it_says_its_own() -> None:
    first, second = requests("abra", turns=4), requests("babel", number=9, turns=4)
    found = sent(*(Sending(body, ONE) for pair in zip(first, second, strict=True) for body in pair))
    assert [found[n] == raw(first[n // 2]) for n in (0, 2)] == [True, True]
    for n, (mine, other) in enumerate([(b"abra", b"babel"), (b"babel", b"abra")] * 4):
        assert other not in found[n]
        assert mine in found[n]
    for n, bodies in ((6, first), (7, second)):  # the third request is known by what only this conversation says
        body = json.loads(found[n])
        assert body["tools"] != bodies[3]["tools"]
        assert len(body["messages"]) > len(bodies[3]["messages"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("alike", [0, 2, 4])
def test_nothing_of_forgotten_conversations_is_mixed_up(alike: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two clients' conversations that all begin alike, only a few are remembered at a time."""
    monkeypatch.setattr(known_conversation, "MOST", 5)
    chance = random.Random(alike)
    order = [number for number in range(16) for _ in range(4)]
    chance.shuffle(order)
    order += [number for number in range(16) for _ in range(2)]  # two at a time of each, so that some are remembered
    waiting = {number: requests(_word(number), number, 6, alike) for number in range(16)}
    sendings = [Sending(waiting[number].pop(0), _key(number)) for number in order]
    found = sent(*sendings)
    assert [foreign(body, _word(number), number) for number, body in zip(order, found, strict=True)] == [[]] * 96
    changed = sum(body != raw(sending.body) for body, sending in zip(found, sendings, strict=True))
    assert changed > 16


def _word(number: int) -> str:
    return f"{('one', 'two')[number % 2]}-{number:04d}"


def _key(number: int) -> dict[str, str]:
    return {"Authorization": f"Bearer sk-{number % 2}"}


NEUTRAL = {b"Content-Length": b"%d", b"X-Request-Id": b"r%d", b"traceparent": b"00-%d", b"Idempotency-Key": b"i%d",
           b"X-Stainless-Retry-Count": b"%d", b"Date": b"%d"}  # fmt: skip
"""Fields whose values are new in each request of one client."""


def test_a_sender_is_known_by_all_that_names_it_and_by_nothing_else() -> None:
    digest, other = SenderDigest(), SenderDigest()
    key = (b"Authorization", b"Bearer sk-one")
    fields = [[key, *((name, value % n) for name, value in NEUTRAL.items())] for n in range(2)]
    same = {digest.of(given, CHAT, "10.0.0.1") for given in fields}
    assert len(same) == 1
    assert digest.of([(b"authorization", key[1])], CHAT, "10.0.0.1") in same
    assert digest.of([key], f"{CHAT}/count_tokens", "10.0.0.1") in same
    assert other.of([key], CHAT, "10.0.0.1") not in same
    # Parts that make one text when they are put together are still different parts.
    split = [
        [(b"x-key", b"ab")],
        [(b"x-key", b"a"), (b"x-key", b"b")],
        [(b"x-key", b"a"), (b"x-token", b"b")],
        [key, key],
    ]
    assert len({digest.of(given, CHAT, "10.0.0.1") for given in split} | same) == 5
    assert list(vars(digest)) == ["_key"]


def test_a_dry_run_keeps_clients_apart_and_writes_no_digest(tmp_path: Path) -> None:
    first, second = requests("abra"), requests("babel", number=9)
    looking = Looking(ProxyOptions(record=str(tmp_path / "r"), fixes=NAMES, dry_run=True))
    senders = [b"ONE" * 9, b"ONE" * 9, b"TWO" * 9, b"TWO" * 9]
    seen = [
        looking.at(Exchange(float(n), "POST", CHAT, 200, 0.1, 0.1, raw(body), sender=sender))
        for n, (body, sender) in enumerate(zip([*first[:2], *second[1:]], senders, strict=True))
    ]
    looking.close()
    assert [bool(one.edits) for one in seen] == [False, True, False, True]
    written = (tmp_path / "r").read_bytes() + repr(seen).encode()
    assert b"ONE" not in written
    assert b"TWO" not in written


@pytest.mark.parametrize(("second", "is_put_back"), [("Hm", True), ("Other", False)])
def test_reasoning_of_a_request_that_came_twice_is_put_back_where_both_agree(second: str, is_put_back: bool) -> None:
    fixer = BodyFixer(["keep-reasoning"])
    begun = {"messages": [{"role": "user", "content": "hi"}]}
    said = {"role": "assistant", "content": "Hello!"}
    for thought in ("Hm", second, "Hm"):
        fixed = fixer.fix(raw(begun), CHAT, b"me")
        fixer.replied(fixed, said | {"reasoning_content": thought})
    then = {"messages": [*begun["messages"], said, {"role": "user", "content": "And?"}]}
    assert (b"Hm" in fixer.fix(raw(then), CHAT, b"me").body) is is_put_back
    assert fixer.fix(raw(then), CHAT, b"you").body == raw(then)
