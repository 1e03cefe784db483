"""One partition of lost tokens: findings, what is avoidable, requests and account add up, in every bundled log."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from conftest import CASES, FIXTURES, log_of

import cachedoctor
from cachedoctor.model import Finding, Report
from cachedoctor.model.terms import OF_INPUT

DAYS = sorted(path.parent for path in (FIXTURES / "days").glob("*/server.log"))
LEFT_OPEN = "open"
"""Key of a finding whose requests have no certain cause, though another rule may have one for some of the tokens."""
ALSO = re.compile(r"([\d,]+) are also counted under CD\d+")


def of(folder: Path) -> Report:
    return cachedoctor.analyze(folder / "server.log" if folder in DAYS else log_of(folder))


def causes(report: Report) -> list[Finding]:
    """The findings that name one; of a request whose cause is left open nothing is avoidable."""
    blamed = {row.index for row in report.requests if row.avoidable_tokens}
    found = [one for one in report.findings if not (one.code.startswith(OF_INPUT) or one.key == LEFT_OPEN)]
    return [finding for finding in found if not blamed.isdisjoint(finding.requests)]


def shared(finding: Finding) -> int:
    """Tokens of a finding that a costlier one has as well."""
    if "all of these tokens are also counted under" in finding.claim:
        return finding.cost.tokens
    return sum(int(found[1].replace(",", "")) for found in ALSO.finditer(finding.claim))


every = pytest.mark.parametrize("folder", [*CASES, *DAYS], ids=lambda folder: folder.name)


@pytest.mark.sweep
@pytest.mark.sample(20)
@every
def test_every_avoidable_token_has_one_cause(folder: Path) -> None:
    """A finding's tokens, less those that it says another one has, add up to all that could have been avoided."""
    report = of(folder)
    assert sum(finding.cost.tokens - shared(finding) for finding in causes(report)) == report.totals.avoidable_tokens
    rows = list(report.requests)
    assert sum(row.avoidable_tokens for row in rows) == report.totals.avoidable_tokens
    for row in rows:
        assert row.avoidable_tokens <= (row.processed_tokens or row.prompt_tokens or row.avoidable_tokens)


@pytest.mark.sweep
@pytest.mark.sample(20)
@every
def test_the_account_adds_up(folder: Path) -> None:
    """Of the log, of its servers and of its conversations; what is avoidable was recomputed."""
    report = of(folder)
    for account in report.accounts:
        assert sum(entry.tokens for entry in account.entries) == account.prompt_tokens
    scopes = {scope: Counter[str]() for scope in ("log", "server")}
    for account in report.accounts:
        if account.scope in scopes:
            scopes[account.scope].update({entry.row: entry.tokens for entry in account.entries if entry.tokens})
    assert sum(scopes["log"].values()) == sum(scopes["server"].values())


@pytest.mark.sweep
@pytest.mark.sample(20)
@every
def test_what_is_ruled_out_is_not_found(folder: Path) -> None:
    """Neither excluded nor left open beside a request of which it is said."""
    report = of(folder)
    said: dict[int, set[str]] = {}
    for finding in report.findings:
        for number in finding.requests:
            said.setdefault(number, set()).add(finding.name)
    for finding in report.findings:
        named = {other.name for other in finding.ruled_out}
        assert not [number for number in finding.requests if named & said[number]], finding.code


@pytest.mark.sweep
@pytest.mark.sample(20)
@every
def test_what_is_left_open_is_charged_to_nobody(folder: Path) -> None:
    """A change that is only a note, as too few lengths show it, has its tokens in the undecided ones."""
    report = of(folder)
    named = {finding.name for finding in causes(report)}
    for account in report.accounts:
        assert not [e for e in account.entries if e.row == "client" and e.kind is not None and e.kind not in named]
