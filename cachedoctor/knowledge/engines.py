"""Facts about the engines whose logs have measurements: names, options, settings, and words for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from cachedoctor.model.terms import SettingName


class EngineFacts(msgspec.Struct, frozen=True):
    """An engine whose log has measurements instead of requests."""

    name: str
    """Identifier used in sessions, commands, image names and counter names: ``vllm``."""
    title: str
    """Its name in its own spelling: ``vLLM``."""
    starts: str
    """Pattern of what starts it in a command line."""
    rules: str
    """Prefix of the codes of its rules: ``CD5``."""
    evicted_rule: str
    """Code of the rule about evicted blocks."""
    changed_rule: str
    """Code of the rule about prompts with a changed prefix."""
    table: Literal["samples", "batches"]
    """The table that its log becomes."""
    unmeasured: str
    """Words for a log without measurements."""
    preemption: str
    """Its word for a request that has to give its memory back."""
    cache_kind: Literal["blocks", "tree"]
    """A prefix is reused in blocks that are found by hash, or along a radix tree."""
    cache: str
    """Its word for the prefix cache."""
    cache_setting: SettingName
    cache_option: str
    """Option that switches the cache on or off."""
    block_setting: SettingName
    block_option: str
    block_default: int
    """Tokens of a block, or of a page."""
    block_sizes: tuple[int, ...]
    """Tokens of a block that it takes on any hardware, the largest first."""
    rates_hint: str
    """When it prints a hit rate that its lines lack otherwise; empty if that never happens."""
    usage_option: str
    """Option that makes responses show how many tokens were reused."""
    omits_zero_usage: bool
    """True if responses omit the number of reused tokens when it is 0."""
    tools_need_parser: bool
    """A request with tools and ``tool_choice: auto`` is refused unless a parser is configured."""
    tokenizes_chats: bool
    """``/tokenize`` takes a chat request."""
    metrics_hint: str
    """What its /metrics page needs; empty if the page is always available."""
    session_fields: tuple[str, ...]
    """Body fields that name the session for which the cache keeps the prompt; empty if there are no such
    sessions."""


ENGINES = {
    facts.name: facts
    for facts in (
        EngineFacts(
            name="vllm",
            title="vLLM",
            starts=r"vllm(?:\s+serve|\.entrypoints)",
            rules="CD5",
            evicted_rule="CD504",
            changed_rule="CD510",
            table="samples",
            unmeasured="no cache statistics in this log",
            preemption="preemption",
            cache_kind="blocks",
            cache="prefix caching",
            cache_setting="prefix_caching",
            cache_option="enable-prefix-caching",
            block_setting="block_size",
            block_option="block-size",
            block_default=16,
            block_sizes=(128, 64, 32, 16),
            rates_hint="vLLM V0 prints them on separate lines, while prefix caching is on",
            usage_option="--enable-prompt-tokens-details",
            omits_zero_usage=True,
            tools_need_parser=True,
            tokenizes_chats=True,
            metrics_hint="",
            session_fields=(),
        ),
        EngineFacts(
            name="sglang",
            title="SGLang",
            starts=r"sglang(?:\.launch_server|\s+serve)",
            rules="CD6",
            evicted_rule="CD603",
            changed_rule="CD610",
            table="batches",
            unmeasured="no prefill batches in this log",
            preemption="retraction",
            cache_kind="tree",
            cache="radix cache",
            cache_setting="radix_cache",
            cache_option="disable-radix-cache",
            block_setting="page_size",
            block_option="page-size",
            block_default=1,
            block_sizes=(64, 32, 16, 1),
            rates_hint="",
            usage_option="--enable-cache-report",
            omits_zero_usage=False,
            tools_need_parser=False,
            tokenizes_chats=False,
            metrics_hint="SGLang answers GET /metrics only with --enable-metrics",
            session_fields=("session_id", "session_params.id"),
        ),
    )
}
"""Engines by name."""
PATTERN = "|".join(ENGINES)
"""Pattern of any of their names."""
_TITLES = [facts.title for facts in ENGINES.values()]
EITHER = " or ".join(_TITLES)
"""``vLLM or SGLang``."""
BOTH = " and ".join(_TITLES)
"""``vLLM and SGLang``."""
LIST = ", ".join(_TITLES)
"""``vLLM, SGLang``."""
SERVERS = f"llama-server, {EITHER}"
METRICS_OF_LLAMA = "llamacpp"
"""Prefix of the names of llama-server's counters."""
LABELS_EXAMPLE = f"'job=\"{next(iter(ENGINES))}\"'"
"""Matcher of labels for Prometheus."""

_PRINTING = "ds4 ik_llama.cpp koboldcpp llama-cpp-python lmstudio lmstudio-mlx mlx-vlm ollama omlx tabbyapi vllm-mlx"
PRINTING = frozenset(_PRINTING.split())
"""Programs that print numbers of each request, which the rules about printed numbers look at."""


def title(name: str) -> str:
    """Return the name of an engine in its own spelling: ``vLLM`` for ``vllm``."""
    return ENGINES[name].title if name in ENGINES else name


def in_blocks(name: str) -> bool:
    """Return True if an engine reuses prefixes in blocks that are found by hash."""
    return name in ENGINES and ENGINES[name].cache_kind == "blocks"
