"""Secrets that a window or the mark of a difference cuts are hidden on both sides of it, in text and in JSON."""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from cachedoctor.prompts import compare_prompts
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.tokenizers import base
from cachedoctor.redaction.secrets import hidden
from cachedoctor.redaction.secrets_of_two import in_both
from cachedoctor.report.text import diff_text
from cachedoctor.report.wire import diff_v1

sys.path.insert(0, str(ROOT / "benchmarks"))
import leaks
import leaks_seams

HEX, OTHER_HEX = "9f3c07ab51d24e8860c1b7a2f4d95e3b", "9f3c07ab51d24e88e17a40c93b6d2f05"
MAILCHIMP, ZHIPU = f"{HEX}-us12", f"{HEX}.k3Yq9ZxW7vLm2RtB"


def written(a: str, b: str, context: int = 8) -> str:
    options = compare_prompts.DiffOptions(context=context)
    found = compare_prompts.compare(Prompt("a", "text", a), Prompt("b", "text", b), base.pieces(), options)
    page, wire = io.StringIO(), io.BytesIO()
    diff_text.render(found, page, 200)
    diff_v1.render([found], wire, "0")
    return page.getvalue() + wire.getvalue().decode()


@pytest.mark.parametrize("context", [1, 4, 8, 16])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (f"use {MAILCHIMP} now", f"use {HEX} now"),
        (f"use {MAILCHIMP} now", f"use {OTHER_HEX}-us12 now"),
        (f"use {ZHIPU} now", f"use {HEX} now"),
        (f"use {ZHIPU} now", f"use {HEX}.k3Yq9ZxW7vLm2RtC now"),
        (f"use {ZHIPU} for one two three Monday", f"use {ZHIPU} for one two three Friday"),
        (f"use Monday one two three {ZHIPU} for", f"use Friday one two three {ZHIPU} for"),
        (f"use {HEX[:20]}", f"use {MAILCHIMP} now"),
        (f"my tshpat_{HEX} now", f"our tshpat_{HEX} now"),
        (f"use shpat_{HEX} now", f"use tshpat_{HEX} now"),
    ],
)
def test_no_part_of_a_key_is_shown(a: str, b: str, context: int) -> None:
    """The part before the difference was shown, up to 23 characters of it."""
    shown = written(a, b, context)
    assert "<key>" in shown or context < 8  # else it comes before what is shown
    for secret in (MAILCHIMP, OTHER_HEX, ZHIPU):
        assert not [secret[at : at + 8] for at in range(len(secret) - 7) if secret[at : at + 8] in shown]


def test_what_is_not_a_secret_is_shown_as_it_is() -> None:
    shown = written("The build is 4f2a, the task-1 runs.", "The build is 4f2b, the task-1 runs.")
    assert "<key>" not in shown
    assert "The build is" in shown
    assert "task-1" in shown


def test_a_secret_of_one_text_is_hidden_where_both_begin_alike() -> None:
    """The second text has too little of it to be known alone."""
    pair = in_both("key: abcd1234", "key: abcdzz9 end", 9, [(0, 13)], [(0, 16)])
    assert pair.a == ["key: abcd1234"]  # no secret is known here
    a, b = "password: tulip-Xq7 end", "password: tulip end"
    pair = in_both(a, b, 15, [(0, len(a))], [(0, len(b))])
    assert pair.a == ["password: <secret> end"]
    assert pair.b == ["password: <secret> end"]


def test_words_of_secrets_do_not_hide_words_of_sentences() -> None:
    a = "password: different-X9 one"
    pair = in_both(a, a, len(a), [(0, len(a))], [(0, len(a))])
    assert pair.without_parts("a different date") == "a different date"
    assert pair.without_parts("see erent-X9 here") == "see <key> here"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"tshpat_{HEX}", "tshpat_<key>"),
        ("xsk-proj-Ab3dEf6hIj9kLm2nOp5q", "xsk-proj-<key>"),
        ("xAKIAQ7RT2ZLM4NB6VXK", "xAKI<key>"),
    ],
)
def test_a_letter_in_front_uncovers_no_key(text: str, left: str) -> None:
    assert hidden(f"see {text} there") == f"see {left} there"
    assert hidden(hidden(text)) == hidden(text)


@pytest.mark.parametrize(
    "text",
    [
        f"task-{HEX}",
        "disk-image-builder-2026-edition-large",
        "risk-free-desk-mask-9-of-the-whole-year",
        "my_npm_config_cache_folder_of_the_user",
        "models--Qwen--Qwen3-8B/snapshots/4c446470ba0aec43e22ac1128f9ffd915f338ba3/config.json",
    ],
)
def test_words_that_hold_the_begin_of_a_key_stay(text: str) -> None:
    assert hidden(text) == text


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["OpenAI project", "Zhipu", "Mailchimp", "Shopify", "Mistral, bare", "Password is"])
def test_the_benchmark_of_seams_sees_nothing(name: str) -> None:
    kind = next(kind for kind in leaks.KINDS if kind.name == name)
    source = random.Random(name)
    (text, parts), (other, more) = kind.draw(source), kind.draw(source)
    asked = 0
    for _, way, said in leaks_seams.diffs(text, other):
        asked += 1
        assert not any(leaks.Output(said, set()).shows(part) for part in (*parts, *more)), (way, said)
    assert asked > 150


@pytest.mark.sweep
def test_the_benchmark_sees_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from cachedoctor.redaction import sanitize

    monkeypatch.setattr(diff_v1.sanitize, "mask", lambda diff: diff)
    monkeypatch.setattr(sanitize, "hidden", lambda text: text)
    kinds = [kind for kind in leaks.KINDS if kind.name == "Shopify"]
    monkeypatch.setattr(leaks_seams, "passed", lambda text, other: ())
    _, found = leaks.seam_leaks(kinds, 1)
    assert {"diff", "diff json"} <= {leak.format for leak in found}
    assert Path(leaks.__file__).is_file()
