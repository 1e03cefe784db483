"""What findings say of a request agrees with its numbers, with each other and with the account, in all bundled logs."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import CASES, FIXTURES, log_of

import cachedoctor
from cachedoctor.diagnosis.account.from_numbers import place
from cachedoctor.doctor.findings.diagnosis import Diagnosis
from cachedoctor.model import Judged, Report, Request
from cachedoctor.model.terms import OF_CLIENTS, OF_INPUT, OF_SLOTS

DAYS = sorted(path.parent for path in (FIXTURES / "days").glob("*/server.log"))
EXCERPTS = sorted((FIXTURES / "excerpts").glob("*.log"))
MEASURED = sorted((FIXTURES / "measured").glob("*.log"))
SMALL = 64
"""Tokens of a reply, a frame, or a template."""
SHARE = 0.05
"""Of what could have been reused: a smaller loss is the grain of a memory, and no finding speaks of it."""
CHANGED = {"CD101", "CD102", "CD105", "CD108"}
TAKEN = {"CD301", "CD302", "CD303", "CD304"}
STUCK = {"CD201", "CD202", "CD203", "CD204", "CD205"}
WANTED = {"CD104", "CD105"}
"""What a user may have meant: a single edit has a finding and no cost."""

every = pytest.mark.parametrize("path", [*CASES, *DAYS, *EXCERPTS, *MEASURED], ids=lambda path: path.stem)


def log(path: Path) -> Path:
    return path / "server.log" if path in DAYS else path if path.is_file() else log_of(path)


@functools.cache
def read(path: Path) -> tuple[Report, list[Judged]]:
    """The report, and what was judged of each request in the end."""
    judged: dict[int, Judged] = {}
    ask = Diagnosis._ask

    def kept(self: Diagnosis, request: Request, *more: object) -> Judged:
        found = judged[request.index] = ask(self, request, *more)  # type: ignore[arg-type]
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Diagnosis, "_ask", kept)
        report = cachedoctor.analyze(log(path))
        list(report.requests)
    return report, list(judged.values())


@pytest.mark.sweep
@pytest.mark.sample(20)
@every
def test_below_high_the_alternatives_are_named(path: Path) -> None:
    """Every low finding, and every medium one of a client or a slot, which lengths alone do not tell apart."""
    for finding in read(path)[0].findings:
        told = finding.confidence == "high" or (
            finding.confidence == "medium"
            and not (finding.requests and finding.code.startswith((OF_CLIENTS, OF_SLOTS)))
        )
        bodies = any("text" in evidence.label and "prompts" in evidence.label for evidence in finding.evidence)
        assert told or bodies or finding.still_possible, (finding.code, finding.claim)


@pytest.mark.sweep
@pytest.mark.sample(20)
@every
def test_what_is_ruled_out_is_not_found_elsewhere_on_that_request(path: Path) -> None:
    said: dict[int, set[str]] = defaultdict(set)
    report, _ = read(path)
    for finding in report.findings:
        for number in finding.requests:
            said[number].add(finding.name)
    for finding in report.findings:
        named = {other.name for other in finding.ruled_out}
        assert not [number for number in finding.requests if named & said[number]], finding.code


LABELS = {
    "nothing reused": r"= 0,|\[0,|prompt cached 0",
    "nothing to reuse": r"= 0,|\[0,|prompt cached 0",
    "the RAM prompt cache is switched off": r"disabl|cache.ram",
    "checkpoints are switched off": r"disabled|checkpoints",
    "the slot's content does not match": r"LRU|lru|by id|sim",
    "a prompt was evicted from the RAM cache": r"removing oldest",
    "share of the slot's content that was kept": r"f_keep = 0|similarity = 0|f_keep\b",
    "the slot holds nearly all of this prompt": r"f_keep = (1|0\.9)|similarity = (1|0\.9)",
    "the RAM cache restores nearly all of this prompt": r"f_keep = (1|0\.9)",
    "how much matched": r"similarity|f_sim|sim_best",
    "low similarity with every idle slot": r"LRU|lru",
    "slot chosen because its prompt and the new prompt start the same way": r"LCP|lcp|lcs|similarity",
    "the slot holds the beginning of this prompt": r"LCP|lcp|lcs|similarity",
    "the slot holds most of the new prompt, but keeps less of its own content": r"LCP|lcp|lcs|similarity",
    "unused since wake-up": r"LRU|lru",
    "the least recently used slot was chosen": r"LRU|lru",
    "the rejection": r"exceed|larger|too large|context",
    "the shift": r"shift",
    "a checkpoint after the common prefix": r"checkpoint",
}
"""What a line has to show that is labelled so."""
MOST_FIRST = 0.5
"""Share of what a slot held up to which a common prefix is called its first tokens."""


@pytest.mark.sweep
@pytest.mark.sample(20)
@every
def test_no_label_contradicts_its_line(path: Path) -> None:
    for finding in read(path)[0].findings:
        for evidence in finding.evidence:
            pattern = LABELS.get(evidence.label)
            assert pattern is None or re.search(pattern, evidence.text), (finding.code, evidence.label, evidence.text)
            held = re.search(r"n_past = (\d+), \S+size\(\) = (\d+)", evidence.text)
            if held is not None and "first tokens" in evidence.label:
                assert int(held[1]) <= MOST_FIRST * int(held[2]), (finding.code, evidence.label, evidence.text)
            if (named := re.search(r"(?<![\d,])\d[\d,]*(?![\d,])", evidence.label)) is not None and finding.requests:
                assert named[0].replace(",", "") in evidence.text, (finding.code, evidence.label, evidence.text)


def changed_and_kept(r: Request, codes: set[str]) -> bool:
    """A client is said to have changed a prompt that keeps all that its slot held of this conversation."""
    own = r.held_thread == r.thread and not r.partial and r.text_lcp is None
    return bool(codes & CHANGED) and own and (r.f_keep or 0) >= 0.98


def early_and_long(r: Request, codes: set[str]) -> bool:
    """A head is said to differ, and nearly the whole prompt is known to be the same."""
    shared, whole = r.common_prefix_tokens, min(r.prompt_tokens or 1 << 60, r.reference_tokens or 1 << 60)
    own = r.held_thread == r.thread and r.reference_lcp is None
    return "CD108" in codes and own and shared is not None and shared >= 0.98 * whole


def taken_and_reused(r: Request, codes: set[str]) -> bool:
    """A slot is said to have been taken, and all that the conversation had was reused."""
    reach = min(r.reference_tokens or 0, r.prompt_tokens or 0)
    return bool(codes & TAKEN) and 0 < reach - SMALL <= (r.cached_tokens or 0)


def off_and_reused(r: Request, codes: set[str]) -> bool:
    """The cache is said to be off, and something was reused."""
    return "CD109" in codes and bool(r.cached_tokens)


def stuck_and_reused(r: Request, codes: set[str]) -> bool:
    """A memory is said not to have gone back, and the whole common prefix was reused."""
    shared = r.common_prefix_tokens
    return bool(codes & STUCK) and not r.cut and shared is not None and shared - 16 <= (r.cached_tokens or 0)


CONTRADICTIONS: list[Callable[[Request, set[str]], bool]] = [
    changed_and_kept,
    early_and_long,
    taken_and_reused,
    off_and_reused,
    stuck_and_reused,
]


@pytest.mark.sweep
@pytest.mark.sample(20)
@every
def test_no_reason_contradicts_the_numbers_of_its_request(path: Path) -> None:
    for one in read(path)[1]:
        codes = set(one.verdict.codes)
        wrong = [rule.__name__ for rule in CONTRADICTIONS if rule(one.request, codes)]
        assert not wrong, (one.request.index, codes)
        assert not (one.request.outcome in ("reused", "cold") and one.verdict.avoidable_tokens), one.request.index


@pytest.mark.sweep
@pytest.mark.sample(20)
@every
def test_findings_and_undecided_are_what_was_lost(path: Path) -> None:
    """Of each request: what a cause is said to have cost is in the account as lost, and what the account says was
    lost to somebody has a finding."""
    for one in read(path)[1]:
        placed = place(one)
        if placed is None:
            continue
        rows: dict[str, int] = defaultdict(int, reused=placed[0], new=placed[1])
        for row, _, tokens in placed[2]:
            rows[row] += tokens
        codes, cost = set(one.verdict.codes), one.verdict.avoidable_tokens
        lost = sum(tokens for row, tokens in rows.items() if row not in ("reused", "new"))
        assert cost <= lost + SMALL, (one.request.index, codes, dict(rows))
        blamed = rows["client"] + rows["server"] + rows["together"]
        small = max(SMALL, SHARE * (one.request.reference_tokens or 0))
        assert codes or blamed <= 2 * small, (one.request.index, dict(rows))
        named = {code for code in codes if not code.startswith(OF_INPUT)} - WANTED
        assert not named or blamed - cost <= small or codes & WANTED or codes != named, (one.request.index, codes)


@pytest.mark.sweep
def test_an_explanation_is_made_from_its_request() -> None:
    """A log that cannot show why says of each request what it does show."""
    whys = defaultdict(set)
    for path in [*CASES, *DAYS, *EXCERPTS]:
        for finding in read(path)[0].findings:
            if finding.code == "CD901" and finding.cost.tokens:
                whys[finding.why].add(path)
    assert len(whys) >= 4
    assert not [paths for paths in whys.values() if len(paths) > 2]
