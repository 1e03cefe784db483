"""Matches prompts (dumps, request bodies) to the requests of a log, and finds what changed between two turns."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from cachedoctor.doctor.extras import body_fit, body_sums, extra_inputs
from cachedoctor.doctor.extras.body_fit import Fit, Joined, Proof
from cachedoctor.engines.llamacpp.accounting import NEAR
from cachedoctor.inputs.metrics.responses import claim_of
from cachedoctor.knowledge.texts import common_prefix, pieces
from cachedoctor.model import (
    CacheDoctorError,
    ClaimedRequest,
    ClientName,
    PromptDiff,
    Request,
    SentBodies,
    Session,
)
from cachedoctor.prompts import (
    bare_texts,
    client_habits,
    compare_prompts,
    conversations,
    inputs,
    run_diff,
    separate_prompts,
)
from cachedoctor.prompts.confined.child import FailedError
from cachedoctor.prompts.conversations import LOOK_BACK, Outline, outline, shared_with
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import CHAT, Prompt, notes_of
from cachedoctor.prompts.tokenizers.base import Tokenizer
from cachedoctor.redaction import sanitize

AHEAD = 64
"""Prompts that are searched for the one of a request; those before it belong to requests not in the log."""
PLAUSIBLE = (0.5, 2.0)
"""Pieces per token that are plausible when there is no exact tokenizer."""
_ENOUGH = 8
"""Requests of a live log whose order and texts decide whether prompts are of it; as many as there are prompts."""
_MODES = 8
"""Lists of tools remembered of a conversation."""
SUMMED_UP = 0.5
"""Longest prompt whose history may have been summarised, as a share of the prompt before it."""
REPEATED = 0.5
"""Share of a prompt that is at another position of an earlier one, from which on both are of one conversation."""
INSTRUCTIONS = 300
"""Characters of a system prompt from which on it describes one assistant, and does not only say that there is one."""
UNLIKE = 0.1
"""Common share of two system prompts below which one is not a changed form of the other."""
NEARLY = 0.1
"""Share of a count of tokens by which it may be wrong without the model's tokenizer."""
LEAST_REPEATED = 1000
"""Characters of a prompt: in a shorter one, a few sentences that many prompts have may be half of the text."""
_TAIL = 64
"""Characters at the end of a prompt that may be the opening of the reply."""
_OTHER_TOOLS = ("tool-added", "tool-removed", "mode-switched")
_MAX_SESSIONS = 64
"""Sessions whose conversations are remembered."""
_RECENT = 64
"""Earlier prompts that are compared if none can be matched."""
_OTHER = -1
"""Stands for the text of a request that has no prompt here, or is not a turn of a conversation."""
_MORE = 1000
"""First number for conversations whose number by lengths is already used."""
_CLIENTS = 4096
"""Number of clients that are distinguished."""
_COMPARED = 256
"""Prompts that are compared where none can be matched."""


def _loaded(path: str) -> list[Prompt]:
    found = inputs.load(path, reply=True)
    if any(prompt.kind == "text" for prompt in found):
        hint = "give request bodies (JSON or JSONL), a /slots dump, or a directory of --log-prompts-dir"
        raise CacheDoctorError(f"{path}: is plain text, which cannot be matched to requests in a log", hint)
    return found


class TextTurn(NamedTuple):
    """A request as a turn of the conversation that its text continues."""

    thread: int
    """Conversation, numbered by the texts of its session."""
    turn: int
    """0 for the first."""
    held_thread: int | None
    """Conversation whose text its slot held; None where that is not known."""
    reference: int | None
    """Tokens that the turn before and its reply had in the slot, where the log has them."""
    difference: PromptDiff | None
    """What changed from the prompt before it; None for the first, and where the tokenizer fails."""
    together: int = 0
    """Tokens of its beginning that another request computed at the same time, and none had before."""
    uncached: bool = False
    """Its body switches the cache off."""


class _Told(msgspec.Struct):
    """A prompt that was matched."""

    prompt: Prompt
    outline: Outline
    total: int | None
    """Tokens that it and its reply took in the slot, where the log has them."""
    thread: int
    turn: int
    ended: int
    """Line of its end."""
    pieces: dict[int, int] | None = None
    """Pieces of its text; None until they are needed."""


