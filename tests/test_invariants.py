"""Who writes what: the invariants of the way from a line to a finding, read from the source."""

from __future__ import annotations

import ast
import gzip
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest
from conftest import ROOT

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.engines.llamacpp.slot import Slot
from cachedoctor.model import Facts, Request
from cachedoctor.model.observed import Choice, Observed
from cachedoctor.report.base import FORMATS

CODE = ROOT / "cachedoctor"
LLAMA = CODE / "engines" / "llamacpp"
PRINTED = {*Observed.__struct_fields__, *Choice.__struct_fields__, *Slot.__slots__}
"""Fields that only slot.py may write."""
OTHERS = {"self", "self._before", "session", "self.session"}
"""What has fields of the same names, and belongs to whoever writes them."""

FACADES = [
    *("diagnosis/replay/block_cache.py crowded", "live/exporter/followed_log.py waits"),
    *("doctor/analysis/analyzer.py trackers", "doctor/findings/diagnosis.py avoidable_tokens"),
    *(
        "doctor/findings/diagnosis.py avoidable_ms",
        "inputs/sources/unpack.py eof",
        "inputs/sources/unpack.py unused_data",
    ),
    *(f"engines/llamacpp/tracker.py {name}" for name in ("session", "slots", "asleep", "quoted")),
    *(f"pytest_plugin.py {name}" for name in ("url", "root", "bodies", "replies")),
]
"""Properties that give a value of a part: the interface of a class whose parts are its own."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def trees(folder: Path, *words: str) -> dict[Path, ast.Module]:
    """The source of a folder, parsed; of the files that hold all ``words``, which saves most of the time."""
    paths = sorted(folder.rglob("*.py"))
    return {path: parsed(path) for path in paths if all(word in path.read_text("utf-8") for word in words)}


def calls(*words: str) -> Iterator[tuple[Path, ast.Call]]:
    """Every call in files that hold these words."""
    for path, tree in trees(CODE, *words).items():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def called(call: ast.Call) -> str:
    """The name of what is called, ``Facts`` or ``sanitize.report``; ``...`` stands for an object without one."""
    if isinstance(call.func, ast.Attribute):
        return f"{getattr(call.func.value, 'id', '...')}.{call.func.attr}"
    return getattr(call.func, "id", "")


def stores(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """(object, attribute, line) of every attribute that is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield ast.unparse(node.value), node.attr, node.lineno


def relative(path: Path) -> str:
    return path.relative_to(CODE).as_posix()


def test_what_was_printed_is_written_in_one_file() -> None:
    """Choice and Slot have one writer, ``slot.py``; Observed has that and its own methods."""
    found = [
        f"{relative(path)}:{line} {target}.{name}"
        for path, tree in trees(LLAMA).items()
        if path.name != "slot.py"
        for target, name, line in stores(tree)
        if name in PRINTED and target not in OTHERS and not target.startswith("run.")
        if not (path.parent.name == "conversations" and target.startswith(("thread", "owner", "moved")))
    ]
    assert found == [], "a transition of a slot is a method in slot.py, of a request one of Observed"
    written = {name for _, name, _ in stores(parsed(LLAMA / "slot.py"))}
    assert len(written & PRINTED) > 30, "the fields that this test looks for are written somewhere"


@pytest.mark.parametrize("struct", [Facts, Request])
def test_what_is_known_and_settled_is_frozen(struct: type[msgspec.Struct]) -> None:
    """A request that ended keeps its facts, and is never written again."""
    assert struct.__struct_config__.frozen


def effects_on_parameters(tree: ast.Module) -> Iterator[str]:
    """Assignments to, and calls for their effect on, what a function was given: ``past.woken = False``."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        given = function.args
        names = {argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)} - {"self"}
        for node in ast.walk(function):
            target = None
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                target = node.value
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                target = node.value.func
            while isinstance(target, ast.Attribute | ast.Subscript):
                target = target.value
            if isinstance(target, ast.Name) and target.id in names:
                yield f"{function.name} {node.lineno}: {ast.unparse(node)}"


def test_effects_on_parameters_are_found() -> None:
    """Of the four lines that change what was given, each is found; a new name and a value are not."""
    source = """
