"""Forwards one request to the server and its answer back, byte by byte.

The body continues while it arrives, unless a fix has to see all of it. Each request has a connection of its own to the
server: one that the server closes for its age would lose a request that a direct client sends again. When the client
leaves, that connection is closed at once, by which servers know that nobody waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import (
    ClientConnectionError,
    ClientConnectorError,
    ClientError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    HttpVersion11,
    TCPConnector,
    hdrs,
    web,
)
from multidict import CIMultiDict
from yarl import URL

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.live.proxy.body_fixes import BodyFixer, Fixed
from cachedoctor.live.proxy.connections import LONGEST_LINE, SenderDigest, is_writable, passing, went_through
from cachedoctor.live.proxy.exchange import Exchange, ProxyOptions
from cachedoctor.live.proxy.held_bytes import AnswerCopy, BodyCopy, HeldBytes, ReplyCopy
from cachedoctor.live.proxy.json_spans import encode

_CONNECT = 30.0
"""Seconds to connect to the server; the answer has no time limit, because a direct client may have none either."""
_SERVER_ONLY = frozenset({b"host", b"expect"})
"""Header fields that are not copied: Host is written again for the server, and the proxy has answered Expect itself."""
_FRAMING = (hdrs.TRANSFER_ENCODING, hdrs.CONNECTION)
"""Fields by which aiohttp describes how an answer is transferred over this connection."""
_FIELDS = web.RequestKey("fields", CIMultiDict[str])
"""Key of a request: the fields of its answer, as the server sent them."""
_ORIGIN = late(r"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
"""``http://host``, as sent by clients configured to use a proxy."""
_PIECE = 1 << 18
"""Bytes of a held body that are written at a time."""
_REFUSALS = frozenset({400, 413, 422, 500})
"""Statuses by which servers refuse a body, before they compute any of it; a template that fails is a 500 in some."""

Ended = Callable[[Exchange, int], None]
"""Called with the finished exchange and the bytes of memory it uses."""


class Relay:
    """The handler of all requests."""

    def __init__(self, upstream: URL, name: str, asked: ProxyOptions, ended: Ended) -> None:
        """``name``: by which this proxy recognises its own requests if they come back."""
        self._upstream, self._name, self._asked, self._ended = upstream, name, asked, ended
        self._fixer = BodyFixer(asked.fixes) if asked.fixes and not asked.dry_run else None
        self._senders = SenderDigest()
        self.held = HeldBytes()
        self.running: set[_Passage] = set()
        """Requests under way."""
        self.is_closing = False
        self.is_cut = False
        """True if requests in progress must break off."""
        self._session: ClientSession | None = None

    async def open(self) -> None:
        """Create the client that sends requests."""
        self._session = ClientSession(
            connector=TCPConnector(force_close=True, limit=0, ttl_dns_cache=60),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            timeout=ClientTimeout(total=None, connect=None, sock_connect=_CONNECT, sock_read=None),
            skip_auto_headers=(hdrs.USER_AGENT, hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE),
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
            read_bufsize=1 << 18,
        )

    async def close(self) -> None:
        """Close all connections to the server."""
        if self._session is not None:
            await self._session.close()

    @property
    def progress(self) -> tuple[int, int]:
        """Changes when a request ends, and when bytes of one that is under way pass."""
        return len(self.running), sum(passage.passed for passage in self.running)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Forward a request, and its answer back."""
        if not _can_be_sent(request):
            return _refused(
                400, "the headers contain control characters or bytes that are not UTF-8, or the target is not a path"
            )
        if went_through(request.raw_headers, self._name):
            return _refused(502, "the upstream of this proxy is the proxy itself: set --upstream to the server")
        if self.is_closing:
            return _refused(503, "the proxy is stopping")
        sender = b""
        if self._asked.fixes:
            sender = self._senders.of(request.raw_headers, request.raw_path, request.remote or "")
        passage = _Passage(request, self.held, self._asked, self._fixer, sender)
        self.running.add(passage)
        try:
            return await self._passed(passage)
        except BaseException as error:
            passage.fault = passage.fault or (_CUT if self.is_cut else _cause(error))
            raise
        finally:
            self.running.discard(passage)
            self._ended(passage.exchange(), passage.room)

    async def _passed(self, passage: _Passage) -> web.StreamResponse:
        try:
            async with self._sent(passage, *await passage.body()) as answer:
                if not passage.is_refused(answer.status):
                    return await passage.back(answer)
                refusal = answer.status
            async with self._sent(passage, *passage.unedited()) as answer:
                passage.take_back(refusal, answer.status)
                return await passage.back(answer)
        except (ClientError, OSError, ValueError) as error:
            passage.fault = _CUT if self.is_cut else ""
            return passage.failed(error, self._upstream)

    def _sent(
        self, passage: _Passage, body: AsyncIterator[bytes] | None, size: int | None
    ) -> contextlib.AbstractAsyncContextManager[ClientResponse]:
        """Send a request with a body, and its length if it is known."""
        if self._session is None:
            raise RuntimeError("the relay is not open")
        headers = _decoded(passing(passage.request.raw_headers, _SERVER_ONLY))
        headers.add(hdrs.VIA, f"1.1 {self._name}")
        if size is not None:
            headers[hdrs.CONTENT_LENGTH] = str(size)
        return self._session.request(
            passage.request.method, self._target(passage.request), headers=headers, data=body, allow_redirects=False
        )

    def _target(self, request: web.BaseRequest) -> URL:
        """The server's address, followed by the path as the client wrote it."""
        # All of it as the path: of a query yarl would drop an empty one, and what comes after "#".
        up = self._upstream
        path = up.raw_path.rstrip("/") + _path(request)
        return URL.build(scheme=up.scheme, authority=up.raw_authority, path=path, encoded=True)


