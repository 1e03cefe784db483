"""The two functions that are the library, and the page that tells of them: its examples print what they show."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import subprocess
import sys
from typing import get_args, get_type_hints

import msgspec
import pytest
from conftest import FIXTURES, ROOT

import cachedoctor
from cachedoctor import CacheDoctorError, Finding, PromptDiff, Report, RequestRow, Totals, model

PAGE = (ROOT / "docs" / "library.md").read_text("utf-8")
LOG = FIXTURES / "cases" / "billing-header-hybrid" / "server.log"
_EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n\nprints\n\n```\n(?P<output>.*?)```", re.DOTALL)


def test_the_examples_print_what_they_show(tmp_path, monkeypatch):
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    monkeypatch.chdir(tmp_path)
    examples = list(_EXAMPLE.finditer(PAGE))
    assert len(examples) == PAGE.count("```python") == 4
    names: dict[str, object] = {}
    for example in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(example["code"], names)
        assert printed.getvalue() == example["output"]


@pytest.mark.sweep
def test_a_typed_program_uses_it():
    prompts = FIXTURES / "prompts" / "billing-header"
    command = [sys.executable, ROOT / "tests/typing/api.py", LOG, prompts / "a.json", prompts / "b.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT,
                          env={"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.stdout == '1 {"schema":"cachedoctor.report/1"," False no-such-rule: no such rule\n', done.stderr
    assert (ROOT / "cachedoctor" / "py.typed").is_file()


def structs_in(kind: object) -> set[type]:
    """The structs that an annotation names."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {kind}
    return {struct for part in get_args(kind) for struct in structs_in(part)}


def reachable(kind: type) -> set[type]:
    """A struct and all that its fields hold."""
    found, left = set(), {kind}
    while left:
        found |= left
        left = {s for struct in left for hint in get_type_hints(struct).values() for s in structs_in(hint)} - found
    return found


def test_the_top_has_every_type_that_a_caller_can_meet():
    """Not those of what only rules read of a session."""
    met = reachable(Report) | reachable(PromptDiff) | {model.RequestRow, model.CacheSample, model.PrefillBatch}
    assert {model.Evidence, model.Edit, model.Setting} < met
    names = {kind.__name__ for kind in met if kind.__module__.startswith("cachedoctor")}
    assert (
        names - {"Around", "GivenOption", "Mark", "SentBodies", "SentChange", "Sizes", "Twins", "Undecided"}
        <= set(cachedoctor.__all__)
        <= set(dir(cachedoctor))
    )
    for name in set(cachedoctor.__all__) - {"__version__", "analyze", "diff", "lint"}:
        assert getattr(cachedoctor, name) is getattr(model, name)
    with pytest.raises(AttributeError, match="no attribute 'Reprot'"):
        cachedoctor.Reprot  # noqa: B018


def test_every_type_of_the_top_is_on_the_page():
    assert [name for name in cachedoctor.__all__ if name != "__version__" and name not in PAGE] == []


@pytest.mark.parametrize(
    ("kind", "part"), [(Report, "Report"), (Totals, "Report"), (Finding, "Finding"), (RequestRow, "RequestRow")]
)
def test_every_field_is_on_the_page(kind, part):
    section = PAGE.partition(f"\n### {part}\n")[2].partition("\n### ")[0]
    left_out = {"tool_version"}
    missing = [n for n in kind.__struct_fields__ if f"`{n}`" not in section and n not in left_out]
    assert missing == [], f"docs/library.md has no such field of {part}"


@pytest.mark.parametrize("function", [cachedoctor.analyze, cachedoctor.diff])
def test_every_argument_is_on_the_page_and_documented(function):
    for name in inspect.signature(function).parameters:
        assert f"`{name}`" in PAGE or f"`*{name}`" in PAGE
        assert f"{name}:" in function.__doc__ or f"``{name}``" in function.__doc__


def test_select_and_ignore():
    assert [f.code for f in cachedoctor.analyze(LOG).findings] == ["CD101"]
    assert cachedoctor.analyze(LOG, ignore=["billing-header"]).findings == []
    assert [f.code for f in cachedoctor.analyze(LOG, select=["CD1"]).findings] == ["CD101"]
    with pytest.raises(CacheDoctorError) as caught:
        cachedoctor.analyze(LOG, ignore=["CD11x"])
    assert (caught.value.message, caught.value.hint[:13]) == ("CD11x: no such rule", "did you mean ")


def test_settings_of_files_and_variables_have_no_say(tmp_path, monkeypatch):
    (tmp_path / "cachedoctor.toml").write_text('ignore = ["CD"]')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CACHEDOCTOR_NO_CONFIG")
    monkeypatch.setenv("CACHEDOCTOR_IGNORE", "CD")
    assert len(cachedoctor.analyze(LOG).findings) == 1


def test_the_command_line_beside_a_log():
    found = cachedoctor.analyze(LOG, cmdline="llama-server --checkpoint-every-nb 3").findings  # of other builds
    assert {f.code for f in found} == {"CD101", "CD406"}


def test_prompts_beside_a_log():
    case = FIXTURES / "cases" / "requests-billing-header"
    (finding,) = cachedoctor.analyze(case / "server.log", prompts=[case / "requests.jsonl"]).findings
    assert (finding.code, finding.diff["first"].kind) == ("CD101", "billing-header")
    assert all(f.diff is None for f in cachedoctor.analyze(case / "server.log").findings)
