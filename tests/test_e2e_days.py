"""How tests/e2e/days says who lost the tokens of a day: an account that is wrong would call a right diagnosis wrong."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.client import prose
from e2e.days import situations, truth
from e2e.days.recorder import CHAT, Sent
from e2e.days.run import Plan
from e2e.days.tokens import RUN, common, rendered, repeated, runs, tokens

HEAD, REPLY = prose(1, 600), "444444"


def ask(number: int, messages: list[dict[str, Any]], cached: int, conversation: str = "chat", **more: Any) -> Sent:
    """A request that was answered with REPLY a second after it was sent; one second lies between two of them."""
    body = {"messages": messages, **more.pop("body", {})}
    prompt = len(tokens(rendered(body)))
    answer = {
        "choices": [{"message": {"content": REPLY}}],
        "usage": {"prompt_tokens": prompt},
        "timings": {"cache_n": cached, "prompt_n": prompt - cached},
    }
    started = more.pop("started", 2.0 * number)
    client = more.pop("client", "client")
    return Sent(number, CHAT, conversation, client, body, started, started + 1, 200, answer=answer, **more)


def messages(head: str, *said: str) -> list[dict[str, Any]]:
    """A system prompt, then user and assistant in turn."""
    roles = ["user", "assistant"] * len(said)
    spoken = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
    return [{"role": "system", "content": head}, *spoken]


FIRST = messages(HEAD, prose(2, 300))
NEXT = messages(HEAD, prose(2, 300), REPLY, prose(3, 300))


def left(asked: list[dict[str, Any]]) -> int:
    """Tokens that a slot has computed when it has answered: all but the last one of the reply."""
    return len(tokens(rendered({"messages": asked}))) + len(REPLY) - 1


def rows(*sent: Sent) -> dict[str, int]:
    """Rows of the last of these requests that are not 0; those of every request add up to its prompt."""
    accounted = truth.account(list(sent))
    assert all(sum(done.rows.values()) == done.prompt for done in accounted if done.rows)
    return {row: count for row, count in accounted[-1].rows.items() if count}


def test_a_byte_is_a_token_and_so_is_a_special_one() -> None:
    text = rendered({"messages": [{"role": "user", "content": "é"}]})
    assert text == "<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n"
    assert len(tokens(text)) == len("|user\n") + 2 + len("|\n|assistant\n")


def test_a_template_gets_tools_in_the_order_of_the_body() -> None:
    one, two = ({"type": "function", "function": {"name": name}} for name in ("a", "b"))
    text = rendered({"messages": [], "tools": [one, two]})
    assert text.index('{"type": "function", "function": {"name": "a"}}') < text.index('"name": "b"')


def test_a_common_prefix_ends_at_the_first_other_token() -> None:
    assert [common("abcd", other) for other in ("abcd", "abxd", "xbcd", "", "abcdef")] == [4, 2, 0, 0, 4]


def test_text_counts_as_sent_again_in_whole_runs() -> None:
    old, new = prose(4, 400), prose(5, 90)
    assert repeated(new + old, 0, runs(old)) == 400
    assert repeated(new + old, len(new) + 100, runs(old)) == 300
    assert repeated(new + old[: RUN - 1], 0, runs(old)) == 0
    assert repeated(old + new + old, 0, runs(old)) == 800


def test_what_continues_is_reused_but_for_what_is_new() -> None:
    cached = left(FIRST)
    new = len(tokens(rendered({"messages": NEXT}))) - cached
    assert rows(ask(0, FIRST, 0), ask(1, NEXT, cached)) == {"reused": cached, "new": new}


def test_the_server_loses_what_the_conversation_had_in_common_with_itself() -> None:
    got = rows(ask(0, FIRST, 0), ask(1, NEXT, 8))
    assert got["reused"] == 8
    assert got["server"] == left(FIRST) - 8
    assert set(got) == {"reused", "server", "new"}


def test_a_request_without_cache_asked_for_it() -> None:
    got = rows(ask(0, FIRST, 0), ask(1, NEXT, 0, body={"cache_prompt": False}))
    assert got["request"] == left(FIRST)
    assert "server" not in got


def test_the_client_loses_what_it_sends_again_after_a_change() -> None:
    changed = messages("At 14:02. " + HEAD, prose(2, 300), REPLY, prose(3, 300))
    before = messages("At 14:01. " + HEAD, prose(2, 300))
    shared = common(tokens(rendered({"messages": before})), tokens(rendered({"messages": changed})))
    got = rows(ask(0, before, 0), ask(1, changed, shared))
    assert got["client"] == pytest.approx(900, abs=RUN)
    assert got["new"] == pytest.approx(330, abs=RUN)
    assert "server" not in got


def test_new_text_after_a_change_is_nobodys_loss() -> None:
    edited = messages(HEAD, prose(9, 300))
    cached = common(tokens(rendered({"messages": FIRST})), tokens(rendered({"messages": edited})))
    assert set(rows(ask(0, FIRST, 0), ask(1, edited, cached))) == {"reused", "new"}


def test_what_another_client_sent_is_not_a_repetition_of_ours() -> None:
    other = messages("Another head. " + HEAD, prose(2, 300))
    got = rows(ask(0, FIRST, 0), ask(1, other, 0, "other", client="other"))
    assert "client" not in got


def test_a_beginning_of_another_conversation_stands_apart() -> None:
    other = messages(HEAD, prose(9, 300))
    shared = common(tokens(rendered({"messages": FIRST})), tokens(rendered({"messages": other})))
    got = rows(ask(0, FIRST, 0), ask(1, other, 0, "other", client="other"))
    assert got["elsewhere"] == shared


def test_a_beginning_that_was_being_computed_is_lost_together() -> None:
    other = messages(HEAD, prose(9, 300))
    got = rows(ask(0, FIRST, 0), ask(1, other, 0, "other", client="other", started=0.5))
    assert got["together"] == common(tokens(rendered({"messages": FIRST})), tokens(rendered({"messages": other})))
    assert "elsewhere" not in got


def test_a_request_without_numbers_is_not_placed() -> None:
    gone = ask(1, NEXT, 0)
    gone.answer, gone.status, gone.cut = {"heard": "44"}, None, True
    accounted = truth.account([ask(0, FIRST, 0), gone])
    assert accounted[1].rows == {}
    assert accounted[1].shared == left(FIRST)


def test_a_prompt_given_up_leaves_nothing_that_is_known() -> None:
    gone = ask(1, NEXT, 0)
    gone.answer, gone.status, gone.cut = {"heard": ""}, None, True
    assert rows(ask(0, FIRST, 0), gone, ask(2, NEXT, left(FIRST))).keys() == {"reused", "new"}


def test_a_count_that_is_not_the_servers_is_refused() -> None:
    wrong = ask(0, FIRST, 0)
    wrong.answer["usage"]["prompt_tokens"] += 1
    with pytest.raises(truth.NotAsRenderedError, match="request 0"):
        truth.account([wrong])


@pytest.mark.parametrize(
    ("client", "server", "together", "asked", "side"),
    [
        (0, 499, 0, 0, "none"),
        (0, 500, 0, 0, "server"),
        (400, 200, 0, 0, "client"),
        (300, 200, 0, 0, "both"),
        (0, 200, 0, 400, "client"),
        (0, 0, 700, 10, "together"),
    ],
)
def test_the_side_is_who_lost_two_thirds(client: int, server: int, together: int, asked: int, side: str) -> None:
    lost = {"client": client, "server": server, "together": together, "request": asked}
    assert truth.side({**lost, "reused": 5000, "new": 100, "elsewhere": 9000}) == side


def test_a_loss_of_less_than_2_percent_is_none() -> None:
    total = dict.fromkeys(truth.ROWS, 0) | {"reused": 99_000, "server": 1_000}
    assert truth.side(total) == "none"


def test_a_bare_prompt_is_rendered_as_it_is() -> None:
    assert rendered({"prompt": "<|fim_prefix|>a<|fim_suffix|>b"}) == "<|fim_prefix|>a<|fim_suffix|>b"


def test_the_system_field_of_messages_is_a_system_message() -> None:
    said = [{"role": "user", "content": "hello"}]
    as_chat = {"messages": [{"role": "system", "content": "be kind"}, *said]}
    assert rendered({"system": "be kind", "messages": said}) == rendered(as_chat)


def test_pictures_are_sixteen_tokens_and_part_where_their_bytes_differ() -> None:
    def asked(url: str) -> str:
        image = {"type": "image_url", "image_url": {"url": url}}
        content = [image, {"type": "text", "text": "what is there?"}]
        return tokens(rendered({"messages": [{"role": "user", "content": content}]}))

    without = tokens(rendered({"messages": [{"role": "user", "content": "what is there?"}]}))
    assert len(asked("one")) == len(without) + 16
    assert asked("one") == asked("one")
    assert common(asked("one"), asked("two")) == common(asked("one"), without)


def test_the_counts_of_messages_are_read_from_their_usage() -> None:
    usage = {"input_tokens": 45, "cache_read_input_tokens": 200, "output_tokens": 4}
    assert truth.counts({"usage": usage}) == (245, 200)


def test_names_of_situations_are_names_of_folders() -> None:
    names = [situation.name for situation in situations.ALL]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and not name.endswith("_mended") for name in names)
    plan = Plan(situations.ALL[0], "dense", 11549, "lv4", mended=True)
    assert plan.name == "dense-six_on_four_mended-b11549-lv4"
    assert plan.options == ("-np", "4", "-c", "49152", "-lv", "4")
