"""Writes what servers publish of their KV events into a recording, message by message."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import msgspec

import cachedoctor
from cachedoctor.inputs.metrics.kv_messages import Blinder
from cachedoctor.inputs.sources.kv_subscription import KvSubscription
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.kv_events import FORMAT, KvHead, KvLine, KvMessage, KvUnread

_FOREIGN = 5
"""Messages without KV events after which an endpoint that sent no KV events is abandoned."""
_SILENT_SECONDS = 10
"""Seconds without any message after which possible causes are printed."""
_LAST_SECONDS = 2
"""Seconds in which messages in transit are still accepted."""
_UNASKED = "--replay requests missed messages again (replay_endpoint in --kv-events-config)"
_UNANSWERED = "its --replay endpoint did not answer, or no longer has the messages (buffer_steps in --kv-events-config)"

Tell = Callable[[str, str], None]
"""Takes a message and a hint."""


@contextlib.contextmanager
def new_file(path: str) -> Iterator[IO[bytes]]:
    """Create the file at once, because an interrupted recording is one, too.

    Raises:
        CacheDoctorError: it exists already, or cannot be written.
    """
    if path == "-":
        yield sys.stdout.buffer
        return
    try:
        with open(path, "xb") as file:
            yield file
    except FileExistsError:
        raise CacheDoctorError(f"{path}: already exists", "give a new file with -o") from None
    except OSError as fault:
        raise CacheDoctorError(f"{path}: cannot be written ({fault.strerror})", "give another file with -o") from None


class KvRecorder:
    """One recording."""

    def __init__(self, endpoints: Sequence[str], out: IO[bytes], tell: Tell, blinder: Blinder | None = None) -> None:
        """Begin it.

        Args:
            endpoints: as they were given.
            out: takes the lines; each message is flushed.
            tell: hears of gaps and silence.
            blinder: makes lines of messages; with a key of its own by default.
        """
        self._endpoints, self._out, self._tell = endpoints, out, tell
        self._blinder = blinder or Blinder()
        self._last: dict[int, int] = {}
        """Number of the last message of each endpoint."""
        self._times: dict[int, float] = {}
        """Time of that message."""
        self._unread: dict[int, int] = {}
        self.messages = 0
        self.missing = 0
        self._write(KvHead(FORMAT, cachedoctor.__version__, list(endpoints)))

    def run(self, subscription: KvSubscription, stop: Callable[[], bool]) -> None:
        """Record until ``stop`` turns true.

        Raises:
            CacheDoctorError: an endpoint sends something else.
        """
        begun, told = time.monotonic(), False
        ending: float | None = None
        for source in range(len(self._endpoints)):
            self._catch_up(subscription, source, 0)
        for arrived in subscription.messages():
            if stop():  # what is on its way still counts, unless there is no end of it
                ending = ending or time.monotonic()
                if arrived is None or time.monotonic() - ending > _LAST_SECONDS:
                    return
            if arrived is not None:
                self.take(arrived.frames, arrived.source, subscription)
            elif not self.messages and not told and time.monotonic() - begun > _SILENT_SECONDS:
                told = True
                self._tell(
                    "no message yet; a server publishes events when it computes prompts",
                    "if the server connects instead of listening (no * in its endpoint), give @tcp://HOST:PORT",
                )

    def take(self, frames: Sequence[bytes], source: int, subscription: KvSubscription | None = None) -> None:
        """Record a message, and missed ones before it if the server still has them.

        Raises:
            CacheDoctorError: the endpoint has sent nothing but something else.
        """
        message = self._blinder.message(frames, source)
        if message is None:
            self._foreign(source)
            return
        last = self._last.get(source)
        if last is not None and message.number > last + 1 and subscription is not None:
            self._catch_up(subscription, source, last + 1)
            last = self._last[source]
        if last is not None and message.number <= last and message.time <= self._times[source]:
            return  # it was among those that were asked for; a server that has started again counts from 0 again, later
        if last is not None and message.number > last + 1:
            lost = message.number - last - 1
            self.missing += lost
            self._tell(
                f"{self._endpoints[source]}: {lost:,} messages were missed before number {message.number:,}",
                _UNANSWERED if subscription is not None and subscription.is_asked(source) else _UNASKED,
            )
        self._keep(message)

    def _catch_up(self, subscription: KvSubscription, source: int, first: int) -> None:
        """Record what a server sent earlier, as far as it still has it, up to the last message."""
        for frames in subscription.earlier(source, first):
            message = self._blinder.message(frames, source)
            if message is not None and message.number > self._last.get(source, -1):
                self._keep(message)

    def _keep(self, message: KvMessage) -> None:
        self._last[message.source], self._times[message.source] = message.number, message.time
        self.messages += 1
        self._write(message)

    def _foreign(self, source: int) -> None:
        self._unread[source] = self._unread.get(source, 0) + 1
        if source not in self._last and self._unread[source] >= _FOREIGN:
            raise CacheDoctorError(
                f"{self._endpoints[source]}: sends messages that are not KV events",
                "check that this is the endpoint in --kv-events-config and that enable_kv_cache_events is on",
            )

    def close(self) -> None:
        """Write how many messages could not be read."""
        for source, count in self._unread.items():
            self._write(KvUnread(source, count))

    def _write(self, line: KvLine) -> None:
        self._out.write(msgspec.json.encode(line) + b"\n")
        self._out.flush()
