"""``redact`` for the small programs around llama.cpp: their lines stay, no secret does, the analysis is the same."""

from __future__ import annotations

import json
import re
import sys

import pytest
from conftest import ROOT

from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.engines.answering import Program
from cachedoctor.engines.detect import programs

sys.path.insert(0, str(ROOT / "benchmarks"))
from redacted import differences, report, without_quotes

PROGRAMS = {program.tracker.engine: program for program in programs()}
SECRET = "zqHunterzq"


def redacted(log: str) -> str:
    redactor = Redactor()
    return (redactor.feed(log.encode()) + redactor.finish()).decode()


def log_of(program: Program) -> str:
    return "".join(f"{row.sample}\n" for row in program.rows)


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_lines_stay_and_so_does_the_report(name: str) -> None:
    log = log_of(PROGRAMS[name]) * 2
    out = redacted(log)
    assert "<line>" not in out
    before, after = report(log.encode()), report(out.encode())
    assert [answers for session in before["sessions"] for answers in session["answers"]], "nothing was compared"
    assert list(differences(without_quotes(before), without_quotes(after))) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_secret_at_any_place_of_any_line_is_gone(name: str, part: int) -> None:
    head = log_of(PROGRAMS[name])
    for row in PROGRAMS[name].rows[part::3]:
        line = row.sample
        planted = [line[:at] + SECRET + line[at:] for at in range(len(line) + 1)]
        out = redacted(head + "\n".join(planted) + "\n")
        shown = out.split("\n")[len(PROGRAMS[name].rows) :]
        assert [a for a, b in zip(planted, shown, strict=False) if "hunter" in b.lower()] == []
        assert out.count("\n") == len(planted) + len(PROGRAMS[name].rows)


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("[21:04:11] CtxLimit:25/40, Init:0.41s, Processed:16 in 34.68s (47.19T/s), Generated:7/30 in 9.12s (8.5T/s), "
         "Total:44.21s",) * 2,
        ('time=2026-08-19T19:34:53Z level=INFO source=routes.go:1984 msg="Listening on 10.1.2.3:114 (version 0.3)"',
         'time=2026-08-19T19:34:53Z level=INFO source=routes.go:1984 msg="Listening on <host-1>:114 (version 0.3)"'),
        ('time=zq level=ZQZQ source=/srv/zq/a.go:7 msg="Cache miss" left=8090',
         'time=- level=INFO source=x.go:1 msg="Cache miss" left=8090'),
        ("INFO [ my_zq_function] slot is processing task | tid=\"12\" timestamp=1 id_slot=0 id_task=5",
         "INFO [ function] slot is processing task | tid=\"12\" timestamp=1 id_slot=0 id_task=5"),
        ("[zq][INFO]: Prompt cache restore: cached_tokens=2 uncached_tokens=1 lifetime_efficiency=66.83%",
         "[x][INFO]: Prompt cache restore: cached_tokens=2 uncached_tokens=1 lifetime_efficiency=66.83%"),
    ],
)  # fmt: skip
def test_lines(line: str, safe: str) -> None:
    head = next(log_of(p) for p in PROGRAMS.values() if any(r.template.split("{")[0][:8] in line for r in p.rows))
    out = redacted(f"{head}{line}\n").rstrip("\n").rpartition("\n")[2]
    assert re.sub(r"<(\w+)-\d+>", r"<\1-1>", out) == safe


# ---- siblings in other readers


def test_a_level_of_a_python_logger_is_a_word_of_the_logger() -> None:
    record = {
        "levelname": SECRET,
        "asctime": "2026-07-04 04:31:09,123",
        "name": "vllm.x",
        "message": "Using max model len 8192",
    }
    out = json.loads(redacted(json.dumps({**record, "process": 10**40}) + "\n"))
    assert "hunter" not in json.dumps(out).lower()
    assert out["levelname"] == "INFO"
    assert "process" not in out
    kept = json.loads(redacted(json.dumps({**record, "levelname": "WARNING", "process": 17}) + "\n"))
    assert (kept["levelname"], kept["process"]) == ("WARNING", 17)


KEY = "8" * 30


@pytest.mark.parametrize(
    "line",
    [
        f"INFO 11-20 23:53:21 [x.py:1] non-default args: {{'block_size': {KEY}, 'enable_prefix_caching': False}}",
        f"INFO 11-20 23:53:21 [model.py:2152] Using max model len {KEY}",
        f"[2026-07-04 04:31:09] server_args=ServerArgs(model_path='a', page_size={KEY}, port=30000)",
        f"[2026-07-04 04:31:25] Finish: obj=GenerateReqInput(rid='a'), out={{'meta_info': {{'prompt_tokens': {KEY}, "
        f"'cached_tokens': {KEY}}}}}",
        f"0.03.829.031 E srv    send_error: task id = 14, error: request ({KEY} tokens) exceeds the available context"
        f" size ({KEY} tokens)",
        json.dumps({"type": "log", "time": int(KEY), "level": "info", "msg": "x"}),
    ],
)
def test_a_number_of_any_length_is_none_of_the_server(line: str) -> None:
    vllm = "(APIServer pid=1) INFO 11-20 08:14:22 [api_utils.py:347] vLLM server version 0.32.0, serving model acme/a\n"
    assert KEY not in redacted(f"{vllm}{line}\n")
