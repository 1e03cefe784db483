"""The pytest plugin in a sample project: a client that appends passes, one that edits fails with place and fix."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

CLIENT = """
import json
import urllib.request


def talk(url, edits):
    messages = [{"role": "system", "content": "You keep the log of a lighthouse."}]
    for turn, text in enumerate(("Which ship passed first?", "And which one last?")):
        if edits:
            messages[0]["content"] = f"You keep the log of a lighthouse. Turn {turn}"
        messages.append({"role": "user", "content": text})
        data = json.dumps({"model": "m", "messages": messages}).encode()
        request = urllib.request.Request(f"{url}/chat/completions", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            messages.append(json.load(answer)["choices"][0]["message"])


def test_appends(cache_engine):
    talk(cache_engine.url, False)
    assert cache_engine.assert_cache_friendly().append_only


def test_edits(cache_engine):
    talk(cache_engine.url, True)
    cache_engine.assert_cache_friendly()


def test_forgets_to_ask(cache_engine):
    talk(cache_engine.url, True)
"""


def test_a_sample_project(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CLIENT)
    # As it is called here, also where an installed cachedoctor has it loaded by its entry point.
    done = pytester.runpytest_inprocess("-p", "no:cachedoctor", "-p", "cachedoctor.pytest_plugin")
    done.assert_outcomes(passed=2, failed=1, errors=1)
    done.stdout.fnmatch_lines(["*not cache-friendly*", "*messages[[]0[]].content*", "*cost:*", "*fix:*"])


def test_loading_the_plugin_imports_nothing_else_of_ours() -> None:
    code = "import sys, cachedoctor.pytest_plugin; print(*sorted(m for m in sys.modules if 'cachedoctor' in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cachedoctor", "cachedoctor.pytest_plugin"]
