"""A probe as text and JSON (``cachedoctor.probe/1``, frozen)."""

from __future__ import annotations

import io
from typing import IO, Literal, get_args

import msgspec

from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.model.probed import Probe, ProbedServer, ProbeQuestion
from cachedoctor.report.base import Appearance
from cachedoctor.report.text import page as text_table
from cachedoctor.report.text.page import TextPage
from cachedoctor.report.words.measured_table import Heading, MeasuredCells
from cachedoctor.report.words.numbers import count

Form = Literal["text", "json"]
FORMATS: tuple[Form, ...] = get_args(Form)
_HEADINGS = (
    Heading("prompt", "tokens"),
    Heading("expected", "tokens"),
    Heading("reused", "tokens"),
    Heading("state", ""),
)
_ENGINES = {
    "llama.cpp": "llama-server",
    **{name: facts.title for name, facts in ENGINES.items()},
    "lmstudio": "LM Studio",
    "ollama": "ollama",
}
_MEASURES = {
    "count": "by the server's own counts",
    "time": "by response times, because the server has no counts: less reliable",
    "none": "unknown: the server has no counts, and response times do not show reuse either",
}


def write_probe(form: Form, shown: Probe, out: IO[bytes], look: Appearance) -> None:
    """Write a probe."""
    if form == "json":
        out.write(encoded(shown))
        return
    text = io.StringIO()
    page = TextPage(text, look.width, look.color, look.ascii_only)
    if shown.other_server:
        said = (
            f"The saved probe is not comparable: {'; '.join(shown.other_server)}. The saved probe proves nothing "
            "about this server."
        )
        page.prose([], said, 2, "bold")
    page.prose([], verdict(shown), 2, "bold")
    for cause in shown.causes:
        codes = f" ({', '.join(cause.codes)})" if cause.codes else ""
        page.prose([(f"{cause.question}: ", "bold")], cause.says + codes, 2)
        page.prose([("  fix: ", "bold")], cause.fix, 4)
    page.gap()
    _head(page, shown)
    page.gap()
    _table(page, shown.questions)
    for question in shown.questions:
        if question.note:
            page.prose([], f"{question.name}: {question.note}", 2)
    page.gap()
    for note in shown.notes:
        page.prose([], f"note: {note}", 2)
    _beside(page, shown)
    page.gap()
    # the first rows are gone from a terminal of 24
    page.prose([], verdict(shown) + (f" Do now: {shown.causes[0].fix}" if shown.causes else ""), 2, "bold")
    out.write(look.encode(text.getvalue()))


def encoded(shown: Probe) -> bytes:
    """Give the JSON of a probe."""
    return msgspec.json.encode(shown) + b"\n"


def verdict(shown: Probe) -> str:
    """Say in one sentence how the server is."""
    if shown.measure == "none" and not shown.causes:
        return "It is unknown whether prompts are reused here."
    judged = [q for q in shown.questions if q.state in ("as expected", "less", "more")]
    odd = [q.name for q in judged if q.state != "as expected"]
    if odd and shown.causes:
        return f"{len(odd)} of {count(len(judged), 'answer')} not as expected: {', '.join(odd)}."
    if shown.causes:
        return f"Not as expected: {shown.causes[0].question}."
    if odd:
        return f"No known cause for these deviations: {', '.join(odd)}."
    silent = sum(q.state == "unknown" for q in shown.questions)
    if silent:
        return f"Healthy as far as known: {count(len(judged), 'answer')} as expected; {silent} showed nothing."
    return f"Healthy: all {len(judged)} answers are as expected."


def announced(server: ProbedServer, requests: int, tokens: int, budget: int, seconds: float) -> str:
    """Say what will be sent before it is."""
    model = f", model {server.model}" if server.model else ""
    return (
        f"probing {server.url} ({_ENGINES.get(server.engine, 'a server')}{model}): up to {requests} requests of about"
        f" {tokens:,} tokens, each with a one-token reply, at most {budget:,} tokens and {seconds:g} s in all; "
        "each request uses a slot and may evict a conversation from the cache"
    )


def _head(page: TextPage, shown: Probe) -> None:
    server = shown.server
    facts = [_ENGINES.get(server.engine, "unknown server"), server.build, server.model]
    facts += [
        f"{server.slots} slots"
        if server.slots is not None and server.slots != 1
        else "1 slot"
        if server.slots
        else None
    ]
    facts += [f"context {server.context_tokens:,}" if server.context_tokens else None]
    page.facts([("server   ", "bold")], f"{server.url} · " + " · ".join(fact for fact in facts if fact), 10)
    page.facts(
        [("sent     ", "bold")],
        f"{shown.requests} requests, {shown.sent_tokens:,} of {shown.budget_tokens:,} tokens, {shown.seconds:.1f} s",
        10,
    )  # fmt: skip
    page.prose([("judged   ", "bold")], _MEASURES[shown.measure], 10)


def _row(question: ProbeQuestion) -> MeasuredCells:
    expected = (
        None if question.expected_tokens is None else ("" if question.exact else "~") + f"{question.expected_tokens:,}"
    )
    cells = [_count(question.prompt_tokens), expected or "?", _count(question.reused_tokens), question.state]
    return MeasuredCells(question.name, cells)


def _table(page: TextPage, questions: list[ProbeQuestion]) -> None:
    """Write a row for each question, with what it asks where there is room for it."""
    rows = [_row(question) for question in questions]
    named = [row._replace(name=f"{row.name}: {q.asks}") for row, q in zip(rows, questions, strict=True)]
    key = f"{'question':<{max(len(row.name) for row in named)}}" if named else ""
    if named and text_table.fits(page.width, key, _HEADINGS, named):
        text_table.show_table(page, key, _HEADINGS, named)
    else:
        text_table.show_table(page, "question", _HEADINGS, rows)


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _beside(page: TextPage, shown: Probe) -> None:
    if shown.changes is not None:
        page.gap()
        said = {True: "fixed: none of the earlier deviations remain", False: "not fixed", None: "cannot tell"}[
            shown.cured
        ]
        page.prose([("compared with the saved probe: ", "bold")], said, 2)
        for change in shown.changes:
            if change.before == change.after:
                continue
            before, after = _count(change.before_tokens), _count(change.after_tokens)
            page.row(f"  {change.name}: {change.before} ({before} reused) -> {change.after} ({after} reused)")
    if shown.log_findings is not None:
        page.gap()
        page.row(("the server's log", "bold"))
        for finding in shown.log_findings or ["no finding"]:
            page.prose(["  "], finding, 4)
