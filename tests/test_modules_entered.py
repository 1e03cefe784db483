"""How many modules a reader has to open who follows one log of a case to its report."""

from __future__ import annotations

import json
import subprocess
import sys

from conftest import FIXTURES, ROOT

MOST = 90
"""Modules other than rules, of which each is a file of its own. This number only falls."""
RULES = 32
"""Files of rules: those whose triggers the case shows."""
TRACE = """
import json, sys
from cachedoctor.cli import main
own, entered, importing = sys.argv.pop(1), set(), 0
def note(frame, event, arg):
    global importing
    if frame.f_code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not importing and frame.f_code.co_filename.startswith(own):
        entered.add(frame.f_code.co_filename[len(own):])
sys.setprofile(note)
try:
    main()
finally:
    sys.setprofile(None)
    print(json.dumps(sorted(entered)), file=sys.stderr)
"""


def entered(*arguments: str) -> list[str]:
    """Modules of which a function is called, their import aside."""
    done = subprocess.run(
        [sys.executable, "-c", TRACE, f"{ROOT / 'cachedoctor'}/", *arguments],
        cwd=ROOT, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["findings"]
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return found


def test_few_modules_are_entered_for_one_log() -> None:
    found = entered("analyze", "-f", "json", str(FIXTURES / "cases" / "billing-header-hybrid" / "server.log"))
    rules = {path for path in found if path.rpartition("/")[2].startswith("cd")}
    others = [path for path in found if path not in rules]
    assert {"cli/analyze.py", "doctor/analysis/servers.py", "engines/llamacpp/lines.py"} <= set(others)
    assert "diagnosis/rules/client/cd101_billing_header.py" in rules
    print(f"{len(others)} modules and {len(rules)} rules are entered")
    assert len(others) <= MOST, "call fewer modules for one log, or merge some"
    assert len(rules) <= RULES
