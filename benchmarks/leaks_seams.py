"""Parts of ``leaks.py``: credentials across the seams of a diff, and in the words of requests that pass the proxy."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cachedoctor import lint
from cachedoctor.live.proxy import passed_requests
from cachedoctor.live.proxy.exchange import Asked, Exchange
from cachedoctor.live.proxy.looking import Looking
from cachedoctor.live.proxy.passed_requests import PassedRequests
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import compare_prompts, run_diff
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.tokenizers import tokenize
from cachedoctor.redaction import sanitize
from cachedoctor.report.text import diff_text
from cachedoctor.report.wire import diff_v1

_LEAD, _TAIL = "You are a helpful assistant and write short. ", " is what the user wrote. Then it goes on as before."


def pairs(text: str, other: str) -> Iterator[tuple[str, str, str]]:
    """Two prompts with a credential, by where it lies: across the end of what is shown, and where they differ."""
    for at in (1, len(text) // 4, len(text) // 2, 3 * len(text) // 4, len(text) - 1):
        changed = text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]
        yield f"a character differs at {at}", f"{_LEAD}{text}{_TAIL}", f"{_LEAD}{changed}{_TAIL}"
        yield f"cut at {at}", f"{_LEAD}{text}{_TAIL}", f"{_LEAD}{text[:at]}{_TAIL}"
        yield f"rotated from {at}", f"{_LEAD}{text}{_TAIL}", f"{_LEAD}{text[:at]}{other[at:]}{_TAIL}"
    yield "rotated", f"{_LEAD}{text}{_TAIL}", f"{_LEAD}{other}{_TAIL}"
    if " " not in text:  # else it is known by the words around it
        yield "a letter in front", f"{_LEAD}{text}{_TAIL}", f"{_LEAD}t{text}{_TAIL}"
        yield "a letter in front of both", f"{_LEAD}my t{text}{_TAIL}", f"{_LEAD}our t{text}{_TAIL}"
    yield "appended", f"{_LEAD}{text[: len(text) // 2]}", f"{_LEAD}{text}{_TAIL}"
    for words in (1, 3, 5, 7):
        filler = "so " * words
        yield f"{words} words after it", f"{_LEAD}{text} {filler}Monday{_TAIL}", f"{_LEAD}{text} {filler}Friday{_TAIL}"
        yield f"{words} words before it", f"{_LEAD}Monday {filler}{text}{_TAIL}", f"{_LEAD}Friday {filler}{text}{_TAIL}"


def diffs(text: str, other: str) -> Iterator[tuple[str, str, str]]:
    """(way, format, what ``diff`` writes) of every pair, with narrow and wide windows."""
    for way, a, b in pairs(text, other):
        for context in (1, 4, 8, 16):
            options = compare_prompts.Options(context=context)
            prompts = Prompt("a.txt", "text", a), Prompt("b.txt", "text", b)
            found = compare_prompts.compare(*prompts, tokenize.pieces(), options)
            page, wire = io.StringIO(), io.BytesIO()
            diff_text.render(found, page, 200)
            diff_v1.render([found], wire, "0")
            yield f"{way}, {context} tokens around", "diff", page.getvalue()
            yield f"{way}, {context} tokens around", "diff json", wire.getvalue().decode()


def bodies(text: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(where, path, body) of requests with a credential where words of the API stand."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
    path = "/v1/chat/completions"
    yield "path", f"/{text}{path}", {"messages": said}
    yield "segment of the path", f"/proxy/{text}/chat/completions", {"messages": said}
    yield "role", path, {"messages": [{"role": text, "content": "hello"}, *said]}
    yield "model", path, {"model": text, "messages": said}
    yield "model behind a name", path, {"model": f"org/{text}", "messages": said}
    yield "type", path, {"messages": [{"role": "user", "content": [{"type": text, "text": "hello"}]}, *said]}
    yield "type of a tool", path, {"messages": said, "tools": [{"type": text, "function": {"name": "f"}}]}
    yield "tool_choice", path, {"messages": said, "tool_choice": text}
    yield "type of tool_choice", path, {"messages": said, "tool_choice": {"type": text, "name": text}}
    yield "reasoning_effort", path, {"messages": said, "reasoning_effort": text}
    yield "finish_reason", path, {"messages": said, "finish_reason": text}
    yield "object", path, {"messages": said, "object": text}
    yield "a key of the body", path, {"messages": said, text: 1}
    yield "a key of a message", path, {"messages": [{"role": "user", "content": "hello", text: 1}]}
    yield "stop", path, {"messages": said, "stop": [text], "user": text, "metadata": {text: text}}


def passed(text: str, other: str) -> Iterator[tuple[str, str, str]]:
    """(where, output, text) of the proxy's rows, lines, records and screen, and of lint and diff of the same bodies.

    The second request of each conversation holds the other credential in the place of the first one.
    """
    for (where, path, body), (_, next_path, after) in zip(bodies(text), bodies(other), strict=True):
        for one in (body, after):
            one["messages"][-1]["content"] = "hello to you, and how is it going today? " * 9
        after["messages"] += [{"role": "assistant", "content": "well"}, {"role": "user", "content": "good"}]
        yield from ((where, output, said) for output, said in _passed([(path, body), (next_path, after)]))


def _passed(requests: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        record = f"{folder}/record.jsonl"
        looking, screen = Looking(Asked(record=record)), PassedRequests("record.jsonl")
        for turn, (path, body) in enumerate(requests):
            answer = json.dumps({"model": body.get("model", "m"), "usage": {"prompt_tokens": 9}}).encode()
            raw = json.dumps(body).encode()
            seen = looking.at(Exchange(turn, "POST", path, 200, 0.1, 0.1, raw, answer=answer))
            yield "proxy row", passed_requests.line(seen)
            yield "proxy line", json.dumps(msgspec.to_builtins(seen))
        looking.close()
        recorded = Path(record).read_bytes()
        yield "proxy record", recorded.decode()
        screen.take(recorded)
        yield "watch", "\n".join(json.dumps(msgspec.to_builtins(row)) for row in screen.view().conversations)
        files = [Path(folder, name) for name in ("a.json", "b.json")]
        for file, (_, body) in zip(files, requests, strict=True):
            file.write_text(json.dumps(body))
        wire = io.BytesIO()
        diff_v1.render(run_diff.answer(str(files[0]), str(files[1]), run_diff.Ask()), wire, "0")
        yield "diff of bodies", wire.getvalue().decode().replace(folder, "")
        try:
            found = lint(body for _, body in requests)
        except CacheDoctorError as error:  # no two of a conversation
            yield "refused by lint", f"{error.message} {error.hint}"
            return
        yield "lint", json.dumps(msgspec.to_builtins(sanitize.mask(found)))
