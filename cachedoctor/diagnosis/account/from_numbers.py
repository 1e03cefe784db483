"""Places the prompt tokens of a llama-server request by the numbers that its log gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from cachedoctor.knowledge.decision import EVERY, SIMILAR, extends
from cachedoctor.model import AccountRow, Judged, Mark, Request, Twins
from cachedoctor.model.terms import OF_CLIENTS, OF_INPUT

SMALL = 16
"""Tokens at the end of a prefix that may differ by re-tokenisation, or because the last one is always computed."""
ALIKE = 0.25
"""Minimum common share of a prompt, and maximum share by which it exceeds its slot's content, in one conversation."""
REPLY = 0.1
"""Share by which the slot's content may be longer: it has a prompt as long as the new one, and the reply to it."""
HEAD = 64
"""Tokens: a longer common prefix is more than a message's template text or the same few opening words."""
LEVEL = 0.04
"""Share by which lengths may differ if a client always truncates its history to the same length."""
_EDIT, _OWN_WISH, _TOGETHER = "CD105", "CD109", "CD312"
"""History changed; the request itself switched the cache off; several requests with the same beginning came at once."""


Row = tuple[AccountRow, str | None, int]
"""A row, the code of the rule that gives the cause, and its tokens."""
Placed = tuple[int, int, Sequence[Row]]
"""Tokens of a request that were reused, those that no prompt before it had, and rows of all others, if there are."""


_Split = tuple[int, int, int]
"""Tokens that an earlier prompt had and that were recomputed: because of the client, the server, one of the two."""
_NOTHING: _Split = (0, 0, 0)


def place(judged: Judged) -> Placed | None:
    """Give every prompt token of a request a row; None where its length, or what was reused of it, is unknown.

    A child of an ``n > 1`` request has no prompt of its own.
    """
    r = judged.request
    prompt, cached, common = r.prompt_tokens, r.cached_tokens, r.common_prefix_tokens
    if r.parent is not None or not prompt or cached is None or cached > prompt:
        return None
    computed, together, split = prompt - cached, 0, _NOTHING
    if r.together_tokens:
        together = max(0, min(r.together_tokens, prompt) - cached)
    # all that was there was reused, as by most
    whole = (common is None or common <= cached) and (r.reference_tokens or 0) <= cached and r.text_lcp is None
    if not whole or r.outcome == "cold":
        split = _split(judged, prompt, cached)
    if split is _NOTHING and not together:
        return cached, computed, ()
    codes = judged.verdict.codes
    client, server, undecided = _decided(judged, split) if split[2] else split
    if client and _first(codes, True) in judged.verdict.left_open:
        client, undecided = 0, undecided + client
    if together:
        client, server, undecided = _behind(together, (client, server, undecided))
    if _OWN_WISH in codes:
        wished = client + server
        client, server, undecided = (0, 0, undecided + wished) if judged.verdict.guessed else (wished, 0, undecided)
    unexplained = rounding = 0
    expected, again = judged.verdict.expected_cached, client + server + undecided
    if expected is not None and expected - cached > SMALL:
        unexplained = min(expected - cached, server)
    if 0 < again <= SMALL:
        client, server, undecided, unexplained, rounding = 0, 0, 0, 0, again
    elif not unexplained and server and _first(codes, False) is None and is_behind_checkpoint(r):
        rounding = min(server, (r.common_prefix_tokens or 0) - cached)
        server -= rounding
    rows: list[Row] = []
    if client:
        rows.append(("client", _first(codes, True), client))
    if server != unexplained:
        rows.append(("server", _first(codes, False) if server else None, server - unexplained))
    if together:
        rows.append(("together", _TOGETHER if _TOGETHER in codes else None, together))
    if rounding:
        rows.append(("rounding", None, rounding))
    if unexplained:
        rows.append(("unexplained", None, unexplained))
    if undecided:
        rows.append(("undecided", None, undecided))
    return cached, computed - client - server - undecided - rounding - together, rows


def rows_of(placed: Placed | None) -> list[Row]:
    """All rows of a request that have tokens, in their order; none where it is not placed."""
    reused, new, rest = placed or (0, 0, ())
    plain: tuple[Row, Row] = ("reused", None, reused), ("new", None, new)
    return [row for row in (*plain, *rest) if row[2]]


