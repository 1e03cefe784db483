"""Templates and tokenizers of strangers: in a process of their own, with limits, and said in one line."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import hostile_model_files as made
import pytest
from command import one_line, run
from conftest import FIXTURES
from tokenizer_files import TINY, save_gguf

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import inputs, run_diff
from cachedoctor.prompts.confined import pipe_messages
from cachedoctor.prompts.confined.child import FailedError
from cachedoctor.prompts.confined_worker import from_path
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.render import render

TEMPLATE = str(FIXTURES / "prompts" / "template.jinja")
BODIES = sorted(FIXTURES.glob("prompts/*/[ab].json"))
LOG = FIXTURES / "cases" / "requests-tools-reordered"
FOREVER = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}" + "{% endfor %}" * 3
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory, devices and pipes")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes all time has less of it, for tests that need no proof of how much."""
    monkeypatch.setattr(pipe_messages, "WALL_SECONDS", 1.0)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time, for tests of another limit than the clock."""
    monkeypatch.setattr(pipe_messages, "WALL_SECONDS", 300.0)


@pytest.fixture
def rushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of that, where it matters only that there is an end: begun or not, within its memory or not."""
    monkeypatch.setattr(pipe_messages, "WALL_SECONDS", 0.75)


def body(text: str = "hi") -> Prompt:
    return inputs.parse(json.dumps({"messages": [{"role": "user", "content": text}]}).encode(), "f")[0]


def refused(error: CacheDoctorError) -> None:
    """One line and a hint, whatever the file holds."""
    assert "\n" not in error.message
    assert error.hint
    assert error.exit_code == 2
    assert len(error.message) < 700


@pytest.mark.spread(7)
@linux
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", made.TEMPLATES)
def test_hostile_templates(name: str, tmp_path: Path, rushed: None) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(made.TEMPLATES[name], "utf-8")
    _ends(lambda files: files.rendered(body(), False), template=str(path))


@pytest.mark.sample(1)
@pytest.mark.spread(4)
@linux
@pytest.mark.parametrize("name", made.TOKENIZERS)
def test_hostile_tokenizers(name: str, tmp_path: Path, rushed: None) -> None:
    path = made.write(made.TOKENIZERS[name](), tmp_path / "t.json")
    _ends(lambda files: files.cutter.encode(made.PROMPT), tokenizer=path)


@pytest.mark.parametrize("number", ["1e999", "NaN", "1.5", '"7"', "null", "[]", "true"])
def test_the_id_of_an_added_token_is_a_whole_number(number: str, tmp_path: Path) -> None:
    spec = json.dumps(made.SPEC | {"added_tokens": [{"id": "@id", "content": "<added>"}]})
    path = made.write(spec.replace('"@id"', number).encode(), tmp_path / "t")
    with pytest.raises(CacheDoctorError) as caught:
        from_path(path).encode("an <added> token")
    refused(caught.value)
    assert "added token" in caught.value.message


@linux
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", made.MODELS)
def test_hostile_models(name: str, tmp_path: Path, rushed: None) -> None:
    path = made.write(made.MODELS[name](), tmp_path / "m.gguf")
    for option in ("tokenizer", "template"):
        with pytest.raises(CacheDoctorError) as caught:
            ModelFiles(**{option: path}).rendered(body(), False)
        refused(caught.value)


def _ends(use, **files: str) -> None:
    """In time, with an answer or an error."""
    began, opened = time.monotonic(), None
    try:
        opened = ModelFiles(**files)
        use(opened)
    except CacheDoctorError as error:
        refused(error)
    finally:
        if opened is not None:
            opened.close()
    assert time.monotonic() - began < 60  # a machine that is busy; benchmarks/model_files.py measures


@pytest.mark.sample(1)
@linux
@pytest.mark.parametrize("name", made.PLACES)
def test_what_is_not_a_file_of_a_moderate_size(name: str, tmp_path: Path) -> None:
    path = made.PLACES[name](tmp_path)
    for use in (
        lambda: ModelFiles(tokenizer=path),
        lambda: ModelFiles(template=path).rendered(body(), False),
        lambda: inputs.load(path),
    ):
        with pytest.raises(CacheDoctorError) as caught:
            use()
        assert "\n" not in caught.value.message


