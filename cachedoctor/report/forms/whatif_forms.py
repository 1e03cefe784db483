"""What-if as text and JSON (``cachedoctor.simulate/1``, ``cachedoctor.tune/1``, frozen).

Knows Simulation, Tuning and the forms. Knows nothing of how a number came about.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import IO, Literal, get_args

import msgspec

from cachedoctor.model.tool import Tool
from cachedoctor.model.whatif import (
    Candidate,
    Placed,
    ReplayAccount,
    ReplayedConversation,
    ReplayFit,
    ReplaySetting,
    Simulation,
    Tuning,
)
from cachedoctor.report.base import Look
from cachedoctor.report.text import text_table
from cachedoctor.report.text.page import Page
from cachedoctor.report.words import whatif_words as words

Form = Literal["text", "json"]
FORMATS: tuple[Form, ...] = get_args(Form)


class SimulateDocument(msgspec.Struct):
    """What other settings would have reused. Unknown values are None. Within version 1 keys are only added."""

    schema: Literal["cachedoctor.simulate/1"]
    tool: Tool
    inputs: list[str]
    placed: Placed
    fit: ReplayFit | None
    """None without a log."""
    settings: list[ReplaySetting]
    server: ReplayAccount | None
    """As the log says; None without one."""
    replay: ReplayAccount
    """By the replay, under the recorded settings."""
    changed: ReplayAccount
    """By the replay, under the new ones."""
    conversations: list[ReplayedConversation]
    """Empty where there is one conversation only."""


class TuneDocument(msgspec.Struct):
    """Settings by what they would have saved. Unknown values are None. Within version 1 keys are only added."""

    schema: Literal["cachedoctor.tune/1"]
    tool: Tool
    inputs: list[str]
    placed: Placed
    fit: ReplayFit | None
    """None without a log."""
    settings: list[ReplaySetting]
    """``changed`` is the value in the best set."""
    replay: ReplayAccount
    """By the replay, under the recorded settings."""
    least_tokens: int
    """What a setting must save to be listed."""
    memory_limit_mib: float | None
    """MiB that all changes together may take more."""
    over_limit: list[str]
    """Options that save tokens and need more memory than the limit, or nobody knows how much."""
    singles: list[Candidate]
    """Single changes that help, the best first."""
    best: Candidate | None
    """The merged set; None when there is nothing to gain."""


def write_simulation(form: Form, shown: Simulation, out: IO[bytes], look: Look) -> None:
    """Write what would have been reused under other settings."""
    if form == "json":
        tool = Tool("cachedoctor", shown.tool_version)
        document = SimulateDocument(
            "cachedoctor.simulate/1", tool, shown.inputs, shown.placed, shown.fit, shown.settings, shown.server,
            shown.replay, shown.changed, shown.conversations,
        )  # fmt: skip
        out.write(msgspec.json.encode(document) + b"\n")
        return
    text = io.StringIO()
    page = Page(text, look.width, look.color, look.ascii_only)
    _head(page, shown.inputs, shown.placed, shown.fit, shown.settings)
    _listed(page, "changed", words.changes(shown.settings) or ["nothing: no --set was given, or all is so already"])
    page.gap()
    text_table.show(page, "", words.ACCOUNTS, words.rows(shown.server, shown.replay, shown.changed))
    rows, left_out = words.conversations(shown.conversations)
    if rows:
        page.gap()
        text_table.show(page, "reused in", words.CONVERSATIONS, rows)
        if left_out:
            page.prose([], f"and {left_out:,} more, in which less changes: -f json has all.", 0)
    page.gap()
    page.prose([], words.verdict(shown.replay, shown.changed, shown.placed, shown.fit), 2)
    out.write(look.encode(text.getvalue()))


def write_tuning(form: Form, shown: Tuning, out: IO[bytes], look: Look) -> None:
    """Write which settings would have saved most."""
    if form == "json":
        tool = Tool("cachedoctor", shown.tool_version)
        document = TuneDocument(
            "cachedoctor.tune/1", tool, shown.inputs, shown.placed, shown.fit, shown.settings, shown.replay,
            shown.least_tokens, shown.memory_limit_mib, shown.over_limit, shown.singles, shown.best,
        )  # fmt: skip
        out.write(msgspec.json.encode(document) + b"\n")
        return
    text = io.StringIO()
    page = Page(text, look.width, look.color, look.ascii_only)
    _head(page, shown.inputs, shown.placed, shown.fit, shown.settings)
    if shown.singles:
        page.gap()
        rows = [words.candidate(one) for one in shown.singles]
        text_table.show(page, "one change", words.CANDIDATES, rows)
    page.gap()
    for options in shown.over_limit:
        page.row(("over the limit of memory, or unknown: ", "bold"), options)
    if shown.best is not None:
        # A command stands on a row of its own, so that it can be copied.
        page.row((shown.best.options, "green"))
    page.prose([], words.advice(shown), 2)
    out.write(look.encode(text.getvalue()))


def _head(
    page: Page, inputs: Sequence[str], placed: Placed, fit: ReplayFit | None, settings: Sequence[ReplaySetting]
) -> None:
    page.facts([], words.traffic(inputs, placed), 0)
    _listed(page, "replay", [words.fit(fit)])
    _listed(page, "note", words.notes(placed, settings))
    assumed = words.assumed(settings)
    _listed(page, "assumed", [f"as nothing says it: {assumed}"] if assumed else [])


def _listed(page: Page, key: str, found: Sequence[str]) -> None:
    for at, line in enumerate(found):
        page.prose([(f"{'' if at else key:<9} ", "bold")], line, 10)