def _behind(together: int, split: _Split) -> _Split:
    """What is left of a split after tokens that several computed at once: both begin where reuse ends."""
    client, server, undecided = split
    rest = max(0, together - server)
    return max(0, client - max(0, rest - undecided)), max(0, server - together), max(0, undecided - rest)


def is_behind_checkpoint(r: Request) -> bool:
    """Whether a request continued from the checkpoint that was restored, in the latter half of its common prefix and no
    farther from its end than checkpoints lie apart: memory that goes back to checkpoints only comes no closer."""
    back, cached, shared = r.seen.restored_at, r.cached_tokens, r.common_prefix_tokens
    if (
        back is None
        or cached is None
        or shared is None
        or r.dropped is not None
        or r.seen.forced
        or r.seen.reused_chunks
    ):
        return False
    step = r.facts.setting("checkpoint_min_step")
    apart = EVERY if step is None else int(step)
    return abs(back[1] + 1 - cached) <= 1 and 2 * cached >= shared and shared - cached <= apart


@lru_cache(maxsize=1024)  # a log has few combinations of causes
def _first(codes: tuple[str, ...], client: bool) -> str | None:
    """The first cause on that side."""
    causes = (c for c in codes if c != _TOGETHER and not c.startswith(OF_INPUT))
    return next((c for c in causes if c.startswith(OF_CLIENTS) == client), None)


def _decided(judged: Judged, split: _Split) -> _Split:
    """Give what the numbers leave open to the side of which alone a cause was found, as far as that cost."""
    verdict, (of_client, of_server, undecided) = judged.verdict, split
    client, server = _first(verdict.codes, True) is not None, _first(verdict.codes, False) is not None
    if verdict.undecided or client == server or (client and verdict.guessed):
        return split
    open_cost = verdict.avoidable_tokens - (of_client if client else of_server)
    found = min(undecided, max(0, open_cost))
    return of_client + (found if client else 0), of_server + (found if server else 0), undecided - found


def _split(judged: Judged, prompt: int, cached: int) -> _Split:
    """Split what was computed though a prompt before had it; never more than ``prompt - cached``."""
    r = judged.request
    if r.outcome == "cold":
        return _NOTHING if r.seen.error is not None else _cold(r, prompt, cached)
    reference, common, text = r.reference_tokens, r.common_prefix_tokens, r.text_lcp
    if r.seen.error is not None:
        return _NOTHING
    if text is None and r.reference_lcp is not None and "ram_unsearched" in r.marks:
        return 0, max(0, min(r.reference_lcp, prompt) - cached), 0
    if text is not None and reference is not None:
        reach = min(reference, prompt)
        # prompts hold no replies: what the client, or its template, made of those only the log's prefix tells
        own = r.held_thread == r.thread and _first(judged.verdict.codes, True) is not None and common is not None
        known = min(text, common or 0) if own else text
        kept = max(min(known, prompt), cached)
        wanted = _first(judged.verdict.codes, True) is not None and not _changed(judged)
        return 0 if wanted else max(0, reach - kept), kept - cached, 0
    if reference is None or r.lost_tokens is None:
        return _NOTHING
    reach = reference if reference < prompt else prompt
    if slot_taken(r) or "slot_copy" in r.marks:
        lost = max(0, reach - cached)
        elsewhere = None if judged.verdict.undecided else lost_elsewhere(judged, reach, lost)
        return (0, 0, lost) if elsewhere is None else (*elsewhere, 0)
    if common is None:
        return 0, 0, max(0, reach - cached)
    kept = max(min(common, prompt), cached)
    behind = 0 if kept >= prompt - 4 else max(0, reach - kept)  # a prompt that ends earlier repeats what was there
    # whose prompt the slot held follows from lengths: what it does not share may never have been this conversation's
    if not behind:
        return 0, kept - cached, 0
    is_proven = _changed(judged) and not judged.verdict.undecided and not judged.verdict.guessed
    return (behind, kept - cached, 0) if is_proven else (0, kept - cached, behind)