class _Passage:
    """One request in progress."""

    def __init__(
        self,
        request: web.BaseRequest,
        held: HeldBytes,
        asked: ProxyOptions,
        fixer: BodyFixer | None = None,
        sender: bytes = b"",
    ) -> None:
        self.request, self.copy, self._held, self._asked, self._fixer = request, BodyCopy(held), held, asked, fixer
        self.fault = ""
        self._sender = sender
        self.passed = 0
        """Bytes of its body and its answer."""
        self._sent, self._begun = time.time(), time.perf_counter()
        self._status = 0
        self._first_byte: float | None = None
        self._fixed: Fixed | None = None
        """The body with its edits; None if nothing was changed."""
        self._unfixed = ""
        self._reply: ReplyCopy | None = None
        self._message: dict[str, Any] | None = None
        """The whole answer, as the client sends it back."""
        self._answer: AnswerCopy | None = None
        self._answer_coding = ""
        self._out: web.StreamResponse | None = None

    async def body(self) -> tuple[AsyncIterator[bytes] | None, int | None]:
        """The body to be sent, and its length where it is known."""
        if not self.request.body_exists:
            has_length = hdrs.CONTENT_LENGTH in self.request.headers
            return None, 0 if has_length else None
        size = self.request.content_length
        coding = self.request.headers.get(hdrs.CONTENT_ENCODING, "")
        if self._fixer is None or coding:
            return self._arriving(), size
        return await self._edited(self._fixer, size)

    async def _edited(self, fixer: BodyFixer, size: int | None) -> tuple[AsyncIterator[bytes], int | None]:
        """The edited body, once all of it has arrived; one that is too long is forwarded unchanged."""
        begun: list[bytes] = []
        arriving = self._arriving()
        async for part in arriving:
            begun.append(part)
            if self.copy.untold:
                return _both(begun, arriving), size
        whole = self.copy.whole() or b""
        begun.clear()
        path = _path(self.request).partition("?")[0]
        self._fixed = await _aside(lambda: fixer.fix(whole, path, self._sender))
        return _pieces(self._fixed.body), None if size is None else len(self._fixed.body)

    def is_refused(self, status: int) -> bool:
        """Whether the server may have refused a body because of its edits."""
        return status in _REFUSALS and self._fixed is not None and bool(self._fixed.edits)

    def unedited(self) -> tuple[AsyncIterator[bytes], int | None]:
        """The body as the client sent it."""
        whole = self.copy.whole() or b""
        return _pieces(whole), None if self.request.content_length is None else len(whole)

    def take_back(self, refusal: int, status: int) -> None:
        """Note that the body was sent again without edits; if that helped, its conversation is no longer edited."""
        if self._fixed is None:
            return
        if status not in _REFUSALS and self._fixed.known is not None:
            self._fixed.known.is_off = True
        names = ", ".join(edit.partition(":")[0] for edit in self._fixed.edits)
        self._unfixed = f"rejected with {names} ({refusal}), so the request was sent again without edits"
        self._fixed = None

    async def _arriving(self) -> AsyncIterator[bytes]:
        while part := await self.request.content.readany():
            self.copy.add(part)
            self.passed += len(part)
            yield part

    async def back(self, answer: ClientResponse) -> web.StreamResponse:
        """Forward the answer to the client."""
        if not is_writable([answer.reason or ""], answer.raw_headers):
            return self._refuse("the response header has control characters or bytes that are not UTF-8", answer.url)
        self._status = answer.status
        out = web.StreamResponse(status=answer.status, reason=answer.reason or "")
        fields = _decoded(passing(answer.raw_headers))
        out.headers.extend(fields)
        self.request[_FIELDS] = fields
        self._answer_coding = answer.headers.get(hdrs.CONTENT_ENCODING, "")
        is_stream = answer.content_type == "text/event-stream" and not self._answer_coding
        self._answer = AnswerCopy(self._held, is_stream)
        if self._asked.dry_run or "keep-reasoning" in self._asked.fixes:
            self._reply = ReplyCopy(self._held, is_stream)
        if self.request.version < HttpVersion11 and hdrs.CONTENT_LENGTH not in answer.headers:
            out.force_close()
        await out.prepare(self.request)
        self._out = out
        try:
            while part := await answer.content.readany():
                await self._pass_back(part, answer.content.is_eof())
            self._remember()
        except ClientPayloadError:
            # aiohttp has no public way to what arrived before the connection broke.
            for part in list(answer.content._buffer):
                await self._pass_back(bytes(part))
            raise
        await out.write_eof()
        return out

    async def _pass_back(self, part: bytes, is_last: bool = False) -> None:
        if self._out is None or self._answer is None:
            raise RuntimeError("there is no answer yet")
        if self._first_byte is None:
            self._first_byte = time.perf_counter() - self._begun
        self._answer.add(part)
        self.passed += len(part)
        if self._reply is not None:
            self._reply.add(part)
            if is_last or self._reply.is_over:  # before the client has all of it, and asks again
                self._remember()
        await self._out.write(part)

    def _remember(self) -> None:
        """Remember the answer, once."""
        if self._reply is None or self._message is not None:
            return
        self._message = self._reply.message()
        if self._message is not None and self._fixed is not None and self._fixer is not None:
            self._fixer.replied(self._fixed, self._message)

    def failed(self, error: Exception, upstream: URL) -> web.StreamResponse:
        """Report that the server does not answer; an answer that broke off breaks off for the client, too."""
        transport = self.request.transport
        if self._out is not None or transport is None or transport.is_closing():
            self.fault = self.fault or (
                "the response was truncated" if isinstance(error, ClientPayloadError) else _CLIENT
            )
            if transport is not None:
                transport.close()
            return self._out or web.Response(status=502)
        return self._refuse(_words(error), upstream)

    def _refuse(self, words: str, upstream: URL) -> web.Response:
        self.fault = self.fault or words
        self._status = 502
        return _refused(502, f"{upstream.origin()}: {words}")

    @property
    def room(self) -> int:
        """Bytes of memory that its copies use."""
        return sum(copy.size for copy in (self.copy, self._answer, self._reply) if copy is not None)

    def exchange(self) -> Exchange:
        """The finished exchange."""
        seconds = time.perf_counter() - self._begun
        body, edits = (self.copy.whole(), ()) if self._fixed is None else (self._fixed.body, self._fixed.edits)
        reply = b""
        if self._asked.dry_run and self._message is not None:
            with contextlib.suppress(ValueError):  # nested too deeply
                reply = encode(self._message).encode()
        return Exchange(
            self._sent, self.request.method, _sound(_path(self.request).partition("?")[0]), self._status, seconds,
            self._first_byte, body, _sound(self.request.headers.get(hdrs.CONTENT_ENCODING, "")),
            b"" if self._answer is None else self._answer.told(), _sound(self._answer_coding), edits, self.fault,
            self.copy.untold, reply, self._unfixed, self._sender,
        )  # fmt: skip


