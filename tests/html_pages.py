"""A page taken apart, and reports made up for pages."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from cachedoctor.model import CheckpointRow, Cost, Evidence, Finding, Remedy, Report, RequestRow, Session, Totals
from cachedoctor.report.base import Appearance
from cachedoctor.report.html import html_report

VOID = {"meta", "link", "br", "hr", "img", "input"}


@dataclass(eq=False)
class Element:
    """A tag with its attributes and the text in it."""

    tag: str
    attrs: dict[str, str]
    parents: list[Element] = field(repr=False)
    page: list[str] = field(repr=False)
    """All texts of the page; those from ``start`` to ``end`` are in this element."""
    start: int
    end: int

    @property
    def text(self) -> str:
        """Its text, that of its children included."""
        return "".join(self.page[self.start : self.end])


class Page(HTMLParser):
    """Fails where an element is not closed in its place."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.all: list[Element] = []
        self._open: list[Element] = []
        self._texts: list[str] = []
        self.feed(source)
        self.close()
        assert not self._open, [e.tag for e in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        element = Element(
            tag, {name: value or "" for name, value in attrs}, [*self._open], self._texts, len(self._texts),
            len(self._texts),
        )  # fmt: skip
        self.all.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._close()

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1].tag == tag, (self._open[-1], tag)
        self._close()

    def _close(self) -> None:
        self._open.pop().end = len(self._texts)

    def handle_data(self, data: str) -> None:
        self._texts.append(data)

    def tagged(self, tag: str, **attrs: str) -> list[Element]:
        """Elements of one kind, with these attributes."""
        return [e for e in self.all if e.tag == tag and attrs.items() <= e.attrs.items()]

    def by_id(self, name: str) -> Element:
        (found,) = [e for e in self.all if e.attrs.get("id") == name]
        return found

    @property
    def data(self) -> Any:
        """What the script reads."""
        return json.loads(self.by_id("data").text)

    @property
    def shape(self) -> Counter[tuple[str, tuple[str, ...]]]:
        """How often each kind of element comes, with the names of its attributes."""
        return Counter((e.tag, tuple(sorted(e.attrs))) for e in self.all)


def page_of(report: Report, pages: str | None = None) -> Page:
    """Write a report and take it apart."""
    out = io.BytesIO()
    html_report.write(report, out, Appearance(pages=pages))
    return Page(out.getvalue().decode())


class Rows(list[RequestRow]):
    """Requests of a report, in memory."""

    def check(self) -> None:
        """None can be lost."""

    def lines(self) -> Iterator[bytes]:
        raise NotImplementedError

    def copy_to(self, out: object) -> None:
        raise NotImplementedError


def row(index: int, **values: Any) -> RequestRow:
    """A request that reused 900 of 1,000 tokens, unless said otherwise."""
    given: dict[str, Any] = {
        "index": index, "session": 0, "path": "server.log", "slot": index % 4, "task": 10 * index, "parent": None,
        "thread": index % 7, "first_line": 5 * index + 1, "last_line": 5 * index + 5, "prompt_tokens": 1000,
        "cached_tokens": 900, "processed_tokens": 100, "generated_tokens": 7, "derived": [], "prompt_ms": 50.0,
        "selected_by": "lcp", "similarity": 0.9, "f_keep": 1.0, "common_prefix_tokens": 900, "restored_from_ram": False,
        "checkpoints": CheckpointRow(0, 0, 1, 0), "lost_tokens": 0, "outcome": "reused", "partial": False, "codes": [],
    }  # fmt: skip
    return RequestRow(**{**given, **values})


def example(**values: Any) -> Finding:
    """A finding of 500 tokens."""
    line = Evidence("server.log", 0, 3, "new: ... the same | B text", "primary", "the new prompt")
    other = Evidence("server.log", 0, 2, "old: ... the same | A text", "related", "what the slot held")
    given: dict[str, Any] = {
        "code": "CD101", "name": "billing-header", "severity": "warning", "confidence": "high", "claim": "it changed",
        "requests": [0], "count": 1, "evidence": [line, other], "cost": Cost(500, 20.0, "depth"), "why": "",
        "diff": None, "ruled_out": [], "remedies": [Remedy("Turn it off", ["export X=0"])], "references": [],
    }  # fmt: skip
    return Finding(**{**given, **values})


def report(
    rows: list[RequestRow], findings: list[Finding] | None = None, sessions: list[Session] | None = None
) -> Report:
    """A report of these requests, with the sums that they have."""
    counted = [r for r in rows if r.parent is None]
    known = [r for r in counted if r.prompt_tokens is not None and r.cached_tokens is not None]
    totals = Totals(
        requests=len(counted),
        prompt_tokens=sum(r.prompt_tokens or 0 for r in known),
        cached_tokens=sum(r.cached_tokens or 0 for r in known),
        processed_tokens=sum(r.processed_tokens or 0 for r in known),
        prompt_ms=sum(r.prompt_ms or 0 for r in known),
        avoidable_tokens=sum(f.cost.tokens for f in findings or []),
    )
    if totals.prompt_tokens:
        totals.reuse = totals.cached_tokens / totals.prompt_tokens
    lives = sessions if sessions is not None else [Session(0, "server.log", n_requests=len(rows))]
    return Report("0.0", [], lives, totals, Rows(rows), findings or [], [], [])