class _Begun(NamedTuple):
    """A separate prompt that begins as another one, behind its instructions."""

    before: _Told | None
    found: PromptDiff | None
    total: int | None
    """Tokens of what both begin with."""


class _Texts(msgspec.Struct):
    """The conversations of one session, by their texts."""

    recent: deque[_Told] = msgspec.field(default_factory=lambda: deque(maxlen=LOOK_BACK))
    slots: dict[int, int] = msgspec.field(default_factory=dict)
    """Conversation whose text each slot holds; ``_OTHER`` where the last request has no prompt or is not a turn."""
    modes: dict[int, deque[tuple[str, ...]]] = msgspec.field(default_factory=dict)
    """Lists of tools that each conversation had."""
    numbers: set[int] = msgspec.field(default_factory=set)
    """Numbers of its conversations."""


class GivenPrompts:
    """The prompts given beside a log. Feeds on requests in the order in which they finish."""

    def __init__(
        self, paths: list[str], tokenizer: str | None = None, template: str | None = None, *, hashed: bool = False
    ) -> None:
        """Read the prompts of all ``paths``, in the order given; ``hashed``: clients are named by hashes alone.

        Raises:
            CacheDoctorError: one of them cannot be used.
        """
        self.faults: list[tuple[str, FailedError]] = []
        """Files that failed, and how: the analysis continues without them."""
        found = _without_stale([prompt for path in paths for prompt in _loaded(path)])
        self.sent: tuple[Prompt, ...] = tuple(found)
        """Prompts as they were given, in their order."""
        self.files, self._prompts, self._lengths = self._with_files(found, tokenizer, template)
        """What renders them and cuts them into tokens."""
        self._cutter = self.files.cutter
        self._counts = [None if one is None else extra_inputs.of_prompt(one).prompt_tokens for one in self._prompts]
        """Tokens of each as the answer that was recorded with it counts them; None of those without."""
        self._is_counted = False
        """Whether those counts are those of the log: some gateways count by themselves."""
        self.notes = notes_of(found)
        """What recordings do not hold of the prompts."""
        self._next = 0
        self._texts: dict[int, _Texts] = {}
        self._hashed = hashed
        self.asker: ClientName | None = None
        """Who sent the request that was matched last, by its body."""
        self.matched = 0
        """Requests for which a prompt was found."""
        self.paths = paths
        self.fit: Fit | None = None
        """How they match the open log; None if that is not decided."""
        self.refusals: list[Fit] = []
        """Logs that they do not belong to."""
        self._joined: dict[int, Prompt] = {}
        """Prompts of requests that were decided on together, by their number."""
        self._decided = -1
        """Number of the last of these."""

    def __len__(self) -> int:
        return len(self._prompts)

    def _with_files(
        self, found: list[Prompt], tokenizer: str | None, template: str | None
    ) -> tuple[ModelFiles, list[Prompt | None], list[int]]:
        """What renders prompts and cuts them into tokens; the prompts as the server rendered them; their tokens.

        A template that fails leaves the bodies as they are, a tokenizer that fails leaves words and signs for tokens.
        """
        ask = run_diff.DiffJob(template=template)
        try:
            files = ModelFiles(tokenizer, template)
            prompts = self._rendered(found, files, ask, template or tokenizer or "")
            if self.faults:
                files = ModelFiles(tokenizer)
            return files, [*prompts], [_length(p, files.cutter) for p in prompts]
        except FailedError as error:
            if tokenizer is None:
                raise
            self.faults = [(tokenizer, error)]
            return self._with_files(found, None, template)

    def _rendered(self, found: list[Prompt], files: ModelFiles, ask: run_diff.DiffJob, path: str) -> list[Prompt]:
        try:
            return [run_diff.rendered(prompt, ask, files) for prompt in found]
        except FailedError as error:
            self.faults.append((path, error))
            return found

    def _compare(self, before: Prompt, prompt: Prompt) -> PromptDiff | None:
        """What changed between two prompts; None when the tokenizer fails."""
        try:
            found = compare_prompts.compare(before, prompt, self._cutter, compare_prompts.DiffOptions())
            if found.first is None or found.first.kind == "appended":  # nothing of the texts will be quoted
                return msgspec.structs.replace(found, around=None)
            return sanitize.mask(found)
        except FailedError as error:
            if self._cutter.name not in (path for path, _ in self.faults):
                self.faults.append((self._cutter.name, error))
            return None

    def begin(self) -> None:
        """Another log begins: whether they are of it is open."""
        self.fit = None
        self._joined.clear()

    def decide(self, requests: Sequence[Request], *, ended: bool) -> bool:
        """Decide by the first requests of a log whether the prompts are of it; ``ended``: it has no more.

        Gives whether it is decided: by the order of a few requests nothing is, as long as more may come.

        Bodies are kept in the order of their sending or in that of their answers: the order that fits better is taken.
        """
        asked = [one for one in requests if one.parent is None and not one.revision]
        whole = sum(one is not None for one in self._prompts)
        orders = [sorted(asked, key=lambda one: one.index), asked]
        left, place, counted = self._prompts, self._next, self._is_counted
        best: tuple[Fit, list[Joined], tuple[list[Prompt | None], int, bool]] | None = None
        for order in orders if orders[0] != orders[1] else orders[:1]:
            self._prompts, self._next, self._is_counted = list(left), place, counted
            found = [joined for one in order if (joined := self._join(one)) is not None]
            found = body_fit.by_length(found)
            fit = body_fit.judge(found, len(asked), whole, ended=ended)
            if best is None or (fit.is_theirs, fit.matched) > (best[0].is_theirs, best[0].matched):
                best = fit, found, (self._prompts, self._next, self._is_counted)
        self._prompts, self._next, self._is_counted = left, place, counted
        if best is None or not asked:
            return ended
        fit, found, state = best
        by_length = fit.is_theirs and any(joined.by != "order" for joined in found)
        if not ended and len(asked) < min(_ENOUGH, whole) and not by_length:
            return False
        self._decided = max(one.index for one in asked)
        if fit.is_theirs:
            self._joined = {joined.request.index: joined.given for joined in found}
            self._prompts, self._next, self._is_counted = state
        else:
            self.refusals.append(fit)
        self.fit = fit
        return True

    def turn(self, request: Request) -> TextTurn | None:
        """Find the prompt of a request, and the one that it continues; None when it is not among the prompts.

        Lengths take conversations that come in turn for one; their texts do not.
        """
        texts = self._texts.setdefault(request.session, _Texts())
        if len(self._texts) > _MAX_SESSIONS:
            del self._texts[next(iter(self._texts))]
        held = texts.slots.get(request.slot)
        if request.held_tokens == 0 and request.facts.said("kv_purged") is not None:
            held = None  # the server emptied it
        texts.slots[request.slot] = _OTHER
        if request.parent is not None:
            return None  # one more answer to the prompt of another request
        prompt = self._joined.pop(request.index, None)
        if prompt is None and request.index > self._decided:
            prompt = self._take(request)
        self.asker = None if prompt is None else client_habits.asker(prompt, hashed=self._hashed)
        if prompt is None:
            return None
        self.matched += 1
        if request.thread is None or not prompt.is_whole:
            return None  # of a prompt of which parts are missing nothing shows what it continues, and what changed
        current = outline(_sent(prompt))
        began = request.marks["start"].line
        answered = [told for told in texts.recent if told.ended <= began]  # nobody continues what is still at work
        before = None
        if not bare_texts.fills_in(prompt):  # each is of another place in a text, and continues none
            before = _before(prompt, current, answered) or _repeated(prompt, answered)
        ended, together = request.last_line, 0
        uncached = (prompt.body or {}).get("cache_prompt") is False
        if len(answered) < len(texts.recent):
            together = self._together(prompt, request, list(texts.recent))
        found = None if before is None else self._compare(before.prompt, _sent(prompt))
        if before is not None and found is not None:
            found = conversations.told(found, before.prompt, prompt, _modes_before(texts, before.thread, before.prompt))
        if before is not None and _is_of_another(before.prompt, prompt) and not _sums_up(found):
            before = found = None
        if before is not None and _is_separate(found, before, prompt, current):
            before = found = None
        total = None if before is None else before.total
        if before is None and len(answered) == len(texts.recent):
            before, found, total = self._begun(prompt, request, answered)
        if before is None:
            told = _Told(prompt, current, request.seen.released_tokens, _number(request.thread, texts), 0, ended)
        else:
            told = _Told(prompt, current, request.seen.released_tokens, before.thread, before.turn + 1, ended)
        texts.recent.append(told)
        texts.slots[request.slot] = told.thread
        if request.restored_from_ram:
            held = next((t.thread for t in reversed(texts.recent) if t.total == request.held_tokens), None)
        if held not in (None, told.thread) and _continues_its_slot(request):
            return None  # the bodies of requests at once came in another order than they are in the log
        if before is None:
            return TextTurn(told.thread, 0, held, None, None, together, uncached)
        return TextTurn(told.thread, told.turn, held, total, found, together, uncached)

    def _begun(self, prompt: Prompt, request: Request, answered: list[_Told]) -> _Begun:
        """Find a separate prompt with the same long text behind its instructions, as where one document is asked about
        again, or text before the cursor of an editor; and the tokens of that text, which the server once had.

        Nothing else of the earlier prompt could be reused, so that the rest of it is left out.
        """
        text, start = _sent(prompt).text, separate_prompts.opening(prompt)
        if start is None:
            return _Begun(None, None, None)
        best, most = None, 0
        for told in answered:
            shared = common_prefix(told.prompt.text, text)
            is_long = shared >= start + LEAST_REPEATED or _goes_on(prompt, told.prompt)
            if is_long and shared >= most and separate_prompts.opening(told.prompt) is not None:
                best, most = told, shared
        if best is None:
            return _Begun(None, None, None)
        found = self._compare(msgspec.structs.replace(best.prompt, text=text[:most]), _sent(prompt))
        if found is None or not found.b.tokens or request.prompt_tokens is None:
            return _Begun(None, None, None)
        tokens, reused = found.common_prefix_tokens, request.cached_tokens or 0
        if not found.exact:
            tokens = round(tokens / found.b.tokens * request.prompt_tokens)
            tokens = reused if tokens * (1 - NEARLY) <= reused else tokens
        return _Begun(best, found, tokens)

    def _together(self, prompt: Prompt, request: Request, earlier: list[_Told]) -> int:
        """Tokens that a prompt shares with those at work when it began, beyond what it shares with any before them."""
        began, text = request.marks["start"].line, _sent(prompt).text
        shared = {True: 0, False: 0}
        for told in earlier:
            at_work = told.ended > began
            shared[at_work] = max(shared[at_work], common_prefix(told.prompt.text, text))
        if shared[True] <= shared[False]:
            return 0
        if not self._cutter.exact:
            return round(shared[True] / len(text) * (request.prompt_tokens or 0))
        try:
            return len(self._cutter.encode(text[: shared[True]])) + self._cutter.leading(text)
        except FailedError:
            return 0

    def successive(self) -> list[PromptDiff]:
        """What changed from prompt to prompt, each against the earlier one that it shares most with; the first 256.

        For servers whose logs have no requests to match them to.
        """
        recent: deque[Prompt] = deque(maxlen=_RECENT)
        found = []
        for prompt in (p for p in self._prompts[: _COMPARED + 1] if p is not None and p.is_whole):
            if recent:
                before = max(recent, key=lambda p: common_prefix(p.text, prompt.text))
                changed = self._compare(_sent(before), _sent(prompt))
                found += [] if changed is None else [changed]
            recent.append(prompt)
        self.matched = len(self._prompts)
        return found

    def claims(self) -> list[ClaimedRequest]:
        """What the agents that sent them say of why less was reused, each with the counts of its answer."""
        found = (claim_of(prompt.answer) for prompt in self._prompts if prompt is not None)
        return [claim for claim in found if claim is not None]

    def callers(self) -> dict[ClientName, int]:
        """Count all bodies by who sent them; empty where none tells it."""
        names = [client_habits.asker(prompt, hashed=self._hashed) for prompt in self._prompts if prompt is not None]
        known = Counter(name for name in names if name is not None).most_common()
        if not known:
            return {}
        found = dict(known[:_CLIENTS])
        rest = {"other": sum(n for _, n in known[_CLIENTS:]), "unknown": names.count(None)}
        return found | {ClientName(by, ""): n for by, n in rest.items() if n}  # type: ignore[arg-type]

    def summed(self, session: Session) -> SentBodies | None:
        """What all prompts have in common; None for fewer than two, and where parts of one are missing."""
        if any(one is not None and not one.is_whole for one in self._prompts):
            return None
        return body_sums.summed(
            [p for p in self._prompts if p is not None], session, self._compare, hashed=self._hashed
        )

    def _take(self, request: Request) -> Prompt | None:
        if self.fit is not None and not self.fit.is_theirs:
            return None
        joined = self._join(request)
        return None if joined is None else joined.given

    def _join(self, request: Request) -> Joined | None:
        """Take the prompt that would be a request's."""
        tokens = _tokens_of(request)
        at = None if tokens is None else self._by_count(tokens)
        by: Proof = "counted" if at is not None else "order"
        self._is_counted = self._is_counted or at is not None
        at = self._by_length(request, tokens) if at is None else at
        prompt = None if at is None else self._prompts[at]
        if at is None or prompt is None:
            return None
        if by == "order" and tokens is not None and self._cutter.exact and prompt.rendered:
            by = "exact"
        self._prompts[at] = None
        while self._next < len(self._prompts) and self._prompts[self._next] is None:
            self._next += 1
        return Joined(request, _sent(prompt), by, prompt)

    def _near(self) -> range:
        return range(self._next, min(len(self._prompts), self._next + AHEAD))

    def _by_count(self, tokens: int) -> int | None:
        """The next prompt of just so many tokens by its answer."""
        return next((at for at in self._near() if self._prompts[at] is not None and self._counts[at] == tokens), None)

    def _by_length(self, request: Request, tokens: int | None) -> int | None:
        """The next prompt whose length fits, counted here."""
        if tokens is None and self._cutter.exact:
            return None
        for at in self._near():
            prompt = self._prompts[at]
            if prompt is None or (prompt.slot is not None and prompt.slot != request.slot):
                continue
            if self._is_counted and self._counts[at] is not None:
                continue  # it is of another request
            # A request that was cancelled before its length was printed had its body all the same, but seldom a dump.
            is_free = prompt.slot is None and prompt.is_whole
            if self._fits(prompt, self._lengths[at], tokens) if tokens is not None else is_free:
                return at
            if not self._cutter.exact:
                return None  # without exact counts only the order tells: the next prompt is this request's or none is
        return None

    def _fits(self, prompt: Prompt, length: int, tokens: int) -> bool:
        if not prompt.is_whole:
            return False
        if self._cutter.exact and prompt.rendered:
            return length == tokens
        return PLAUSIBLE[0] <= length / max(1, tokens) <= PLAUSIBLE[1]


