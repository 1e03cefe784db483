"""Does the redacted log give the same report? Analyses every log before and after ``redact``, and compares.

    python benchmarks/redacted.py LOG|DIR...

Of a directory every ``*.log``, ``*.txt`` and ``server.log*`` below it is taken. The two JSON reports must be equal but
for quoted text: evidence, names of models, origins and inputs, and the bytes of the input. Exits 1 when one differs.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.inputs.sources.base import SourceError
from cachedoctor.inputs.sources.file import FileSource
from cachedoctor.report.wire import report_v1

_NAMES = ("*.log", "*.txt", "server.log*")


def report(log: bytes) -> dict[str, Any]:
    """The JSON report of ``log``."""
    analyzer, out = Analyzer(), io.BytesIO()
    analyzer.open("log")
    analyzer.feed(log)
    report_v1.render(analyzer.finish(), out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def without_quotes(report: dict[str, Any]) -> dict[str, Any]:
    """The report with quoted text masked; what was unknown stays unknown."""
    for info in report["inputs"]:
        info["bytes"] = info["launcher"] = None  # a copy may keep another wrapper
    for session in report["sessions"]:
        session["model"] = session["model"] and "model"
        session["origin"] = session["origin"] and "origin"
    for request in report["requests"]:
        request["client"] = request["client"] and "client"
        request["client_name"] = request["client_name"] and "client"
    for account in report.get("accounts", []):
        account["client"] = account["client"] and "client"
    for client in report.get("clients", []):
        client["name"] = client["name"] and "client"
    # one without codes only says other remedies in the form of the launcher
    report["fix"] = [fix for fix in report.get("fix", []) if fix["codes"]]
    for fix in report["fix"]:
        # the steps are in the form of the launcher, and name its service
        fix["origin"], fix["launcher"], fix["steps"] = fix["origin"] and "origin", None, len(fix["steps"])
        fix["others"] = None
    for cause in report.get("causes", []):
        cause["servers"] = len(cause["servers"])
    for finding in report["findings"]:
        if finding["code"] == "CD903":
            finding["claim"] = "claim"  # it says what the input looks like, which stand-ins do not
        finding["origin"] = finding["origin"] and "origin"
        for line in finding["evidence"]:
            line["text"] = "text"
    return report


def redacted(log: bytes) -> bytes:
    """``log`` as ``cachedoctor redact`` writes it."""
    redactor = Redactor()
    return redactor.feed(log) + redactor.finish()


def differences(a: Any, b: Any, at: str = "") -> Iterator[str]:
    """Places in which two JSON values differ."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        for key in a:
            yield from differences(a[key], b[key], f"{at}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, f"{at}[{i}]")
    elif a != b:
        yield f"{at}: {str(a)[:100]} became {str(b)[:100]}"


def logs(paths: list[Path]) -> Iterator[Path]:
    """Files, and those below directories."""
    for path in paths:
        yield from sorted({f for name in _NAMES for f in path.rglob(name)}) if path.is_dir() else [path]


def main() -> None:
    """Compare all logs and say how many are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="LOG|DIR")
    equal = different = findings = size = 0
    spent = 0.0
    for path in logs(parser.parse_args().paths):
        try:
            log = b"".join(FileSource(str(path)).chunks())
        except SourceError as error:
            print(f"{path}: not read: {error.message}")
            continue
        start = time.perf_counter()
        safe = redacted(log)
        spent += time.perf_counter() - start
        size += len(log)
        before, after = report(log), report(safe)
        findings += len(before["findings"])
        found = list(differences(without_quotes(before), without_quotes(after)))
        lines = log.count(b"\n") + (not log.endswith(b"\n") and bool(log))
        if safe.count(b"\n") != lines:
            found.insert(0, f"{lines} lines became {safe.count(bytes([10]))}")
        equal, different = equal + (not found), different + bool(found)
        for difference in found[:5]:
            print(f"{path}: {difference}")
    speed = size / 1e6 / spent if spent else 0
    print(
        f"{equal} of {equal + different} logs give an equal report ({findings} findings), redacted at {speed:.1f} MB/s"
    )
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
