"""Traffic out of request bodies, exact with the model's tokenizer and template; order and overlap from a log, or alone.

Renders as ``diff`` and ``analyze --prompts`` do.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
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
_IMAGE = re.compile(r"<image sha256:([0-9a-f]{16})>")
"""What stands for an image in a rendered prompt."""


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
    image_tokens: int | None = None,
) -> Built:
    """Make traffic of bodies, in the order in which they were sent.

    Args:
        sent: the bodies.
        files: tokenizer and template; without an exact tokenizer tokens are pieces, and lengths approximate.
        number: the build, for what it does to the billing header of /v1/messages.
        requests: those of the log, with ``happened`` in the order of their lines; without them the order of the bodies
            is all there is, and each ends before the next starts.
        image_tokens: that an image takes; None is what explains most lengths of the log, all images taken as equal.
        happened: restarts and slot files, at line numbers of the log.

    Raises:
        CacheDoctorError: the tokenizer or the template cannot be used.
    """
    ask = Ask(build=number)
    texts = [rendered(one.prompt, ask, files) for one in sent]
    cut = _Cut(files)
    if image_tokens is None:
        image_tokens = _image_tokens([(len(cut.tokens(text)[0]), len(text.images)) for text in texts], requests)
    cut.image_tokens = image_tokens
    tokens = [cut.tokens(text) for text in texts]
    placed = _matched([len(ids) for ids, _ in tokens], sent, requests) if requests else {}
    tree, asked, of, seen = PromptTree(), [], [], []
    starts = {at: request.first_line for at, request in placed.items()}
    order = sorted(starts, key=lambda at: starts[at]) if requests else range(len(sent))
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
        self.image_tokens = 0

    def ids(self, found: Tokens) -> array[int]:
        """Numbers of tokens."""
        numbers = self._numbers
        return array("i", [n if isinstance(n, int) else numbers.setdefault(n, len(numbers)) for n in found.ids])

    def encode(self, text: str) -> array[int]:
        """Numbers of the tokens of a text."""
        return self.ids(self._files.cutter.encode(text))

    def tokens(self, prompt: Prompt) -> tuple[array[int], tuple[int, ...]]:
        """Tokens of a prompt with the BOS that the server puts in front, and where each user message begins.

        The texts between images are cut each by itself, as the server does.
        """
        ids, starts, places = (
            array("i", [-1] * self._files.cutter.leading(prompt.text)),
            list[int](),
            _user_places(prompt),
        )
        at = 0
        for image in [*_IMAGE.finditer(prompt.text), None] if prompt.images else [None]:
            end = len(prompt.text) if image is None else image.start()
            found = self._files.cutter.encode(prompt.text[at:end])
            starts += [len(ids) + bisect_left(found.starts, place - at) for place in places if at <= place < end]
            ids += self.ids(found)
            if image is not None:
                ids += array("i", [-2 - int(image[1][:6], 16)] * self.image_tokens)
                at = image.end()
        return ids, tuple(starts)


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
    cut_to = request.prompt_tokens if request is not None and request.cut_prompt else None
    prompt = tree.add(ids) if cut_to is None else tree.branch(None, 0, cut_to)
    held = None if request is None else request.released_tokens
    refused = request is not None and request.error is not None
    shifted = request is not None and (request.shifted or request.seen.truncated or request.cut_prompt)
    content = tree.branch(None, 0, held) if shifted and held else _content(tree, cut, sent, text, ids, prompt, held)
    return Asked(
        prompt,
        prompt if refused else content,
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


def _image_tokens(lengths: list[tuple[int, int]], requests: Sequence[Request]) -> int:
    """Tokens of an image that explain most requests of the log; 0 where none does."""
    seen = [request for request in requests if request.images] or requests
    printed = {request.prompt_tokens for request in seen} - {length for length, images in lengths if not images}
    explained: Counter[int] = Counter()
    for length, images in lengths:
        if images:
            sizes = {
                (p - length) // images for p in printed if p is not None and p > length and not (p - length) % images
            }
            explained.update(sizes)
    return max(explained, key=lambda size: (explained[size], -size), default=0)


def _matched(lengths: list[int], sent: Sequence[Sent], requests: Sequence[Request]) -> dict[int, Request]:
    """Requests by the place of their body: equal lengths in order; those without a length take what lies between."""
    found: dict[int, Request] = {}
    unknown: list[tuple[int, Request]] = []
    low = 0
    for request in sorted((r for r in requests if r.parent is None), key=lambda r: r.first_line):
        tokens = None if request.cut_prompt else request.prompt_tokens or request.error_tokens
        near = range(low, min(len(lengths), low + AHEAD))
        if tokens is not None:
            at = next((at for at in near if lengths[at] == tokens and at not in found), None)
        else:
            at = low if low < len(sent) and (request.cut_prompt or not sent[low].answered) else None
            unknown += [(low, request)] if at is None else []
        if at is not None:
            found[at] = request
            while low in found:
                low += 1
    for low, request in unknown:
        at = next((at for at in range(low, len(lengths)) if at not in found), None)
        if at is not None and not any(n > at and r.first_line < request.first_line for n, r in found.items()):
            found[at] = request
    return found
