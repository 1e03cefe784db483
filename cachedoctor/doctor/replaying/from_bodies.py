"""Traffic out of request bodies, exact with the model's tokenizer and template; order and overlap from a log, or alone.

Renders as ``diff`` and ``analyze --prompts`` do.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import msgspec

from cachedoctor.doctor.extras.prompt_matching import AHEAD
from cachedoctor.model import Request
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.run_diff import Ask, rendered
from cachedoctor.prompts.tokenizers.base import Tokens
from cachedoctor.replay.prompt_tree import PromptTree
from cachedoctor.replay.traffic import Asked, Happened, Traffic

_OPENING = re.compile(r"<\|?[A-Za-z0-9_｜▁]{1,40}\|?>[^<]{0,24}$|\[INST\] ?$")
"""What a template writes in front of a user's message: a special token and perhaps the role."""
_IMAGE_TOKENS = 16


class Sent(msgspec.Struct):
    """A body that was sent, with what came back."""

    prompt: Prompt
    reply: str = ""
    """Text of the answer as it came."""
    generated: int | None = None
    """Tokens of it, as the server counts them; None where they are not known."""
    answered: bool = True
    """False where nothing came back: an error, or a client that went away."""
    happened: Happened | None = None
    """Something beside requests that came in front of it."""


class Built(msgspec.Struct):
    """Traffic, and what it was made of."""

    traffic: Traffic
    sent: list[int]
    """For every Asked the place of its body."""
    requests: list[Request | None]
    """For every Asked its request of the log."""
    unplaced: int = 0
    """Requests of the log without a body."""


def build(
    sent: Sequence[Sent],
    files: ModelFiles,
    number: int | None = None,
    requests: Sequence[Request] = (),
    happened: Sequence[Happened] = (),
) -> Built:
    """Make traffic of bodies, in the order in which they were sent.

    Args:
        sent: the bodies.
        files: tokenizer and template; without an exact tokenizer tokens are pieces, and lengths approximate.
        number: the build, for what it does to the billing header of /v1/messages.
        requests: those of the log, with ``happened`` in the order of their lines; without them the order of the bodies
            is all there is, and each ends before the next starts.
        happened: restarts and slot files, at line numbers of the log.

    Raises:
        CacheDoctorError: the tokenizer or the template cannot be used.
    """
    ask = Ask(build=number)
    texts = [rendered(one.prompt, ask, files) for one in sent]
    cut = _Cut(files)
    tokens = [cut.tokens(text) for text in texts]
    placed = _matched([len(ids) for ids, _ in tokens], requests) if requests else {}
    tree, asked, of, seen = PromptTree(), [], [], []
    starts = {at: request.first_line for at, request in placed.items()}
    order = sorted(starts, key=lambda at: starts[at]) if requests else list(range(len(sent)))
    for at in order:
        request = placed.get(at)
        ids, users = tokens[at]
        moments = (2 * at, 2 * at + 1) if request is None else (request.first_line, request.last_line)
        asked.append(_asked(tree, cut, sent[at], texts[at], ids, users, moments, request))
        of.append(at)
        seen.append(request)
    return Built(Traffic(tree, asked, happened), of, seen, len(requests) - len(placed))


class _Cut:
    """Tokens of prompts; pieces without a vocabulary get numbers."""

    def __init__(self, files: ModelFiles) -> None:
        self._files, self._numbers = files, dict[str, int]()

    def ids(self, found: Tokens) -> array[int]:
        """Numbers of tokens."""
        numbers = self._numbers
        return array("i", [n if isinstance(n, int) else numbers.setdefault(n, len(numbers)) for n in found.ids])

    def encode(self, text: str) -> array[int]:
        """Numbers of the tokens of a text."""
        return self.ids(self._files.cutter.encode(text))

    def tokens(self, prompt: Prompt) -> tuple[array[int], tuple[int, ...]]:
        """Tokens of a prompt with the BOS that the server puts in front, and where each user message begins."""
        found = self._files.cutter.encode(prompt.text)
        leading = self._files.cutter.leading(prompt.text)
        starts = sorted({bisect_left(found.starts, at) + leading for at in _user_places(prompt)})
        return array("i", [-1] * leading) + self.ids(found), tuple(starts)


def _user_places(prompt: Prompt) -> list[int]:
    """Offsets at which user messages begin, as the template opens the first of them; tool results may do so, too."""
    messages = (prompt.body or {}).get("messages")
    if not prompt.rendered or not isinstance(messages, list):
        return []
    users = [n for n, one in enumerate(messages) if isinstance(one, dict) and one.get("role") == "user"]
    span = next((s for s in prompt.spans if users and s.place.startswith(f"messages[{users[0]}].")), None)
    opening = None if span is None else _OPENING.search(prompt.text, max(0, span.start - 64), span.start)
    if opening is None:
        return []
    mark = opening.group().rstrip()
    return [found.start() for found in re.finditer(re.escape(mark), prompt.text)]


def _asked(
    tree: PromptTree,
    cut: _Cut,
    sent: Sent,
    text: Prompt,
    ids: array[int],
    users: tuple[int, ...],
    moments: tuple[int, int],
    request: Request | None,
) -> Asked:
    body: dict[str, Any] = sent.prompt.body or {}
    prompt = tree.add(ids)
    held = None if request is None else request.released_tokens
    refused = request is not None and request.error is not None
    return Asked(
        prompt,
        prompt if refused else _content(tree, cut, sent, text, ids, prompt, held),
        *moments,
        cache_prompt=body.get("cache_prompt") is not False,
        id_slot=body["id_slot"] if isinstance(body.get("id_slot"), int) and body["id_slot"] >= 0 else None,
        user_starts=users,
        choices=body["n"] if isinstance(body.get("n"), int) else 1,
        images=bool(text.images),
        cancelled=not sent.answered,
        refused=refused,
    )


def _content(
    tree: PromptTree, cut: _Cut, sent: Sent, text: Prompt, ids: array[int], prompt: int, held: int | None
) -> int:
    """What the slot holds afterwards: ``held`` tokens, of which the reply's text may not be all."""
    if held is None:
        held = len(ids) + max(0, (sent.generated or 0) - 1) if sent.generated is not None else None
    whole = cut.tokens(msgspec.structs.replace(text, text=text.text + sent.reply))[0] if sent.reply else ids
    if held is None:
        held = max(len(ids), len(whole) - 1)
    known = tree.add(whole[:held])
    return known if len(whole) >= held else tree.branch(known, len(whole), held)


def _matched(lengths: list[int], requests: Sequence[Request]) -> dict[int, Request]:
    """Requests by the place of their body: equal lengths in order; those without a length take what lies between."""
    ordered = sorted((r for r in requests if r.parent is None), key=lambda r: r.first_line)
    found: dict[int, Request] = {}
    unknown: list[tuple[int, Request]] = []
    low = 0
    for request in ordered:
        tokens = request.prompt_tokens or request.error_tokens
        if tokens is None:
            unknown.append((low, request))
            continue
        near = range(low, min(len(lengths), low + AHEAD))
        at = next((at for at in near if lengths[at] == tokens and at not in found), None)
        if at is not None:
            found[at] = request
            while low in found:
                low += 1
    for low, request in unknown:
        at = next((at for at in range(low, len(lengths)) if at not in found), len(lengths))
        if at < len(lengths) and not any(other.first_line < request.first_line for n, other in found.items() if n > at):
            found[at] = request
    return found
