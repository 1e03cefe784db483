"""contrib/triage: an issue with a log is answered; its text reaches no shell, expression or output of the job."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cmarkgfm
import pytest
import yaml
from command import start
from conftest import FIXTURES, ROOT
from forks import early

FOLDER = ROOT / "contrib" / "triage"
EVENTS = FIXTURES / "events"
TOKEN = "a-token-of-the-job"


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((FOLDER / "action.yml").read_text("utf-8"))["runs"]["steps"]
    return found


class Api:
    """GitHub's API, as far as comments go."""

    def __init__(self) -> None:
        self.comments: list[tuple[str, str, str]] = []
        comments = self.comments

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                comments.append((self.path, self.headers["Authorization"], sent["body"]))
                self.send_response(201)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def api() -> Iterator[Api]:
    found = Api()
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


class Job:
    """A job of GitHub Actions that runs the last step on an event."""

    def __init__(self, folder: Path, api: Api | None = None) -> None:
        self.folder = folder
        self.commands = folder / "bin"
        self.commands.mkdir()
        command = self.commands / "cachedoctor"
        command.write_text(f'#!/bin/sh\nenv > "{folder}/seen"\nexec "{sys.executable}" -m cachedoctor "$@"\n')
        command.chmod(0o755)
        # As the Action is checked out: at a path of its own, beside nothing that it could import by accident.
        shutil.copy(FOLDER / "triage.py", folder / "triage.py")
        self.env = {
            "PATH": f"{self.commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "ACTION": str(folder),
            "GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "GITHUB_REPOSITORY": "an-owner/a-server", "TOKEN": "" if api is None else TOKEN,
            "GITHUB_API_URL": "http://127.0.0.1:9" if api is None else api.url,
        }  # fmt: skip

    def run(self, event: Path) -> subprocess.CompletedProcess[str]:
        """Run the step as the runner does."""
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps()[-1]["run"]],
            env=self.env | {"GITHUB_EVENT_PATH": str(event)}, cwd=self.folder,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def run_here(self, event: Path) -> subprocess.CompletedProcess[str]:
        """Run what the step calls in this process, and the command forked from a warm one: in a fifth of the time."""
        spec = importlib.util.spec_from_file_location("triage", self.folder / "triage.py")
        assert spec is not None
        assert spec.loader is not None
        triage = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(triage)
        vars(triage)["subprocess"] = SimpleNamespace(run=forked, DEVNULL=subprocess.DEVNULL)
        out, error = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(error):
            for name, value in (self.env | {"GITHUB_EVENT_PATH": str(event)}).items():
                patch.setenv(name, value)
            status = triage.main()
        return subprocess.CompletedProcess([], status, out.getvalue(), error.getvalue())

    @property
    def summary(self) -> str:
        path = self.folder / "summary.md"
        return path.read_text("utf-8") if path.exists() else ""

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text("utf-8")


def forked(words: list[str], *, cwd: str, env: dict[str, str], timeout: int, check: bool, **streams: int) -> None:
    """``subprocess.run`` of cachedoctor."""
    name, *arguments = words
    assert (name, "TOKEN" in env, check) == ("cachedoctor", False, False)
    with start(*arguments, folder=cwd, env=dict(early(os.environ)) | env, **streams) as command:
        command.wait(timeout)


def test_expressions_reach_the_shell_by_its_environment_alone() -> None:
    """And none of them is of the event: no input of an issue is in the Action at all."""
    assert [step["name"] for step in steps() if "${{" in step["run"]] == []
    assert {value for step in steps() for value in step["env"].values()} == {
        "${{ github.action_path }}",
        "${{ inputs.token }}",
        "${{ inputs.comment-on }}",
    }


def test_the_checkout_that_holds_the_action_is_installed() -> None:
    assert steps()[0]["run"] == 'pipx install "$ACTION/../.."'
    assert (FOLDER / ".." / ".." / "pyproject.toml").is_file()


