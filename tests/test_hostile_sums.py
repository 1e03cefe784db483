"""Hostile texts and secrets in what `compare` and `stats` write: those of logs, stored reports and tables."""

from __future__ import annotations

import io
import json
import re
from typing import Any, get_args

import pytest
from reports import poisoned
from test_hostile_text import harmless
from test_markdown import HOSTILE, OURS, Rendered

from cachedoctor.doctor.compare.compare import compare
from cachedoctor.model import MeasuredRow, Stats, StatsInput, StatsRow, StatsTable
from cachedoctor.report.base import Appearance
from cachedoctor.report.forms import compare_forms, stats_forms

SECRET = "sk-ant-api03-abcdefghijkl"
BOTH = pytest.mark.parametrize("kind", ["compare", "stats"])
payloads = pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)


def shown(kind: str, form: Any, text: str) -> str:
    """What is written when every text of others is ``text``."""
    out, look = io.BytesIO(), Appearance(width=60)
    if kind == "compare":
        found = compare(poisoned(text), poisoned(f"other {text}"), (text, text))
        assert found is not None
        compare_forms.write(form, found, out, look)
    else:
        row = StatsRow(text, 1, *[None] * (len(StatsRow.__struct_fields__) - 2))
        row.unknown_requests = 1
        tables = [StatsTable(None, [row]), StatsTable("model", [row]), StatsTable("client", [row, row])]
        measured = [MeasuredRow("model", text, "response", 1, 1, 10, 5, 0.5, None, None)]
        stats_forms.write(form, Stats(text, [StatsInput(text, "log", text)], tables, measured), out, look)
    return out.getvalue().decode()


@pytest.mark.sample(3)
@BOTH
@payloads
def test_no_text_of_others_controls_a_terminal(kind: str, payload: str) -> None:
    harmless(shown(kind, "text", payload))


@pytest.mark.sample(1)
@pytest.mark.spread(9)
@BOTH
@payloads
def test_no_text_of_others_is_markup(kind: str, payload: str) -> None:
    """As many cells, items and headings as with a plain word, and no link; nothing that GitHub makes one of."""
    page, plain = Rendered(shown(kind, "markdown", payload)), Rendered(shown(kind, "markdown", "word"))
    assert set(page.tags) <= OURS
    assert page.links == []
    for tag in OURS - {"code"}:
        assert page.tags.count(tag) == plain.tags.count(tag), tag
    assert [len(row) for row in page.rows] == [len(row) for row in plain.rows]
    for text in page.texts:
        assert not re.search(r"@\w|#\d|\bGH-\d|://|\bwww\.|xmpp:|mailto:|\b[0-9a-f]{7,40}\b", text, re.I), text


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "text", ["a@evil.org", "xmpp:a@evil.org", "GH-12", "x#1", "0123456789abcdef0123456789abcdef01234567"]
)
@BOTH
def test_what_github_looks_for_is_code(kind: str, text: str) -> None:
    page = Rendered(shown(kind, "markdown", text))
    assert page.links == []
    assert not any(text in outside for outside in page.texts)


@BOTH
def test_secrets_are_hidden_in_every_form(kind: str) -> None:
    """As in every format of a report; names of inputs stay, as the user gave them."""
    for form in get_args(compare_forms.Form if kind == "compare" else stats_forms.Form):
        out = shown(kind, form, f"model {SECRET}")
        if form == "json":
            found = json.loads(out)
            for side in ("before", "after"):
                found.get(side, {}).pop("path", None)
            found.pop("inputs", None)
            found.pop("tool")
            out = json.dumps(found)
        assert "sk-ant-<key>" in out
        if (kind, form) != ("compare", "text"):
            assert SECRET not in out, form
        else:  # two names of inputs
            assert out.count(SECRET) == 2


def test_a_secret_is_hidden_before_it_is_cut() -> None:
    """A password counts as one by what follows it."""
    text = "x" * 225 + " https://jane:" + "hunter2" * 10 + "@host/"
    assert "hunter" not in shown("compare", "json", text).replace(text, "")


@pytest.mark.sample(1)
@BOTH
def test_long_texts_are_cut_in_markdown(kind: str) -> None:
    assert max(map(len, shown(kind, "markdown", "x" * 100_000).split("\n"))) < 5000
