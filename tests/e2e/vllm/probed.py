"""``cachedoctor probe`` on a real vLLM: healthy ones, and one planted fault each."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from e2e.probe import gateway
from e2e.vllm.server import Vllm

ROOT = Path(__file__).resolve().parents[3]
COUNTING = ("--enable-prompt-tokens-details",)
TEMPLATE = "template.jinja"
WITH_TOOLS = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for t in tools %}{{- t | tojson }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


class Probed(NamedTuple):
    """What is asked of one server."""

    name: str
    code: str | None
    question: str | None = None
    change: gateway.Change | None = None
    tokens: int = 700
    by: str = "count"


def salted(body: dict[str, Any], n: int) -> None:
    """Give each request a salt of its own."""
    body["cache_salt"] = f"salt {n}"


SERVERS: dict[str, tuple[str, tuple[str, ...], list[Probed]]] = {
    "counting": (
        "tiny-dense",
        COUNTING,
        [
            Probed("healthy", None),
            Probed("salted", "CD510", "again", salted),
            Probed("clock", "CD102", "again", gateway.clock),
            Probed("tools-shuffled", "CD103", "tools-again", gateway.shuffled),
            Probed("system-moved", "CD105", "system", gateway.system_moved),
        ],
    ),
    "uncounted": ("tiny-dense", (), [Probed("healthy-by-time", None, by="time")]),
    "caching-off": (
        "tiny-dense", (*COUNTING, "--no-enable-prefix-caching"), [Probed("caching-off", "CD503", "again")],
    ),
    "tiny-kv": (
        "tiny-dense",
        (*COUNTING, "--num-gpu-blocks-override", "34", "--max-model-len", "4096"),
        [Probed("kv-too-small", "CD504", "back"), Probed("kv-nearly-enough", "CD504", "pair-b", tokens=300)],
    ),
    "hybrid": (
        "tiny-hybrid", COUNTING, [Probed("hybrid", None), Probed("hybrid-short", "CD505", "again", tokens=250)],
    ),
}  # fmt: skip
"""Model, options and questions; each server is started once."""


def run(root: Path, names: list[str]) -> list[str]:
    """Probe every server that is named, and give what is not as it must be."""
    wrong = []
    for name in names:
        kind, options, cases = SERVERS[name]
        folder = root / name
        folder.mkdir(parents=True)
        (folder / TEMPLATE).write_text(WITH_TOOLS, "utf-8")
        with Vllm(kind, (*options, "--chat-template", str(folder / TEMPLATE)), folder / "server.log") as server:
            for case in cases:
                said = unlike(case, asked(case, server.port))
                print(f"{'FAILED' if said else 'right '} {case.name}{f': {said}' if said else ''}", flush=True)
                wrong += [f"{case.name}: {said}"] if said else []
    return wrong


def asked(case: Probed, port: int) -> dict[str, Any]:
    """Probe a server, through a gateway where one is planted."""
    with ExitStack() as stack:
        if case.change is not None:
            port = stack.enter_context(gateway.gateway([port], case.change))
        command = [sys.executable, "-m", "cachedoctor", "probe", f"http://127.0.0.1:{port}", "-f", "json", "-q"]
        command += ["--prompt-tokens", str(case.tokens), "--budget", "100000"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def unlike(case: Probed, found: dict[str, Any]) -> str | None:
    """Say what is not as it must be."""
    if found["requests"] > 12 or found["measure"] != case.by:
        return f"{found['requests']} requests, judged by {found['measure']}"
    first = found["causes"][0] if found["causes"] else {"codes": [None], "question": None}
    if (first["codes"][0], first["question"]) != (case.code, case.question):
        return f"first is {first}, {[(q['name'], q['state'], q['reused_tokens']) for q in found['questions']]}"
    odd = [q["name"] for q in found["questions"] if q["state"] in ("less", "more")]
    return f"not healthy: {odd}" if odd and case.code is None else None
