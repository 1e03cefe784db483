"""How benchmarks/trace_agents.py reads sessions of coding agents: made by hand, in the form of the public trace."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from conftest import ROOT

from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings

sys.path.insert(0, str(ROOT / "benchmarks"))
import trace_agents


def request(t: float, tokens: int, blocks: list[int], out: int = 10) -> dict[str, Any]:
    return {"t": t, "type": "n", "in": tokens, "out": out, "hash_ids": blocks, "api_time": 1.0}


def test_a_session_continues_and_is_cut_where_its_blocks_part(tmp_path: Path) -> None:
    requests = [
        request(0, 150, [1, 2]),
        {"t": 5.0, "type": "subagent", "requests": [request(0.5, 130, [8, 9])]},
        request(10, 300, [1, 2, 3, 4]),
        request(20, 300, [1, 7, 8, 9]),
    ]
    (tmp_path / "a.json").write_text(json.dumps({"block_size": 64, "requests": requests}), "utf-8")
    sessions = [trace_agents.session(tmp_path / "a.json")]
    assert [(one.start, one.agent) for one in sessions[0]] == [(0, 0), (5.5, 1), (10, 0), (20, 0)]
    sent, conversations = trace_agents.traffic(trace_agents.timeline(sessions, 1), sessions)
    assert conversations == [0, 1, 0, 0]
    # With its reply of 10, whose last token is never computed; a block and no more where they diverge.
    assert [ideal.tokens for ideal in sent.ideal] == [0, 0, 159, 64]
    assert [one.reused for one in serve(sent, ServerSettings(slots=2, context=8192))] == [0, 0, 159, 64]


def test_sessions_run_side_by_side_and_the_next_one_takes_a_place(tmp_path: Path) -> None:
    one = [trace_agents.Sent(0.0, 4.0, 64, 1, [1], 0)]
    short = [trace_agents.Sent(0.0, 1.0, 64, 1, [1], 0)]
    rows = trace_agents.timeline([one, short, short], 2)
    assert [(row.start, row.session) for row in rows] == [(0.0, 0), (0.0, 1), (1.0, 2)]
    assert trace_agents.vllm(rows, None) == 0, "numbers of one session say nothing of another"
