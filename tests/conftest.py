"""The bundled cases, and the ways in which tests analyse a log."""

from __future__ import annotations

import gc
import importlib.util
import io
import json
import os
import shutil
import signal
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import pytest
from command import LOG
from hypothesis import settings
from terminals import VARIABLES

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.inputs.sources.file import FileSource
from cachedoctor.knowledge.cmdline import parse
from cachedoctor.model import GivenOption
from cachedoctor.redaction import sanitize
from cachedoctor.report.wire import report_v1

# No file of settings above the checkout, and no variable of the developer, has a say in a test.
for _name in [name for name in os.environ if name.startswith("CACHEDOCTOR_")]:
    del os.environ[_name]
os.environ["CACHEDOCTOR_NO_CONFIG"] = "1"
# Streams of commands are UTF-8 wherever tests run, on terminals as well.
os.environ |= {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}

# What looks at pages in a browser has an environment of its own (sh scripts/browser).
collect_ignore = [] if importlib.util.find_spec("playwright") else ["browser"]

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"
MEASURED: list[dict[str, Any]] = tomllib.loads((FIXTURES / "measured" / "cases.toml").read_text("utf-8"))["case"]
"""Logs of servers whose logs have no requests."""
T = TypeVar("T")
CASES = sorted(path.parent for path in (FIXTURES / "cases").glob("*/case.toml"))


# Seconds are no matter of a test: on a busy machine any of them would fail now and then.
settings.register_profile("sweep", deadline=None)
settings.register_profile("all", deadline=None, max_examples=40)
settings.register_profile("tests", deadline=None, max_examples=15)
settings.load_profile("sweep")

gc.disable()  # until all is collected: nothing of it is garbage


for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:  # by a shell for what it runs in the background, or by nohup
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run sweeps as well, of the longest a part")


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """One more than processors: about a quarter of the time a worker waits, for a command or for a server."""
    count = yield
    return count if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else count + 1


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Make no test that is left out below: that would be more than half of all, made again by every worker."""
    yield
    if metafunc.config.getoption("--all") or _asks_for_sweeps(metafunc.config):
        return
    calls = getattr(metafunc, "_calls", [])  # where a pytest has none, they are left out later
    swept = [{mark.name for mark in (*metafunc.definition.iter_markers(), *call.marks)} for call in calls]
    rest = [number for number, names in enumerate(swept) if "sweep" not in names]
    if sample := metafunc.definition.get_closest_marker("sample"):
        rest = sorted(_evenly(rest, sample.args[0], first=0))
    calls[:] = [calls[number] for number in rest] or calls[:1]  # with none, pytest makes a test without parameters


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave sweeps out, unless -m or a test's name (FILE::TEST) asks for them; with --all, what is in no spread."""
    _mark_samples(items)
    if _asks_for_sweeps(config):
        return
    left = _behind_spreads(items) if config.getoption("--all") else set(_sweeps(items))
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def _asks_for_sweeps(config: pytest.Config) -> bool:
    return bool(config.option.markexpr or any("::" in arg for arg in config.args))


def _sweeps(items: list[pytest.Item]) -> list[pytest.Item]:
    return [item for item in items if item.get_closest_marker("sweep")]


def _mark_samples(items: list[pytest.Item]) -> None:
    """Of a function with the mark ``sample(count)`` so many of its parameters, spread evenly, are in no sweep."""
    for count, asked in _marked("sample", items):
        rest = [item for item in asked if not item.get_closest_marker("sweep")]
        kept = _evenly(rest, count, first=0)
        for item in rest:
            if item not in kept:
                item.add_marker(pytest.mark.sweep)


