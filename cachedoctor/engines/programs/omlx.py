"""oMLX: the lines of its scheduler about prompts that found something in the cache, and where each prompt diverges.

Source: logs in issues 2384, 2483, 2876, 3608 and 3704 of jundot/omlx, oMLX 0.5.4 to 0.6.4, and its pull request 1784 for
the debug lines. A prompt that matches nothing in the store has no line. These lines print no version.
"""

from __future__ import annotations

from cachedoctor.engines.answering import JudgedTracker, Program, Told, keep_open
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals

ROWS: list[R] = [
    R("restored", "omlx", 0, 0, "I0", "Prefix cache restore for {id:word}: source={source:word} cached={cached:count} suffix={left:count} blocks={blocks:count} lookup={lookup_ms:ms}ms reconstruct={rebuild_ms:ms}ms promote={promoted:word}",
      "2026-09-20 22:21:09,739 - omlx.scheduler - INFO - [-] - Prefix cache restore for 3bc2f293-3ee1-4182-8f82-ba62a7ec4fd2: source=paged cached=118784 suffix=301389 blocks=29 lookup=6.651ms reconstruct=256.608ms promote=True"),
    # the same at the level of debugging, in older ones alone (issue 1945)
    R("restored", "omlx", 0, 0, "D0", "Request {id:word}: paged cache hit, {cached:count} tokens in {blocks:count} blocks, {left:count} tokens remaining, cache reconstructed",
      "2026-07-05 07:30:09,798 - omlx.scheduler - DEBUG - [-] - Request 0a725b85-76ec-4f6d-9592-cf14272ce0ee: paged cache hit, 5120 tokens in 5 blocks, 30952 tokens remaining, cache reconstructed"),
    # while a prompt is looked up: blocks of which some layer stored no state that can be cut
    R("walked_back", "omlx", 0, 0, "I0", "Walk-back truncation: dropped {dropped:count} trailing block(s) with placeholder non-sliceable state, keeping {kept:count} block(s) ({cached:count} tokens)",
      "2026-08-19 10:02:11,318 - omlx.cache.prefix_cache - INFO - [-] - Walk-back truncation: dropped 1 trailing block(s) with placeholder non-sliceable state, keeping 3 block(s) (6144 tokens)"),
    # "comparable" is what the stored sequence and the prompt could have in common, in whole blocks
    R("parted", "omlx", 0, 0, "I0", "prefix cache: request {id:word} re-prefills {computed:count} of {prompt:count} tokens (reused {cached:count}); closest stored sequence {stored:word} shares the first {matched:count} of {held:count} comparable tokens before diverging",
      "2026-08-21 14:39:16,178 - omlx.scheduler - INFO - [-] - prefix cache: request 4776f942-88fe-4ad0-936f-d1454dca1c45 re-prefills 80984 of 113752 tokens (reused 32768); closest stored sequence ea14b797-62d3-4bad-97b9-ff2642ca73d2 shares the first 33219 of 112640 comparable tokens before diverging"),
]  # fmt: skip

PREFIX = rb"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?+ - )?+omlx\.[\w.]{1,60}+ +- [A-Z]{4,8}+ +- (?:\[[^\]\n]{1,64}+\] - )?+"
"""``2026-08-21 14:39:16,178 - omlx.scheduler - INFO - [-] - ``; older ones without what is in brackets."""


class Tracker(JudgedTracker):
    """Processes the events of one origin. Two lines may be about one request, in this order."""

    engine = "omlx"
    program = "oMLX"

    def prepare(self) -> None:
        """Create the state that is kept between lines."""
        self._open: dict[str, tuple[Told | None, str]] = {}
        """Requests for which another line may follow, and why less of their prompt was restored than is stored."""
        self._why = ""
        """The same for the request being looked up."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        fields = event.fields
        if event.message == "walked_back":
            self._why = f"dropped {fields['dropped']:,} trailing block(s) with placeholder non-sliceable state"
            return
        why, self._why = self._why, ""
        if event.message == "restored":
            if fields["id"] in self._open:
                return  # at the level of debugging both lines of it are there
            told = self.answered(event.line, fields["cached"] + fields["left"], fields["cached"])
            keep_open(self._open, fields["id"], (told, why))
            self.weigh(event, told)
            return
        told, said_before = self._open.pop(fields["id"], (None, why))
        if told is None:
            told = self.answered(event.line, fields["prompt"], fields["cached"], fields["matched"])
            self.weigh(event, told)
        else:
            self.amend(told, matched=fields["matched"])
        self.compare(event, told, fields["held"], said_before)


PROGRAM = Program(
    Tracker,
    Literals(
        b"Prefix cache restore for ",
        b": paged cache hit, ",
        b"prefix cache: request ",
        b"Walk-back truncation: dropped ",
    ),
    ROWS,
    PREFIX,
)
