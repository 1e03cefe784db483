"""Reads lines of ik_llama.cpp for llama-server's tracker: slot lines with other fields, and lines in its own words.

Its lines about the memory open a request, together with the earlier lines about it. Requests without such a line are
counted only with the answers (``engines/programs/ik_llama.py``). Source: logs of its issues from 2026-02 to 2026-04.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.catalogue.reading import Partly
from cachedoctor.engines.llamacpp.server_run import ServerRun
from cachedoctor.engines.llamacpp.slot import Slot
from cachedoctor.model import Mark

WORDS = frozenset({"chosen", "launched", "common", "kept", "released"})
"""Messages in its own words that mean what lines of llama-server mean."""

LAUNCH = R("launch", "slot", 0, 0, "I0", "", "", shows=("launches",))
FIRST_BATCH = R("seq_rm", "slot", 0, 0, "I0", "", "", shows=("accounting", "checkpoint_counts", "forcing"))
RELEASE = R("release", "slot", 0, 0, "I0", "", "", shows=("releases",))
COMMON = R("npast_posmin", "slot", 0, 0, "I0", "", "")

_RAM = frozenset({"pc_looking", "pc_found", "pc_saving"})
_TIMINGS = frozenset({"timing_head", "timing_prompt", "timing_eval", "timing_total", "timing_draft"})
_OF_MEMORY = frozenset({"force_full", "ckpt_check", "ckpt_restored", "ckpt_erased"})
"""Lines that directly follow the common prefix, about the same slot, if its memory may be unable to go back."""
_SLOTS = 256
"""Maximum slots for which lines are held back."""
_CHOICE = 64
"""Lines of one choice that are held back."""


class _EarlyLines(msgspec.Struct, frozen=True):
    """Lines of a request that has none about the memory yet, before these."""

    task: int
    events: list[Event]
    time: str | None = None
    """Wall clock time of its launch, which is no longer known when the request is reported."""


class Fork:
    """Processes the events of one origin after the first line that only the fork writes."""

    def __init__(
        self,
        feed: Callable[[Event], None],
        launch: Callable[[Event, str | None], None],
        run: Callable[[], ServerRun],
        time_of: Callable[[int], str | None],
    ) -> None:
        """Begin without a line.

        Args:
            feed: takes lines of llama-server.
            launch: takes a launch that was held back, and the wall clock of its line.
            run: gives the one that continues.
            time_of: wall clock of a line that has just come.
        """
        self._feed = feed
        self._launch = launch
        self._run = run
        self._time_of = time_of
        self._partly = feed
        """Takes lines whose fields may be missing, once there are any."""
        self._choice: list[Event] = []
        """Lines of a slot choice, none of which names the slot."""
        self._held: dict[int, _EarlyLines] = {}
        """What was held back of the request that a slot works on."""
        self._asked = False
        """A request was launched, or opened."""
        self._common: tuple[int, int] | None = None
        """Common text of the slot whose memory is cleared next, in tokens of the slot and of the prompt."""
        self._compared: Event | None = None
        """The line of it, until a line names its slot."""

    def take(self, event: Event, partly: Callable[[Event], None] | None) -> None:
        """Process a line in its own words or in llama-server's; ``partly`` processes a line that lacks fields."""
        if event.message in WORDS and event.slot < 0:
            self.word(event)
        else:
            self.line(event, partly)

    def word(self, event: Event) -> None:
        """Process a line in its own words."""
        fields, slot = event.fields, event.fields.get("slot", -1)
        if event.message == "chosen":
            self._choice, self._compared = [event], None
        elif event.message == "launched":
            self._launched(event)
        elif event.message == "common":
            self._common, self._compared = (fields["in_slot"], fields["in_prompt"]), event
        elif event.message == "kept":
            self._kept(event)
        elif event.message == "released":
            self._forget(slot)
            if self._serves(slot, fields["task"]):
                said = {"n_tokens": fields["n_past"], "truncated": int(fields["truncated"] == "true")}
                self._feed(self._as(RELEASE, event, said))

    def line(self, event: Event, feed: Callable[[Event], None] | None = None) -> None:
        """Process a line of llama-server; ``feed`` processes a line that may lack fields."""
        if feed is not None:
            self._partly = feed
        if event.message in _RAM and event.slot < 0 and event.row is not None and event.row.component == "bare":
            self._choice = [*self._choice[: _CHOICE - 1], event]
            return
        if event.message in _TIMINGS and not self._timed(event.slot):
            return  # the answers have it
        if event.message == "timing_prompt":
            self._sum(event)
        if event.slot >= 0 and event.task >= 0:
            self._open(event.slot, event.task)
            self._compare(event)
        (feed or self._feed)(event)

    def _compare(self, event: Event) -> None:
        """Say how much is common, before the first line about the memory, as no line of llama-server's has said it."""
        said, self._compared = self._compared, None
        if said is None or event.message not in _OF_MEMORY:
            return
        common = said.fields["in_slot"]
        if common == said.fields["in_prompt"]:  # else a position in the slot is none in the prompt
            fields = {"n_past": common, "n_cache_tokens": said.fields["held"]}
            self._feed(Event(COMMON.id, COMMON, fields, event.slot, event.task, said.line, said.block, said.start))

    def finish(self) -> None:
        """End the input: an excerpt may contain only the choice of a slot."""
        if self._choice and not self._asked:
            self._replay(0, _EarlyLines(-1, self._choice))
        self._choice, self._held = [], {}

    def _launched(self, event: Event) -> None:
        slot, task = event.fields["slot"], event.fields["task"]
        self._forget(slot)
        if len(self._held) >= _SLOTS:
            self._held.clear()
        self._held[slot] = _EarlyLines(task, [*self._choice, self._as(LAUNCH, event, {})], self._time_of(event.line))
        self._choice, self._asked = [], True

    def _forget(self, slot: int) -> None:
        """A request without a line about the memory is over: what its slot holds since then is not known."""
        if self._held.pop(slot, None) is not None:
            self._run().slot(slot).read_file()

    def _kept(self, event: Event) -> None:
        slot, common, self._common, self._compared = event.fields["slot"], self._common, None, None
        reused = event.fields["p0"]
        if common is not None and common[0] != common[1]:  # a position in the slot is none in the prompt
            back = common[0] - reused
            if back not in (0, 1) and reused:
                return
            reused = reused and common[1] - back
        first = self._as(FIRST_BATCH, event, {"n_tokens": reused})
        held = self._held.get(slot, _EarlyLines(-1, []))
        if self._serves(slot, first.task):
            self._feed(first)
        elif held.task == first.task and all(other.message != first.message for other in held.events):
            held.events.append(first)

    def _open(self, slot: int, task: int) -> None:
        """Say what was held back of the request, before a line of it."""
        if self._serves(slot, task):
            return
        held = self._held.pop(slot, _EarlyLines(-1, []))
        if held.task != task:
            held, self._choice = _EarlyLines(task, self._choice), []
        self._asked = True
        self._replay(slot, held)

    def _replay(self, slot: int, held: _EarlyLines) -> None:
        for event in held.events:
            if event.row is LAUNCH:
                self._launch(event, held.time)
            elif event.message != "chosen":
                (self._partly if isinstance(event.fields, Partly) else self._feed)(event)
            else:
                self._chosen(self._run().slot(slot), event)

    def _chosen(self, slot: Slot, event: Event) -> None:
        if slot.choice is None:
            self._run().choose(slot, Mark(event.line, event.text), None)
        slot.ram_saved(event.fields["held"])

    def _serves(self, slot: int, task: int) -> bool:
        found = self._run().slots.get(slot)
        return found is not None and (found.serves(task) or (task < 0 and found.open is not None))

    def _timed(self, slot: int) -> bool:
        """Whether a timing line is of an open request; those without a slot follow a header with one."""
        return slot < 0 or self._serves(slot, -1)

    def _sum(self, event: Event) -> None:
        """No line has the length of a prompt: what was reused, and what was computed."""
        run = self._run()
        slot = run.slots.get(event.slot)
        seen = run.timed() if event.slot < 0 else None if slot is None else slot.open
        computed = event.fields.get("n_prompt_processed")
        if seen is None or computed is None:  # an excerpt may have cut it off
            return
        if seen.cached_tokens is not None and "cached" in seen.marks:
            seen.record_sampler(seen.cached_tokens + computed)

    @staticmethod
    def _as(row: R, event: Event, fields: dict[str, object]) -> Event:
        """The event as llama-server's own line would give it."""
        slot, task = event.fields["slot"], event.fields["task"]
        return Event(row.id, row, fields, slot, task, event.line, event.block, event.start)
