"""Fixes that remember a conversation: each edits what it is about, as little as can be, and nothing when unsure."""

from __future__ import annotations

import asyncio
import json
import random
import re
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import ClientSession, web
from conftest import ROOT
from yarl import URL

from cachedoctor.live.proxy import known_conversation
from cachedoctor.live.proxy.body_fixes import NAMES, BodyFixer, Fixed
from cachedoctor.live.proxy.exchange import Exchange, ProxyOptions
from cachedoctor.live.proxy.held_bytes import HeldBytes, ReplyCopy
from cachedoctor.live.proxy.json_spans import Number, inside, items, top
from cachedoctor.live.proxy.known_conversation import EACH, MOST, KnownConversations, Thought, TurnTrail, trail
from cachedoctor.live.proxy.looking import Looking
from cachedoctor.live.proxy.relay import Relay

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
ME = b"me"
"""Digest of the one client of a test."""
CASES = ROOT / "fixtures" / "cases"
NOW = 'You are Marlow.\nIt is %s.\nRules: \u00e9\u5e74 \U0001f642 \\n "quoted".'


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **more}}}


def fixed(names: str, *bodies: Any, path: str = CHAT) -> list[Fixed]:
    """Each body as the fixes leave it, one request after the other."""
    fixer = BodyFixer(names.split())
    return [fixer.fix(body if isinstance(body, bytes) else json.dumps(body).encode(), path, ME) for body in bodies]


def talk(head: str, *turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [system(head), *turns], **more}


def recorded(case: str) -> list[dict[str, Any]]:
    return [json.loads(line)["body"] for line in (CASES / case / "requests.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("requests-timestamp", "freeze-clock"),
        ("requests-tools-reordered", "keep-tools"),
        ("requests-reasoning-stripped", "keep-reasoning"),
    ],
)
def test_recorded_conversations_only_continue_when_they_are_fixed(case: str, name: str) -> None:
    bodies = recorded(case)
    assert not all(goes_on(a, b) for a, b in pairwise(bodies))
    after = [json.loads(found.body) for found in fixed(name, *bodies)]
    assert all(goes_on(a, b) for a, b in pairwise(after))
    assert after[0] == bodies[0]