@linux
def test_a_pipe_that_somebody_writes_to_is_a_prompt() -> None:
    done = run("diff", shell="<(printf 'one two') <(printf 'one three') -f json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["first"]["b"].strip() == "three"


@pytest.mark.spread(3)
@pytest.mark.sample(1)
@pytest.mark.parametrize("path", BODIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_child_renders_and_cuts_as_this_process_does(path: Path, tmp_path: Path) -> None:
    gguf = save_gguf(tmp_path)
    for prompt in inputs.load(str(path)):
        for tokenizer in (str(TINY), gguf):
            files, here = ModelFiles(tokenizer, TEMPLATE), from_path(tokenizer)
            mask = prompt.kind == "anthropic-messages"
            rendered = files.rendered(prompt, mask)
            assert rendered == render.with_template(prompt, render.chat_template(TEMPLATE), mask_cch=mask)
            ours, theirs = here.encode(rendered.text), files.cutter.encode(rendered.text)
            assert (list(theirs.ids), list(theirs.starts)) == (ours.ids, ours.starts)
            assert files.cutter.leading(rendered.text) == here.leading(rendered.text)
            assert (files.cutter.local, files.cutter.name) == (here.local, here.name)
            files.close()


def test_what_json_cannot_say_in_utf8_goes_through() -> None:
    value = {"messages": [{"role": "user", "content": "a\ud83d \U0010ffff \x00"}], "n": 10**30}
    prompt = inputs.parse(json.dumps(value).encode(), "f")[0]
    files = ModelFiles(str(TINY), TEMPLATE)
    assert files.rendered(prompt, False) == render.with_template(prompt, render.chat_template(TEMPLATE))
    assert files.cutter.encode(prompt.text).starts[0] == 0
    files.close()


@linux
@pytest.mark.sweep
def test_processor_time_ends_the_child(patient: None, tmp_path: Path) -> None:
    """Where the clock would wait longer than this test does."""
    path = tmp_path / "t.jinja"
    path.write_text(FOREVER)
    files = ModelFiles(template=str(path))
    with pytest.raises(FailedError, match="took more than 8 s of processor time"):
        files.rendered(body(), False)
    with pytest.raises(FailedError, match="took more than 8 s of processor time"):
        files.rendered(body(), False)  # and is not tried again


def test_the_clock_ends_the_child(hurried: None, tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(FOREVER)
    with pytest.raises(FailedError, match="took longer than 1 s"):
        ModelFiles(template=str(path)).rendered(body(), False)


@linux
def test_memory_is_refused(patient: None, tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(made.TEMPLATES["doubling by ~"])
    with pytest.raises(FailedError, match="needs more than 400 MiB of memory"):
        ModelFiles(template=str(path)).rendered(body(), False)


@pytest.mark.sweep
def test_tokens_without_measure_are_refused(patient: None, tmp_path: Path) -> None:
    path = made.write(made.TOKENIZERS["Prepend of 2 MB"](), tmp_path / "t.json")
    with pytest.raises(FailedError, match="turned 2 characters into 2,000,002 tokens"):
        ModelFiles(path).cutter.encode("hi")


def test_nothing_is_started_for_texts_without_tokenizer_and_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", None)
    first, second = (str(path) for path in BODIES[:2])
    assert not run_diff.answer(first, second, run_diff.DiffJob())[0].equal
    assert len(GivenPrompts([first, second])) == 2


@pytest.mark.sweep
def test_modules_of_the_working_directory_are_not_run(tmp_path: Path) -> None:
    """The child is started where the user is, which may be a folder of strangers' files."""
    for name in ("json", "jinja2", "msgspec", "regex"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(7)")
    first, second = (str(path) for path in BODIES[:2])
    done = run("diff", first, second, "--template", TEMPLATE, "--tokenizer", str(TINY), folder=str(tmp_path))
    assert done.returncode == 1, done.stderr


def analyzed(template: str | None, tokenizer: str | None) -> tuple[Analyzer, object]:
    requests = str(LOG / "requests.jsonl")
    given = GivenPrompts([requests], tokenizer, template)
    analyzer = Analyzer(prompts=given)
    analyzer.open("server.log")
    analyzer.feed((LOG / "server.log").read_bytes())
    return analyzer, analyzer.finish()


@linux
@pytest.mark.sweep
@pytest.mark.parametrize("option", ["template", "tokenizer"])
def test_an_analysis_continues_without_what_failed(option: str, hurried: None, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if option == "template":
        path.write_text(FOREVER)
    else:
        made.write(made.TOKENIZERS["Prepend of 50 MB"](), path)
    _, plain = analyzed(None, None)
    _, report = analyzed(**{"template": None, "tokenizer": None, option: str(path)})
    assert [info.path for info in report.inputs] == ["server.log", str(path)]
    assert "took longer than 1 s" in report.inputs[1].error or "MiB of memory" in report.inputs[1].error
    assert report.inputs[0] == plain.inputs[0]
    assert [(f.code, f.claim) for f in report.findings] == [(f.code, f.claim) for f in plain.findings]


@pytest.mark.sweep
def test_the_command_says_what_failed_after_its_report(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text("{{ raise_exception('roles must\nalternate') }}")
    done = run(
        "analyze",
        str(LOG / "server.log"),
        "--requests",
        str(LOG / "requests.jsonl"),
        "--template",
        path,
        "-q",
        "-f",
        "json",
    )
    assert done.returncode == 2
    one_line(done, "roles must")
    assert [entry["path"] for entry in json.loads(done.stdout)["inputs"]][1] == os.fspath(path)
