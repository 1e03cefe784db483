"""An HTML report as a browser shows it: quiet, safe, narrow enough, usable by everybody, and right when it sorts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from browser.conftest import CASE_NAMES, HOSTILE, MANY, Opened, many

NAMES = (*CASE_NAMES, "many", "hostile", "measured")
ALL = pytest.mark.parametrize("name", NAMES)


def column(page: Page, key: str) -> list[str]:
    """The text of a column of the table."""
    return page.locator(f"#table td[data-key={key}]").all_text_contents()


def numbers(page: Page, key: str) -> list[int]:
    """A column of numbers; none of them unknown."""
    return [int(text.replace(",", "")) for text in column(page, key)]


def head(page: Page, name: str) -> Any:
    """The button in the head of a column."""
    return page.get_by_role("columnheader", name=name).get_by_role("button")


@ALL
def test_nothing_is_refused_loaded_or_said(opened: Opened, name: str) -> None:
    """The rest is held by the fixture."""
    page = opened(name)
    assert page.evaluate("window.refused") == []
    assert page.evaluate("window.hit") is None


@ALL
@pytest.mark.parametrize("width", [400, 320])
def test_the_page_does_not_scroll_sideways(opened: Opened, name: str, width: int) -> None:
    """Tables and charts scroll in their boxes."""
    page = opened(name, width)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "width"), [*((name, 1280) for name in NAMES), ("checkpoints-bunched-b9713", 400)])
def test_axe_finds_nothing(opened: Opened, name: str, scheme: str, width: int) -> None:
    """Contrast, names, roles, order of headings; with everything unfolded."""
    page = opened(name, width, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(v["id"], [node["html"][:200] for node in v["nodes"][:3]]) for v in found] == []


def test_a_script_of_somebody_else_does_not_run(browser: Browser, pages: dict[str, Path]) -> None:
    """Were there a hole, the policy would still close it."""
    page = browser.new_page()
    page.goto(pages["billing-header-hybrid"].as_uri())
    ran = page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hit = 1';"
        " document.body.append(s); return window.hit === 1 }"
    )
    page.close()
    assert not ran


def test_hostile_text_is_shown_and_does_nothing(opened: Opened) -> None:
    """In findings, and in cells that the script writes."""
    page = opened("hostile")
    page.get_by_label("Text").fill("onerror")
    expect(page.locator("#shown")).to_contain_text("4 of 4 requests match")
    assert page.evaluate("window.hit") is None
    shown = HOSTILE.replace("\u2028", "\\u2028")
    assert shown in page.locator("article").first.text_content()
    assert page.locator("img, iframe, object, embed, link, base").count() == 0
    assert page.locator("script").count() == 2


def test_sorting(opened: Opened) -> None:
    """By numbers, the largest first, then the other way; what is unknown stays at the end."""
    page = opened("many")
    lost = sorted(((r.lost_tokens or 0, -r.index) for r in many().requests), reverse=True)
    head(page, "Recomputed tokens").click()
    assert list(zip(numbers(page, "recomputed"), (-n for n in numbers(page, "index")), strict=True)) == lost[:100]
    assert page.locator("th[aria-sort]").all_text_contents() == ["Recomputed tokens"]
    head(page, "Prompt tokens").click()
    assert numbers(page, "prompt") == list(range(20_000 + MANY - 1, 20_000 + MANY - 101, -1))
    head(page, "Prompt tokens").click()
    assert numbers(page, "prompt") == list(range(20_000, 20_100))
    for _ in range(2):  # down, then up
        head(page, "Prompt time").click()
        assert "unknown" not in column(page, "ms")
    page.get_by_label("Text").fill("client7")
    while page.locator("#more").is_visible():
        page.locator("#more").click()
    shown = column(page, "ms")
    assert len(shown) == MANY // 10
    assert shown[-100:] == ["unknown"] * 100
    assert "unknown" not in shown[:-100]


def test_filtering(opened: Opened) -> None:
    """Each filter alone, all together, and back."""
    page = opened("many")
    rows = list(many().requests)

    def expected(count: int) -> None:
        expect(page.locator("#shown")).to_contain_text(f"{count:,} of 10,000 requests match")
        assert page.locator("#table tbody tr").count() == min(count, 100)

    expected(MANY)
    page.get_by_label("Outcome").select_option("partial")
    expected(sum(r.outcome == "partial" for r in rows))
    assert set(column(page, "outcome")) == {"partial"}
    page.get_by_role("combobox", name="Slot").select_option(label="2")
    expected(sum(r.outcome == "partial" and r.slot == 2 for r in rows))
    assert set(column(page, "slot")) == {"2"}
    page.get_by_label("Text").fill("CLIENT3 partial")
    found = [r for r in rows if r.outcome == "partial" and r.slot == 2 and r.client == "client3"]
    expected(len(found))
    page.get_by_role("combobox", name="Finding").select_option("-")
    expected(0)
    page.get_by_role("button", name="Clear").click()
    expected(MANY)
    page.get_by_role("combobox", name="Finding").select_option("CD101")
    expected(sum(r.codes == ["CD101"] for r in rows))
    page.get_by_label("Text").fill("billing-header")  # the name of its finding
    expected(sum(r.codes == ["CD101"] for r in rows))


def test_more_rows_come_when_asked_for(opened: Opened) -> None:
    page = opened("many")
    page.get_by_role("button", name="Show 100 more").click()
    assert numbers(page, "index") == list(range(200))
    expect(page.locator("#shown")).to_contain_text("200 of them shown")


def test_from_a_finding_to_its_requests(opened: Opened) -> None:
    page = opened("billing-header-hybrid")
    page.get_by_role("link", name="Affected requests in the table").click()
    expect(page.locator("#shown")).to_contain_text("3 of 4 requests match")
    assert column(page, "index") == ["1", "2", "3"]


def test_the_keyboard_is_enough(opened: Opened) -> None:
    """The first stop leads to the findings; heads of columns are buttons."""
    page = opened("billing-header-hybrid")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the findings"
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#findings$"))
    head(page, "Task").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert numbers(page, "task") == [32, 21, 10, 0]


@pytest.mark.parametrize("refused", [False, True], ids=["clipboard", "without its permission"])
def test_a_command_is_copied(opened: Opened, refused: bool) -> None:
    """Also where the page may not write to the clipboard by itself."""
    page = opened("billing-header-hybrid", permissions=["clipboard-read", "clipboard-write"])
    if refused:
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')) }")
    page.get_by_role("button", name=re.compile("^Copy export CLAUDE")).first.click()
    expect(page.get_by_text("Copied").first).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "export CLAUDE_CODE_ATTRIBUTION_HEADER=0"


def test_without_scripts_the_page_says_everything(opened: Opened) -> None:
    """But sort and filter: findings, commands, charts and rows are there, and no control that does nothing."""
    page = opened("checkpoints-bunched-b9713", java_script_enabled=False)
    assert page.locator("article").count() == 2
    assert page.locator("article h3").first.is_visible()
    assert page.locator("article .command code").first.is_visible()
    assert page.locator("#memory svg").count() >= 1
    assert page.locator("#timeline").count() == 0  # from twenty requests on
    assert page.locator("#table tbody tr").count() == 5
    assert page.locator("#filters").is_hidden()
    assert page.locator("button:visible").count() == 0
    page = opened("many", java_script_enabled=False)
    assert page.locator("#timeline svg").count() >= 3
    assert page.locator("#table tbody tr").count() == 500
    assert "9,500 more are shown only with JavaScript" in page.locator("#shown").text_content()


def test_on_paper_the_proofs_are_open(opened: Opened) -> None:
    """What is closed on the screen is printed, controls are not."""
    page = opened("checkpoints-bunched-b9713")
    proof = page.locator("article").nth(1).locator(".lines")
    assert not proof.is_visible()
    page.emulate_media(media="print")
    assert proof.is_visible()
    assert page.locator("button:visible").count() == page.locator("th button").count()  # the words of the heads
