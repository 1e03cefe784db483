"""Programs around llama-server, and those that resemble it: their lines are nobody else's, and its lines survive."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
import pytest
from answered import report_of
from conftest import FIXTURES, ROOT
from loops import each

from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.catalogue.scanner import Scanner
from cachedoctor.engines.detect import engines, programs
from cachedoctor.engines.engine_record import Engine, Reader
from cachedoctor.model import Report, Segment

NAMES = {program.tracker.engine for program in programs()}
OURS = [engine for engine in engines() if engine.name in NAMES]
CASES = sorted(path.parent.name for path in FIXTURES.glob("cases/*/server.log"))
THEIRS = ("ollama-", "omlx-", "ds4-", "vllm-mlx-", "mlx-", "koboldcpp-", "tabbyapi-", "llama-cpp-", "lmstudio-")
LINES = sorted(
    path
    for folder in ("lines", "measured")
    for path in FIXTURES.glob(f"{folder}/**/*")
    if path.is_file() and not path.name.startswith(THEIRS)
)


@cache
def reader(engine: Engine) -> Reader:
    return engine.reader()


def rows() -> list[tuple[Engine, Message]]:
    return [(engine, row) for engine in OURS for row in reader(engine).catalogue.rows]


def test_all_are_there() -> None:
    known = {
        "ollama", "lmstudio-mlx", "lmstudio", "koboldcpp", "tabbyapi", "ik_llama.cpp", "llama-cpp-python",
        "omlx", "ds4", "vllm-mlx", "mlx-lm", "mlx-vlm",
    }  # fmt: skip
    assert known <= NAMES
    assert len(OURS) == len(NAMES) == len(list((ROOT / "cachedoctor/engines/programs").glob("[!_]*.py")))


@each(("engine", "row"), rows(), ids=lambda value: getattr(value, "name", None) or value.id)
def test_a_sample_is_found_and_recognised_by_its_row_alone(engine: Engine, row: Message) -> None:
    found = reader(engine)
    line = row.sample.encode()
    assert [event.row for event in found.catalogue.recognise(line)] == [row]
    scanned = list(Scanner(found.catalogue, found.plan).scan(Segment(None, line + b"\n", 1)))
    assert [event.row for event in scanned] == [row]
    assert set(scanned[0].fields) == set(row.names)


@pytest.mark.parametrize("engine", OURS, ids=lambda engine: engine.name)
def test_a_line_that_proves_the_program_is_checked(engine: Engine) -> None:
    """Each program has at least one; of the fork of llama-server, only lines that llama-server has not."""
    seen = [row.id for row in reader(engine).catalogue.rows if engine.looks.search(row.sample.encode() + b"\n")]
    assert seen
    if engine.fork or engine.name in (
        "tabbyapi",
        "llama-cpp-python",
    ):  # its other lines come after one that proves it
        assert not {"timing", "computed", "released", "rest"} & set(seen)
    else:
        assert seen == [row.id for row in reader(engine).catalogue.rows]


@pytest.mark.spread(9)
@pytest.mark.sample(10)
@pytest.mark.parametrize("name", CASES)
def test_no_log_of_llama_server_is_taken_for_theirs(name: str) -> None:
    log = (FIXTURES / "cases" / name / "server.log").read_bytes()
    assert {session.engine for session in report_of(log).sessions}.isdisjoint(NAMES)
    assert [engine.name for engine in OURS if engine.looks.search(log)] == []


@pytest.mark.sample(18)
@pytest.mark.parametrize("path", LINES, ids=lambda path: path.name)
def test_no_line_of_another_engine_is_taken_for_theirs(path: Any) -> None:
    assert [engine.name for engine in OURS if engine.looks.search(path.read_bytes())] == []


@pytest.mark.parametrize("engine", OURS, ids=lambda engine: engine.name)
def test_no_line_of_one_of_them_is_taken_for_anothers(engine: Engine) -> None:
    others = [row.sample for other, row in rows() if other is not engine]
    assert engine.looks.search("\n".join(others).encode()) is None


# ---- lines of llama-server inside

CLOCK = "time=2026-09-11T00:03:06.118+02:00"


def ollama(lines: list[str]) -> list[str]:
    own = [
        f'{CLOCK} level=INFO source=routes.go:1933 msg="server config" env="map[OLLAMA_DEBUG:INFO]"',
        f'{CLOCK} level=INFO source=llama_server.go:1274 msg="starting llama-server" cmd="llama-server --port 40211"',
    ]
    wrapped = [own[0]]
    for number, line in enumerate(lines):
        wrapped += [own[1], line] if number % 7 == 3 and not line.startswith((" ", "\t")) else [line]
    return wrapped


def journald(lines: list[str]) -> list[str]:
    return [f"Sep 11 00:03:06 host ollama[812]: {line}" for line in ollama(lines)]


def lm_studio(lines: list[str]) -> list[str]:
    """The window of the developer log, copied: a header above each record."""
    wrapped: list[str] = []
    for line in lines:
        wrapped += ["2026-05-29 11:02:40 [DEBUG]", f" {line}"]
        if "selected slot" in line:
            wrapped += ["2026-05-29 11:02:40 [DEBUG]", " LlamaV4::predict slot selection: session_id=<empty> slot=0"]
    return wrapped


def lm_studio_bundled(lines: list[str]) -> list[str]:
    """A record holds what was written at once: its first line is indented."""
    wrapped: list[str] = []
    for number, line in enumerate(lines):
        wrapped += ["2026-06-04 12:09:49 [DEBUG]", f" {line}"] if number % 3 == 0 else [line]
        if "processing task" in line:
            wrapped += [
                "2026-06-04 12:06:38 [DEBUG]",
                " LlamaV4: server assigned slot",
                "2026-06-04 12:06:38 [DEBUG]",
                " 0 to task 0",
            ]
    return wrapped


def lm_studio_file(lines: list[str]) -> list[str]:
    """The log on disk: the header before the first line of a record."""
    return [f"[2026-05-12 00:36:31][DEBUG] {line}" if number % 3 == 0 else line for number, line in enumerate(lines)]


def jan(lines: list[str]) -> list[str]:
    """The application log: lines of a single server, of the router's child, and of the built-in worker look so."""
    clock = "[2026-07-10][00:14:48]"
    own = f"{clock}[tauri_plugin_llamacpp::commands][INFO] Model is ready to accept requests!"
    return [own, *(f"{clock}[tauri_plugin_llamacpp::commands][INFO] [llamacpp] {line}" for line in lines)]


