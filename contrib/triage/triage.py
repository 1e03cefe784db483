"""Answer a new issue that contains a log: the job summary, and a comment if there is a token and something was found.

The text of an issue is hostile. It is read from the file of the event, goes into a file of a temporary folder, and from
there to cachedoctor: never into a shell, an expression, an environment variable or the output of the job, where the
runner would read commands. cachedoctor gets neither the token nor the settings of a repository.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

COMMENT_CHARACTERS = 60_000
"""GitHub takes 65,536."""
SECONDS = 120
MARK = "<!-- cachedoctor -->"
NOTE = (
    "This comment was written by a program from the log in this issue; attached files were not read. "
    "`cachedoctor explain CODE` shows the page of a rule."
)
SEVERITIES = ("note", "warning", "error")
RECOGNISED = 3
"""Lines of a server, from which on an issue contains a log and not only words of one."""


def issue_of(event: dict[str, Any]) -> tuple[str, int] | None:
    """Return text and number of the issue that the event opened; None for other events."""
    issue = event.get("issue")
    if event.get("action") != "opened" or not isinstance(issue, dict) or "pull_request" in issue:
        return None
    return f"# {issue.get('title') or ''}\n\n{issue.get('body') or ''}\n", int(issue["number"])


def report_on(text: str) -> tuple[str, str | None] | None:
    """Return the report on a text as Markdown, with the highest severity in it; None if the text contains no log."""
    keep = {"PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH"}
    env = {name: value for name, value in os.environ.items() if name in keep} | {"CACHEDOCTOR_NO_CONFIG": "1"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "issue.md").write_text(text, "utf-8", errors="replace")  # half a surrogate pair is valid JSON
        worst = None
        for given, wanted in (("issue.md", "report.json"), ("report.json", "report.md")):
            subprocess.run(  # noqa: S603  # names of our own
                ["cachedoctor", "analyze", given, "-o", wanted], cwd=folder, env=env, stdin=subprocess.DEVNULL,  # noqa: S607
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS, check=False,
            )  # fmt: skip
            if not (Path(folder) / wanted).exists():
                return None
            if wanted == "report.json":
                report = json.loads((Path(folder) / wanted).read_bytes())
                if not has_log(report):
                    return None
                worst = max((one["severity"] for one in report["findings"]), key=SEVERITIES.index, default=None)
        return (Path(folder) / "report.md").read_text("utf-8"), worst


def has_log(report: dict[str, Any]) -> bool:
    """Return whether cachedoctor recognised enough lines of a server."""
    return sum(given["recognised"] for given in report["inputs"]) >= RECOGNISED


def comment_on(number: int, body: str, repository: str, api: str, token: str) -> None:
    """Write a comment below an issue."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError("GITHUB_REPOSITORY is not OWNER/NAME")
    request = urllib.request.Request(  # noqa: S310  # the runner says where its API is
        f"{api}/repos/{repository}/issues/{number}/comments",
        data=json.dumps({"body": body}).encode(),
        headers={"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"},
    )
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


def main() -> int:
    """Read the event; 0 whether or not there is a log, 2 if an input of the Action is none."""
    comment_on_severity = os.environ.get("COMMENT_ON", "note")
    if comment_on_severity not in SEVERITIES:
        print("::error::comment-on: give note, warning or error")
        return 2
    found = issue_of(json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_bytes()))
    report = None if found is None else report_on(found[0])
    with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as out:
        out.write(f"found={'false' if report is None else 'true'}\n")
    if found is None or report is None:
        print("no log in this event")
        return 0
    page, worst = report
    with open(os.environ["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as summary:
        summary.write(page + "\n")
    is_worth_it = worst is not None and SEVERITIES.index(worst) >= SEVERITIES.index(comment_on_severity)
    if not is_worth_it:
        print(f"no finding has at least this severity: {comment_on_severity}")
    elif token := os.environ.get("TOKEN"):
        body = f"{MARK}\n{page}"
        if len(body) > COMMENT_CHARACTERS:
            body = f"{MARK}\nThe report on this log is too long for a comment; the job summary contains the report."
        where = os.environ["GITHUB_REPOSITORY"], os.environ.get("GITHUB_API_URL", "https://api.github.com")
        comment_on(found[1], f"{body}\n\n{NOTE}\n", *where, token)
        print("commented")
    return 0


if __name__ == "__main__":
    sys.exit(main())
