"""Sends faulty conversations through ``cachedoctor proxy`` to a real llama-server: as they are, then with the fix.

The server's own counts with the fix must be what the dry run promised without it, request by request, within 2 %.
Exit status 1 when one is not, or when a fix brings nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e import models
from e2e.proxy.faulty import ALL, TEMPLATES, TURNS, Faulty, Message, asked
from e2e.server import Process, Server, free_port

NEAR = 0.02
"""Of what was promised."""
FRAME = 8
"""Tokens: a reply has no end in the cache when it was cut off, and its last token never is there."""


@contextmanager
def proxy(upstream: int, *options: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Run the proxy; gives its port, and a list that has its lines when it has ended."""
    port, lines = free_port(), list[dict[str, Any]]()
    command = [sys.executable, "-m", "cachedoctor", "proxy", "--upstream", f"http://127.0.0.1:{upstream}"]
    command += ["--listen", f"127.0.0.1:{port}", "-f", "jsonl", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        process.stderr.readline()  # says that it listens
        yield port, lines
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        lines += [json.loads(line) for line in out.splitlines()]
    finally:
        process.kill()
        process.wait()


def played(case: Faulty, kind: str, folder: Path, *options: str) -> list[dict[str, Any]]:
    """Have the conversation with a new server; gives the lines of the proxy."""
    model = models.KINDS[kind]().save(folder / "model.gguf")
    served = ["-c", "16384", "-np", "1"]
    rendered = ["--tokenizer", str(model)]
    for name in case.options:
        template = folder / f"{name}.jinja"
        template.write_text(TEMPLATES[name])
        served += ["--chat-template-file", str(template)]
        rendered += ["--template", str(template)]
    with (
        Server(11549, model, served, {}, folder / "server.log") as server,
        proxy(server.port, *options, *rendered) as (port, lines),
    ):
        client = Process("proxy", [], {}, port, folder / "none.log", 1)
        said: list[Message] = []
        for n in range(TURNS):
            said.append(asked(n))
            body = {"max_tokens": case.tokens, "temperature": 0, **case.body(n, said)}
            status, answer = client.post(case.path, body)
            if status != 200:
                raise AssertionError(f"{case.name}: refused: {answer}")
            said.append(reply(answer))
    return lines


def reply(answer: dict[str, Any]) -> Message:
    """The answer as a client sends it back."""
    if "choices" not in answer:
        return {"role": "assistant", "content": answer["content"]}
    message = answer["choices"][0]["message"]
    return {k: v for k, v in message.items() if k in ("role", "content", "reasoning_content")}


def tried(case: Faulty, kind: str) -> bool:
    """Say what one case brings; whether it is what was promised."""
    with tempfile.TemporaryDirectory(prefix="cachedoctor-proxy-") as folder:
        dry = played(case, kind, Path(folder), "--fix", case.fix, "--dry-run")
        real = played(case, kind, Path(folder), "--fix", case.fix)
    if case.is_refused:
        return passed(case, kind, dry, real)
    promised = [line["would_reuse"] if "would_reuse" in line else line["cached_tokens"] for line in dry[1:]]
    before, after = ([line["cached_tokens"] for line in lines[1:]] for lines in (dry, real))
    near = [abs(p - a) <= max(NEAR * p, FRAME) for p, a in zip(promised, after, strict=True)]
    total = abs(sum(promised) - sum(after)) / max(1, sum(after))
    good = all(near) and total <= NEAR and sum(after) > sum(before) and any(line.get("edits") for line in real)
    print(f"{'right ' if good else 'FAILED'} {case.fix} for {case.name} ({kind})", flush=True)
    print(f"       prompts {[line['prompt_tokens'] for line in real[1:]]}")
    print(f"       reused without it {before}, promised {promised}, with it {after}: off by {100 * total:.2f} %")
    if not good:
        print(*(f"       {line.get('edits')} {line.get('unfixed', '')}" for line in real), sep="\n")
    return good


def passed(case: Faulty, kind: str, dry: list[dict[str, Any]], real: list[dict[str, Any]]) -> bool:
    """Whether a server that refuses edits got all requests as the client wrote them, after the first without a try."""
    before, after = ([line["cached_tokens"] for line in lines] for lines in (dry, real))
    unfixed = [line.get("unfixed", "") for line in real]
    good = before == after and bool(unfixed[0]) and not any(unfixed[1:]) and not any(line.get("edits") for line in real)
    print(
        f"{'right ' if good else 'FAILED'} {case.fix} for {case.name} ({kind}): {unfixed[0]}; reused {after}",
        flush=True,
    )
    return good


def main() -> int:
    """Try what was asked for."""
    known = {case.name: case for case in ALL}
    parser = argparse.ArgumentParser(prog="sh scripts/e2e proxy", description="Fixes, promised and then applied.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(known)}")
    parser.add_argument("--kind", default="dense", choices=sorted(models.KINDS))
    given = parser.parse_args()
    names = given.names or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no case {', '.join(unknown)}")
    failed = [name for name in names if not tried(known[name], given.kind)]
    print(f"{len(names) - len(failed)} of {len(names)} as promised")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
