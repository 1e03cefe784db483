"""How tests/e2e applies what cachedoctor printed: a remedy that is misread would prove nothing."""

from __future__ import annotations

import pytest
from e2e.client import cached, prose
from e2e.remedy import Action, NotMechanicalError, Setup, actions, applied
from e2e.wheels import at_least

BEFORE = Setup(8672, "dense", ("-np", "1", "-c", "4096", "--no-cache-prompt", "--cache-ram", "0"))


def after(text: str, command: str | None = None, **words: dict[str, bool]) -> Setup:
    return applied(Action(text, command), BEFORE, words=words)


def test_an_option_replaces_the_one_of_its_name() -> None:
    assert after("", "--cache-ram 8192").options == (
        "-np", "1", "-c", "4096", "--no-cache-prompt", "--cache-ram", "8192",
    )  # fmt: skip


def test_options_that_belong_together_are_set_together() -> None:
    """The server takes the last of two names of an option."""
    options = after("", "--parallel 3 --ctx-size 3000 --cache-ram 512").options
    assert options == (
        "-np", "1", "-c", "4096", "--no-cache-prompt", "--parallel", "3", "--ctx-size", "3000", "--cache-ram", "512",
    )  # fmt: skip


def test_a_quoted_value_is_one_argument() -> None:
    command = "--chat-template-kwargs '{\"preserve_thinking\":true}'"
    assert after("", command).options[-2:] == ("--chat-template-kwargs", '{"preserve_thinking":true}')


def test_variables_reach_the_one_they_are_meant_for() -> None:
    looked = after("", "export LLAMA_SERVER_SLOTS_DEBUG=1 LLAMA_SERVER_SLOTS_N_DIFF=32")
    assert looked.server_env == {"LLAMA_SERVER_SLOTS_DEBUG": "1", "LLAMA_SERVER_SLOTS_N_DIFF": "32"}
    assert (looked.options, looked.client_env) == (BEFORE.options, {})
    client = after("", "export CLAUDE_CODE_ATTRIBUTION_HEADER=0")
    assert (client.client_env, client.server_env) == ({"CLAUDE_CODE_ATTRIBUTION_HEADER": "0"}, {})


def test_an_update_goes_to_the_first_build_that_is_named() -> None:
    assert after("Update llama.cpp: from b9873 on it is so (b9538: nearly).").build == 9873
    assert at_least(9295) == 9713


def test_words_drop_an_option_or_change_the_client() -> None:
    assert "--no-cache-prompt" not in after("On the server: remove --no-cache-prompt.").options
    assert after("In the client: be calm.", calm={"calm": True}).habits == {"calm": True}
    for text, command in [("Be patient.", None), ("", "cachedoctor diff a b"), ("", "rm -rf /")]:
        with pytest.raises(NotMechanicalError):
            after(text, command)


def test_every_command_of_a_finding_is_an_action() -> None:
    remedies = [{"text": "a", "commands": ["x", "cachedoctor diff a b"]}, {"text": "b", "commands": []}]
    found = actions({"remedies": remedies})
    assert [(str(action), action.looks) for action in found] == [
        ("x", False), ("cachedoctor diff a b", True), ("b", False),
    ]  # fmt: skip


def test_the_count_of_reused_tokens_is_the_servers_own() -> None:
    assert cached({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}}) == 4
    assert cached({"usage": {"prompt_tokens": 9}, "timings": {"prompt_n": 7}}) == 2
    assert cached({"error": {}}) is None


def test_prose_has_the_length_asked_for() -> None:
    assert len(prose(1, 777)) == 777
    assert prose(1, 777) != prose(2, 777)