def jan_router(lines: list[str]) -> list[str]:
    head = "[2026-07-10][00:14:48][tauri_plugin_llamacpp::router][INFO] [llamacpp-router stdout]"
    return [f"{head} {line}" for line in lines]


def jan_worker(lines: list[str]) -> list[str]:
    head = "[2026-09-10][00:14:48][tauri_plugin_llamacpp::engine::worker][DEBUG] jan-llama-worker:"
    return [f"{head} {line}" for line in lines]


def local_ai(lines: list[str]) -> list[str]:
    return [f"1:59PM DBG GRPC(m.gguf-127.0.0.1:36571): stderr {line}" for line in lines]


def local_ai_2026(lines: list[str]) -> list[str]:
    caller = 'caller={caller.file="/build/pkg/model/process.go"  caller.L=219 } '
    head = 'Aug 05 15:27:04 DEBUG GRPC stderr id="m.gguf-127.0.0.1:36571"'
    return [f"{head} line={json.dumps(line)} {caller}" for line in lines]


def llama_swap(lines: list[str]) -> list[str]:
    request = '[INFO] Request 127.0.0.1 "POST /v1/chat/completions HTTP/1.1" 200 713 "curl/8.5.0" 417.222534ms'
    wrapped = ["[INFO] <tiny> Executing start command: llama-server --port 5801"]
    for line in lines:
        wrapped += [line, request] if "stop processing" in line else [line]
    return wrapped


PLACES = {"line", "first_line", "last_line", "time", "path", "inputs", "files", "launcher"}


def told(report: Report, places: set[str] = PLACES) -> Any:
    """All that a report says, without where it stands and the clock of the wrapper."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: bare(v) for k, v in value.items() if k not in places}
        return [bare(v) for v in value] if isinstance(value, list) else value

    sessions, findings = msgspec.to_builtins([report.sessions, report.findings], str_keys=True)
    for session in sessions:
        session["seen"], session["shows"] = sorted(session["seen"]), sorted(session["shows"])
    return bare([sessions, findings, [json.loads(line) for line in report.requests.lines()]])


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "wrap",
    [ollama, journald, lm_studio, lm_studio_bundled, lm_studio_file, jan, jan_router, jan_worker, llama_swap],
    ids=lambda wrap: wrap.__name__,
)
@pytest.mark.parametrize("name", ["billing-header-hybrid", "cache-restored-b8353", "healthy-dense-b6301"])
def test_a_llama_server_inside_is_diagnosed_as_it_is_alone(name: str, wrap: Any) -> None:
    log = (FIXTURES / "cases" / name / "server.log").read_bytes()
    lines = log.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
    wrapped = "\n".join(wrap(lines)).encode("utf-8", "surrogateescape") + b"\n"
    alone, inside = report_of(log), report_of(wrapped)
    assert alone.totals.requests > 1
    assert inside.totals == alone.totals
    assert told(inside) == told(alone)


@pytest.mark.parametrize("wrap", [local_ai, local_ai_2026], ids=lambda wrap: wrap.__name__)
def test_a_llama_server_that_localai_names_is_diagnosed_as_it_is_alone(wrap: Any) -> None:
    log = (FIXTURES / "cases" / "billing-header-hybrid" / "server.log").read_bytes()
    wrapped = "\n".join(wrap(log.decode().removesuffix("\n").split("\n"))).encode() + b"\n"
    alone, inside = report_of(log), report_of(wrapped)
    assert [session.origin for session in inside.sessions] == ["m.gguf-127.0.0.1:36571"]
    assert inside.totals == alone.totals
    assert told(inside, PLACES | {"origin"}) == told(alone, PLACES | {"origin"})