_CLIENT = "the client disconnected"
_CUT = "the proxy was stopped"


def _path(request: web.BaseRequest) -> str:
    """The path and what comes after it, without the name and password that a whole address may hold."""
    path = _ORIGIN.sub("", request.raw_path)
    return path if path.startswith("/") else f"/{path}"


def _can_be_sent(request: web.BaseRequest) -> bool:
    """Whether its head can be written again as it is; the target of a CONNECT or of ``OPTIONS *`` is not a path."""
    is_path = request.method != hdrs.METH_CONNECT and request.raw_path != "*"
    return is_path and is_writable([_path(request)], request.raw_headers)


def _sound(text: str) -> str:
    """Bytes that are not UTF-8, which aiohttp gives as lone surrogates, in printable form."""
    return text.encode("utf-8", "backslashreplace").decode()


def _cause(error: BaseException) -> str:
    return _CLIENT if isinstance(error, asyncio.CancelledError | ConnectionError) else type(error).__name__


def _words(error: Exception) -> str:
    """Why there is no answer, on one line and without what a client sent."""
    if isinstance(error, ClientConnectorError):
        return f"cannot be reached: {error.strerror or error.os_error}"[:200].replace("\n", " ")
    if isinstance(error, asyncio.TimeoutError):
        return f"cannot be reached within {_CONNECT:.0f} s"
    if isinstance(error, ClientConnectionError):
        return "closed the connection without an answer"
    return "did not answer with HTTP"