def _cold(r: Request, prompt: int, cached: int) -> _Split:
    """Split what looks like the first prompt of a conversation, unless its text shows that it is."""
    if r.text_lcp is not None:
        return _NOTHING
    if r.other_candidates:
        return 0, 0, prompt - cached  # it may continue a conversation that another slot held
    held, shared = r.held_tokens or 0, r.common_prefix_tokens or 0
    if not (begins_alike(r) or is_level(r)):
        return _NOTHING
    return 0, 0, max(0, min(held, prompt) - max(shared, cached))  # or what the slot held, changed


def begins_alike(r: Request) -> bool:
    """Whether a prompt begins like what its slot held, which is about as long."""
    prompt, held, shared = r.prompt_tokens or 0, r.held_tokens or 0, r.common_prefix_tokens or 0
    return shared >= ALIKE * prompt and _as_long(prompt, held, ALIKE)


def is_level(r: Request) -> bool:
    """Whether a prompt has the head of what its slot held, and its length, less a reply.

    So do all prompts of a client that cuts its history to one length, after a system prompt; or without one, where the
    reply before ended because the context was full.
    """
    held, context = r.held_tokens or 0, r.facts.n_ctx_slot
    full = context is not None and held >= context - 1
    return ((r.common_prefix_tokens or 0) > HEAD or full) and _as_long(r.prompt_tokens or 0, held, LEVEL)


def _as_long(prompt: int, held: int, longer: float) -> bool:
    return held <= (1 + REPLY) * (prompt + SMALL) and prompt + SMALL <= (1 + longer) * (held + SMALL)


def written_anew(r: Request) -> int:
    """Tokens of what a slot held that may stand again in a first prompt, which is longer, and begins alike; 0 if none.

    A client that changes its tools sends all it has said after them once more. A long prompt of another conversation
    with the same system prompt looks the same.
    """
    if r.outcome != "cold":
        return 0
    prompt, held, shared = r.prompt_tokens or 0, r.held_tokens or 0, r.common_prefix_tokens or 0
    if r.text_lcp is not None or r.held_thread is None or prompt <= (1 + ALIKE) * held:
        return 0
    return held - shared if shared >= ALIKE * prompt else 0


def _changed(judged: Judged) -> bool:
    """Whether a cause on the client's side was found; a single edit is not told from a new conversation by numbers."""
    code = _first(judged.verdict.codes, True)
    return code is not None and (code != _EDIT or judged.verdict.avoidable_tokens > 0)


def slot_taken(r: Request) -> bool:
    """Whether the slot held another conversation, so that what it shares with the prompt says nothing of the client."""
    return r.thread_turn > 0 and r.held_thread not in (None, r.thread) and not r.restored_from_ram


def lost_elsewhere(judged: Judged, reach: int, lost: int) -> tuple[int, int] | None:
    """Split what a conversation lost that came back to a slot with another's content: client's and server's tokens.

    The RAM cache's list of its own copy tells, or the causes that were found; None where nothing does. ``reach``:
    tokens that the conversation could have reused at most.
    """
    r = judged.request
    if r.reference_lcp is not None:
        client = min(max(0, reach - r.reference_lcp), lost)
        return client, lost - client
    return (0, lost) if judged.verdict.slot_lost else None


RECENT = 64
"""Lengths of the last prompts that are remembered."""
MAX_LENGTHS = 256
"""Number of prompt lengths that are counted; other lengths that come later are not."""
LEAST = 256
"""Tokens: shorter prompts have one length by chance."""


_LastOfLength = tuple[int, int, int, int]
"""Of the request that computed a prompt of some length last: slot, first line, last line, tokens computed."""


class _Length(msgspec.Struct, gc=False):
    """What is known of prompts of one length."""

    apart: bool = False
    """Two of them did not run at the same time: prompts of the same length recur here."""
    goes_on: bool = False
    """The next turn of one reused its whole prompt."""
    parted: bool = False
    """The next turn of one did not reuse its whole prompt."""
    twins: Twins | None = None

    def follow(self, reused: bool) -> None:
        """Note how a conversation continued after a prompt of this length."""
        self.goes_on |= reused
        self.parted |= not reused