def _tokens_of(request: Request) -> int | None:
    return request.prompt_tokens or request.seen.error_tokens


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


def _before(prompt: Prompt, current: Outline, recent: Iterable[_Told]) -> _Told | None:
    """The prompt that one continues: that which it shares most turns with, or else the longest that it begins with,
    of several the latest; None for a new one."""
    best: tuple[tuple[int, int, int], _Told] | None = None
    whole = [told for told in recent if _goes_on(prompt, told.prompt)]
    for told in recent:
        if whole and told not in whole and _is_of_another(told.prompt, prompt):
            continue  # several characters answer to one text, each behind a system prompt of its own
        same = shared_with(told.outline, current)
        lead, alike, _ = same or (0, 0, False)
        shared = len(told.outline.long & current.long)
        if (not lead and not alike) or (not lead and 2 * shared < len(told.outline.long)):
            shared = 0  # a reply that two conversations got
        summed_up = len(prompt.text) <= SUMMED_UP * len(told.prompt.text) and same
        begins = len(told.prompt.text) if _goes_on(prompt, told.prompt) else 0
        if not (
            lead
            or shared
            or summed_up
            or begins
            or separate_prompts.has_its_reply(told.prompt, prompt)
            or _takes_up(prompt, told.prompt)
        ):
            continue
        score = (lead, shared, begins)
        if best is None or score >= best[0]:
            best = (score, told)
    return None if best is None else best[1]


