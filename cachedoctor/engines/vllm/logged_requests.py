"""Requests that a vLLM log shows: logged prompts, and LMCache lookups."""

from __future__ import annotations

from collections import OrderedDict, deque

from cachedoctor.engines.catalogue.base import Event
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import longest_prefix
from cachedoctor.model import Answer, Answers, Session, Setting

_END = late(r"['\"], (?:params: SamplingParams\(|prompt_token_ids: )")
_HEADER = "x-anthropic-billing-header"
_HEAD = 4096
"""Characters within which the header must be: before the system prompt."""
_PROMPTS_MOST = 64
_PROMPT_BYTES = 4 << 20
_LONGEST = 1 << 20
"""Bytes of one prompt that are compared."""
_LOGGED_PROMPTS_MOST = 10_000
"""Maximum answers kept for one server."""


def prompt_in(text: str) -> str | None:
    """Return the prompt that a line contains, as printed between its quotes; None if there is none."""
    if not text or text[0] not in "'\"":
        return None
    ends = [found.start() for found in _END.finditer(text)]
    return text[1 : ends[-1]] if ends else text[1:].rstrip(" \t")


class Beginnings:
    """The latest prompts of one server, kept to measure common prefixes with later ones, and never shown."""

    def __init__(self) -> None:
        self._recent: deque[bytes] = deque()
        self._size = 0

    def add(self, prompt: bytes) -> int | None:
        """Add a prompt; returns the bytes that it shares with the most similar earlier one, None for the first."""
        prompt = prompt[:_LONGEST]
        best = longest_prefix(prompt, reversed(self._recent))
        self._recent.append(prompt)
        self._size += len(prompt)
        while len(self._recent) > _PROMPTS_MOST or self._size > _PROMPT_BYTES:
            self._size -= len(self._recent.popleft())
        return best


class LoggedPrompts:
    """The prompts that one server logged."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._beginnings = Beginnings()
        self._answers: Answers | None = None

    def take(self, session: Session, event: Event) -> None:
        """Compare the prompt in the line with earlier ones, if the line has a prompt."""
        prompt = prompt_in(event.fields.get("prompt", ""))
        if prompt is None:
            return
        if _HEADER in prompt[:_HEAD]:
            shown = b"[...] " + _HEADER.encode() + b" [...]"
            session.settings.setdefault("billing_header", Setting(True, event.line, shown))
        raw = prompt.encode()
        self._keep(session, Answer(None, None, event.line, self._beginnings.add(raw), len(raw)))

    def _keep(self, session: Session, answer: Answer) -> None:
        if self._answers is None:
            self._answers = Answers(self._path, "log")
            session.answers.append(self._answers)
        self._answers.requests += 1
        if len(self._answers.each) < _LOGGED_PROMPTS_MOST:
            self._answers.each.append(answer)


_RECENT = 256
"""Requests that may be looked up again before they are admitted; each counts once."""
_STEP = 16
"""Requests that may be loaded in one step of the engine."""
_LOOKUPS_MOST = 10_000
"""Maximum answers kept for one server; beyond this number only sums are kept."""


class Lookups:
    """The requests of one server."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._answers: Answers | None = None
        self._recent: OrderedDict[str, Answer] = OrderedDict()

    def failed(self) -> None:
        """Note that a load failed; the line names no request, so it may be any of the last requests."""
        answers = self._answers
        for request in list(self._recent)[-_STEP:]:
            answer = self._recent[request]
            if answers is None or answer.cached_tokens is None:
                continue
            unsure = self._recent[request] = Answer(answer.prompt_tokens, None, answer.line)
            _count(answers, answer, -1)
            _count(answers, unsure, 1)
            if answer in answers.each[-_STEP:]:
                answers.each[len(answers.each) - 1 - answers.each[::-1].index(answer)] = unsure

    def take(self, session: Session, event: Event) -> None:
        """Process a line; the last line about a request counts."""
        if self._answers is None:
            self._answers = Answers(self._path, "log")
            session.answers.append(self._answers)
        answers, request = self._answers, event.fields["request"]
        total, cached = event.fields["total"], _cached(event.fields)
        answer = Answer(total, cached if cached is None or cached <= total else None, event.line)
        before = self._recent.pop(request, None)
        self._recent[request] = answer
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        if before is not None:
            _count(answers, before, -1)
            if before in answers.each:
                answers.each.remove(before)
        _count(answers, answer, 1)
        if len(answers.each) < _LOOKUPS_MOST:
            answers.each.append(answer)


def _cached(fields: dict[str, int]) -> int | None:
    """Tokens that were not computed: ``load`` is what LMCache adds to the engine's own cache."""
    if "gpu_tokens" in fields:
        return fields["gpu_tokens"] + max(0, fields["load"])
    return fields["hit"] - min(fields["load"], 0) if fields["load"] else None


def _count(answers: Answers, answer: Answer, sign: int) -> None:
    answers.requests += sign
    if answer.cached_tokens is not None and answer.prompt_tokens is not None:
        answers.told += sign
        answers.prompt_tokens += sign * answer.prompt_tokens
        answers.cached_tokens += sign * answer.cached_tokens
