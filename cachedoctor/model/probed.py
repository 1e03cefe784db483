"""What a probe asked a running server, what came back, and what follows from it."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.report import Tool

Engine = Literal["llama.cpp", "vllm", "sglang", "ollama", "lmstudio", "unknown"]
Measure = Literal["count", "time", "none"]
"""How reuse was told: by the server's own counts, by the time to the first token, or not at all."""
State = Literal["as expected", "less", "more", "unknown", "noted", "refused", "not asked"]


class ProbedServer(msgspec.Struct):
    """What the server says of itself; None: it does not."""

    url: str
    engine: Engine
    build: str | None = None
    model: str | None = None
    slots: int | None = None
    context_tokens: int | None = None
    """Of one slot."""
    block_tokens: int | None = None
    """Tokens of a block: reuse ends at a multiple of it."""
    prefix_caching: bool | None = None
    """As its metrics or settings say."""
    busy: bool | None = None
    """It computed something when the probe came."""
    images: bool | None = None
    """The model takes images."""


class ProbeQuestion(msgspec.Struct):
    """A request of the decision table, with what was expected and what was answered."""

    name: str
    asks: str
    """What the request is there for."""
    state: State
    prompt_tokens: int | None = None
    expected_tokens: int | None = None
    """What the server could have reused, at least; of the control, at most."""
    exact: bool = False
    """The expected tokens were counted by the server's own template and tokenizer, not estimated from characters."""
    reused_tokens: int | None = None
    """None where the server does not say it."""
    seconds: float | None = None
    """From the request to the end of its answer, which has one token."""
    slot: int | None = None
    note: str = ""


class ProbeCause(msgspec.Struct):
    """A deviation and what explains it."""

    question: str
    """Name of the question that shows it."""
    codes: list[str]
    """Rules that describe it; several where the answers do not show them apart."""
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
    """Prompt tokens of them; estimated where the server does not count."""
    budget_tokens: int
    seconds: float
    questions: list[ProbeQuestion]
    """In the order in which they were asked."""
    causes: list[ProbeCause]
    """Empty where all is as expected, or nothing can be known (``measure`` none). The first is to be fixed first."""
    notes: list[str] = []
    changes: list[ProbeChange] | None = None
    """None without --against."""
    other_server: list[str] | None = None
    """What of the server, or of the questions, is not as in the stored probe: nothing is proved then. None without
    --against."""
    cured: bool | None = None
    """What deviated before no longer does. None without --against, where one of the two cannot tell, and where the
    stored probe is of another server."""
    log_findings: list[str] | None = None
    """Code and title of what the server's log shows; None without --log."""
