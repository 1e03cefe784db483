"""Findings as plain text for snapshots: every word that a reader gets, and nothing of the layout of a format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation
from syrupy.types import SnapshotIndex


def primary_line(finding: dict[str, Any]) -> int | None:
    """Number of the line that proves a finding, or None."""
    return next((e["line"] for e in finding["evidence"] if e["role"] == "primary"), None)


def first_command(finding: dict[str, Any]) -> str:
    """First command of the remedies; empty where they hold none."""
    return next((command for remedy in finding["remedies"] for command in remedy["commands"]), "")


def summary(finding: dict[str, Any]) -> str:
    """A finding as case.toml states it: ``CD306 x2 warning medium 3,812 tokens line 214``."""
    line = primary_line(finding)
    tokens, place = finding["cost"]["tokens"], "no line" if line is None else f"line {line}"
    return (
        f"{finding['code']} x{finding['count']} {finding['severity']} {finding['confidence']} {tokens:,} tokens {place}"
    )


def findings_text(report: dict[str, Any]) -> str:
    """All findings of a JSON report, in its order."""
    return "\n".join(_finding(finding) for finding in report["findings"]) or "no findings\n"


def _finding(finding: dict[str, Any]) -> str:
    cost = finding["cost"]
    ms = "" if cost["ms"] is None else f", {cost['ms']:.0f} ms"
    lines = [
        f"{finding['code']} {finding['name']}: {finding['severity']}, {finding['confidence']} confidence",
        f"  claim: {finding['claim']}",
        f"  requests: {finding['count']} ({', '.join(map(str, finding['requests']))})",
        f"  cost: {cost['tokens']:,} tokens{ms}",
    ]
    for evidence in finding["evidence"]:
        lines += [f"  {evidence['role']} line {evidence['line']}: {evidence['label']}", f"    {evidence['text']}"]
    lines.append(f"  why: {finding['why']}")
    shut = [other for other in finding["ruled_out"] if not other["why"].startswith("not excluded")]
    lines += [f"  ruled out: {other['name']}: {other['why']}" for other in shut]
    lines += [f"  still possible: {other['name']}: {other['why']}" for other in finding["still_possible"]]
    for remedy in finding["remedies"]:
        lines += [f"  fix: {remedy['text']}", *(f"    {command}" for command in remedy["commands"])]
    lines += [f"  see: {address}" for address in finding["references"]]
    return "".join(f"{line}\n" for line in lines)


class Expected(SingleFileSnapshotExtension):
    """Snapshots in folders of their own, named by the test's parameter: unknown files beside a snapshot get deleted."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"
    folders: ClassVar[dict[str, Path]]
    """Where the snapshots of each parameter are."""

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        """The folder of the case; syrupy asks for tests without a case as well."""
        name = (test_location.nodename or "").partition("[")[2].rstrip("]")
        if name in cls.folders:
            return str(cls.folders[name])
        return super().dirname(test_location=test_location)

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: SnapshotIndex = 0) -> str:
        """The name of the file."""
        return str(index)
