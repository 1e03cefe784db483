"""The table of options, by build, and what it makes of a command line. Expected values are from the option tables of
the builds, written down by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loops import each

from cachedoctor.knowledge import builds, server_options
from cachedoctor.knowledge.cmdline import parse, settings
from cachedoctor.knowledge.log_levels import restart, show_accounting, show_text
from cachedoctor.knowledge.server_options import Name, by_build, lacking, name_for
from cachedoctor.model import CacheDoctorError, OptionChange, option_rows
from cachedoctor.report.launchers.forms import variable

# ---- names


@each(
    ("option", "low", "high", "name"),
    [
        (server_options.CTX_CHECKPOINTS, 6180, 6628, "--swa-checkpoints"),
        (server_options.CTX_CHECKPOINTS, 6451, 6900, "--swa-checkpoints"),  # the old name stayed as an alias
        (server_options.CTX_CHECKPOINTS, 8672, 8672, "--ctx-checkpoints"),
        (server_options.CTX_CHECKPOINTS, 6123, 6123, None),
        (server_options.CACHE_RAM, 6628, 6628, None),
        (server_options.CACHE_RAM, 6751, None, "--cache-ram"),
        (server_options.CACHE_IDLE_SLOTS, 8672, 8672, "--clear-idle"),
        (server_options.CACHE_IDLE_SLOTS, 8700, 8700, None),  # between two samples: either
        (server_options.CACHE_IDLE_SLOTS, 8929, 9093, "--cache-idle-slots"),
        (server_options.CHECKPOINT_EVERY, 9294, 9294, "--checkpoint-every-n-tokens"),
        (server_options.CHECKPOINT_EVERY, 9538, 9538, None),
        (server_options.REASONING, 9873, None, "--reasoning-preserve"),
        (server_options.CACHE_REUSE, None, None, "--cache-reuse"),
        (server_options.SWA_FULL, None, None, None),
    ],
)
def test_an_option_has_the_name_of_the_build(option: Any, low: int | None, high: int | None, name: str | None) -> None:
    """A name is given only where every build of the range has it."""
    assert name_for(option, low, high) == name


def test_a_switch_off_has_a_name_of_its_own() -> None:
    """--no-kv-unified came long after --kv-unified."""
    assert name_for(server_options.KV_UNIFIED, 7079, 7079) == "--kv-unified"
    assert name_for(server_options.KV_UNIFIED, 7079, 7079, off=True) is None
    assert lacking(server_options.KV_UNIFIED, 7079, 7079, off=True)
    assert name_for(server_options.KV_UNIFIED, 7964, 7964, off=True) == "--no-kv-unified"
    assert name_for(server_options.CONTEXT_SHIFT, 5311, 5311, off=True) == "--no-context-shift"
    assert name_for(server_options.CONTEXT_SHIFT, 6123, 6123) is None


def test_between_two_samples_nothing_is_claimed() -> None:
    """b8353 has no --clear-idle and b8672 has: the builds between are open, those around are not."""
    name = Name("--clear-idle", 8672, 8672)
    assert name.exists(8353, 8353) is False
    assert name.exists(8354, 8354) is None
    assert name.exists(8672, 8672) is True
    assert name.exists(8928, 8928) is None
    assert name.exists(8929, 8929) is False
    assert name.exists(8353, 8672) is None
    assert name.exists(None, None) is None
    assert Name("--cache-ram", 6751).exists(None, 6628) is False
    assert Name("--cache-ram", 6751).exists(99999, None) is True


@each(
    ("option", "low", "high", "default"),
    [
        (server_options.CTX_CHECKPOINTS, 6628, 6628, 3),
        (server_options.CTX_CHECKPOINTS, 7964, 8156, 8),
        (server_options.CTX_CHECKPOINTS, 8352, None, 32),
        (server_options.CTX_CHECKPOINTS, 8156, 8352, None),
        (server_options.CTX_CHECKPOINTS, 6123, 6123, None),
        (server_options.CHECKPOINT_MIN_STEP, 9713, 9713, 256),
        (server_options.CHECKPOINT_MIN_STEP, 11549, 11549, 8192),
        (server_options.CHECKPOINT_MIN_STEP, 9800, 9800, None),
        (server_options.CACHE_RAM, 9094, None, 8192),
        (server_options.SIMILARITY, 6451, 6451, 0.5),
        (server_options.SIMILARITY, 6628, 6628, 0.1),
        (server_options.PARALLEL, 7376, 7376, 1),
        (server_options.PARALLEL, 7551, 7551, -1),
        (server_options.CTX_SIZE, 7376, 7376, 4096),
        (server_options.CTX_SIZE, 7551, 7551, None),
        (server_options.CTX_SIZE, 7710, 7710, 0),
        (server_options.CONTEXT_SHIFT, 6180, 6180, True),
        (server_options.CONTEXT_SHIFT, 6301, 6301, False),
        (server_options.JINJA, 7079, 7079, False),
        (server_options.JINJA, 7376, 7376, True),
        (server_options.REASONING, 10809, None, True),
        (server_options.SLOTS, 6628, None, True),
        (server_options.UBATCH, None, None, 512),
    ],
)
def test_a_default_belongs_to_builds(option: Any, low: int | None, high: int | None, default: object) -> None:
    """Where the range has several, or the switch lies between two samples, it is not known."""
    assert option.default_at(low, high) == default


def test_the_words_name_the_builds() -> None:
    """For a build that is not known, each name says where it belongs."""
    assert by_build(server_options.CACHE_IDLE_SLOTS) == "--cache-idle-slots (b8929 and newer) or --clear-idle (b8672)"
    assert by_build(server_options.CHECKPOINT_EVERY) == "--checkpoint-every-n-tokens (b8352 to b9294)"
    assert by_build(server_options.KV_UNIFIED, off=True) == "--no-kv-unified (b7964 and newer)"
    assert Name("LLAMA_CHAT_TEMPLATE_KWARGS", None, 9294).when == "b9294 and older"


def test_the_table_holds_sampled_builds_and_each_name_once() -> None:
    """A typing error in a build number would silently move an option."""
    names = [n for o in server_options.TABLE for n in (*o.names, *o.off, *o.env)]
    assert len({n.text for n in names}) == len(names)
    for name in names:
        assert name.first is None or name.first in builds.SAMPLED
        assert name.last is None or name.last in builds.SAMPLED
    for option in server_options.TABLE:
        firsts = [first for first, _ in option.defaults if first is not None]
        assert firsts == sorted(firsts)
        assert all(first in builds.SAMPLED for first in firsts)
    assert not set(server_options.NEVER) & set(server_options.BY_NAME)
    assert set(server_options.BY_NAME) >= server_options.UNREAD_ENV


# ---- what makes a build say more


def test_advice_exists_in_the_build() -> None:
    """-lv 4 is debug up to b9093, and prints request bodies."""
    assert show_accounting(8672, 8672)[1] == []
    assert option_rows(show_accounting(9294, 9294)[1]) == ["--verbosity 4"]
    assert show_text(6301, 6301)[1] == []
    assert option_rows(show_text(8672, 8672)[1]) == ["export LLAMA_SERVER_SLOTS_DEBUG=1"]
    assert option_rows(show_text(9713, 9713)[1]) == option_rows(show_text(11549, 11549)[1])
    assert option_rows(show_text(11549, 11549)[1]) == ["--log-prompts-dir prompts"], "whole prompts, before variables"
    assert "The log will then contain prompt text." in show_text(8672, 8672)[0]


@pytest.mark.parametrize(
    ("low", "high", "command", "shows"),
    [
        (6301, 6301, [], []),
        (8672, 8672, ["export LLAMA_SERVER_SLOTS_DEBUG=1"], ["text"]),
        (9294, 9294, ["export LLAMA_SERVER_SLOTS_DEBUG=1", "--verbosity 4"], ["accounting", "text"]),
        (9094, 9537, ["export LLAMA_SERVER_SLOTS_DEBUG=1", "--verbosity 4"], ["accounting", "text"]),
        (9713, 9713, ["--verbosity 4 --log-prompts-dir prompts"], ["accounting", "text", "prompts"]),
        (10809, None, ["--verbosity 4 --log-prompts-dir prompts"], ["accounting", "text", "prompts"]),
        (None, None, ["export LLAMA_SERVER_SLOTS_DEBUG=1 LLAMA_SERVER_SLOTS_N_DIFF=32"], ["text"]),
    ],
)  # fmt: skip
def test_one_restart_shows_the_most(low: int | None, high: int | None, command: list[str], shows: list[str]) -> None:
    """Only options that every build of the range has; --verbosity 4 only where it is trace."""
    found = restart({"accounting", "text", "prompts"}, low, high)
    assert option_rows(found.options) == command
    assert found.shows == shows


def test_a_restart_says_what_it_costs_and_what_it_cannot() -> None:
    """Prompts in the log are a warning; what the build cannot show is named with the build that can."""
    both = restart({"text", "prompts"}, 11549, 11549).text
    assert both.startswith("The folder will then contain prompt text.")
    assert restart({"text"}, 8672, 8672).text.startswith("The log will then contain prompt text.")
    assert restart({"accounting"}, 9294, 9294).text == ""
    assert "b6900" in restart({"text"}, 6301, 6301).text
    assert "b9713" in restart({"prompts"}, 8672, 8672).text


# ---- a command line


def read(line: str) -> list[tuple[str, str | None, object, bool]]:
    return [(g.written, g.option, g.value, g.env) for g in parse(line)]


@pytest.mark.parametrize(
    "start",
    [
        "llama-server", "./build/bin/llama-server", "llama-server.exe", r"C:\llama\llama-server.exe",
        "'C:/Program Files/llama/llama-server.exe'", "sudo -u llama taskset -c 0-7 /usr/bin/llama-server",
        "CUDA_VISIBLE_DEVICES=0 exec llama-server", "", "my-own-build", "ExecStart=/usr/bin/llama-server",
        "docker run --rm -it --gpus all -p 8080:8080 -v /m:/m ghcr.io/ggml-org/llama.cpp:server-cuda",
        "sudo podman run -d --name=llama img llama-server",
    ],
)  # fmt: skip
def test_however_the_program_is_called(start: str) -> None:
    """What comes before the options is passed over."""
    assert read(f"{start} -m x.gguf -np 2 --cache-ram -1 --temp -0.5") == [
        ("-np", "parallel", 2, False),
        ("--cache-ram", "cache_ram", -1, False),
    ]


def test_variables_count_and_come_after_options() -> None:
    """LLAMA_ARG_X is read where the option is not given; a container has its own variables."""
    assert read("LLAMA_ARG_CACHE_RAM=0 llama-server -m x") == [("LLAMA_ARG_CACHE_RAM", "cache_ram", 0, True)]
    assert settings(parse("LLAMA_ARG_CACHE_RAM=0 llama-server --cache-ram 512")) == {"cache_ram_mib": 512}
    docker = "LLAMA_ARG_CACHE_RAM=1 docker run -e LLAMA_ARG_CACHE_RAM=2 --env=LLAMA_ARG_SWA_FULL=on img -c 64"
    assert [(g.option, g.value) for g in parse(docker)] == [("cache_ram", 2), ("swa_full", True), ("ctx_size", 64)]
    assert read("LLAMA_ARG_KV_SPLIT=1 llama-server") == [("LLAMA_ARG_KV_SPLIT", "kv_unified", None, True)]


def test_a_switch_that_became_an_option_with_a_value_hides_nothing() -> None:
    """--log-colors takes a value from b6451 on."""
    for colours in ("--log-colors", "--log-colors on", "--log-colors auto"):
        assert read(f"llama-server {colours} -c 64")[1:] == [("-c", "ctx_size", 64, False)]


def test_a_variable_says_off_only_where_the_build_reads_it_so() -> None:
    """LLAMA_ARG_MMPROJ is a file in every build; others are read as off from b7376 on."""
    off = [OptionChange(name) for name in ("--no-mmproj", "--no-context-shift", "--no-slots")]
    assert [variable(change, 8672, 8672) for change in off] == [
        None,
        ("LLAMA_ARG_CONTEXT_SHIFT", "0"),
        ("LLAMA_ARG_ENDPOINT_SLOTS", "0"),
    ]
    assert [variable(change, 6900, 6900) for change in off] == [None, None, None]
    assert [variable(change, None, None) for change in off] == [None, None, None]


def test_names_as_the_server_takes_them() -> None:
    """Underscores count as dashes after two dashes; names that never were are kept; the rest is not ours."""
    line = "llama-server --cache_ram 0 --no_cache_prompt --checkpoint-every-nb 3 --frobnicate --no-such-thing 5 -fa on"
    assert read(line) == [
        ("--cache_ram", "cache_ram", 0, False),
        ("--no_cache_prompt", "cache_prompt", False, False),
        ("--checkpoint-every-nb", None, None, False),
    ]


def test_the_line_ends_where_the_command_does() -> None:
    """A pipe, another command; a line may be continued as shells do it."""
    assert read("llama-server -np 2 2>&1 | tee --cache-ram 5") == [("-np", "parallel", 2, False)]
    assert read("llama-server \\\n  -np 2 \\\n  -c 64 && x -c 1") == [
        ("-np", "parallel", 2, False),
        ("-c", "ctx_size", 64, False),
    ]
    assert read("llama-server.exe ^\r\n -np 2 `\n -c 64")[-1] == ("-c", "ctx_size", 64, False)


@pytest.mark.parametrize("value", ["$N", "many", "", "1e999", "nan", "9" * 5000])
def test_what_is_not_a_number_is_unknown(value: str) -> None:
    """A variable of a script is not expanded, and no value is guessed for it."""
    assert read(f"llama-server --cache-ram '{value}'") == [("--cache-ram", "cache_ram", None, False)]
    assert settings(parse(f"llama-server --cache-ram '{value}'")) == {}


def test_a_value_may_be_missing() -> None:
    """At the end of the line."""
    assert read("llama-server --cache-ram") == [("--cache-ram", "cache_ram", None, False)]
    assert read("docker run -e") == []
    assert read("docker") == []


@pytest.mark.parametrize("line", ["llama-server -m 'x", '"', "", "   ", "llama-server \\"])
def test_bad_lines_are_one_error(line: str) -> None:
    """Quotes that do not end, or nothing at all."""
    with pytest.raises(CacheDoctorError) as error:
        parse(line)
    assert error.value.hint
    assert error.value.exit_code == 2


@given(
    st.lists(
        st.sampled_from(
            [*server_options.BY_NAME, *server_options.NEVER, "docker", "run", "-e", "0", "'", "=", "\\", "|", "é", "\n"]
        )
    )
)
def test_no_line_is_a_traceback(words: list[str]) -> None:
    """Whatever is pasted: options, or the one error."""
    try:
        found = parse(" ".join(words))
    except CacheDoctorError:
        return
    settings(found)
    assert all(g.option is None or g.option in server_options.BY_KEY for g in found)


def test_what_options_say_of_the_server() -> None:
    """Slots of their own divide the context; the number of slots is certain only above 1."""
    assert settings(parse("llama-server -c 32768 -np 4")) == {"n_slots": 4, "kv_unified": False, "n_ctx": 32768}
    assert settings(parse("llama-server -np 4 -kvu")) == {"n_slots": 4, "kv_unified": True}
    assert settings(parse("llama-server -np 1 -c 0")) == {}
    assert settings(parse("llama-server --mmproj p.gguf --ctx-checkpoints 0")) == {"mmproj": True, "ctx_checkpoints": 0}
    assert settings(parse("llama-server --mmproj p.gguf --no-mmproj")) == {"mmproj": False}
