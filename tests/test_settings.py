"""Flags before the environment before a file before the default, in the commands themselves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from command import FIRST, LOG, PYTHON, SECOND, THIRD, one_line, run

ROOT = Path(__file__).parent.parent


def here(folder, *args, **env):
    """Run in a folder, with the files of settings that lie there."""
    return run(*args, folder=str(folder), **{"CACHEDOCTOR_NO_CONFIG": "", "PYTHONPATH": str(ROOT), **env})


@pytest.fixture
def project(tmp_path):
    (tmp_path / "server.log").write_bytes((FIRST + SECOND + THIRD).encode())
    return tmp_path


def codes(done):
    assert done.returncode in (0, 1), done.stderr
    return [finding["code"] for finding in json.loads(done.stdout)["findings"]]


@pytest.mark.sweep
def test_the_log_has_two_findings(project):
    assert sorted(codes(here(project, "analyze", "server.log", "-f", "json"))) == ["CD101", "CD102"]


@pytest.mark.sweep
def test_each_level_comes_before_the_next(project):
    (project / "cachedoctor.toml").write_text('format = "json"\nignore = ["CD1"]\n')
    assert codes(here(project, "analyze", "server.log")) == []
    assert codes(here(project, "analyze", "server.log", CACHEDOCTOR_IGNORE="billing-header")) == ["CD102"]
    flag = here(project, "analyze", "server.log", "--ignore", "CD102,CD3", CACHEDOCTOR_IGNORE="billing-header")
    assert codes(flag) == ["CD101"]
    assert sorted(codes(here(project, "analyze", "server.log", "--ignore", ""))) == ["CD101", "CD102"]
    text = here(project, "analyze", "server.log", "-f", "text", "--select", "CD101", "--width", "200")
    assert b"warning[CD101]" in text.stdout
    assert b"CD102" not in text.stdout


@pytest.mark.sweep
def test_a_file_that_nobody_named_says_which_rules_it_silences(project):
    """One line on the standard error; what was given says nothing, nor does a file that silences none."""
    file, inner = project / "cachedoctor.toml", project / "inner"
    inner.mkdir()
    (inner / "server.log").write_bytes((project / "server.log").read_bytes())
    file.write_text('ignore = ["CD101", "log-cut"]\n')
    said = f"cachedoctor: note: {file}: these rules are not reported: CD101, CD902 (hint: --no-config ignores this file"
    for done in (here(inner, "analyze", "server.log"), here(inner, "watch", "-", stdin=FIRST.encode())):
        assert done.stderr.decode().startswith(said)
        assert done.stderr.count(b"\n") == 1
    for given in (["--quiet"], ["--config", file], ["--no-config"], ["--ignore", "CD1"]):
        assert here(inner, "analyze", "server.log", *given).stderr == b"", given
    assert here(inner, "analyze", "server.log", CACHEDOCTOR_CONFIG=str(file)).stderr == b""
    file.write_text('select = ["CD101"]\n')
    assert b"and " in here(inner, "analyze", "server.log").stderr
    file.write_text('format = "json"\nselect = ["CD"]\n')
    assert here(inner, "analyze", "server.log").stderr == b""


@pytest.mark.sweep
def test_words_of_a_user_are_hidden(project):
    """Wherever a report quotes, and whatever surrounds them; a pattern that would hide everything is refused."""
    log = (FIRST + SECOND).replace("/models/hybrid.gguf", "/models/Falcon-EMP-4711.gguf").encode()
    (project / "falcon.log").write_bytes(log)
    (project / "cachedoctor.toml").write_text('hide = ["falcon", "EMP-####"]\n')
    done = here(project, "analyze", "falcon.log", "-f", "json")
    assert json.loads(done.stdout)["sessions"][0]["model"] == "<hidden>-<hidden>.gguf"
    plain = here(project, "analyze", "falcon.log", "-f", "json", CACHEDOCTOR_HIDE="gguf")
    assert json.loads(plain.stdout)["sessions"][0]["model"] == "Falcon-EMP-4711.<hidden>"
    one_line(here(project, "analyze", "falcon.log", CACHEDOCTOR_HIDE="a*"), "CACHEDOCTOR_HIDE")


@pytest.mark.sweep
def test_flags_can_be_repeated_and_joined(project):
    done = here(project, "analyze", "server.log", "-f", "json", "--ignore", "CD101", "--ignore", "log-cut,CD102")
    report = json.loads(done.stdout)
    assert (report["findings"], report["ignored"]) == ([], ["CD101", "CD102", "CD902"])


@pytest.mark.sweep
def test_fail_on(project):
    (project / "pyproject.toml").write_text('[tool.cachedoctor]\nfail-on = "warning"\n')
    assert here(project, "analyze", "server.log").returncode == 1
    assert here(project, "analyze", "server.log", "--fail-on", "error").returncode == 0
    assert here(project, "analyze", "server.log", "--fail-on", "never").returncode == 0
    assert here(project, "analyze", "server.log", "--ignore", "CD").returncode == 0
    assert here(project, "analyze", "server.log", CACHEDOCTOR_WARN_TOKENS="100000").returncode == 0
    assert here(project, "analyze", "server.log", "--no-config").returncode == 0
    assert here(project, "analyze", "server.log", "--isolated").returncode == 0
    assert here(project, "analyze", "server.log", CACHEDOCTOR_NO_CONFIG="1").returncode == 0


@pytest.mark.sweep
def test_another_file(project, tmp_path):
    other = tmp_path / "elsewhere" / "mine.toml"
    other.parent.mkdir()
    other.write_text('format = "json"')
    (project / "cachedoctor.toml").write_text("wrong")
    assert sorted(codes(here(project, "analyze", "server.log", "--config", other))) == ["CD101", "CD102"]
    assert sorted(codes(here(project, "analyze", "server.log", CACHEDOCTOR_CONFIG=str(other)))) == ["CD101", "CD102"]
    one_line(here(project, "analyze", "server.log"), "cachedoctor.toml: is not valid TOML")
    both = here(project, "analyze", "server.log", "--config", other, "--no-config")
    assert (both.returncode, b"--config contradicts --no-config" in both.stderr) == (2, True)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('\nignore = ["biling-header"]', ["cachedoctor.toml:2: ignore: biling-header: no such rule",
                                         "did you mean CD101 billing-header?"]),
        ('select = ["CD8"]', ["cachedoctor.toml:1: select: CD8: no such rule"]),
        ("select = []", ["cachedoctor.toml:1: select: names no rule"]),
        ('format = "jsn"', ["cachedoctor.toml:1: format: jsn: no such format", "did you mean json?"]),
        ("formats = 1", ["cachedoctor.toml:1: formats: unknown key", "did you mean format?"]),
        ('ignore = ["\\u001b[2J"]', ["\\x1b[2J: no such rule"]),
    ],
)  # fmt: skip
def test_what_a_file_gets_wrong_is_one_line(project, text, words):
    (project / "cachedoctor.toml").write_text(text)
    (project / "report").write_text("old")
    done = here(project, "analyze", "server.log", "-o", "report")
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, *words)
    assert (project / "report").read_text() == "old"


@pytest.mark.parametrize(
    ("word", "now"), [("CD511", "CD101"), ("CD609", "CD101"), ("prompt-parted", "CD105 and CD108")]
)
def test_a_former_code_is_a_note_and_hides_nothing(project, word, now):
    (project / "cachedoctor.toml").write_text(f'ignore = ["{word}"]')
    for args, place in (((), "cachedoctor.toml:1: ignore"), (("--ignore", word), "--ignore")):
        done = here(project, "analyze", "server.log", "-f", "json", *args)
        assert sorted(codes(done)) == ["CD101", "CD102"]
        note = done.stderr.decode()
        assert note.count("note:") == 1
        assert f"{place}: CD" in note
        assert f" is part of {now} since 1.0.0 (hint: the rule code has no effect here" in note
        assert here(project, "analyze", "server.log", "-f", "json", "-q", *args).stderr == b""


def test_a_former_code_selects_the_new_one(project):
    done = here(project, "analyze", "server.log", "-f", "json", "--select", "CD609")
    assert codes(done) == ["CD101"]
    assert b"note: --select: CD609 is part of CD101 since 1.0.0\n" in done.stderr


@pytest.mark.sweep
def test_what_a_flag_or_a_variable_gets_wrong_is_one_line(project):
    one_line(here(project, "analyze", "server.log", "--select", "CD108,CD11x"), "--select: CD11x: no such rule")
    one_line(here(project, "analyze", "server.log", "--select", ","), "--select: names no rule")
    one_line(here(project, "analyze", "server.log", CACHEDOCTOR_FAIL_ON="bad"), "CACHEDOCTOR_FAIL_ON: Invalid enum")
    one_line(here(project, "analyze", "server.log", CACHEDOCTOR_FORMAT="x"), "CACHEDOCTOR_FORMAT: x: no such format")


@pytest.mark.sweep
def test_the_reports_of_several_processes_leave_out_the_same(project):
    (project / "b.log").write_bytes(LOG)
    for ignored in ("CD101", "CD1"):
        args = ("analyze", "server.log", "b.log", "-f", "json", "--ignore", ignored)
        alone, jobs = here(project, *args), here(project, *args, "--jobs", "2")
        assert alone.stdout == jobs.stdout
        assert ignored not in codes(jobs)
    limit = {"CACHEDOCTOR_MIN_PROMPT_TOKENS": "2100"}  # of 1,900, 2,035 and 2,135 tokens the last is left
    jobs = here(project, "analyze", "server.log", "b.log", "-f", "json", "--jobs", "2", **limit)
    assert codes(jobs) == ["CD102", "CD904"]  # what was passed over is nobody's


@pytest.mark.sweep
def test_live_findings_leave_out_the_same(project):
    args = ("analyze", "-", "--ignore", "CD101")
    done = run(*args, stdin=(FIRST + SECOND + THIRD).encode(), shell="", folder=str(project), PYTHONPATH=str(ROOT))
    assert done.stdout.count(b"CD101") == 1  # in the last line
    assert b"1 rule switched off: CD101 and not reported.\n" in done.stdout
    assert b"warning[CD102]" in done.stdout


@pytest.mark.sweep
def test_colour_of_a_file_yields_to_the_environment(project):
    (project / "cachedoctor.toml").write_text('color = "always"\n')
    assert b"\x1b[" in here(project, "analyze", "server.log").stdout
    assert b"\x1b[" not in here(project, "analyze", "server.log", NO_COLOR="1").stdout
    assert b"\x1b[" not in here(project, "analyze", "server.log", "--color", "never").stdout
    assert b"\x1b[" in here(project, "analyze", "server.log", "--color", "always", NO_COLOR="1").stdout


@pytest.mark.sweep
def test_report_goes_by_the_same_file(project):
    stored = here(project, "analyze", "server.log", "-f", "json").stdout
    (project / "r.json").write_bytes(stored)
    (project / "cachedoctor.toml").write_text('format = "json"\n')
    assert json.loads(here(project, "analyze", "r.json").stdout) == json.loads(stored)
    assert b"warning[CD101]" in here(project, "analyze", "r.json", "-f", "text").stdout
    assert b"warning[CD101]" in here(project, "analyze", "r.json", "--no-config").stdout


@pytest.mark.sweep
def test_explain_settings_says_what_holds_and_why(project):
    (project / "cachedoctor.toml").write_text('warn-tokens = 5000\nignore = ["CD9"]\n')
    variables = {"CACHEDOCTOR_MIN_PROMPT_TOKENS": "10", "CACHEDOCTOR_SELECT": "CD1,CD9"}
    said = json.loads(here(project, "explain", "settings", "-f", "json", **variables).stdout)
    rows = {row["name"]: (row["value"], row["source"], row["place"], row["unit"]) for row in said["settings"]}
    path = str(project / "cachedoctor.toml")
    assert said["file"] == path
    assert rows == {
        "select": (["CD1", "CD9"], "environment", "CACHEDOCTOR_SELECT", None),
        "ignore": (["CD9"], "file", f"{path}:2", None),
        "format": ("text", "default", None, None),
        "fail-on": ("never", "default", None, None),
        "color": ("auto", "default", None, None),
        "warn-tokens": (5000, "file", f"{path}:1", "tokens"),
        "min-prompt-tokens": (10, "environment", "CACHEDOCTOR_MIN_PROMPT_TOKENS", "tokens"),
        "hide": ([], "default", None, None),
    }
    ignored = [code for code in said["ignored"] if code.startswith(("CD1", "CD9"))]
    assert ignored == ["CD901", "CD902", "CD903", "CD904", "CD905"]
    text = " ".join(here(project, "explain", "settings").stdout.decode().split())
    assert f"warn-tokens 5,000 tokens (file: {path}:1)" in text
    assert text.endswith("switched off CD901, CD902, CD903, CD904, CD905")
    assert here(project, "explain", "settings", CACHEDOCTOR_NO_CONFIG="1").stdout.startswith(b"file  none\n")


@pytest.mark.sweep
def test_a_working_directory_that_is_gone_has_no_file(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = 'cd "$0" && rmdir "$0" && exec "$@"'
    done = subprocess.run(
        ["bash", "-c", command, gone, "env", "CACHEDOCTOR_NO_CONFIG=", f"PYTHONPATH={ROOT}", *PYTHON, "explain",
         "settings"],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout[:11]) == (0, b"file  none\n"), done.stderr