def _behind_spreads(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of the sweep of a function with the mark ``spread(count)``, all but so many: in each function others."""
    left = set()
    for count, asked in _marked("spread", items):
        swept = _sweeps(asked)
        left |= set(swept) - _evenly(swept, count, first=crc32(asked[0].nodeid.partition("[")[0].encode()))
    return left


def _marked(name: str, items: list[pytest.Item]) -> Iterator[tuple[int, list[pytest.Item]]]:
    """The number that each function with this mark names, and its parameters."""
    functions: dict[object, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker(name):
            functions[item.parent, item.originalname].append(item)
    for asked in functions.values():
        mark = asked[0].get_closest_marker(name)
        assert mark is not None
        yield mark.args[0], asked


def _evenly(items: list[T], count: int, first: int) -> set[T]:
    """So many of them, spread evenly, the ``first`` among them."""
    count = min(count, len(items))
    return {items[(first + number * len(items) // count) % len(items)] for number in range(count)}


def pytest_collection_finish() -> None:
    """What was collected stays until the end: no search for garbage has to look at it."""
    gc.enable()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Tests that draw have all examples with whole sweeps alone: 40 of 100 with --all, 15 without sweeps.

    The program is started hundreds of times: it is compiled once for all of them, whatever the environment says.
    """
    # Extension modules see at the end of the interpreter that nothing is left of them; pytest looks for garbage before.
    config.add_cleanup(gc.unfreeze)
    settings.load_profile("sweep" if _asks_for_sweeps(config) else "all" if config.getoption("--all") else "tests")
    if "PYTHONDONTWRITEBYTECODE" in os.environ and "PYTHONPYCACHEPREFIX" not in os.environ:
        folder = tempfile.mkdtemp(prefix="cachedoctor-compiled-")
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def case_of(folder: Path) -> dict[str, Any]:
    """What is known of a case."""
    return tomllib.loads((folder / "case.toml").read_text("utf-8"))


def log_of(folder: Path) -> Path:
    """The log of a case, plain or gzipped.

    Raises:
        FileNotFoundError: it has none yet.
    """
    found = next(folder.glob("server.log*"), None)
    if found is None:
        raise FileNotFoundError(f"fixtures/cases/{folder.name} has no server.log: put the log of this case there")
    return found


def content_of(folder: Path) -> bytes:
    """The log as UTF-8, unpacked."""
    return b"".join(FileSource(str(log_of(folder))).chunks())


def prompts_of(folder: Path) -> GivenPrompts | None:
    """The prompts that lie beside the log of a case, if any; to be used for one reading."""
    name = case_of(folder).get("prompts")
    return None if name is None else GivenPrompts([str(folder / name)])


def given_of(folder: Path) -> list[GivenOption]:
    """The options of the command line that lies beside the log of a case, if any."""
    line = case_of(folder).get("cmdline")
    return [] if line is None else parse(line)


def _spread() -> set[Path]:
    """Cases that each bring a build with a kind of memory, a rule or an input beside the log that none before had."""
    seen: set[Any] = set()
    chosen = set()
    for folder in CASES:
        known = case_of(folder)
        features = {(known.get("build"), known.get("memory")), log_of(folder).suffix, *known.keys()}
        features |= {word.split()[0] for word in known["expect"]}
        if not features <= seen:
            chosen.add(folder)
        seen |= features
    return chosen


def _swept() -> Iterator[Any]:
    spread = _spread()
    for folder in CASES:
        yield pytest.param(folder, id=folder.name, marks=[] if folder in spread else [pytest.mark.sweep])


every_case = pytest.mark.parametrize("case", list(_swept()))
"""For what hardly differs from case to case: those that differ by their features, and all in a sweep."""


def json_of(
    chunks: Iterable[bytes],
    path: str = "server.log",
    prompts: GivenPrompts | None = None,
    given: list[GivenOption] | None = None,
) -> bytes:
    """The JSON report of a log that arrives in ``chunks``, ``prompts`` and the command line beside it."""
    analyzer, out = Analyzer(prompts=prompts, given=given), io.BytesIO()
    analyzer.open(path)
    for chunk in chunks:
        analyzer.feed(chunk)
    report_v1.render(sanitize.report(analyzer.finish()), out)
    assert not analyzer.crashed, out.getvalue()
    return out.getvalue()


def report_of(
    log: bytes | str, prompts: GivenPrompts | None = None, given: list[GivenOption] | None = None
) -> dict[str, Any]:
    """The report of a log that arrives as a whole, ``prompts`` and the command line beside it."""
    data = log.encode() if isinstance(log, str) else log
    report: dict[str, Any] = json.loads(json_of([data], prompts=prompts, given=given))
    return report


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A file with one finding."""
    path = tmp_path / "server.log"
    path.write_bytes(LOG)
    return path


@pytest.fixture
def child_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenizers and templates are used in this process: their child is the matter of test_model_files.py."""
    from in_process import answer_here

    answer_here(monkeypatch)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable says anything about colours and links."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch
