"""Matches prompts (dumps, request bodies) to the requests of a log, and finds what changed between two turns."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from cachedoctor.doctor.extras import body_sums
from cachedoctor.engines.llamacpp.accounting import NEAR
from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.model import CacheDoctorError, PromptDiff, Request, SentBodies, Session
from cachedoctor.prompts import compare_prompts, inputs, run_diff
from cachedoctor.prompts.confined.child import FailedError
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.tokenizers.base import Tokenizer

AHEAD = 64
"""Prompts looked at to find the one that belongs to a request; those before it belong to requests not in the log."""
_NEAR = (0.5, 2.0)
"""Pieces per token that are plausible when there is no exact tokenizer."""
_MAX_THREADS = 256
_RECENT = 64
"""Prompts looked back on for one that this one only goes on with."""
_COMPARED = 256
"""Prompts that are compared where none can be matched."""
_TAIL = 64
"""Characters at the end of a prompt that may be the opening of the reply."""


def _loaded(path: str) -> list[Prompt]:
    found = inputs.load(path, reply=True)
    if any(prompt.kind == "text" for prompt in found):
        hint = "give request bodies (JSON or JSONL), a /slots dump, or a directory of --log-prompts-dir"
        raise CacheDoctorError(f"{path}: is plain text, which no request of a log can be matched to", hint)
    return found


class _Turn(NamedTuple):
    """A prompt that was matched, and the tokens that it and its reply took in the slot, where the log has them."""

    prompt: Prompt
    total: int | None


class GivenPrompts:
    """The prompts given beside a log. Feeds on requests in the order in which they finish."""

    def __init__(self, paths: list[str], tokenizer: str | None = None, template: str | None = None) -> None:
        """Read the prompts of all ``paths``, in the order given.

        Raises:
            CacheDoctorError: one of them cannot be used.
        """
        self.faults: list[tuple[str, FailedError]] = []
        """Files that failed at their work, and how: without them the analysis goes on with what it has."""
        found = _without_stale([prompt for path in paths for prompt in _loaded(path)])
        self._cutter, self._prompts, self._lengths = self._with_files(found, tokenizer, template)
        self._next = 0
        self._last: dict[tuple[int, int], _Turn] = {}
        self._recent: deque[_Turn] = deque(maxlen=_RECENT)
        self.matched = 0
        """Requests for which a prompt was found."""

    def __len__(self) -> int:
        return len(self._prompts)

    def _with_files(
        self, found: list[Prompt], tokenizer: str | None, template: str | None
    ) -> tuple[Tokenizer, list[Prompt | None], list[int]]:
        """What cuts prompts into tokens, the prompts as the server rendered them, and their lengths in tokens.

        A template that fails leaves the bodies as they are, a tokenizer that fails leaves words and signs for tokens.
        """
        ask = run_diff.Ask(template=template)
        try:
            files = ModelFiles(tokenizer, template)
            prompts = self._rendered(found, files, ask, template or tokenizer or "")
            if self.faults:
                files = ModelFiles(tokenizer)
            return files.cutter, [*prompts], [_length(p, files.cutter) for p in prompts]
        except FailedError as error:
            if tokenizer is None:
                raise
            self.faults = [(tokenizer, error)]
            return self._with_files(found, None, template)

    def _rendered(self, found: list[Prompt], files: ModelFiles, ask: run_diff.Ask, path: str) -> list[Prompt]:
        try:
            return [run_diff.rendered(prompt, ask, files) for prompt in found]
        except FailedError as error:
            self.faults.append((path, error))
            return found

    def _compare(self, before: Prompt, prompt: Prompt) -> PromptDiff | None:
        """What changed between two prompts; None when the tokenizer fails."""
        try:
            return compare_prompts.compare(before, prompt, self._cutter, compare_prompts.Options())
        except FailedError as error:
            if self._cutter.name not in (path for path, _ in self.faults):
                self.faults.append((self._cutter.name, error))
            return None

    def difference(self, request: Request) -> PromptDiff | None:
        """What changed from the thread's previous prompt to this one; None when either is not among the prompts."""
        prompt = self._take(request)
        if prompt is None:
            return None
        self.matched += 1
        if request.thread is None:
            return None
        key = request.session, request.thread
        last = self._last.get(key)
        before = self._before(key, _Turn(prompt, request.released_tokens))
        if before is None:
            return None
        found = self._compare(before.prompt, _sent(prompt))
        if found is None or last is None or before is last or not self._apart(request, prompt, last):
            return found
        return msgspec.structs.replace(found, follows=before.total)

    def successive(self) -> list[PromptDiff]:
        """What changed from prompt to prompt, each against the earlier one that it shares most with; the first 256.

        For servers whose logs have no requests to match them to.
        """
        recent: deque[Prompt] = deque(maxlen=_RECENT)
        found = []
        for prompt in (p for p in self._prompts[: _COMPARED + 1] if p is not None):
            if recent:
                before = max(recent, key=lambda p: common_prefix(p.text, prompt.text))
                changed = self._compare(_sent(before), _sent(prompt))
                found += [] if changed is None else [changed]
            recent.append(prompt)
        self.matched = len(self._prompts)
        return found

    def summed(self, session: Session) -> SentBodies | None:
        """What all prompts have in common; None for fewer than two."""
        return body_sums.summed([p for p in self._prompts if p is not None], session, self._compare)

    def _before(self, key: tuple[int, int], turn: _Turn) -> _Turn | None:
        """Give the turn that ``turn`` follows.

        Lengths alone may have taken two conversations for one: where another prompt is the beginning of this one, word
        for word, and the thread's last is not, the other one was its predecessor.
        """
        before, prompt = self._last.pop(key, None), turn.prompt
        self._last[key] = turn
        if len(self._last) > _MAX_THREADS:
            del self._last[next(iter(self._last))]
        if before is not None and not _goes_on(prompt, before.prompt):
            # A turn in front of an edit is the beginning of both; what the other one does not begin with is another's.
            last = before.prompt
            others = (t for t in reversed(self._recent) if _goes_on(prompt, t.prompt) and not _goes_on(last, t.prompt))
            before = next(others, before)
        self._recent.append(turn)
        return before

    def _apart(self, request: Request, prompt: Prompt, last: _Turn) -> bool:
        """Whether a request and the last turn of what lengths alone took for its conversation belong to two.

        A turn that both go on with makes them branches of one. Where the slot's content went on, by the log's own
        numbers, the bodies did not come in the order of the log.
        """
        kept = max(request.common_prefix_tokens or 0, request.cached_tokens or 0)
        if last.total is None or kept >= last.total - NEAR:
            return False
        return not any(_goes_on(prompt, t.prompt) and _goes_on(last.prompt, t.prompt) for t in self._recent)

    def _take(self, request: Request) -> Prompt | None:
        tokens = request.prompt_tokens or request.error_tokens
        if tokens is None and self._cutter.exact:
            return None
        for at in range(self._next, min(len(self._prompts), self._next + AHEAD)):
            prompt = self._prompts[at]
            if prompt is None or (prompt.slot is not None and prompt.slot != request.slot):
                continue
            # A request that was cancelled before its length was printed had its body all the same, but seldom a dump.
            if self._fits(prompt, self._lengths[at], tokens) if tokens is not None else prompt.slot is None:
                self._prompts[at] = None
                while self._next < len(self._prompts) and self._prompts[self._next] is None:
                    self._next += 1
                return prompt
            if not self._cutter.exact:
                return None  # without exact counts only the order tells: the next prompt is this request's or none is
        return None

    def _fits(self, prompt: Prompt, length: int, tokens: int) -> bool:
        if self._cutter.exact and prompt.rendered:
            return length == tokens
        return _NEAR[0] <= length / max(1, tokens) <= _NEAR[1]


def _length(prompt: Prompt, cutter: Tokenizer) -> int:
    text = _sent(prompt).text
    return len(cutter.encode(text)) + cutter.leading(text)


def _without_stale(found: list[Prompt]) -> list[Prompt]:
    """Drop what a dump of several slots repeats: the prompts of those that had no request since the dump before."""
    if len({prompt.slot for prompt in found} - {None}) < 2:
        return found
    last: dict[int, str] = {}
    fresh = []
    for prompt in found:
        if prompt.slot is None or last.get(prompt.slot) != prompt.text:
            fresh.append(prompt)
        if prompt.slot is not None:
            last[prompt.slot] = prompt.text
    return fresh


def _goes_on(prompt: Prompt, before: Prompt) -> bool:
    """Whether a prompt begins with all of another one, but for the opening of the reply."""
    text = _sent(before).text
    kept = text[: len(text) - min(_TAIL, len(text) // 8)]
    return prompt.text.startswith(kept) and prompt.images[: len(before.images)] == before.images


def _sent(prompt: Prompt) -> Prompt:
    """The prompt without the reply that a /slots dump holds behind it; the next prompt is compared with both."""
    at = next((span.start for span in prompt.spans if span.place == "generated"), None)
    return prompt if at is None else msgspec.structs.replace(prompt, text=prompt.text[:at])