def goes_on(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether all that the first request says is in the second at its place."""
    same = [a.get(key) == b.get(key) for key in ("system", "tools")]
    return all(same) and b["messages"][: len(a["messages"])] == a["messages"]


@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_clock_stands_and_every_other_byte_stays(ascii_only: bool) -> None:
    times = ("Monday, 23 November 2026, 09:59", "Tuesday, 24 November 2026, 10:01")
    heads = [json.dumps(talk(NOW % time, user("Hi 10:00")), ensure_ascii=ascii_only) for time in times]
    heads[1] = heads[1].replace(
        '"Hi 10:00"}', '"Hi 10:00"}, {"role": "assistant", "content": "10:02"},  {"role":"user"}'
    )
    found = fixed("freeze-clock", *(head.encode() for head in heads))
    assert found[0].edits == ()
    assert found[1].body == heads[1].replace(times[1], times[0]).encode()
    assert found[1].edits == ("freeze-clock: 1 date or time of the system prompt restored from the first request",)


def test_the_clock_of_every_api_stands() -> None:
    more = [user("Hi"), reply("Ho"), user("And?")]
    for key in ("system", "instructions"):
        name = "messages" if key == "system" else "input"
        bodies = [{key: f"It is {time} now.", name: more[: 2 * n + 1]} for n, time in enumerate(("10:00", "10:01"))]
        assert json.loads(fixed("freeze-clock", *bodies)[1].body)[key] == "It is 10:00 now."
    blocks = [{"system": [{"type": "text", "text": f"Since {n}"}], "messages": more[: 2 * i + 1]} for i, n in
              enumerate((1763647210, 1763647999))]  # fmt: skip
    assert json.loads(fixed("freeze-clock", *blocks, path=MESSAGES)[1].body)["system"][0]["text"] == "Since 1763647210"


def test_what_else_changed_in_the_system_prompt_is_another_conversation() -> None:
    bodies = [talk("It is 10:00. Be kind."), talk("It is 10:01. Be brief.")]
    for body in bodies:
        body["messages"] += [user("Hi"), reply("Ho"), user("And?")]
    assert [found.edits for found in fixed("freeze-clock keep-tools", *bodies)] == [(), ()]


def test_tools_that_went_come_back_and_new_ones_come_after_them() -> None:
    lists = [
        [tool("read"), tool("write")],
        [tool("look"), tool("read")],
        [{"function": {"parameters": {"type": "object"}, "name": "write"}, "type": "function"}, tool("read", x=1)],
        [],
    ]
    turns = [user("Hi"), reply("Ho")] * 4
    bodies = [talk("Be kind", *turns[: 2 * n + 1], tools=tools) for n, tools in enumerate(lists)]
    found = fixed("keep-tools", *bodies)
    lists_after = [json.loads(one.body)["tools"] for one in found]
    assert lists_after[1] == [tool("read"), tool("write"), tool("look")]
    # What a tool says now counts; how it is written does not.
    assert lists_after[2] == [tool("read", x=1), tool("write"), tool("look")]
    assert b'"tools": [%s' % json.dumps(tool("read", x=1)).encode() in found[2].body
    assert lists_after[3] == []
    assert found[1].edits == ("keep-tools: 3 tools as before, 1 restored, 1 new at the end",)
    assert found[2].edits == ("keep-tools: 3 tools as before, 1 restored",)


@pytest.mark.parametrize(
    "choice", ["required", "none", {"type": "any"}, {"type": "function", "function": {"name": "a"}}]
)
def test_tools_stay_where_the_model_is_not_free_to_choose(choice: Any) -> None:
    first = talk("Be kind", user("Hi"), tools=[tool("a"), tool("b")])
    then = talk("Be kind", user("Hi"), reply("Ho"), user("And?"), tools=[tool("a")], tool_choice=choice)
    assert fixed("keep-tools", first, then)[1].edits == ()


def test_reasoning_that_an_answer_had_is_put_back() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}
    said = {"role": "assistant", "content": None, "reasoning_content": 'Let me "see"', "tool_calls": [call]}
    again = call | {"id": "c2", "function": {"name": "read", "arguments": '{"a":1}'}}
    fixer = BodyFixer(["keep-reasoning"])
    first = fixer.fix(json.dumps(talk("Be kind", user("Hi"))).encode(), CHAT, ME)
    fixer.replied(first, said)
    result = {"role": "tool", "tool_call_id": "c2", "content": "1"}
    sent = talk("Be kind", user("Hi"), {"role": "assistant", "tool_calls": [again], "content": ""}, result)
    found = fixer.fix(json.dumps(sent).encode(), CHAT, ME)
    message = json.loads(found.body)["messages"][2]
    assert message == {"role": "assistant", "tool_calls": [again], "content": "", "reasoning_content": 'Let me "see"'}
    assert found.edits == ("keep-reasoning: restored the reasoning of 1 reply",)
    other = talk("Be kind", user("Hi"), reply("Something else"), user("And?"))
    assert fixer.fix(json.dumps(other).encode(), CHAT, ME).edits == ()


def test_thinking_blocks_are_in_front_with_their_signature() -> None:
    thought = {"type": "thinking", "thinking": "Hm", "signature": "c2ln"}
    use = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    kept = [user("Hi"), reply("", content=[thought, use]), user("1")]
    for content in ([use], [{"type": "text", "text": ""}, use]):
        dropped = [user("Hi"), reply("", content=content), user("1"), reply("Ho"), user("And?")]
        found = fixed("keep-reasoning", {"messages": kept}, {"messages": dropped}, path=MESSAGES)[1]
        assert json.loads(found.body)["messages"][1]["content"] == [thought, *content]
    plain = [{"messages": [user("Hi"), reply("", content=[thought, {"type": "text", "text": "Ho"}]), user("A")]},
             {"messages": [user("Hi"), reply("Ho"), user("A"), reply("B"), user("C")]}]  # fmt: skip
    found = fixed("keep-reasoning", *plain, path=MESSAGES)[1]
    assert json.loads(found.body)["messages"][1]["content"] == [thought, {"type": "text", "text": "Ho"}]


def test_reasoning_inside_the_text_comes_back_with_it() -> None:
    bodies = [talk("Be kind", user("Hi"), reply("<think>Hm</think>\nHo"), user("A")),
              talk("Be kind", user("Hi"), reply("Ho"), user("A"), reply("B"), user("C"))]  # fmt: skip
    found = fixed("keep-reasoning", *bodies)[1]
    assert json.loads(found.body)["messages"][2] == reply("<think>Hm</think>\nHo")


NOTE, LATER = system("12,000 tokens are left"), system("9,000 tokens are left")


def test_a_system_message_that_vanished_stands_where_it_was() -> None:
    turns = [user("Hi"), reply("Ho"), user("And?"), reply("No"), user("Why?")]
    first, then = talk("Be kind", turns[0], NOTE), talk("Be kind", *turns[:3], LATER)
    last = talk("Be kind", *turns)
    found = [json.loads(one.body)["messages"] for one in fixed("pin-mid-system", first, then, last)]
    assert found[1] == [system("Be kind"), turns[0], NOTE, *turns[1:3], LATER]
    assert found[2] == [system("Be kind"), turns[0], NOTE, *turns[1:3], LATER, *turns[3:]]


def test_a_system_message_that_moved_goes_back() -> None:
    turns = [user("Hi"), reply("Ho"), user("And?")]
    first, then = talk("Be kind", turns[0], NOTE), talk("Be kind", *turns, NOTE)
    found = fixed("pin-mid-system", first, then)[1]
    assert json.loads(found.body)["messages"] == [system("Be kind"), turns[0], NOTE, *turns[1:]]
    assert found.edits == (
        "pin-mid-system: system messages in the middle: 1 moved back to the original position, 1 moved",
    )


def test_a_history_that_was_rewritten_gets_nothing_back() -> None:
    first = talk("Be kind", user("Hi"), reply("Ho"), user("And?"), NOTE)
    then = talk("Be kind", user("Hi"), reply("Ho"), user("Or?"), reply("No"), user("Why?"))
    again = talk("Be kind", user("Hi"), reply("Ho"), user("And?"))
    assert [found.edits for found in fixed("pin-mid-system", first, then, again)] == [(), (), ()]


ADDED = "\n\n<system-reminder>\n3 files are open\n</system-reminder>"


def test_what_travels_with_the_newest_message_stays_where_it_was_sent_first() -> None:
    asked, then = user("Hi" + ADDED), user("And?" + ADDED)
    bodies = [
        talk("Be kind", asked),
        talk("Be kind", user("Hi"), reply("Ho"), then),
        talk("Be kind", user("Hi"), reply("Ho"), user("And?"), reply("No"), user("Why?" + ADDED)),
    ]
    found = fixed("keep-reminders", *bodies)
    assert [json.loads(one.body)["messages"][1:] for one in found] == [
        [asked],
        [asked, reply("Ho"), then],
        [asked, reply("Ho"), then, reply("No"), user("Why?" + ADDED)],
    ]
    assert found[2].edits == ("keep-reminders: restored additions to 2 messages of the user",)


def test_what_travels_as_a_part_of_a_list_stays_without_its_mark() -> None:
    said = {"type": "text", "text": "Hi"}
    added = {"type": "text", "text": ADDED.strip(), "cache_control": {"type": "ephemeral"}}
    first = {"messages": [{"role": "user", "content": [said, added]}]}
    newest = {"role": "user", "content": [{"type": "text", "text": "And?"}, added]}
    then = {"messages": [{"role": "user", "content": [said]}, reply("Ho"), newest]}
    found = json.loads(fixed("keep-reminders", first, then, path=MESSAGES)[1].body)["messages"]
    bare = {key: value for key, value in added.items() if key != "cache_control"}
    assert found == [{"role": "user", "content": [said, bare]}, reply("Ho"), newest]


@pytest.mark.parametrize(
    "then",
    [
        talk("Be kind", user("Hi" + ADDED), reply("Ho"), user("And?" + ADDED)),  # it stays by itself
        talk("Be kind", user("Hi"), reply("Ho"), user("And?")),  # it is gone: the user switched it off
        talk("Be kind", user("Hi"), reply("Ho"), user("And? <environment_details>x</environment_details>")),  # another
        talk("Be kind", user("Hey"), reply("Ho"), user("And?" + ADDED)),  # the message was edited
        talk("Be kind", user("<b>Hi</b>"), reply("Ho"), user("And? <b>now</b>")),  # the user's own words
    ],
)
def test_what_does_not_travel_is_not_put_back(then: dict[str, Any]) -> None:
    assert fixed("keep-reminders", talk("Be kind", user("Hi" + ADDED)), then)[1].edits == ()


def test_nothing_that_travels_is_put_into_the_request_of_another() -> None:
    fixer = BodyFixer(["keep-reminders"])
    first, then = talk("Be kind", user("Hi" + ADDED)), talk("Be kind", user("Hi"), reply("Ho"), user("And?" + ADDED))
    fixer.fix(json.dumps(first).encode(), CHAT, ME)
    assert fixer.fix(json.dumps(then).encode(), CHAT, b"other").edits == ()


def test_where_servers_move_system_messages_they_become_those_of_the_user() -> None:
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]}
    use = reply("", content=[{"type": "tool_use", "id": "t", "name": "read", "input": {}}])
    begun = [user("Hi"), use, result]
    bodies = [{"system": "Be kind", "messages": [*begun, NOTE]},
              {"system": "Be kind", "messages": [*begun, reply("Ho"), user("And?"), LATER]}]  # fmt: skip
    found = [json.loads(one.body)["messages"] for one in fixed("pin-mid-system", *bodies, path=MESSAGES)]
    assert found[0] == [user("Hi"), use, result, NOTE | {"role": "user"}]
    assert found[1] == [*found[0], reply("Ho"), user("And?"), LATER | {"role": "user"}]
    counted = fixed("pin-mid-system", bodies[0], path=f"{MESSAGES}/count_tokens")[0]
    assert json.loads(counted.body)["messages"] == found[0]
    between = {"messages": [user("Hi"), use, NOTE, result]}
    assert fixed("pin-mid-system", between, path=MESSAGES)[0].edits == ()


def test_conversations_that_began_alike_are_not_mixed_up() -> None:
    lists = ([tool("a"), tool("b")], [tool("c")])
    firsts = [talk("Be kind", user("Hi"), tools=tools) for tools in lists]
    then = talk("Be kind", user("Hi"), reply("Ho"), user("And?"), tools=[tool("b")])
    assert [found.edits for found in fixed("keep-tools", *firsts, then)] == [(), (), ()]
    assert fixed("keep-tools", firsts[0], then | {"model": "another"})[1].edits == ()
    # The same request sent again is not another conversation.
    assert fixed("keep-tools", firsts[0], firsts[0], then)[2].edits != ()


def test_the_same_body_again_is_fixed_the_same() -> None:
    bodies = [talk(NOW % time, user("Hi"), reply("Ho"), user("And?"), NOTE) for time in ("10:00", "10:01", "10:01")]
    found = fixed(" ".join(NAMES), *bodies)
    assert found[1].body == found[2].body == found[0].body


def test_memory_is_bounded() -> None:
    known = KnownConversations()
    begun = [user("Hi"), reply("Ho"), user("And?")]
    for n in range(MOST + 20):
        known.keep(known.follow(trailed(talk("Be kind", user(f"Hi {n}"), *begun)), ME))
    assert len(known._kept) == MOST
    first, last = (trailed(talk("Be kind", user(f"Hi {n}"), *begun, reply("No"), user("So"))) for n in (0, MOST + 19))
    before = [one for one, _ in known._kept.values()]
    assert known.follow(first, ME) not in before  # forgotten, so a new one
    found = known.follow(last, ME)
    assert found in before
    assert known.follow(last, b"another") not in before
    found.tools = {"a": "x" * (EACH + 1)}
    known.keep(found)
    assert (found.is_off, found.tools) == (True, None)
    assert known._size == sum(size for _, size in known._kept.values())


def test_what_waits_and_where_requests_ended_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_conversation, "ENDS", 10)
    known = KnownConversations()
    one = known.follow(trailed(talk("Be kind", user("Hi"))), ME)
    known.keep(one)
    for n in range(40):
        known.note(one, n, Thought(content="x" * (1 << 20)))
    for n in range(30):
        known.follow(trailed(talk("Be kind", user(f"Hi {n}"))), ME)
    assert len(known._ends) == 10
    assert 1 < len(one.thoughts) < 9
    assert known._size == one.size > 1 << 20
    known.keep(one)  # more than one conversation may have
    assert (one.is_off, known._size) == (True, 0)


def trailed(body: dict[str, Any]) -> TurnTrail:
    found = trail(body)
    assert found is not None
    return found


def test_texts_that_are_to_be_embedded_are_not_a_conversation() -> None:
    assert trail({"input": ["to be embedded"]}) is None


def test_places_in_strings_count_escapes() -> None:
    said = 'a\n"\\\U0001f642\u5e74b'
    for raw in (json.dumps(said), json.dumps(said, ensure_ascii=False)):
        text = f'{{"x": {raw}}}'
        at = inside(text, top(text)["x"], list(range(len(said) + 1)))
        assert [json.loads(f'"{text[a:b]}"') for a, b in pairwise(at)] == list(said)


def test_a_stream_is_the_message_that_clients_send_back() -> None:
    deltas = [{"role": "assistant", "content": None}, {"reasoning_content": "Let "}, {"reasoning_content": "me"},
              {"content": "So"}, {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "read"}}]},
              {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
              {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}]  # fmt: skip
    lines = [f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n" for delta in deltas]
    data = "".join([": ping\n\n", *lines, 'data: {"choices":[],"usage":{}}\n\ndata: [DONE]\n\n']).encode()
    copy = ReplyCopy(HeldBytes(), is_stream=True)
    for at in range(0, len(data), 7):
        assert not copy.is_over
        copy.add(data[at : at + 7])
    assert copy.is_over
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}}
    assert copy.message() == reply("So", reasoning_content="Let me", tool_calls=[call])


def test_a_stream_of_blocks_is_a_message_too() -> None:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "x", "input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
        {"type": "message_stop"},
    ]
    copy = ReplyCopy(HeldBytes(), is_stream=True)
    copy.add("".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode())
    thought = {"type": "thinking", "thinking": "Hm", "signature": "s"}
    assert copy.is_over
    assert copy.message() == reply(
        "", content=[thought, {"type": "tool_use", "name": "x", "input": {"a": Number("1")}}]
    )


@pytest.mark.parametrize(
    "data", [b"data: [1]\n", b'data: {"choices":[{"index":1,"delta":{}}]}\n', b'data: {"choices":[{"delta":3}]}\n', b""]
)
def test_an_answer_that_is_odd_is_not_told(data: bytes) -> None:
    copy = ReplyCopy(HeldBytes(), is_stream=True)
    copy.add(data)
    assert copy.message() is None
    whole = ReplyCopy(HeldBytes(), is_stream=False)
    whole.add(data)
    assert whole.message() is None


def test_a_dry_run_counts_what_the_answer_left_in_the_cache() -> None:
    """The words of the reasoning are as many as those of the prompt, and only the fix has both reused."""
    thought = "Some word after another. " * 100
    looking = Looking(ProxyOptions(fixes=("keep-reasoning",), dry_run=True))
    bodies = [
        talk("Be kind", user("Say it. " * 120)),
        talk("Be kind", user("Say it. " * 120), reply("Ho"), user("And?")),
    ]
    seen = []
    for n, (body, counts) in enumerate(zip(bodies, ((370, 0), (380, 368)), strict=True)):
        usage = {"prompt_tokens": counts[0], "prompt_tokens_details": {"cached_tokens": counts[1]}}
        answer = json.dumps({"id": "a", "choices": [], "usage": usage}).encode()
        said = json.dumps(reply("Ho", reasoning_content=thought)).encode()
        data = json.dumps(body).encode()
        seen.append(looking.at(Exchange(float(n), "POST", CHAT, 200, 0.1, 0.1, data, answer=answer, reply=said)))
    looking.close()
    assert [one.dry_run for one in seen] == [False, True]
    assert seen[1].would_reuse is not None
    assert 1.5 * 368 < seen[1].would_reuse < 3 * 368


def values(chance: random.Random, depth: int = 0) -> Any:
    """Something like a part of a body, seldom as it must be."""
    words = ["system", "user", "assistant", "tool", "10:00", "text", "<think>a</think>b", "", "read", "thinking", None]
    keys = ["role", "content", "messages", "tools", "type", "text", "name", "function", "thinking", "reasoning_content",
            "tool_calls", "arguments", "system", "input", "tool_choice"]  # fmt: skip
    kind = chance.randrange(4 if depth < 5 else 2)
    if kind == 0:
        return chance.choice([*words, 3, True])
    if kind == 1:
        return chance.choice(words)
    if kind == 2:
        return [values(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(keys): values(chance, depth + 1) for _ in range(chance.randrange(5))}


def test_no_body_breaks_a_fix() -> None:
    chance = random.Random(7)
    for path in (CHAT, MESSAGES):
        fixer = BodyFixer(NAMES)
        for _ in range(600):
            odd = values(chance)
            odd = odd if isinstance(odd, dict) else {}
            parts = [values(chance, 4) for _ in range(chance.randrange(5))]
            roles = ["system", "user", "assistant"]
            messages = [part | {"role": chance.choice(roles)} if isinstance(part, dict) else part for part in parts]
            body = odd | ({"messages": messages} if chance.random() < 0.8 else {})
            found = fixer.fix(json.dumps(body).encode(), path, ME)
            assert isinstance(json.loads(found.body), dict)
            assert found.edits or found.body == json.dumps(body).encode()
    assert fixer.fix(b'{"messages":' + b"[" * 100_000, CHAT, ME).edits == ()


def test_the_list_of_tools_keeps_what_stands_between_them() -> None:
    first = b'{"messages":[{"role":"user"}],"tools":[ {"name":"a"} ,\n {"name":"b"} ]}'
    then = b'{"messages":[{"role":"user"},{"role":"assistant"}],"tools":[ {"name":"b"} ,\n {"name":"c"} ]}'
    found = fixed("keep-tools", first, then)[1].body
    assert found == then.replace(b'{"name":"b"} ,\n {"name":"c"}', b'{"name":"a"} ,\n {"name":"b"} ,\n {"name":"c"}')
    assert len(items(found.decode(), top(found.decode())["tools"].start)) == 3


def test_what_the_server_refuses_is_sent_again_as_it_was() -> None:
    bodies = [talk(NOW % f"10:0{n}", *[user("Hi"), reply("Ho")] * n, user("Hi")) for n in range(4)]
    told, got, seen = asyncio.run(exchanged(bodies))
    # The server knows no prompt of 10:00 with an answer in it, for whatever reason.
    assert got == [200] * 4
    sent = [re.findall("10:0.", text)[0] for text in told]
    assert sent == ["10:00", "10:00", "10:01", "10:02", "10:03"]
    assert [one.edits for one in seen] == [()] * 4
    assert [one.unfixed for one in seen] == [
        "",
        "rejected with freeze-clock (400), so the request was sent again without edits",
        "",
        "",
    ]
    assert [one.body for one in seen] == [json.dumps(body).encode() for body in bodies]


async def exchanged(bodies: list[Any]) -> tuple[list[str], list[int], list[Exchange]]:
    """Send bodies through a proxy to a server that refuses some: what it was told, statuses, what is told of them."""
    told: list[str] = []
    seen: list[Exchange] = []

    async def answer(request: web.Request) -> web.Response:
        told.append(await request.text())
        return web.Response(status=400 if "10:00" in told[-1] and "Ho" in told[-1] else 200)

    async def listening(handler: Any) -> tuple[web.ServerRunner, int]:
        runner = web.ServerRunner(web.Server(handler))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, runner.addresses[0][1]

    server, port = await listening(answer)
    asked = ProxyOptions(fixes=("freeze-clock", "keep-reasoning"))
    relay = Relay(URL(f"http://127.0.0.1:{port}"), "x", asked, lambda exchange, _: seen.append(exchange))
    await relay.open()
    proxy, port = await listening(relay.handle)
    got = []
    async with ClientSession() as client:
        for body in bodies:
            async with client.post(f"http://127.0.0.1:{port}{CHAT}", data=json.dumps(body)) as found:
                got.append(found.status)
    await relay.close()
    await proxy.cleanup()
    await server.cleanup()
    return told, got, seen
