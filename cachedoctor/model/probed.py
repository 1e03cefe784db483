"""The requests that a probe sent to a running server, the answers, and what follows from them."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.report import Tool

Engine = Literal["llama.cpp", "vllm", "sglang", "ollama", "lmstudio", "unknown"]
Measure = Literal["count", "time", "none"]
"""How reuse was determined: by the server's own counts, by the time to the first token, or not at all."""
State = Literal["as expected", "less", "more", "unknown", "noted", "refused", "not asked"]


class ProbedServer(msgspec.Struct):
    """What the server reports about itself; None for what it does not report."""

    url: str
    engine: Engine
    build: str | None = None
    model: str | None = None
    slots: int | None = None
    context_tokens: int | None = None
    """Context of one slot, in tokens."""
    block_tokens: int | None = None
    """Tokens of a block: reuse ends at a multiple of it."""
    prefix_caching: bool | None = None
    """Whether prefix caching is on, according to its metrics or settings."""
    busy: bool | None = None
    """True if it computed something when the probe started."""
    images: bool | None = None
    """The model takes images."""


class ProbeQuestion(msgspec.Struct):
    """A request of the decision table, with what was expected and what was answered."""

    name: str
    asks: str
    """Purpose of the request."""
    state: State
    prompt_tokens: int | None = None
    expected_tokens: int | None = None
    """Minimum that the server could have reused; for the control request, the maximum."""
    exact: bool = False
    """The expected tokens were counted by the server's own template and tokenizer, not estimated from characters."""
    reused_tokens: int | None = None
    """None if the server does not report it."""
    seconds: float | None = None
    """From the request to the end of its answer, which has one token."""
    slot: int | None = None
    note: str = ""


class ProbeCause(msgspec.Struct):
    """A deviation and what explains it."""

    question: str
    """Name of the question that shows it."""
    codes: list[str]
    """Rules that describe it; several if the answers do not distinguish them."""
    says: str
    fix: str


class ProbeChange(msgspec.Struct):
    """One question before and after."""

    name: str
    before: State
    after: State
    before_tokens: int | None
    after_tokens: int | None


class Probe(msgspec.Struct, tag_field="schema", tag="cachedoctor.probe/1"):
    """What a running server reused of a few prompts. Unknown values are None. Within version 1 keys are only added."""

    tool: Tool
    server: ProbedServer
    measure: Measure
    requests: int
    """Requests that were sent for an answer of one token."""
    sent_tokens: int
    """Prompt tokens of these requests; estimated if the server does not count."""
    budget_tokens: int
    seconds: float
    questions: list[ProbeQuestion]
    """In the order in which they were sent."""
    causes: list[ProbeCause]
    """Empty if all is as expected, or if nothing can be determined (``measure`` none). Fix the first one first."""
    notes: list[str] = []
    changes: list[ProbeChange] | None = None
    """None without --against."""
    other_server: list[str] | None = None
    """What differs between the server or questions and the stored probe: nothing is proved then. None without
    --against."""
    cured: bool | None = None
    """What deviated before no longer does. None without --against, if one of the two cannot show it, and if the stored
    probe is of another server."""
    log_findings: list[str] | None = None
    """Code and title of what the server's log shows; None without --log."""
