"""The line that LM Studio's MLX engine logs of each request becomes an answer of its session."""

from __future__ import annotations

import pytest
from answered import numbers, sessions_of

BODY = "[coordinator][INFO]: Prompt cache restore: cached_tokens={} uncached_tokens={} lifetime_efficiency=66.83%"


@pytest.mark.parametrize(
    "record",
    [
        "2026-07-04 14:15:37 [DEBUG]\n{}\n",
        "2026-07-04 14:15:37 [DEBUG]\n {}\n",
        "[2026-08-08 19:46:00][DEBUG]{}\n",
        "[2026-08-08 19:46:00][DEBUG][google/gemma-4-26b] {}\n",
        "{}\n",
    ],
)
def test_the_last_token_is_not_in_the_two_numbers(record: str) -> None:
    """256 + 101 tokens, and the last one: the response to this request said 358."""
    [session] = sessions_of(record.format(BODY.format(256, 101)) + record.format(BODY.format(17408, 24)))
    assert session.engine == "lmstudio-mlx"
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(358, 256), (17433, 17408)]


def test_without_the_name_of_its_logger() -> None:
    [session] = sessions_of(BODY.partition(": ")[2].format(0, 80128) + "\n")
    assert numbers(session) == [(80129, 0, 1)]


def test_quoted_in_a_prompt_it_is_not_a_request() -> None:
    assert sessions_of(f'it says "{BODY.format(1, 2)}"\n') == []