def _repeated(prompt: Prompt, recent: Sequence[_Told]) -> _Told | None:
    """The prompt of whose text another one is made by half or more, after another beginning: a client that dropped the
    oldest sends it again, or that put something before it. None for new text, and for a prompt that begins alike."""
    text = _sent(prompt).text
    if len(text) < LEAST_REPEATED or not recent:
        return None
    sent, best = pieces(text.encode("utf-8", "surrogatepass")), None
    most = REPEATED * len(text)
    for told in recent:
        other = _sent(told.prompt).text
        if told.pieces is None:
            told.pieces = pieces(other.encode("utf-8", "surrogatepass"))
        again = sum(sent[piece] for piece in sent.keys() & told.pieces.keys()) - common_prefix(other, text)
        if again >= most:
            best, most = told, again
    return best


def _is_of_another(before: Prompt, prompt: Prompt) -> bool:
    """Whether two prompts have long system prompts with hardly a sentence in common, and replies of their own."""
    first, second = _instructions(before), _instructions(prompt)
    if first == second or min(len(first), len(second)) < INSTRUCTIONS:
        return False
    if separate_prompts.has_its_reply(before, prompt):
        return False
    known, sent = _pieces(first), _pieces(second)
    return sum(sent[piece] for piece in sent.keys() & known.keys()) < UNLIKE * len(second)


