"""Probes healthy servers, then servers with a planted fault each. Exit status 1 when an answer is not as it must be."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from e2e import models
from e2e.probe import gateway
from e2e.server import Server

ROOT = Path(__file__).resolve().parents[3]
CONTEXT = ["-c", "16384", "-np", "1"]
TWO = ["-c", "32768", "-np", "2"]
MOST_REQUESTS = 12
TICKING = (
    "{{ strftime_now('%H:%M:%S') }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""A chat template that begins with the time of day."""


class Planted(NamedTuple):
    """Servers, what comes before them, and the code that must come first (None: healthy)."""

    name: str
    code: str | None
    question: str | None = None
    model: str = "dense"
    options: list[str] = CONTEXT
    build: int = 11549
    change: gateway.Change | None = None
    servers: int = 1
    may_be_note: bool = False
    """It costs nothing unless two requests meet, which is a matter of time: else a note has to name it."""
    images: bool = False
    """A projector is loaded."""
    tokens: int = 300
    """About a quarter of the prompt's tokens: one character is one here."""


HEALTHY = [
    Planted(f"healthy-{model}-b{build}", None, model=model, build=build)
    for build in (11549, 9713, 8672, 8352)
    for model in ("dense", "swa", "hybrid", "recurrent")
    if build > 9000 or model in ("dense", "swa")
] + [
    Planted("healthy-two-slots", None, options=TWO),
    Planted("healthy-two-slots-hybrid", None, model="hybrid", options=TWO),
    Planted("healthy-swa-long", None, model="swa", tokens=1500),
    Planted("healthy-images", None, images=True),
    Planted("healthy-images-two-slots", None, images=True, options=TWO),
    Planted("healthy-images-b8352", None, images=True, build=8352),
    Planted("healthy-images-swa", None, model="swa", images=True),
    Planted("healthy-images-hybrid", None, model="hybrid", images=True),
]
FAULTS = [
    Planted("cache-ram-0", "CD303", "back", options=[*CONTEXT, "--cache-ram", "0"]),
    Planted("cache-ram-0-hybrid", "CD303", "back", "hybrid", [*CONTEXT, "--cache-ram", "0"]),
    Planted("one-slot-b8672", "CD303", "back", options=[*CONTEXT, "--cache-ram", "0"], build=8672),
    Planted("identical-b8672-hybrid", "CD206", "again", "hybrid", build=8672),
    Planted("identical-b8672-recurrent", "CD206", "again", "recurrent", build=8672),
    Planted("identical-b8352-hybrid", "CD206", "again", "hybrid", build=8352),
    Planted("no-cache-prompt", "CD109", "again", options=[*CONTEXT, "--no-cache-prompt"]),
    Planted("no-cache-prompt-hybrid", "CD109", "again", "hybrid", [*CONTEXT, "--no-cache-prompt"]),
    Planted("no-checkpoints-hybrid", "CD202", "again", "hybrid", [*CONTEXT, "--ctx-checkpoints", "0"]),
    Planted("no-checkpoints-recurrent", "CD202", "again", "recurrent", [*CONTEXT, "--ctx-checkpoints", "0"]),
    Planted("no-checkpoints-swa", "CD202", "tail", "swa", [*CONTEXT, "--ctx-checkpoints", "0"], tokens=1500),
    Planted("context-too-small", "CD401", "first", options=["-c", "512", "-np", "1"]),
    Planted("slots-too-small", "CD403", "first", options=["-c", "2048", "-np", "4", "--no-kv-unified"]),
    Planted("similarity-0", "CD301", "again", options=[*TWO, "--slot-prompt-similarity", "0"]),
    Planted("similarity-high", "CD301", "turn", options=[*TWO, "--slot-prompt-similarity", "0.9", "--cache-ram", "0"]),
    Planted("template-clock", "CD102", "template", options=[*CONTEXT, "--jinja", "--chat-template", TICKING]),
    Planted("billing-header", "CD102", "again", change=gateway.billing),
    Planted("clock", "CD102", "again", change=gateway.clock),
    Planted("clock-hybrid", "CD102", "again", "hybrid", change=gateway.clock),
    Planted("tools-shuffled", "CD103", "tools-again", change=gateway.shuffled),
    Planted("tools-shuffled-hybrid", "CD103", "tools-again", "hybrid", change=gateway.shuffled),
    Planted("system-moved", "CD105", "system", change=gateway.system_moved),
    Planted("cache-prompt-false-injected", "CD109", "again", change=gateway.no_cache),
    Planted("id-slot-pinned", "CD309", "back", options=[*TWO, "--cache-ram", "0"], change=gateway.pinned),
    Planted("id-slot-pinned-ram", "CD309", "pair-a", options=TWO, change=gateway.pinned, may_be_note=True),
    Planted("history-stamped", "CD105", "turn", change=gateway.history_stamped),
    Planted("round-robin", "CD508", "again", servers=2),
    Planted("images-encoded-anew", "CD110", "image", images=True, change=gateway.images_anew),
    Planted("images-encoded-anew-hybrid", "CD110", "image", "hybrid", images=True, change=gateway.images_anew),
    Planted("images-spoiled", None, images=True, change=gateway.images_refused),
    Planted("images-b7551", "CD303", "back", images=True, build=7551),
    Planted("images-clock", "CD102", "again", images=True, change=gateway.clock),
    Planted("images-cache-ram-0", "CD303", "back", images=True, options=[*CONTEXT, "--cache-ram", "0"]),
    Planted("honest-gateway", None, change=None, servers=1),
]
ALL = {case.name: case for case in [*HEALTHY, *FAULTS]}