def test_a_log_is_answered_in_the_summary_and_without_a_token_nowhere_else(tmp_path: Path) -> None:
    job = Job(tmp_path)
    done = job.run(EVENTS / "issue-with-log.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert job.output == "found=true\n"
    assert job.summary.startswith("## llama-server ")
    assert "`CD" in job.summary
    assert "Each turn takes longer" not in job.summary


def test_with_a_token_it_is_a_comment_that_says_who_wrote_it(tmp_path: Path, api: Api) -> None:
    job = Job(tmp_path, api)
    assert job.run(EVENTS / "issue-with-log.json").returncode == 0
    ((path, authorization, body),) = api.comments
    assert (path, authorization) == ("/repos/an-owner/a-server/issues/42/comments", f"Bearer {TOKEN}")
    assert job.summary.strip() in body
    assert "written by a program" in body
    assert TOKEN not in (tmp_path / "seen").read_text()  # cachedoctor has no token


@pytest.mark.parametrize("name", ["issue-without-log", "issue-without-body", "issue-edited", "pull-request-commented"])
def test_other_events_are_passed_over(name: str, tmp_path: Path, api: Api) -> None:
    job = Job(tmp_path, api)
    done = job.run_here(EVENTS / f"{name}.json")
    assert (done.returncode, done.stdout) == (0, "no log in this event\n")
    assert (job.output, job.summary, api.comments) == ("found=false\n", "", [])


def issue_with(name: str, folder: Path) -> Path:
    """An issue about something else, with a log of a case."""
    event = json.loads((EVENTS / "issue-with-log.json").read_bytes())
    log = (FIXTURES / "cases" / name / "server.log").read_text("utf-8")
    event["issue"] |= {"title": "it crashes", "body": f"See below.\n\n```\n{log}\n```\n"}
    (folder / "event.json").write_text(json.dumps(event))
    return folder / "event.json"


@pytest.mark.parametrize(
    ("case", "least", "commented"),
    [
        ("healthy-mamba-b8353", None, False),  # nothing is found in it
        ("cache-reuse-hybrid-b8672", None, True),  # two notes are
        ("cache-reuse-hybrid-b8672", "warning", False),
        ("billing-header-hybrid", "warning", True),
        ("billing-header-hybrid", "error", False),
    ],
)
def test_a_comment_needs_a_finding_that_is_worth_it(
    case: str, least: str | None, commented: bool, tmp_path: Path, api: Api
) -> None:
    """The summary has the answer all the same."""
    job = Job(tmp_path, api)
    job.env |= {} if least is None else {"COMMENT_ON": least}
    done = job.run_here(issue_with(case, tmp_path))
    told = "commented\n" if commented else f"no finding has at least this severity: {least or 'note'}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, told, "")
    assert len(api.comments) == commented
    assert job.summary.startswith("## llama-server")


def test_a_severity_that_is_none_is_refused(tmp_path: Path, api: Api) -> None:
    job = Job(tmp_path, api)
    job.env["COMMENT_ON"] = "always"
    done = job.run_here(EVENTS / "issue-with-log.json")
    assert (done.returncode, done.stdout, api.comments) == (2, "::error::comment-on: give note, warning or error\n", [])


HOSTILE = (
    "$(touch {folder}/owned) `touch {folder}/owned` ; touch {folder}/owned #",
    "${{{{ github.token }}}} ${{{{ secrets.GITHUB_TOKEN }}}}",
    "::set-output name=found::owned\n::error::owned\n::add-mask::true\n::stop-commands::owned",
    "EOF\nfound=owned\nGITHUB_OUTPUT<<EOF",
    "-o {folder}/owned\n--config {folder}/owned.toml",
    "<script>owned()</script> <!-- owned --> [owned](https://owned.example) ![owned](https://owned.example/x.png)",
    "@an-owner @everyone please merge, fixes #1, GH-1",
    "\x1b]0;owned\x07 \u202eowned \ud800 \x00",
)


@pytest.mark.sample(9)  # all words, all places
@pytest.mark.parametrize("where", ["title", "body", "log"])
@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_does_nothing(
    words: str, where: str, tmp_path: Path, api: Api, pytestconfig: pytest.Config
) -> None:
    """Through the shell with --all."""
    event = json.loads((EVENTS / "issue-with-log.json").read_bytes())
    issue, words = event["issue"], words.format(folder=tmp_path)
    if where == "title":
        issue["title"] = words
    elif where == "body":
        issue["body"] = f"{words}\n\n{issue['body']}\n{words}\n"
    else:  # among the lines of the log, and in one
        lines = issue["body"].split("\n")
        middle = len(lines) // 2
        issue["body"] = "\n".join([*lines[:middle], words, f"{lines[middle]} {words}", *lines[middle:]])
    (tmp_path / "event.json").write_text(json.dumps(event))
    job = Job(tmp_path, api)
    done = (job.run if pytestconfig.getoption("--all") else job.run_here)(tmp_path / "event.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "commented\n", "")
    assert job.output == "found=true\n"
    assert not (tmp_path / "owned").exists()
    ((_, _, body),) = api.comments
    for text in (job.summary, body):
        assert "\x1b" not in text
        page = cmarkgfm.github_flavored_markdown_to_html(text)
        assert "href" not in page.replace('href="https://github.com/ggml-org', "")
        assert "<img" not in page
        prose = re.sub(r"<code.*?</code>", "", page, flags=re.DOTALL)  # a quoted line of the log is no markup there
        shown = [word for word in ("touch ", "${{", "::error", "owned", "<script", "@everyone") if word in prose]
        assert shown == []


def test_a_report_that_is_too_long_is_not_cut_into_a_comment(tmp_path: Path, api: Api) -> None:
    job = Job(tmp_path, api)
    text = (tmp_path / "triage.py").read_text("utf-8")
    assert "COMMENT_CHARACTERS = 60_000" in text
    (tmp_path / "triage.py").write_text(
        text.replace("COMMENT_CHARACTERS = 60_000", "COMMENT_CHARACTERS = 600"), "utf-8"
    )
    assert job.run_here(EVENTS / "issue-with-log.json").returncode == 0
    ((_, _, body),) = api.comments
    assert "too long for a comment" in body
    assert len(body) < 600
    assert job.summary.startswith("## llama-server ")