@lru_cache(maxsize=64)
def _pieces(text: str) -> dict[int, int]:
    return pieces(text.encode("utf-8", "surrogatepass"))


def _sums_up(found: PromptDiff | None) -> bool:
    """Whether a prompt asks for a summary of the conversation that the other one is of."""
    return found is not None and found.first is not None and found.first.kind == "compaction-request"


def _is_separate(found: PromptDiff | None, before: _Told, prompt: Prompt, current: Outline) -> bool:
    """Whether two prompts are of different conversations, though much of their text is the same."""
    first = None if found is None else found.first
    if found is None or first is None:
        return False
    if first.kind in _OTHER_TOOLS:  # of two users, of whom each has tools of their own
        return not before.outline.long & current.long
    return separate_prompts.is_asked_anew(found, before.prompt, prompt)


def _instructions(prompt: Prompt) -> str:
    """The text of the system prompt, as it lies in the text of the prompt."""
    _, *places = client_habits.head_places(prompt)
    return "".join(prompt.text[s.start : s.end] for s in prompt.spans if s.place.startswith(tuple(places)))


def _goes_on(prompt: Prompt, before: Prompt) -> bool:
    """Whether a prompt begins with all of another one, but for the opening of the reply."""
    text = _sent(before).text
    kept = text[: len(text) - min(_TAIL, len(text) // 8)]
    return prompt.text.startswith(kept) and prompt.images[: len(before.images)] == before.images


def _takes_up(prompt: Prompt, before: Prompt) -> bool:
    """Whether a text without turns goes on where another one ended."""
    if prompt.kind in CHAT or before.kind in CHAT:
        return False
    return bare_texts.takes_up(prompt.text, _sent(before).text)


def _modes_before(texts: _Texts, thread: int, before: Prompt) -> list[tuple[str, ...]]:
    """The lists of tools that a conversation had, the last one among them from now on."""
    seen = texts.modes.setdefault(thread, deque(maxlen=_MODES))
    if len(texts.modes) > LOOK_BACK:
        del texts.modes[next(iter(texts.modes))]
    earlier, names = list(seen), conversations.tool_names(before)
    if names and names not in seen:
        seen.append(names)
    return earlier


def _number(thread: int, texts: _Texts) -> int:
    """Number a new conversation as its lengths did, unless another has that number."""
    number = thread if thread not in texts.numbers else _MORE + len(texts.numbers)
    texts.numbers.add(number)
    return number


def _continues_its_slot(request: Request) -> bool:
    """Whether the log's own numbers say that the slot's content continued."""
    kept, held = max(request.common_prefix_tokens or 0, request.cached_tokens or 0), request.held_tokens or 0
    return held > NEAR and kept >= held - NEAR and not request.restored_from_ram


def _sent(prompt: Prompt) -> Prompt:
    """The prompt without the reply that a /slots dump holds after it; the next prompt is compared with both."""
    at = next((span.start for span in prompt.spans if span.place == "generated"), None)
    return prompt if at is None else msgspec.structs.replace(prompt, text=prompt.text[:at])
