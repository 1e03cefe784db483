"""ds4-server: how much of a prompt it reuses, and where the prompt diverges from its one live conversation.

Source: ``ds4_server.c`` of antirez/ds4, commit 8d576642 of 2026-05-21; ``vision=`` is newer, from logs of 2026-10. It has no
versions and answers one request at a time.
"""

from __future__ import annotations

from cachedoctor.engines.answering import JudgedTracker, Program
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals

ROWS: list[R] = [
    R("start", "ds4", 0, 0, "I0", "listening on http://{address:host}",
      "0521 13:32:43 ds4-server: listening on http://127.0.0.1:8080"),
    # printed where the live conversation is not the beginning of the prompt, before a checkpoint on disk is searched for
    R("miss", "ds4", 0, 0, "W0", "live kv cache miss live={held:count} prompt={asked:count} common={matched:count} reason={why:word}",
      "0521 13:40:02 ds4-server: live kv cache miss live=86593 prompt=86821 common=28336 reason=token-mismatch"),
    R("miss", "ds4", 0, 0, "W0", "live kv cache miss RESPPROTO live={held:count} prompt={asked:count} common={matched:count} reason={why:word}",
      "0521 13:40:02 ds4-server: live kv cache miss RESPPROTO live=86593 prompt=86821 common=28336 reason=token-mismatch"),
    R("miss", "ds4", 0, 0, "W0", "live kv cache miss live={held:count} prompt={asked:count} common={matched:count} vision={vision:word} reason={why:word}",
      "1003 01:59:11 ds4-server: live kv cache miss live=24051 prompt=17429 common=16624 vision=match reason=token-mismatch"),
    R("prompt", "ds4", 0, 0, "I0", "chat ctx={cached:count}..{prompt:count}:{computed:count} prompt start",
      "0521 13:40:02 ds4-server: chat ctx=24576..86821:62245 prompt start"),
    R("prompt", "ds4", 0, 0, "I0", "chat ctx={cached:count}..{prompt:count}:{computed:count} {flags:text} prompt start",
      "0521 13:40:02 ds4-server: chat ctx=24576..86821:62245 RESPPROTO TOOLS prompt start"),
    R("computed", "ds4", 0, 0, "I0", "chat ctx={cached:count}..{prompt:count}:{computed:count} prompt done {seconds:f}s",
      "0521 13:44:25 ds4-server: chat ctx=24576..86821:62245 prompt done 263.119s"),
    R("computed", "ds4", 0, 0, "I0", "chat ctx={cached:count}..{prompt:count}:{computed:count} {flags:text} prompt done {seconds:f}s",
      "0521 13:44:25 ds4-server: chat ctx=24576..86821:62245 RESPPROTO TOOLS prompt done 263.119s"),
    R("prompt", "ds4", 0, 0, "I0", "completion ctx={cached:count}..{prompt:count}:{computed:count} prompt start",
      "0521 13:40:02 ds4-server: completion ctx=24576..86821:62245 prompt start"),
    R("prompt", "ds4", 0, 0, "I0", "completion ctx={cached:count}..{prompt:count}:{computed:count} {flags:text} prompt start",
      "0521 13:40:02 ds4-server: completion ctx=24576..86821:62245 RESPPROTO TOOLS prompt start"),
    R("computed", "ds4", 0, 0, "I0", "completion ctx={cached:count}..{prompt:count}:{computed:count} prompt done {seconds:f}s",
      "0521 13:44:25 ds4-server: completion ctx=24576..86821:62245 prompt done 263.119s"),
    R("computed", "ds4", 0, 0, "I0", "completion ctx={cached:count}..{prompt:count}:{computed:count} {flags:text} prompt done {seconds:f}s",
      "0521 13:44:25 ds4-server: completion ctx=24576..86821:62245 RESPPROTO TOOLS prompt done 263.119s"),
]  # fmt: skip

PREFIX = rb"(?:\d{4} \d\d:\d\d:\d\d )?+(?:ds4-server: )?+"
"""Month and day, and the time; people who quote a line leave out what begins it."""


_SAME = 0.02
"""Share by which the length of a prompt may differ between its two lines: what is on disk is matched by its text."""
_REASONS = ("token-mismatch", "incoming-prompt-shorter-than-live-checkpoint", "live-prefix-match")
"""Reasons why the live conversation was not used, of those that are printed if there is one."""


class Tracker(JudgedTracker):
    """Processes the events of one origin. A miss of the live conversation belongs to the prompt that starts next."""

    engine = "ds4"
    program = "ds4-server"

    _miss: Event | None = None
    _started: tuple[int, int] | None = None
    """Reused tokens and length of the prompt that is computed: the line at its end has the same."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        fields = event.fields
        if event.message == "start":
            self._miss = None
            self.starts(event.line)
        elif event.message == "miss":
            self._miss = event
            self.lookup(event, fields["asked"], fields["matched"], fields["held"], self._why(event))
        elif event.message == "computed" and self._started == (fields["cached"], fields["prompt"]):
            self._started = None
        else:
            self._started = (fields["cached"], fields["prompt"]) if event.message == "prompt" else None
            miss, self._miss = self._miss, None
            if miss is not None and abs(miss.fields["asked"] - fields["prompt"]) > _SAME * fields["prompt"]:
                miss = None  # lines between them are not here
            matched = None if miss is None else max(miss.fields["matched"], fields["cached"])
            told = self.answered(event.line, fields["prompt"], fields["cached"], matched)
            self.weigh(event if miss is None else miss, told)
            if miss is not None:
                self.compare(miss, told, miss.fields["held"], self._why(miss))

    @staticmethod
    def _why(miss: Event) -> str:
        return why if (why := str(miss.fields["why"])) in _REASONS else ""


PROGRAM = Program(
    Tracker,
    Literals(b"ds4-server: listening on ", b"live kv cache miss ", b" prompt start", b" prompt done "),
    ROWS,
    PREFIX,
)
