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
    """What the server reports about itself; values that it does not report are None."""

    url: str
    engine: Engine
    build: str | None = None
    model: str | None = None
    slots: int | None = None
    context_tokens: int | None = None
    """Context of one slot, in tokens."""
    block_tokens: int | None = None
    """Tokens of a block; reuse ends at a multiple of this number."""
    prefix_caching: bool | None = None
    """Whether prefix caching is on, according to the server's metrics or settings."""
    busy: bool | None = None
    """True if the server was computing something when the probe started."""
    images: bool | None = None
    """True if the model accepts images."""


class ProbeQuestion(msgspec.Struct):
    """A request of the probe, with the expected and the reported reuse."""

    name: str
    asks: str
    """Purpose of the request."""
    state: State
    prompt_tokens: int | None = None
    expected_tokens: int | None = None
    """Tokens that the server should have reused at least; for the control request, at most."""
    exact: bool = False
    """True if the server's own template and tokenizer counted the expected tokens; False if they were estimated from
    characters."""
    reused_tokens: int | None = None
    """Tokens that the server reused; None if the server does not report them."""
    seconds: float | None = None
    """Seconds from the request to the end of its one-token reply."""
    slot: int | None = None
    note: str = ""


class ProbeCause(msgspec.Struct):
    """A deviation, and its likely cause."""

    question: str
    """Name of the question that shows the deviation."""
    codes: list[str]
    """Codes of the rules that describe the cause; several if the responses do not distinguish them."""
    says: str
    fix: str


class ProbeChange(msgspec.Struct):
    """The result of one question, before and now."""

    name: str
    before: State
    after: State
    before_tokens: int | None
    after_tokens: int | None


class Probe(msgspec.Struct, tag_field="schema", tag="cachedoctor.probe/1"):
    """How much of a few prompts a running server reused. Unknown values are None.

    Within version 1 keys are only added.
    """

    tool: Tool
    server: ProbedServer
    measure: Measure
    requests: int
    """Number of requests sent, each with a reply of one token."""
    sent_tokens: int
    """Prompt tokens of these requests; estimated if the server reports no counts."""
    budget_tokens: int
    seconds: float
    questions: list[ProbeQuestion]
    """The requests, in the order in which they were sent."""
    causes: list[ProbeCause]
    """Causes of the deviations, the one to fix first at the start. Empty if everything is as expected, or if the
    responses show nothing (``measure`` is none)."""
    notes: list[str] = []
    changes: list[ProbeChange] | None = None
    """Questions compared with the saved probe; None without --against."""
    other_server: list[str] | None = None
    """Differences of server or questions from the saved probe. If there are any, the comparison proves nothing. None
    without --against."""
    cured: bool | None = None
    """True if none of the earlier deviations remain. None without --against, if one of the two probes cannot show the
    deviations, or if the saved probe is of another server."""
    log_findings: list[str] | None = None
    """Code and title of each finding in the server's log; None without --log."""
