"""Traffic out of request bodies, exact with the model's tokenizer and template; order and overlap from a log, or alone.

Renders as ``diff`` and ``analyze --prompts`` do.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import Happened, TimedRequest, Traffic
from cachedoctor.doctor.extras.prompt_matching import AHEAD, PLAUSIBLE
from cachedoctor.doctor.replaying.from_log import file_tokens, log_order, of_about, restore
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Request
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.run_diff import DiffJob, rendered
from cachedoctor.prompts.tokenizers.base import TokenArrays

_OPENING = late(r"<\|?[A-Za-z0-9_｜▁]{1,40}\|?>[^<]{0,24}$|\[INST\] ?$")
"""What a template writes before a user's message: a special token and perhaps the role."""
_IMAGE = late(r"<image sha256:([0-9a-f]{16})>")
"""Placeholder of an image in a rendered prompt."""


class SentBody(msgspec.Struct):
    """A body that was sent, with what came back."""

    prompt: Prompt | None
    """None for a body from which no prompt can be made: an embedding."""
    reply: str = ""
    """Text of the answer as it came."""
    generated: int | None = None
    """Tokens of the reply, as the server counts them; None if they are not known."""
    answered: bool = True
    """False where nothing came back: an error, or a client that went away."""


class Built(msgspec.Struct):
    """Traffic, and what it was made of."""

    traffic: Traffic
    sent: list[int | None]
    """Index of each request's body; None for a request of the log without one: its text is shared with nothing."""
    requests: list[Request | None]
    """The log's request for every request of the traffic."""
    left_out: list[int]
    """Indexes of bodies that no request of the log fits, and of those without a prompt if there is no log."""
    tokens: Callable[[Prompt], tuple[array[int], tuple[int, ...]]]
    """Renders one more prompt, as long as the model files are open: its tokens, and where user messages begin."""