def f(past, slot, held):
    past.woken = False
    past.marks["a"] = 1
    slot.keep([])
    del past.marks["a"]
    held = slot.length
    found = past.known(1)
"""
    found = {text.partition(":")[0] for text in effects_on_parameters(ast.parse(source))}
    assert found == {"f 3", "f 4", "f 5", "f 6"}


@pytest.mark.parametrize("name", ["settle.py", "accounting.py"])
def test_settling_returns_what_changes(name: str) -> None:
    """``settle`` returns effects that ``close`` applies, and changes nothing that it was given but the conversations,
    which learn from each request on the way."""
    found = [text for text in effects_on_parameters(parsed(LLAMA / name)) if ": talk." not in text]
    assert found == []


def test_facts_are_replaced_in_one_file() -> None:
    """What is known of a server is learnt in ``server_run.py``."""
    found = {relative(path) for path, call in calls("Facts(") if called(call) == "Facts"}
    assert found == {"doctor/findings/diagnosis.py", "engines/llamacpp/server_run.py"}, (
        "the diagnosis begins with facts of no server"
    )
    replaced = {
        relative(path)
        for path, call in calls("replace(", "facts")
        if called(call).endswith("replace") and call.args
        if ast.unparse(call.args[0]).endswith("facts")
    }
    assert replaced == {"engines/llamacpp/server_run.py"}


def test_requests_are_built_in_one_file() -> None:
    """``settle.py`` builds them, once."""
    places = [relative(path) for path, call in calls("Request(") if called(call) == "Request"]
    assert places == ["engines/llamacpp/settle.py"]


@pytest.mark.sweep
def test_no_property_only_forwards() -> None:
    """What was printed is ``request.seen.x``, what was settled ``request.x``: one name for one value."""
    found = [
        f"{relative(path)} {node.name}"
        for path, tree in trees(CODE, "@property").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and "property" in [ast.unparse(name) for name in node.decorator_list]
        if re.fullmatch(r"return self\.\w+\.\w+(\.\w+)*", ast.unparse(node.body[-1]))
        and all(isinstance(part, ast.Expr) for part in node.body[:-1])
    ]
    assert [place for place in found if place.startswith("model/")] == []
    assert sorted(found) == sorted(FACADES), "what a class offers for a part of it; a list that only shrinks"


def test_fields_of_an_event_are_read_in_one_file() -> None:
    """Of llama-server: ``lines.py``; whoever shows progress reads lines that an analysis needs none of."""
    found = {
        path.name
        for path, tree in trees(LLAMA, "event.fields").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "fields" and ast.unparse(node.value) == "event"
    }
    assert found == {"lines.py", "forked.py", "tracker.py"}


def test_nobody_is_given_a_tracker() -> None:
    """A function of an engine takes what it works on, not the whole of it."""
    found = [
        f"{relative(path)}:{node.lineno} {node.name}"
        for path, tree in trees(CODE / "engines", "racker").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.arg == "tracker" or (argument.annotation and "Tracker" in ast.unparse(argument.annotation))
    ]
    assert found == []


def test_ids_of_messages_stay_in_the_engines() -> None:
    """Rules ask what a log shows (``"checkpoints" in facts.shows``), not which lines it has."""
    ids = {row.id for row in ROWS if "_" in row.id}
    found = [
        f"{relative(path)}:{node.lineno} {node.value}"
        for path in sorted((CODE / "diagnosis" / "rules").rglob("*.py"))
        if not ids.isdisjoint(re.findall(r"\w+", path.read_text("utf-8")))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and node.value in ids
    ]
    settings = {"n_swa", "swa_full", "n_ctx_train", "slots_debug", "slots_n_diff", "n_parallel_auto", "kv_swa"}
    assert [place for place in found if place.split()[-1] not in settings] == []


def test_no_rule_reads_what_another_said() -> None:
    """``unless`` silences and orders."""
    found = [
        f"{relative(path)}:{node.lineno}"
        for path, tree in trees(CODE / "diagnosis" / "rules", "fired").items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "fired")
        or (isinstance(node, ast.arg) and node.arg == "fired")
    ]
    assert found == []


def test_a_format_is_given_what_may_be_shown() -> None:
    """``sanitize.report`` alone makes it, ``base.write`` alone asks for it; every ``write`` takes nothing else."""
    made = [
        f"{relative(path)}: {ast.unparse(call)}"
        for path, call in sorted((*calls("ShownReport("), *calls("sanitize.report(")), key=lambda found: found[0])
        if called(call) in ("ShownReport", "sanitize.report")
    ]
    assert [place.partition(":")[0] for place in made] == ["redaction/sanitize.py", "report/base.py"]
    for form in FORMATS.values():
        (function,) = (
            node
            for node in parsed(CODE / "report" / f"{form.module.replace('.', '/')}.py").body
            if isinstance(node, ast.FunctionDef) and node.name == "write"
        )
        first = function.args.args[0].annotation
        assert first is not None
        assert ast.unparse(first) == "ShownReport", form.name


def test_there_are_eleven_packages() -> None:
    """A twelfth is a decision: the architecture page and the import contract change with it."""
    found = {path.parent.name for path in CODE.glob("*/__init__.py")}
    assert found == {
        "model", "knowledge", "inputs", "diagnosis", "redaction", "engines", "prompts", "report", "doctor", "live",
        "cli",
    }  # fmt: skip


def test_an_event_is_known_in_few_files() -> None:
    """From ``Tracker.feed`` on a line is read once; after that, values go from package to package."""
    found = {
        path.name
        for path, tree in trees(LLAMA, ": Event").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.annotation is not None and ast.unparse(argument.annotation) == "Event"
    }
    assert found == {"tracker.py", "fused.py", "lines.py", "forked.py"}


@pytest.mark.parametrize(
    ("library", "place"),
    [
        ("polars", "report/tables/"),
        ("ray", "doctor/fleet/ray_engine.py"),
        ("fsspec", "inputs/sources/object_store.py"),
    ],
)
def test_an_optional_library_is_imported_in_one_place(library: str, place: str) -> None:
    """And there only where it is used: a command that needs none of it does without it."""
    found = [
        (relative(path), node in tree.body)
        for path, tree in trees(CODE, f"import {library}").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == library for alias in node.names)
    ]
    assert found
    assert [path for path, _ in found if not path.startswith(place)] == []
    assert [path for path, on_top in found if on_top] == []


def test_a_report_writes_to_no_session() -> None:
    """What a report adds to a session (prompts sent twice) is in its own copy: asking twice gives the same."""
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed(gzip.decompress((ROOT / "fixtures/cases/sent-twice-b11549/server.log.gz").read_bytes()))
    analyzer.close()
    session = analyzer._sessions[0]
    first = analyzer.standing()
    assert (session.twins, session.undecided) == ([], None)
    before = repr(session)
    assert analyzer.standing() == first
    report = analyzer.snapshot()
    assert report.sessions[0].twins
    assert repr(session) == before


def summary_sentences(docstring: str) -> int:
    """Sentences of the first paragraph; what is in code quotes counts as a word."""
    first = re.sub(r"``.*?``", "x", docstring.partition("\n\n")[0], flags=re.DOTALL)
    return len(re.findall(r"[.!?](?:\s+[A-Z]|$)", first))


def test_sentences_of_a_summary_are_counted() -> None:
    assert summary_sentences("Return the value, or None.\n\nA second paragraph. It goes on.") == 1
    assert summary_sentences("Return the value. None of anything else.") == 2
    assert summary_sentences("Read ``a. B`` as one word.") == 1


@pytest.mark.sweep
def test_a_public_function_is_described_in_one_sentence() -> None:
    """What else there is to say follows in paragraphs of its own: an example, units, errors."""
    found = [
        f"{relative(path)} {node.name}"
        for path, tree in trees(CODE).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
        if summary_sentences(ast.get_docstring(node) or ".") > 1
    ]
    assert found == []
