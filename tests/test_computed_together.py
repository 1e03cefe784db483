"""Several first prompts at once: what a log alone may say of them, and what it must not."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import report_of

CHOICES = {
    "age": "selected slot by LRU, t_last = -1",
    "later": "selected slot by LCP similarity, f_sim_best = 0.930 (> 0.100 thold), f_keep = {keep:.3f}",
}


def line(second: float, rest: str) -> str:
    return f"0.{int(second):02d}.{round(second % 1 * 1000):03d}.000 I {rest}\n"


def asked(second: float, slot: int, task: int, choice: str) -> str:
    return line(second, f"slot get_availabl: id  {slot} | task -1 | {choice}") + line(
        second, f"slot launch_slot_: id  {slot} | task {task} | processing task, is_child = 0"
    )


def ended(second: float, slot: int, task: int, computed: int, held: int) -> str:
    who = f"id  {slot} | task {task}"
    prompt = f"{computed:5d} tokens (    0.37 ms per token,  2689.95 tokens per second)"
    reply = "    6 tokens (    3.33 ms per token,   300.00 tokens per second)"
    return (
        line(second, f"slot print_timing: {who} | prompt eval time =    1000.00 ms / {prompt}")
        + line(second, f"slot print_timing: {who} |        eval time =      20.00 ms / {reply}")
        + line(second, f"slot      release: {who} | stop processing: n_tokens = {held}, truncated = 0")
    )


START = (
    line(0.1, "srv    load_model: loading model '/models/dense.gguf'")
    + line(0.2, "srv    load_model: initializing, n_slots = 2, n_ctx_slot = 32768, kv_unified = 'true'")
    + line(0.3, "srv          init: listening on http://127.0.0.1:8080")
)
TOGETHER = asked(1, 1, 0, CHOICES["age"]) + asked(1.1, 0, 1, CHOICES["age"])
ONE_BY_ONE = asked(1, 1, 0, CHOICES["age"]) + ended(2, 1, 0, 2820, 2825) + asked(2.1, 0, 1, CHOICES["age"])
FIRST, SECOND = ended(2, 1, 0, 2820, 2825), ended(3, 0, 1, 2820, 2825)


def later(computed: int, keep: float) -> str:
    """A prompt on slot 0 that shares this share of what the slot held."""
    return asked(4, 0, 9, CHOICES["later"].format(keep=keep)) + ended(5, 0, 9, computed, 2825)


def said(log: str) -> list[dict[str, Any]]:
    return [f for f in report_of(START + log)["findings"] if f["code"] == "CD312"]


def test_a_later_prompt_shows_what_a_burst_may_have_cost() -> None:
    (found,) = said(TOGETHER + FIRST + SECOND + later(198, 0.928))
    assert (found["severity"], found["confidence"]) == ("note", "low")
    assert (found["cost"]["tokens"], found["cost"]["at_most"]) == (0, 2622)  # the other one's share of 2,622 tokens
    assert any(out["why"].startswith("not excluded") for out in found["ruled_out"])


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(TOGETHER + FIRST + SECOND, id="nothing later"),
        pytest.param(ONE_BY_ONE + SECOND + later(198, 0.928), id="one after the other"),
        pytest.param(TOGETHER + FIRST + SECOND + later(280, 1.0), id="the next turn of one of them"),
        pytest.param(TOGETHER + FIRST + ended(3, 0, 1, 400, 405) + later(198, 0.928), id="the first was short"),
    ],
)
def test_it_says_nothing_where_nothing_shows_it(log: str) -> None:
    assert said(log) == []
