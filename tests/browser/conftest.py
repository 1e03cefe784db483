"""Chromium, and pages to look at in it. What a page must never do is held for each page that is opened."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measured_reports
import pytest
from conftest import CASES, content_of, json_of, prompts_of
from html_pages import example, report, row
from playwright.sync_api import Browser, Page, sync_playwright
from test_html import poisoned

from cachedoctor.model import CheckpointRow, Report, Session
from cachedoctor.report.base import Appearance
from cachedoctor.report.html import html_report
from cachedoctor.report.wire.stored import read

OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
HOSTILE = (
    "\"'`</script></style></title><!--<script>window.hit=1</script><img src=x onerror=window.hit=1>\u2028${1}{{2}}"
)
CASE_NAMES = (
    "billing-header-hybrid",
    "checkpoints-bunched-b9713",
    "requests-timestamp",
    "two-choices",
    "option-refused",
)
MANY = 10_000
_WATCH = (
    "window.refused = []; document.addEventListener('securitypolicyviolation', e => refused.push(e.violatedDirective))"
)

Opened = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium; playwright brings none."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files by name: cases, one of ten thousand requests, one in which every free text is hostile."""
    folder = tmp_path_factory.mktemp("pages")
    reports = {"many": many(), "hostile": hostile(), "measured": measured_reports.everything()}
    for case in CASES:
        if case.name in CASE_NAMES:
            reports[case.name] = read(json_of([content_of(case)], prompts=prompts_of(case)), "report.json")
    return {name: _written(folder / f"{name}.html", found) for name, found in reports.items()}


def many() -> Report:
    """Requests whose numbers are all different, so that an order is one order."""
    rows = []
    for i in range(MANY):
        lost = (i * 7919) % 9973 if i % 3 == 0 else 0
        unknown: dict[str, Any] = {"prompt_ms": None} if i % 100 == 7 else {"prompt_ms": float((i * 31) % 9_999_991)}
        rows.append(
            row(
                i, prompt_tokens=20_000 + i, processed_tokens=19_100 + i, lost_tokens=lost,
                outcome="partial" if lost else "reused", codes=["CD101"] if lost else [], session=i // 5000,
                checkpoints=CheckpointRow(1, 0, 1, 0, [(i, i + 50)]), client=f"client{i % 10}", **unknown,
            )
        )  # fmt: skip
    lives = [Session(0, "server.log", n_requests=5000), Session(1, "server.log", n_requests=5000)]
    return report(rows, [example(requests=[0, 3], count=3333)], lives)


def hostile() -> Report:
    """A stored report from somebody who wants to run a script."""
    import json

    case = next(folder for folder in CASES if folder.name == "requests-timestamp")
    found = json.loads(json_of([content_of(case)], prompts=prompts_of(case)))
    return read(json.dumps(poisoned(found, HOSTILE)).encode(), "report.json")


def _written(path: Path, found: Report) -> Path:
    out = io.BytesIO()
    html_report.write(found, out, Appearance())
    path.write_bytes(out.getvalue())
    return path


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Opened]:
    """Opens a page by name; at the end none of them has said, loaded or violated anything."""
    said: list[str] = []
    asked: list[str] = []
    contexts = []

    def opened(name: str, width: int = 1280, scheme: str = "light", **more: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        if more.get("java_script_enabled", True):
            page.add_init_script(_WATCH)
        page.goto(pages[name].as_uri())
        asked.remove(pages[name].as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == []
    assert asked == []