def build(
    sent: Sequence[SentBody],
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
        requests: those of the log of the same server, whose order, overlap, restarts and lengths count; without them
            each body is answered before the next one is sent.
        happened: slot files, at moments of the traffic.
        image_tokens: that an image takes; None is what explains most lengths of the log, all images taken as equal.

    Raises:
        CacheDoctorError: the tokenizer or the template cannot be used.
    """
    ask = DiffJob(build=number)
    order = log_order(requests)
    texts = [None if one.prompt is None else rendered(one.prompt, ask, files) for one in sent]
    cut = _BodyTokens(files)
    if image_tokens is None:
        sizes = [(len(cut.tokens(text)[0]), len(text.images)) for text in texts if text is not None and text.images]
        image_tokens = _image_tokens(sizes, requests) if sizes else 0
    cut.image_tokens = image_tokens
    tokens = [_NOTHING if text is None else cut.tokens(text) for text in texts]
    builder = _Builder(sent, texts, tokens, cut)
    if not requests:
        for at, text in enumerate(texts):
            if text is not None:
                builder.add(at, None, (2 * at, 2 * at + 1))
    else:
        lengths = [None if text is None else len(ids) for text, (ids, _) in zip(texts, tokens, strict=True)]
        exact = files.cutter.exact
        bodies = {id(one): at for at, one in matched(lengths, sent, order.requests, exact=exact).items()}
        for request in order.requests:
            builder.add(bodies.get(id(request)), request, order.moments(request))
    left_out = sorted(set(range(len(sent))) - {at for at in builder.of if at is not None})
    events = [*order.happened, *builder.restored, *happened]
    return Built(
        Traffic(builder.tree, builder.asked, events), builder.of, builder.requests, left_out,
        lambda prompt: cut.tokens(rendered(prompt, ask, files)),
    )  # fmt: skip


_NOTHING: tuple[array[int], tuple[int, ...]] = (array("i"), ())


class _BodyTokens:
    """Tokens of prompts; pieces without a vocabulary get numbers."""

    def __init__(self, files: ModelFiles) -> None:
        self._files, self._numbers, self.exact = files, dict[str, int](), files.cutter.exact
        self.image_tokens = 0

    def ids(self, found: TokenArrays) -> array[int]:
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


class _Builder:
    """Adds requests to the tree, in the order in which they started."""

    def __init__(
        self,
        sent: Sequence[SentBody],
        texts: list[Prompt | None],
        tokens: list[tuple[array[int], tuple[int, ...]]],
        cut: _BodyTokens,
    ) -> None:
        self._sent, self._texts, self._tokens, self._cut = sent, texts, tokens, cut
        self.tree = PromptTree()
        self._prompts = [self.tree.add(ids) for ids, _ in tokens]
        self._next = self._successors()
        self.asked: list[TimedRequest] = []
        self.of: list[int | None] = []
        self.requests: list[Request | None] = []
        self.restored: list[Happened] = []
        """Slot files that were read, and whose content an earlier request had left."""
        self._lengths: dict[int, int] = {}

    def add(self, at: int | None, request: Request | None, moments: tuple[int, int]) -> None:
        """Add a body, a request of the log, or both."""
        if request is not None and request.parent is not None:
            return
        text = None if at is None else self._texts[at]
        cut = request is not None and request.seen.cut_prompt
        if at is None or text is None or cut:
            asked = None if request is None else self._without_text(request, moments, other=at is not None and not cut)
        else:
            asked = self._with_text(at, text, request, moments)
        held = None if request is None else file_tokens(request)
        if request is not None and held:
            content = of_about(self._lengths, held, request.cached_tokens or 0)
            self.restored += [] if content is None else [restore(request, moments[0], content)]
        if asked is not None:
            self._lengths[self.tree.length(asked.content)] = asked.content
            self.asked.append(asked)
            self.of.append(at)
            self.requests.append(request)

    def _without_text(self, request: Request, moments: tuple[int, int], *, other: bool) -> TimedRequest | None:
        """A request that takes a slot, and whose text nothing is known of."""
        length = request.prompt_tokens or request.seen.error_tokens or request.seen.released_tokens
        if not length:
            return None
        refused = request.seen.error is not None
        prompt = self.tree.branch(None, 0, length)
        held = request.seen.released_tokens
        content = prompt if refused or held is None else self.tree.branch(prompt, length, held)
        return TimedRequest(
            prompt, content, *moments, completion=not other, cancelled=request.seen.cancelled, refused=refused
        )

    def _with_text(self, at: int, text: Prompt, request: Request | None, moments: tuple[int, int]) -> TimedRequest:
        (ids, users), sent = self._tokens[at], self._sent[at]
        body: dict[str, Any] = text.body or {}
        prompt = self._prompts[at]
        held = None if request is None or not self._cut.exact else request.seen.released_tokens
        refused = request is not None and request.seen.error is not None
        if refused:
            content = prompt
        elif request is not None and held and (request.shifted or request.seen.truncated):
            content = self.tree.branch(None, 0, held)
        else:
            content = self._content(at, sent, text, ids, held)
        slot, choices = body.get("id_slot"), body.get("n")
        return TimedRequest(
            prompt,
            content,
            *moments,
            cache_prompt=body.get("cache_prompt") is not False,
            id_slot=slot if isinstance(slot, int) and slot >= 0 else None,
            user_starts=users,
            choices=choices if isinstance(choices, int) and choices > 0 else 1,
            images=bool(text.images),
            cancelled=not sent.answered,
            refused=refused,
        )

    def _successors(self) -> list[int | None]:
        """For every body the next one that begins with all of it, near by."""
        tree, prompts = self.tree, self._prompts
        found: list[int | None] = []
        for at, prompt in enumerate(prompts):
            length = tree.length(prompt)
            later = range(at + 1, min(len(prompts), at + 1 + AHEAD)) if length else ()
            goes_on = (n for n in later if tree.length(prompts[n]) > length == tree.common(prompt, prompts[n]))
            found.append(next(goes_on, None))
        return found

    def _content(self, at: int, sent: SentBody, text: Prompt, ids: array[int], held: int | None) -> int:
        """What the slot holds afterwards: ``held`` tokens, of which the reply's text may not be all.

        A reply that was not given is taken to have been what the client sent back.
        """
        later, whole = self._next[at], ids
        if sent.reply:
            whole = self._cut.tokens(msgspec.structs.replace(text, text=text.text + sent.reply))[0]
        elif later is not None and held is not None:
            whole = self._tokens[later][0]
        if held is None and sent.generated is not None:
            held = len(ids) + max(0, sent.generated - 1)
        if held is None:
            held = max(len(ids), len(whole) - 1)
        known = self.tree.add(whole[:held])
        return known if len(whole) >= held else self.tree.branch(known, len(whole), held)


def _image_tokens(lengths: list[tuple[int, int]], requests: Sequence[Request]) -> int:
    """Tokens of an image that explain most requests of the log; 0 where none does."""
    seen = [request for request in requests if request.seen.images] or requests
    printed = {request.prompt_tokens for request in seen} - {length for length, images in lengths if not images}
    explained: Counter[int] = Counter()
    for length, images in lengths:
        if images:
            sizes = {
                (p - length) // images for p in printed if p is not None and p > length and not (p - length) % images
            }
            explained.update(sizes)
    return max(explained, key=lambda size: (explained[size], -size), default=0)


def matched(
    lengths: Sequence[int | None], sent: Sequence[SentBody], requests: Sequence[Request], *, exact: bool
) -> dict[int, Request]:
    """Requests by the place of their body: equal lengths in order; those without a length take what lies between.

    ``lengths``: tokens of each body, None where no prompt can be made of it. Where they are not ``exact``, the order
    alone tells: the next body is a request's, or none is.
    """
    found: dict[int, Request] = {}
    unknown: list[tuple[int, Request]] = []
    low = 0
    for request in requests:
        if request.parent is not None:
            continue
        tokens = None if request.seen.cut_prompt else request.prompt_tokens or request.seen.error_tokens
        near = range(low, min(len(lengths), low + (AHEAD if exact else 1)))
        at = next((at for at in near if at not in found and _fits(lengths[at], tokens, exact=exact)), None)
        if at is None and low < len(sent) and low not in found:
            free = tokens is None and (request.seen.cut_prompt or not sent[low].answered)
            at = low if free or lengths[low] is None else None
        if at is None:
            unknown += [(low, request)] if tokens is None else []
            continue
        found[at] = request
        while low in found:
            low += 1
    for low, request in unknown:
        at = next((at for at in range(low, len(lengths)) if at not in found), None)
        if at is not None and not any(n > at and r.first_line < request.first_line for n, r in found.items()):
            found[at] = request
    return found


def _fits(length: int | None, tokens: int | None, *, exact: bool) -> bool:
    if length is None or tokens is None:
        return False
    return length == tokens if exact else PLAUSIBLE[0] <= length / max(1, tokens) <= PLAUSIBLE[1]