def probed(case: Planted, folder: Path) -> dict[str, Any]:
    """Start what the case says, and probe it."""
    model = models.KINDS[case.model]().save(folder / "model.gguf")
    options = [*case.options, "--metrics"]
    if case.images:
        options += ["--mmproj", str(models.projector().save(folder / "mmproj.gguf"))]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(case.build, model, options, {}, folder / f"{i}.log"))
            for i in range(case.servers)
        ]
        port = servers[0].port
        if case in FAULTS and (case.change or case.servers > 1 or case.name == "honest-gateway"):
            port = stack.enter_context(gateway.gateway([server.port for server in servers], case.change))
        command = [sys.executable, "-m", "cachedoctor", "probe", f"http://127.0.0.1:{port}", "-f", "json", "-q"]
        command += ["--prompt-tokens", str(case.tokens), "--budget", "100000", "--timeout", "180"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode:
        return {
            "error": f"status {done.returncode}: {done.stderr.strip()}",
            "causes": [],
            "questions": [],
            "requests": 0,
        }
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def wrong(case: Planted, found: dict[str, Any]) -> str | None:
    """Say what is not as it must be."""
    if "error" in found:
        return str(found["error"])
    if found["requests"] > MOST_REQUESTS:
        return f"{found['requests']} requests"
    if case.images and found["server"]["images"] is not True:
        return "does not see that the server takes images"
    if found["measure"] != "count" and case.question != "first":
        return f"judged by {found['measure']}"
    if case.code is None:
        odd = [q["name"] for q in found["questions"] if q["state"] in ("less", "more")]
        return f"not healthy: {odd} {found['causes']}" if odd or found["causes"] else None
    if case.may_be_note and not found["causes"]:
        return None if any(case.code in note for note in found["notes"]) else f"notes are {found['notes']}"
    first = found["causes"][0] if found["causes"] else {"codes": [], "question": None}
    right = first["codes"][:1] == [case.code] and first["question"] == case.question
    return None if right else f"first is {first}"


def main() -> int:
    """Try what was asked for."""
    parser = argparse.ArgumentParser(prog="sh scripts/e2e probe", description="Planted faults, named by the probe.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(ALL)}")
    names = parser.parse_args().names or list(ALL)
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"no case {', '.join(unknown)}")
    failed = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="cachedoctor-probe-") as folder:
            found = probed(ALL[name], Path(folder))
        said = wrong(ALL[name], found)
        causes = "; ".join(f"{c['question']}: {'/'.join(c['codes'])} {c['says']}" for c in found["causes"]) or "healthy"
        print(f"{'FAILED' if said else 'right '} {name}: {said or causes} ({found['requests']} requests)", flush=True)
        if said:
            failed.append(name)
            for q in found["questions"]:
                print(
                    "   ",
                    {
                        key: q[key]
                        for key in (
                            "name",
                            "state",
                            "prompt_tokens",
                            "expected_tokens",
                            "reused_tokens",
                            "slot",
                            "note",
                        )
                    },
                )
    print(f"{len(names) - len(failed)} of {len(names)} as they must be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
