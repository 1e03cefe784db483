"""Listens where a server publishes its KV events (ZeroMQ). The only importer of pyzmq, which is optional."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from cachedoctor.knowledge.libraries import install
from cachedoctor.model import CacheDoctorError

if TYPE_CHECKING:
    import zmq

IDLE_MS = 200
"""Milliseconds without a message after which the listener is notified."""
REPLAY_MS = 3_000
"""A server that has messages in its buffer sends them at once."""
PAUSE = 60.0
"""Seconds before an endpoint that did not answer is asked again: waiting at each gap would lose more messages."""
MAX_MESSAGE = 64 * 1024 * 1024
"""Bytes; a step of 8,192 tokens has about 100 KB."""
_QUEUED = 100_000
"""Maximum messages waiting for this listener, as many as vLLM keeps."""
_END = b"\xff" * 8


class Arrived(NamedTuple):
    """A message and the endpoint that it came from."""

    source: int
    frames: list[bytes]


class KvSubscription:
    """In its ``with`` block: sockets at all endpoints."""

    def __init__(self, endpoints: Sequence[str], replay: Sequence[str] = ()) -> None:
        """Store the addresses.

        Args:
            endpoints: where servers publish; at ``@tcp://...`` and one with ``*`` servers connect to us.
            replay: where each of them answers what it sent before, in the same order.
        """
        self._endpoints, self._replay = endpoints, replay
        self._closing = ExitStack()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._asking: list[zmq.Socket[bytes]] = []
        self._silent: dict[int, float] = {}
        """Time at which an endpoint that has not answered since was asked."""

    def __enter__(self) -> KvSubscription:
        """Open the sockets.

        Raises:
            CacheDoctorError: pyzmq is not installed, or an address is none or taken.
        """
        try:
            import zmq
        except ImportError:
            raise CacheDoctorError("--kv-events ENDPOINT needs pyzmq", install("kv")) from None
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._closing.callback(context.destroy, linger=0)
        try:
            for endpoint in self._endpoints:
                bind = endpoint.startswith("@") or "*" in endpoint
                socket = self._opened(context, zmq.SUB, endpoint.removeprefix("@"), bind)
                socket.setsockopt(zmq.SUBSCRIBE, b"")
                self._sockets.append(socket)
            for endpoint in self._replay:
                self._asking.append(self._opened(context, zmq.DEALER, endpoint, bind=False))
        except BaseException:
            self._closing.close()
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._closing.close()

    def _opened(
        self, context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str, bind: bool
    ) -> zmq.Socket[bytes]:
        import zmq

        socket = context.socket(kind)
        for option, value in ((zmq.IPV6, 1), (zmq.MAXMSGSIZE, MAX_MESSAGE), (zmq.RCVHWM, _QUEUED), (zmq.LINGER, 0)):
            socket.setsockopt(option, value)
        try:
            (socket.bind if bind else socket.connect)(endpoint)
        except (zmq.ZMQError, UnicodeError, ValueError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise CacheDoctorError(
                f"{endpoint}: cannot {'listen at' if bind else 'connect to'} this address ({what})",
                "write an endpoint as tcp://HOST:PORT, e.g. tcp://127.0.0.1:5557",
            ) from None
        return socket

    def messages(self) -> Iterator[Arrived | None]:
        """Yield messages as they come, endlessly; None if none came for a while."""
        import zmq

        poller = zmq.Poller()
        for socket in self._sockets:
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(IDLE_MS))
            if not ready:
                yield None
            for source, socket in enumerate(self._sockets):
                if socket in ready:
                    yield Arrived(source, socket.recv_multipart())

    def earlier(self, source: int, first: int) -> Iterator[list[bytes]]:
        """Ask an endpoint for its messages from number ``first`` on; none if it has none, or cannot be asked.

        Each as it was published: its number and payload last.
        """
        if not self.is_asked(source):
            return
        socket = self._asking[source]
        while socket.poll(0):  # an answer that came too late, with its end
            socket.recv_multipart()
            self._silent.pop(source, None)
        if time.monotonic() < self._silent.get(source, -PAUSE) + PAUSE:
            return
        self._silent[source] = time.monotonic()
        socket.send_multipart([b"", first.to_bytes(8, "big")])
        while socket.poll(REPLAY_MS):
            self._silent.pop(source, None)
            frames = socket.recv_multipart()
            if len(frames) < 2 or frames[-2] == _END:
                return
            yield frames

    def is_asked(self, source: int) -> bool:
        """Whether an address was given at which the endpoint sends earlier messages again."""
        return source < len(self._asking)
