"""Shell completion as the shells ask for it, and that it can be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = f"""\
#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT)!r})
from cachedoctor.__main__ import main
try:
    main()
finally:
    print(*sorted({{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""


@pytest.fixture
def env(tmp_path):
    """A folder of programs and a home of its own."""
    program = tmp_path / "bin" / "cachedoctor"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (tmp_path / "home").mkdir()
    return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path / "home"), "TERM": "dumb"}


def run(command, env, **more):
    done = subprocess.run(command, env={**env, **more}, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def offered(env, *words):
    """What bash is offered for the last of the words."""
    line = {"COMP_WORDS": "\n".join(["cachedoctor", *words]), "COMP_CWORD": str(len(words))}
    return run(["cachedoctor"], env, _CACHEDOCTOR_COMPLETE="complete_bash", **line).stdout.split()


@pytest.mark.sweep
def test_rules(env):
    assert offered(env, "explain", "CD90") == ["CD901", "CD902", "CD903", "CD904", "CD905"]
    assert offered(env, "explain", "cd90") == ["cd901", "cd902", "cd903", "cd904", "cd905"]
    assert offered(env, "explain", "billing") == ["billing-header"]
    every = offered(env, "explain", "")
    assert {"billing-header", "log-cut"} < set(every)
    assert not any(word.startswith("CD") for word in every)  # a name says more than a code
    assert offered(env, "explain", "nothing-like-it") == []


@pytest.mark.sweep
@pytest.mark.parametrize("command", ["analyze", "watch"])
@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_lists_of_rules(env, command, option):
    assert offered(env, command, option, "CD90") == ["CD901", "CD902", "CD903", "CD904", "CD905"]
    assert offered(env, command, option, "CD1,log-c") == ["CD1,log-cut"]


@pytest.mark.sweep
def test_commands_options_and_values(env):
    assert offered(env, "expl") == ["explain"]
    assert offered(env, "analyze", "--fail") == ["--fail-on"]
    assert offered(env, "analyze", "--fail-on", "") == ["never", "note", "warning", "error"]
    assert offered(env, "analyze", "--met") == ["--metrics"]
    assert offered(env, "analyze", "--resp") == ["--responses"]
    for words in (["server"], ["--metrics", "be"], ["--responses", "be"]):
        assert offered(env, "analyze", *words) == []  # so that the shell offers files


@pytest.mark.sweep
def test_other_shells_get_an_explanation(env):
    words = {"_TYPER_COMPLETE_ARGS": "cachedoctor explain CD901"}
    zsh = run(["cachedoctor"], env, _CACHEDOCTOR_COMPLETE="complete_zsh", **words)
    assert zsh.stdout == '_arguments \'*: :(("CD901":"log-too-terse"))\'\n'
    words["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    fish = run(["cachedoctor"], env, _CACHEDOCTOR_COMPLETE="complete_fish", **words)
    assert fish.stdout == "CD901\tlog-too-terse\n"


@pytest.mark.sweep
def test_nothing_heavy_is_imported(env):
    line = {"COMP_WORDS": "cachedoctor\nexplain\nCD1", "COMP_CWORD": "2", "_CACHEDOCTOR_COMPLETE": "complete_bash"}
    imported = set(run(["cachedoctor"], env, **line).stderr.split())
    assert "typer" in imported
    assert imported.isdisjoint({"polars", "regex", "jinja2", "rich"})  # msgspec takes 9 ms


INSIDE = {
    "bash": "COMP_WORDS=(cachedoctor explain CD90) COMP_CWORD=2; _cachedoctor_completion cachedoctor; "
    'echo "${COMPREPLY[@]}"',
    "fish": "echo (complete -C 'cachedoctor explain CD90' | cut -f 1)",
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_is_installed_works(env, tmp_path, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    done = run([shell, "-c", "cachedoctor --install-completion; true"], env)
    assert f"{shell} completion installed" in done.stdout, done.stderr
    home = tmp_path / "home"
    script = next(path for path in home.rglob("*cachedoctor*") if path.is_file())
    if shell == "zsh":
        assert run(["zsh", "-n", script], env).returncode == 0
        assert script.read_text().startswith("#compdef cachedoctor")
        assert "compinit" in (home / ".zshrc").read_text()
    else:
        assert run([shell, "-c", f"source {script}; {INSIDE[shell]}"], env).stdout.split() == [
            "CD901",
            "CD902",
            "CD903",
            "CD904",
            "CD905",
        ]