def _refused(status: int, words: str) -> web.Response:
    return web.Response(status=status, text=f"cachedoctor proxy: {words}\n")


def _decoded(fields: list[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    found: CIMultiDict[str] = CIMultiDict()
    for name, value in fields:
        found.add(name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))
    return found


async def _aside(work: Callable[[], Fixed]) -> Fixed:
    """Do something in a thread that does not delay the end of the proxy, as asyncio's threads do."""
    loop, found = asyncio.get_running_loop(), asyncio.Future[Fixed]()

    def settle(result: Fixed | None, error: BaseException | None) -> None:
        if found.done():  # the client has left
            return
        if result is None:
            found.set_exception(error or RuntimeError("no result"))
        else:
            found.set_result(result)

    def run() -> None:
        try:
            outcome: tuple[Fixed | None, BaseException | None] = (work(), None)
        except BaseException as error:
            outcome = (None, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, daemon=True).start()
    return await found


async def _both(begun: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while begun:
        yield begun.pop(0)
    async for part in rest:
        yield part


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), _PIECE):
        yield bytes(view[start : start + _PIECE])


async def as_sent(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Undo what aiohttp added to the head of an answer, or dropped from it; a signal of the server."""
    fields = request.get(_FIELDS)
    if fields is not None:
        framing = [(name, response.headers[name]) for name in _FRAMING if name in response.headers]
        response.headers.clear()
        response.headers.extend(fields)
        response.headers.extend(framing)
