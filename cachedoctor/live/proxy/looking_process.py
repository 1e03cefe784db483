"""The process that evaluates requests, and the thread that passes them to it in their order.

The main process passes bytes meanwhile. Where the other one dies it is started again, and knows no earlier prompt then.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from cachedoctor.live.proxy.exchange import Exchange, PassedRequest, ProxyOptions
from cachedoctor.model import CacheDoctorError
from cachedoctor.redaction import harmless_words

_MOST_WAITING = 256
"""Requests that wait to be checked."""
_PATIENCE = 0.2
"""Seconds allowed for the current check on immediate shutdown."""
_ENDED = "the proxy stopped before this request was checked"

_Done = Callable[[PassedRequest], None]


class LookingProcess:
    """Evaluates requests in another process."""

    def __init__(self, asked: ProxyOptions) -> None:
        """Start it; raises CacheDoctorError if it cannot do what was requested."""
        self._asked = asked
        self._queue: queue.SimpleQueue[tuple[Exchange, _Done] | None] = queue.SimpleQueue()
        self._process, self._pipe = _started(asked)
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look(self, exchange: Exchange, done: _Done) -> None:
        """Queue an exchange for evaluation; ``done`` is called from another thread.

        If too many wait, it is reported unchecked.
        """
        if self._queue.qsize() >= _MOST_WAITING:
            done(blind(exchange, "too many requests are waiting to be checked"))
        else:
            self._queue.put((exchange, done))

    def close(self, at_once: bool = False) -> None:
        """Evaluate what waits, then end; ``at_once``: what waits is reported unchecked, and a record that takes long is
        lost."""
        self._is_ending = True
        if at_once:
            self._skip()
        self._queue.put(None)
        self._thread.join(_PATIENCE if at_once else None)
        if self._thread.is_alive():
            self.kill()
            self._thread.join()
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(b"")
        self._process.join(5)
        self.kill()

    def _skip(self) -> None:
        """Report what waits, unchecked."""
        with contextlib.suppress(queue.Empty):
            while item := self._queue.get_nowait():
                exchange, done = item
                done(blind(exchange, _ENDED))

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            exchange, done = item
            try:
                self._pipe.send_bytes(msgspec.msgpack.encode(exchange))
                done(msgspec.msgpack.decode(self._pipe.recv_bytes(), type=PassedRequest))
            except (OSError, EOFError):
                if self._is_ending:
                    done(blind(exchange, _ENDED))
                    continue
                done(blind(exchange, "the process that checks requests ended; it is restarted"))
                with contextlib.suppress(CacheDoctorError):
                    self._process, self._pipe = _started(self._asked)


def blind(exchange: Exchange, why: str) -> PassedRequest:
    """Report of a request that was not checked."""
    return PassedRequest(
        exchange.sent, harmless_words.path(exchange.path), exchange.status, exchange.seconds,
        harmless_words.word(exchange.method, "method"), exchange.first_byte,
        edits=list(exchange.edits), fault=exchange.fault, untold=exchange.untold or why, is_prompt=True,
        unfixed=exchange.unfixed,
    )  # fmt: skip


def _started(asked: ProxyOptions) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("spawn")  # a fork would hold the sockets of the proxy
    ours, theirs = context.Pipe()
    process = context.Process(target=_main, args=(theirs, msgspec.msgpack.encode(asked)), daemon=False)
    process.start()
    theirs.close()
    try:
        message, hint = msgspec.msgpack.decode(ours.recv_bytes(), type=tuple[str, str])
    except (OSError, EOFError) as error:
        raise CacheDoctorError(
            "the process that checks requests could not be started", "this is a bug of cachedoctor; report the bug"
        ) from error
    if message:
        process.join()
        raise CacheDoctorError(message, hint)
    return process, ours


def _main(pipe: Connection, asked: bytes) -> None:
    """Evaluate what comes through the pipe, until it is empty or its other side is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the main process says when it is over
        signal.signal(number, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(10)  # whoever waits for an answer comes first
    from cachedoctor.live.proxy.looking import Looking, looked

    try:
        looking = Looking(msgspec.msgpack.decode(asked, type=ProxyOptions))
    except CacheDoctorError as error:
        pipe.send_bytes(msgspec.msgpack.encode((error.message, error.hint)))
        return
    pipe.send_bytes(msgspec.msgpack.encode(("", "")))
    with contextlib.suppress(EOFError, OSError), contextlib.closing(looking):
        while data := pipe.recv_bytes():
            pipe.send_bytes(looked(looking, data))
