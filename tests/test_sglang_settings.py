"""What start-up lines of SGLang say of the server, each setting with the line that proves it."""

from __future__ import annotations

import pytest
from loops import each
from sglang_logs import START, capacity, head, prefill, read, settings, tree

from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.sglang.messages import ROWS
from cachedoctor.knowledge import literals

OFF = [row for row in ROWS if row.id.startswith("off_")]


def of(*lines: str) -> dict[str, tuple[object, int | None]]:
    return {name: (setting.value, setting.line) for name, setting in read(*lines).session.settings.items()}


def test_settings_of_a_start() -> None:
    """By hand; the capacity line knows the context and the chunks better."""
    found = of(
        settings(context_length=131072, mem_fraction_static=0.88, chunked_prefill_size=4096, schedule_policy="lpm",
                 page_size=64, dp_size=2, attention_backend="fa3", speculative_algorithm="EAGLE",
                 enable_hierarchical_cache=True, mamba_scheduler_strategy="extra_buffer", disaggregation_mode="null"),
        f"{head()}Load weight end. type=Qwen3NextForCausalLM, avail mem=60.43 GB, mem usage=1.40 GB.",
        f"{head()}Load weight end. type=LlamaForCausalLMEagle3, avail mem=59.43 GB, mem usage=1.0 GB.",
        f"{head()}Mamba Cache is allocated. max_mamba_cache_size: 321, conv_state size: 0.45GB, ssm_state size: 1.07GB",
        capacity(tokens=100_000, chunk=8192),
    )  # fmt: skip
    assert found == {
        "mem_fraction": (0.88, 1), "schedule_policy": ("lpm", 1), "page_size": (64, 1), "data_parallel": (2, 1),
        "attention_backend": ("fa3", 1), "speculative": ("EAGLE", 1), "hicache": (True, 1), "radix_cache": (True, 1),
        "mamba_strategy": ("extra_buffer", 1), "architecture": ("Qwen3NextForCausalLM", 2), "hybrid_ssm": (True, 4),
        "mamba_states": (321, 4), "kv_tokens": (100_000, 5), "context": (40960, 5), "chunked_prefill": (8192, 5),
    }  # fmt: skip


def test_settings_as_a_dictionary() -> None:
    """0.5.19 and newer; nested values and lists are not settings of ours."""
    line = (
        f"{head('')}server_args={{'model_path': '/m', 'port': 30000, 'cuda_graph_config': {{'page_size': 7}}, "
        "'lora_paths': ['page_size', '8'], 'page_size': 64, 'disable_radix_cache': True, 'attn_dp_size': 4, "
        "'dp_size': 1, 'mamba_radix_cache_strategy': 'no_buffer', 'disaggregation_mode': 'decode'}"
    )
    found = of(line)
    assert found == {
        "page_size": (64, 1), "mamba_strategy": ("no_buffer", 1), "radix_cache": (False, 1), "data_parallel": (4, 1),
        "disaggregation": ("decode", 1),
    }  # fmt: skip
    (session,) = read(line).sessions
    assert session.settings["radix_cache"].text.decode() == line
    assert session.version_min == "0.5.22"


@each("row", OFF, ids=lambda row: f"{row.id}-{row.first}-{row.template[:20]}")
def test_lines_that_switch_the_cache_off(row: Message) -> None:
    """Each is the reason, and settings that say otherwise after it change nothing."""
    found = of(row.sample, settings(disable_radix_cache=False), capacity())
    assert found["radix_cache"] == (False, 1)
    assert found["radix_off_because"] == (row.id, 1)


def test_lines_that_only_seem_to() -> None:
    """The cache of a hybrid model works without overlap, and a decode server may have one."""
    text = "Disabling overlap schedule since mamba no_buffer is not compatible with overlap schedule, try to use "
    found = of(f"{head('')}{text}--disable-radix-cache if overlap schedule is necessary", settings())
    assert (found["radix_cache"], found["mamba_strategy"]) == ((True, 2), ("no_buffer", 1))
    assert of(f"{head('')}EXPERIMENTAL: Radix cache is enabled for decode server")["radix_cache"] == (True, 1)


def test_batches_tell_the_kind_of_model() -> None:
    """Where no line of the start does."""
    assert of(prefill(9, usage="full token usage: 0.1, swa token usage: 0.2")) == {"hybrid_swa": (True, 1)}
    assert of(prefill(9, usage="full token usage: 0.1, mamba usage: 0.2", pending=0)) == {"hybrid_ssm": (True, 1)}
    assert of(tree(), prefill(9, usage="full token usage: 0.1, mamba usage: 0.2"))["hybrid_ssm"] == (False, 1)


def test_a_start_is_the_begin_of_a_cold_server() -> None:
    assert read(*START).session.starts_cold
    assert not read(prefill(500)).session.starts_cold


# ---- what Python prints


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a=1, b='x, y', c=[1, 2], d=None)", [("a", "1"), ("b", "'x, y'"), ("c", "[1, 2]"), ("d", "None"), (")", "")]),
        ("'a': 1, 'b': {'c': ')'}}, rest", [("a", "1"), ("b", "{'c': ')'}"), (")", "")]),
        ("f(x=1), a=2)", [("", "f(x=1)"), ("a", "2"), (")", "")]),
        ("a=\"it's\", b='say \\'hi\\'')", [("a", '"it\'s"'), ("b", "'say \\'hi\\''"), (")", "")]),
        ("a=1, b='to", [("a", "1")]),
        ("a=1, b=[1, 2", [("a", "1")]),
        ("a=1, b=2", [("a", "1")]),
        ("", []),
        (")", [(")", "")]),
        ("]]]", [(")", "")]),
    ],
)
def test_entries(text: str, want: list[tuple[str, str]]) -> None:
    assert list(literals.entries(text)) == want


@each(
    ("text", "want"),
    [
        ("1", 1), ("-1", -1), ("0.88", 0.88), ("1e-05", 1e-05), ("True", True), ("None", None), ("'a\\nb'", "a\nb"),
        ("'head' ... 'tail'", "head"), ("nan", None), ("inf", None), ("9" * 400, None), ("<object>", None), ("'", None),
        ("'\\ud800'", "\ufffd"), ("'\\x'", None), ("__import__('os')", None),
    ],
)  # fmt: skip
def test_values(text: str, want: literals.Value) -> None:
    found = literals.value(text)
    assert found == want
    assert type(found) is type(want)
