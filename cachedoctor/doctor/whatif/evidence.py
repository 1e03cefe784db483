"""What a what-if works on: traffic, the settings that it ran under, and what the server said of every request.

Out of a log, a log with the bodies beside it, or bodies alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

import msgspec

from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.doctor import processes
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.doctor.analysis.run import feed_all
from cachedoctor.doctor.extras import extra_inputs
from cachedoctor.doctor.extras.extra_inputs import is_recording
from cachedoctor.doctor.findings.history import PromptSpeed
from cachedoctor.doctor.processes import Killed
from cachedoctor.doctor.replaying import from_bodies, from_log
from cachedoctor.doctor.replaying.from_log import recorded
from cachedoctor.doctor.replaying.warming import Warming, warming
from cachedoctor.doctor.whatif.block_evidence import BlockAsking, BlockEvidence, from_sessions
from cachedoctor.doctor.whatif.block_trace import BlockTraffic, traced
from cachedoctor.inputs.sources.base import Told, unheard
from cachedoctor.inputs.sources.unpack import MAX_BYTES
from cachedoctor.knowledge.cmdline import settings as said_by
from cachedoctor.knowledge.engines import BOTH, ENGINES, title
from cachedoctor.model import CacheDoctorError, Finding, GivenOption, Request, Session
from cachedoctor.model.session import Sizes
from cachedoctor.model.whatif import Placed
from cachedoctor.prompts import conversations, inputs
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.regular_files import open_file

_LEAST_MATCHED = 0.5
"""Share of the bodies, or of the requests, below which they are not of one server."""
_GOES_ON = 0.5
"""Share of an earlier prompt with which another one continues it."""
_SLOTS, _ROUND = 4, 4096
"""Without a log, the context is assumed to hold this many of the longest prompt, rounded up to this many tokens."""
_HEAD = 1 << 26
"""Bytes of the first line that is checked: a body of one long conversation has a megabyte or two."""

_Blocks = TypeVar("_Blocks")
Cause = Callable[[], Finding | None]
"""Returns the costliest finding."""
Judge = Callable[[Cause, int], Cause]
"""Takes a function and the number of requests that it judges; returns a function that waits for the result."""


def judge_when_asked(cause: Cause, requests: int) -> Cause:
    """Judge requests when somebody asks for the answer."""
    return cause


class Asking(NamedTuple):
    """What the user gave."""

    paths: list[str]
    """Logs of one server, or files of request bodies."""
    prompts: list[str] = []  # noqa: RUF012  # never written
    """Bodies that were given with a log."""
    tokenizer: str | None = None
    template: str | None = None
    build: int | None = None
    given: list[GivenOption] = []  # noqa: RUF012
    max_unpacked: int = MAX_BYTES
    responses: list[str] = []  # noqa: RUF012
    """Files with responses of vLLM or SGLang."""


class ServerTraffic(msgspec.Struct):
    """Traffic of one server, and what is known beside it; lists are parallel to what was asked."""

    traffic: Traffic
    settings: ServerSettings
    assumed: frozenset[str]
    """Fields of the settings that nothing shows."""
    reused: list[int | None]
    """Reused tokens, as the server reports them."""
    prompt_ms: list[float | None]
    conversations: list[int | None]
    generated: list[int | None]
    """Tokens of each reply."""
    times: list[str | None]
    """Time of each request, ISO 8601."""
    placed: Placed
    speed: PromptSpeed
    from_log: bool
    cause: Cause = lambda: None
    """Returns the finding of the log that cost most tokens; the requests are judged when it is called."""
    sizes: Sizes = msgspec.field(default_factory=Sizes)
    """What the log shows of the memory of saved states."""
    requests: list[Request | None] = []
    """Requests of the log; empty without one."""
    warming: Warming | None = None
    """What warms the beginning that conversations share; None without bodies."""
    bodies: list[Prompt | None] = []
    """Body of every request, as it was read; empty without bodies."""
    lives: dict[int, Session] = msgspec.field(default_factory=dict)
    """Runs of the process, by number."""
    killed: bool = False
    """The system ended the server, or another one of this log, for lack of memory."""

    @property
    def is_counted(self) -> bool:
        """Whether anything says what the server reused: a log, or the answers that were recorded with bodies."""
        return self.from_log or any(one is not None for one in self.reused)


class _Hearing(Listener):
    """Keeps every request."""

    hears_lines = False
    judges_late = True

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []
        self.sessions: dict[int, Session] = {}

    def ended(self, requests: list[tuple[Request, Session]]) -> None:
        """Take requests, revised ones as well."""
        for request, session in requests:
            self.requests.append(request)
            self.sessions[request.session] = session


def gather(asking: Asking, told: Told = unheard) -> ServerTraffic:
    """Read what was given of a llama-server, and make traffic of it.

    Raises:
        CacheDoctorError: it cannot be read, holds no requests, is of several servers, or of one that is not replayed.
    """
    return _gather(asking, told, _no_blocks)


def gather_any(asking: Asking, told: Told = unheard, judge: Judge = judge_when_asked) -> ServerTraffic | BlockEvidence:
    """Read what was given for a what-if, of vLLM and SGLang as well.

    Args:
        asking: what was given.
        told: hears of bytes that were read.
        judge: starts to judge the requests of a log.

    Raises:
        CacheDoctorError: it cannot be read, holds no requests, is of several servers, or of one that is not replayed.
    """
    return _gather(asking, told, from_sessions, judge)


def gather_trace(asking: Asking, told: Told = unheard) -> ServerTraffic | BlockTraffic:
    """Read what was given for a trace, of vLLM and SGLang as well.

    Raises:
        CacheDoctorError: it cannot be read, holds no requests, is of several servers, or something is missing.
    """
    return _gather(asking, told, traced)


def _gather(
    asking: Asking,
    told: Told,
    of_blocks: Callable[[BlockAsking, Sequence[Session]], _Blocks],
    judge: Judge = judge_when_asked,
) -> ServerTraffic | _Blocks:
    """Read what was given; ``of_blocks`` takes the sessions of vLLM and SGLang."""
    bodies = [path for path in asking.paths if is_bodies(path)]
    if bodies and len(bodies) < len(asking.paths):
        raise CacheDoctorError(
            f"{bodies[0]}: contains request bodies, but a log was given as well", "give the bodies with --requests"
        )
    if bodies:
        return _from_bodies(asking._replace(prompts=[*bodies, *asking.prompts]))
    hearing = _Hearing()
    analyzer = Analyzer(asking.build, None, asking.given, listener=hearing)
    errors = feed_all(analyzer, asking.paths, asking.max_unpacked, told)
    analyzer.end()
    lives = analyzer.lives()
    if errors:
        raise errors[0]
    others = sorted({one.engine for one in lives} & set(ENGINES))
    if others and not hearing.requests:
        return of_blocks(_beside(asking), lives)
    _refuse_several(asking, hearing)
    session = hearing.sessions[max(one.session for one in hearing.requests)]
    cause = judge(partial(_costliest, analyzer), len(hearing.requests))
    found = _from_log(asking, hearing.requests, session)
    found.cause = cause
    found.sizes, found.lives = session.sizes, {one.index: one for one in lives}
    found.killed = any({"killed", "memory_short"} & one.incidents.keys() for one in lives)
    return found


def _costliest(analyzer: Analyzer) -> Finding | None:
    return next((one for one in analyzer.snapshot().findings if one.cost.tokens), None)


@contextlib.contextmanager
def judging() -> Iterator[Judge]:
    """Judge requests beside other work of the block where there are many."""
    with contextlib.ExitStack() as started:

        def judge(cause: Cause, requests: int) -> Cause:
            if processes.cores_for(requests) < 2:
                return cause

            def run(_: None) -> Finding | None:
                return cause()

            pool = started.enter_context(processes.running(run, 1, "fork"))

            def waited() -> Finding | None:
                with contextlib.suppress(Exception):
                    for _, found in pool.wait() if pool.busy else ():
                        if not isinstance(found, Killed):
                            return found
                return cause()

            with contextlib.suppress(OSError):
                pool.submit(None)
            return waited

        yield judge


def _beside(asking: Asking) -> BlockAsking:
    return BlockAsking(
        asking.paths[0], asking.prompts, asking.tokenizer, asking.template, asking.responses, asking.max_unpacked
    )


def _no_blocks(asking: BlockAsking, sessions: Sequence[Session]) -> NoReturn:
    names = " and ".join(sorted({title(one.engine) for one in sessions if one.engine in ENGINES}))
    raise CacheDoctorError(f"{asking.path}: is a log of {names}", "this command needs the log of a llama-server", 3)


def is_bodies(path: str) -> bool:
    """Whether there are request bodies at ``path``, or prompts that the server wrote to a folder; ``-`` is a log.

    Raises:
        CacheDoctorError: it is a pipe or a device, which cannot be read a second time.
    """
    if path == "-":
        return False
    if os.path.isdir(path):
        return True
    try:
        with open_file(path, "give a file; use - for a log from a pipe") as file:
            line = file.readline(_HEAD).lstrip()
    except (OSError, ValueError):  # ValueError: a name that holds NUL
        return False
    if not line.startswith((b"{", b"[")):
        return False
    if is_recording(path):
        return True
    try:
        return bool(inputs.sent(line, path))
    except CacheDoctorError:
        return line.strip() in (b"{", b"[")


def _refuse_several(asking: Asking, hearing: _Hearing) -> None:
    path = asking.paths[0]
    _refuse_nothing(path, len(hearing.requests))
    if asking.responses:
        raise CacheDoctorError(f"--responses needs logs of {BOTH}", "a log of llama-server shows the reuse itself")
    servers = {(one.origin or "") for one in hearing.sessions.values()}
    if len(servers) > 1:
        raise CacheDoctorError(
            f"{path}: contains the logs of {len(servers):,} servers",
            "give the log of one server; each server has its own cache",
            3,
        )


def _refuse_nothing(path: str, requests: int) -> None:
    if not requests:
        what = f"{path}: contains no llama-server request that can be replayed"
        raise CacheDoctorError(what, "cachedoctor analyze shows the content of the log", 3)


# ---- a log


def _from_log(asking: Asking, requests: list[Request], session: Session) -> ServerTraffic:
    settings, assumed = _settings(requests, session, asking.given)
    if asking.prompts:
        return _with_bodies(asking, requests, settings, assumed)
    built = from_log.build(requests)
    _refuse_nothing(asking.paths[0], len(built.requests))
    placed = Placed(len(built.requests), None, True, requests_without_length=built.unplaced)
    placed.assumed_turns = len(built.assumed)
    placed.images = sum(one.seen.images for one in built.requests)
    threads = [None if one.thread is None else (one.session, one.thread) for one in built.requests]
    return _evidence(built.traffic, settings, assumed, list(built.requests), placed, _numbered(threads))


def _settings(
    requests: Sequence[Request], session: Session, given: Sequence[GivenOption]
) -> tuple[ServerSettings, frozenset[str]]:
    found = recorded(session, requests)
    said = said_by(list(given))
    options = {one.option: one.value for one in given}
    settings = msgspec.structs.replace(found.settings, cache_reuse=int(said.get("cache_reuse", 0)))
    similarity = options.get("slot_prompt_similarity")
    if isinstance(similarity, int | float):
        settings = msgspec.structs.replace(settings, slot_prompt_similarity=float(similarity))
    assumed = {"cache_ram_mib" if name == "cache_ram" else name for name in found.assumed}
    if similarity is None:
        assumed.add("slot_prompt_similarity")
    return settings, frozenset(assumed)


def _with_bodies(
    asking: Asking, requests: list[Request], settings: ServerSettings, assumed: frozenset[str]
) -> ServerTraffic:
    sent = [found for path in asking.prompts for found in inputs.load_sent(path)]
    files = ModelFiles(asking.tokenizer, asking.template)
    try:
        built = from_bodies.build([from_bodies.SentBody(one) for one in sent], files, settings.build, requests)
        exact, by_body = files.cutter.exact, _threads(sent)
        warm = _warming(built, sent, by_body)
    finally:
        files.close()
    _refuse_nothing(asking.paths[0], len(built.sent))
    bodies = sum(one is not None for one in sent)
    known = sum(at is not None and sent[at] is not None for at in built.sent)
    if known < _LEAST_MATCHED * min(bodies, len(built.sent)):
        hint = (
            "check that the bodies are from this server"
            if exact
            else ("give the model's tokenizer: --tokenizer MODEL.gguf")
        )
        what = (
            f"{known:,} of {bodies:,} request bodies match the prompt lengths of the log's {len(built.sent):,} requests"
        )
        raise CacheDoctorError(what, hint, 3)
    placed = Placed(len(built.requests), bodies, exact)
    placed.bodies_left_out = bodies - known
    placed.requests_without_body = sum(at is None for at in built.sent)
    numbers = {(one.session, one.index) for one in requests if one.parent is None}
    placed.requests_without_length = max(0, len(numbers) - len(built.requests))
    placed.images = sum(one.images for one in built.traffic.asked)
    threads = [None if at is None else by_body[at] for at in built.sent]
    found = _evidence(built.traffic, settings, assumed, built.requests, placed, _numbered(threads), built.sent)
    found.warming, found.bodies = warm, [None if at is None else sent[at] for at in built.sent]
    return found


def _open_tokens(traffic: Traffic, unknown: Sequence[bool]) -> int:
    """Tokens that may have been sent before, of requests whose text is unknown; all but the first of the traffic."""
    length, found = traffic.tree.length, 0
    for at, (one, ideal) in enumerate(zip(traffic.asked, traffic.ideal, strict=True)):
        held = 0 if ideal.owner is None else length(traffic.asked[ideal.owner].prompt)
        if at and unknown[at] and not one.refused and ideal.tokens <= held * _GOES_ON:
            found += length(one.prompt) - ideal.tokens
    return found


def _evidence(
    traffic: Traffic,
    settings: ServerSettings,
    assumed: frozenset[str],
    requests: Sequence[Request | None],
    placed: Placed,
    threads: list[int | None],
    of: Sequence[int | None] | None = None,
) -> ServerTraffic:
    speed = PromptSpeed()
    for request in requests:
        if request is not None:
            speed.learn(request)
    unknown = [placed.bodies is None] * len(requests) if of is None else [at is None for at in of]
    placed.open_tokens = _open_tokens(traffic, unknown)
    placed.sizes_known = settings.token_bytes > 0
    known = [one if one is not None and one.seen.error is None else None for one in requests]
    return ServerTraffic(
        traffic,
        settings,
        assumed,
        [None if one is None else one.cached_tokens for one in known],
        [None if one is None else one.prompt_ms for one in known],
        threads,
        [None if one is None else one.generated_tokens for one in known],
        [None if one is None else one.seen.asked.time for one in known],
        placed,
        speed,
        True,
        requests=list(requests),
    )


# ---- bodies alone


def _from_bodies(asking: Asking) -> ServerTraffic:
    sent = [found for path in asking.prompts for found in inputs.load_sent(path)]
    files = ModelFiles(asking.tokenizer, asking.template)
    base, said = _told_settings(asking)
    try:
        built = from_bodies.build([from_bodies.SentBody(one) for one in sent], files, base.build)
        exact, by_body = files.cutter.exact, _threads(sent)
        warm = _warming(built, sent, by_body)
    finally:
        files.close()
    count = len(built.sent)
    if not count:
        raise CacheDoctorError(f"{asking.paths[0]}: contains no prompts", inputs.SHAPES)
    tree = built.traffic.tree
    if "context" not in said:
        longest = max(tree.length(one.content) for one in built.traffic.asked)
        base = msgspec.structs.replace(base, context=_SLOTS * (longest // _ROUND + 1) * _ROUND)
    placed = Placed(count, sum(one is not None for one in sent), exact)
    placed.bodies_left_out = sum(one is None for one in sent)
    placed.images = sum(one.images for one in built.traffic.asked)
    threads = _numbered([None if at is None else by_body[at] for at in built.sent])
    nothing: list[None] = [None] * count
    reused: list[int | None] = _answered(built, sent, placed) if exact else [*nothing]
    assumed = frozenset(set(ServerSettings.__struct_fields__) - said)
    return ServerTraffic(
        built.traffic, base, assumed, reused, [*nothing], threads, [*nothing], [*nothing], placed, PromptSpeed(), False,
        warming=warm, bodies=[None if at is None else sent[at] for at in built.sent],
    )  # fmt: skip


def _told_settings(asking: Asking) -> tuple[ServerSettings, set[str]]:
    """What a command line shows of a server without a log, the defaults for the rest; and the fields that were said."""
    own = {"n_slots": "slots", "n_ctx": "context"}
    said: dict[str, Any] = {own.get(name, name): value for name, value in said_by(list(asking.given)).items()}
    similarity = {one.option: one.value for one in asking.given}.get("slot_prompt_similarity")
    if isinstance(similarity, int | float):
        said["slot_prompt_similarity"] = float(similarity)
    if asking.build is not None:
        said["build"] = asking.build
    known = {name: value for name, value in said.items() if name in ServerSettings.__struct_fields__}
    return ServerSettings(**known), {"window", *known}


def _answered(built: from_bodies.Built, sent: Sequence[Prompt | None], placed: Placed) -> list[int | None]:
    """What the recorded answers say was reused, of those whose prompt is as long as it is here.

    Where most are not they are of another model, or counted by a gateway: then none says anything of this replay.
    """
    prompts = [None if at is None else sent[at] for at in built.sent]
    told = [extra_inputs.ServerCounts(None, None) if one is None else extra_inputs.of_prompt(one) for one in prompts]
    lengths = [built.traffic.tree.length(one.prompt) for one in built.traffic.asked]
    same = [one.prompt_tokens == length for one, length in zip(told, lengths, strict=True)]
    counted = sum(one.prompt_tokens is not None for one in told)
    if sum(same) < _LEAST_MATCHED * counted:
        placed.answers_unlike = counted
        return [None] * len(told)
    placed.answers_unlike = counted - sum(same)
    return [one.cached_tokens if fits else None for one, fits in zip(told, same, strict=True)]


# ---- conversations


def _threads(sent: Sequence[Prompt | None]) -> list[int | None]:
    """Of each body the number of the one that its conversation began with; None of one that no other belongs to."""
    places = [at for at, one in enumerate(sent) if one is not None]
    first = {at: at for at in places}
    several = set()
    for earlier, later in conversations.walk([one for one in sent if one is not None]):
        first[places[later]] = first[places[earlier]]
        several.add(first[places[later]])
    return [first[at] if first.get(at) in several else None for at in range(len(sent))]


def _warming(built: from_bodies.Built, sent: Sequence[Prompt | None], threads: Sequence[int | None]) -> Warming | None:
    """What warms the beginning that conversations share."""
    firsts, seen = list[tuple[Prompt, int]](), set[int]()
    for at, asked in zip(built.sent, built.traffic.asked, strict=True):
        one = None if at is None else sent[at]
        if at is None or one is None:
            continue
        number = threads[at]
        if number is None or number not in seen:
            firsts.append((one, asked.prompt))
        if number is not None:
            seen.add(number)
    return warming(built.traffic.tree, firsts, built.tokens)


def _numbered(found: Sequence[object | None]) -> list[int | None]:
    """Number conversations from 0 by their first requests."""
    numbers: dict[object, int] = {}
    return [None if one is None else numbers.setdefault(one, len(numbers)) for one in found]