class SameLengths(msgspec.Struct, gc=False):
    """What one life of a server computed at once, by length of the prompts."""

    recent: dict[int, _LastOfLength] = msgspec.field(default_factory=dict)
    lengths: dict[int, _Length] = msgspec.field(default_factory=dict)
    last: dict[int, int] = msgspec.field(default_factory=dict)
    """Length of the last prompt, by conversation; only the ``RECENT`` conversations used last."""

    def add(self, r: Request) -> None:
        """Take a request when it ends."""
        length, processed = r.prompt_tokens, r.processed_tokens
        if length is None or processed is None or length < LEAST:
            return
        thread, lasts = r.thread, self.last
        if thread is not None:
            last = lasts.pop(thread, None)
            lasts[thread] = length
            if last is None:
                if len(lasts) > RECENT:
                    del lasts[next(iter(lasts))]
            elif last in self.lengths:
                self.lengths[last].follow(r.outcome == "reused")
        recent, line = self.recent, r.first_line
        before = recent.pop(length, None)
        if before is not None and before[1] == line:
            recent[length] = before
            return
        recent[length] = r.slot, line, r.last_line, processed
        if before is not None:
            self._again(r, length, processed, before)
        elif len(recent) > RECENT:
            del recent[next(iter(recent))]

    def _again(self, r: Request, length: int, processed: int, before: _LastOfLength) -> None:
        """Take a request whose prompt is as long as that of one before."""
        slot, _, last_line, computed = before
        found = self.lengths.get(length)
        if found is None:
            if len(self.lengths) >= MAX_LENGTHS:
                return
            found = self.lengths[length] = _Length()
        if slot == r.slot or last_line < r.first_line:
            found.apart = True
            return
        twins = found.twins
        if twins is None:
            twins = found.twins = Twins(length, r.marks["start"])
        twins.requests += 1
        twins.tokens += min(computed, processed)

    def merge(self, more: SameLengths) -> None:
        """Count the requests of another part."""
        for length, found in more.lengths.items():
            known = self.lengths.setdefault(length, found)
            if known is found:
                continue
            known.apart |= found.apart
            known.goes_on |= found.goes_on
            known.parted |= found.parted
            if known.twins is None or found.twins is None:
                known.twins = known.twins or found.twins
            else:
                known.twins.requests += found.twins.requests
                known.twins.tokens += found.twins.tokens
        self.recent = more.recent

    def twins(self) -> list[Twins]:
        """Those of lengths that were seen in no other way, and are not drafts."""
        return [
            found.twins
            for found in self.lengths.values()
            if found.twins is not None and not found.apart and (found.goes_on or not found.parted)
        ]


_STEPS = 3
"""Prompts in a row that grow like turns: fewer do so by chance."""


class GrownPrompts(msgspec.Struct, gc=False):
    """First prompts in a row, each as long as if it continued the one before, though no slot held its beginning.

    One conversation whose beginning changes in every turn leaves them where each turn gets an empty slot.
    """

    tokens: int = 0
    """Tokens that the previous prompts and replies left, and that could have been reused."""
    requests: int = 0
    mark: Mark | None = None
    """The last of them."""
    _steps: int = 0
    _waiting: int = 0

    def add(self, r: Request, before: Request | None) -> None:
        """Take a first prompt when it ends, and the request that ended before it."""
        left = None if before is None else before.seen.released_tokens
        prompt, cached = r.prompt_tokens, r.cached_tokens
        if before is not None and before.outcome != "cold":
            self._steps = 0
        if not left or prompt is None or cached is None or cached >= SIMILAR * prompt or not extends(prompt, left):
            self._steps = 0
            return
        if not self._steps:
            self._waiting = 0
        self._steps += 1
        self._waiting += left - cached
        if self._steps >= _STEPS:
            self.requests += self._steps if self._steps == _STEPS else 1
            self.tokens, self._waiting = self.tokens + self._waiting, 0
            self.mark = r.marks.get("select") or r.marks["start"]

    def merge(self, more: GrownPrompts) -> None:
        """Count the requests of another part."""
        self.tokens += more.tokens
        self.requests += more.requests
        self.mark = more.mark or self.mark
