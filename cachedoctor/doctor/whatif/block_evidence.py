"""What a what-if of vLLM or SGLang works on: bodies with their exact tokens, and what the server said of its reuse.

What it said are the responses, request by request, or the log's own sums: of vLLM the hit rate and the tokens that
were computed, of SGLang the prefill lines.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from cachedoctor.diagnosis.replay.block_cache import SentPrompt
from cachedoctor.doctor.analysis.run import source_of
from cachedoctor.doctor.extras.body_sums import salt_of
from cachedoctor.doctor.extras.extra_inputs import load
from cachedoctor.doctor.whatif.block_setup import BlockSetup
from cachedoctor.inputs.sources.unpack import MAX_BYTES
from cachedoctor.knowledge.builds import is_hybrid, is_sliding
from cachedoctor.knowledge.engines import ENGINES, in_blocks
from cachedoctor.model import CacheDoctorError, SamplePeriod, Session
from cachedoctor.model.measured import Answer
from cachedoctor.model.whatif import Placed
from cachedoctor.prompts import conversations, inputs
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.run_diff import DiffJob, rendered

REFUSED = 3
_BLOCK = 16
"""Tokens of a block of vLLM on a GPU where the log shows no other size (0.7 to 0.33)."""
_ROLLING = 1000
"""Requests that vLLM's hit rate covers (CachingMetrics of 0.7 to 0.33): with more, the first ones are not in it."""
_FIT = 0.02
"""Share by which tokens of the bodies may differ from what the log shows of all prompts, beyond its own rounding."""


class SaidTokens(msgspec.Struct):
    """Sums that a log has over all requests."""

    prompt: int
    reused: int


class BlockEvidence(msgspec.Struct):
    """Requests of one server in their order, and what is known beside them; lists are parallel to the prompts."""

    setup: BlockSetup
    assumed: frozenset[str]
    """Names of options that nothing shows."""
    prompts: list[SentPrompt]
    reused: list[int | None]
    """Reused tokens of each body, as the responses have them; None without a response."""
    sums: SaidTokens | None
    """Sums that the log shows; None if the responses have the numbers, or nothing has."""
    conversations: list[int | None]
    """Conversation of each body: bodies of one session are together; without sessions, those that continue another."""
    placed: Placed
    sessions: list[str | None] = []
    """What each body names for the cache; empty where the server has no such sessions."""


class BlockAsking(msgspec.Struct):
    """What was given beside the log."""

    path: str
    """Path of the log, for messages."""
    bodies: Sequence[str]
    tokenizer: str | None
    template: str | None
    responses: Sequence[str] = ()
    max_unpacked: int = MAX_BYTES


def from_sessions(asking: BlockAsking, sessions: Sequence[Session]) -> BlockEvidence:
    """Make evidence of a log of vLLM or SGLang with what was given beside it.

    Raises:
        CacheDoctorError: it is of several servers or runs, of a kind that is not replayed, or something is missing.
    """
    session = one_run(asking.path, sessions)
    _refuse_unlike(session)
    setup, assumed = _setup(session)
    prompts, requests, placed = read_bodies(asking, session, "a what-if")
    reused, sums = _said(asking, session, requests)
    placed.sizes_known = True
    named = [session_of(one.body, ENGINES[session.engine].session_fields) for one in prompts]
    return BlockEvidence(setup, assumed, requests, reused, sums, _numbers(prompts, named), placed, named)


def read_bodies(asking: BlockAsking, session: Session, what: str) -> tuple[list[Prompt], list[SentPrompt], Placed]:
    """Read the bodies and cut them with the model's tokenizer; ``what`` needs them.

    Raises:
        CacheDoctorError: bodies or tokenizer are missing or cannot be used, or a body has images.
    """
    if not asking.bodies:
        raise _refused(f"{what} needs the request bodies", "--requests BODIES.jsonl --tokenizer DIR", session)
    sent = [found for path in asking.bodies for found in inputs.load_sent(path)]
    prompts = [one for one in sent if one is not None]
    if any(one.images for one in prompts):
        raise _refused("bodies with images cannot be replayed", "the number of tokens per image is unknown", session)
    files = ModelFiles(asking.tokenizer, asking.template)
    try:
        if not files.cutter.exact:
            raise _refused(f"{what} needs the model's tokenizer", "--tokenizer DIR (or tokenizer.json)", session)
        requests = _sent_prompts(prompts, files)
    finally:
        files.close()
    placed = Placed(len(requests), len(sent), True)
    placed.bodies_left_out = len(sent) - len(requests)
    return prompts, requests, placed


def _refused(what: str, hint: str, session: Session) -> CacheDoctorError:
    return CacheDoctorError(f"{ENGINES[session.engine].title}: {what}", hint, REFUSED)


# ---- the server


def one_run(path: str, sessions: Sequence[Session]) -> Session:
    """Give the run that a log is of.

    Raises:
        CacheDoctorError: it is of several.
    """
    known = [one for one in sessions if one.engine in ENGINES]
    busy = [one for one in known if one.periods or one.answers] or known
    if len(busy) > 1:
        raise CacheDoctorError(
            f"{path}: contains {len(busy):,} server runs",
            "give the log of one server; each server has its own cache",
            REFUSED,
        )
    return busy[0]


def _refuse_unlike(session: Session) -> None:
    for reason, there in _unlike(session):
        if there:
            raise _refused(
                f"the replay does not support {reason}", "only full attention on one engine is supported", session
            )
    if any(one.since == "reset" for one in session.periods):
        raise _refused(
            "the cache was emptied between the requests",
            "give the part of the log between two resets of the cache",
            session,
        )


def _line_of(session: Session, name: str) -> object:
    """Value of a setting that only the engine's own lines have."""
    said = session.settings.get(name)
    return None if said is None else said.value


def _unlike(session: Session) -> list[tuple[str, object]]:
    """What makes a cache another one than the replay knows, and whether it is there."""
    architecture = str(_line_of(session, "architecture") or session.model or "")
    several = session.setting("data_parallel")
    return [
        ("a model with recurrent layers", session.memory in ("hybrid", "recurrent") or is_hybrid(architecture)),
        ("a model with sliding windows", session.memory == "swa" or is_sliding(architecture)),
        ("a server with several engines", isinstance(several, int) and several > 1),
        ("a cache outside the GPU", _line_of(session, "kv_connector") or session.setting("hicache")),
        ("drafting", session.setting("speculative")),
        ("disaggregated prefill", session.setting("disaggregation")),
    ]


def _setup(session: Session) -> tuple[BlockSetup, frozenset[str]]:
    facts = ENGINES[session.engine]
    said, caching = session.setting(facts.block_setting), session.setting(facts.cache_setting)
    tokens, override = session.setting("kv_tokens"), _line_of(session, "blocks_override")
    assumed = set() if isinstance(said, int) else {facts.block_option}
    if caching is None:
        assumed.add(facts.cache_option)
    block = said if isinstance(said, int) and said > 0 else facts.block_default
    setup = BlockSetup(facts.name, session.version, block, tokens if isinstance(tokens, int) else None)
    if isinstance(override, int) and override > 0:
        setup = msgspec.structs.replace(setup, blocks_given=override)
    return msgspec.structs.replace(setup, caching=caching is not False), frozenset(assumed)


# ---- bodies


def _sent_prompts(prompts: Sequence[Prompt], files: ModelFiles) -> list[SentPrompt]:
    """Tokens of each prompt, and of the reply as far as a later prompt has it."""
    ask = DiffJob()
    found: list[array[int]] = []
    starts: list[Sequence[int]] = []
    texts = [rendered(one, ask, files) for one in prompts]
    for text in texts:
        cut = files.cutter.encode(text.text)
        # A chat template writes a BOS itself; before a plain text the tokenizer puts it.
        first = 0 if (text.body or {}).get("messages") else files.cutter.leading(text.text)
        found.append(array("i", [-1] * first) + array("i", [int(token) for token in cut.ids]))
        starts.append([0] * first + list(cut.starts))
    sent = [SentPrompt(ids, key=salt_of(one)) for ids, one in zip(found, prompts, strict=True)]
    for earlier, later in conversations.walk(list(prompts)):
        reply = _reply(texts[earlier], found[earlier], texts[later], found[later], starts[later])
        if reply and not sent[earlier].reply:
            sent[earlier] = msgspec.structs.replace(sent[earlier], reply=reply)
    return sent


def _reply(before: Prompt, ids: array[int], after: Prompt, later: array[int], starts: Sequence[int]) -> Sequence[int]:
    """Tokens of the reply to a prompt, as the client sent it back in a later one; empty where it did not.

    No more than the request allowed: clients put other text after what was generated.
    """
    body = before.body or {}
    messages = body.get("messages")
    if not isinstance(messages, list) or later[: len(ids)] != ids:
        return ()
    place = f"messages[{len(messages)}]."
    end = max((span.end for span in after.spans if span.place.startswith(place)), default=0)
    allowed = [n for name in ("max_completion_tokens", "max_tokens") if type(n := body.get(name)) is int and n > 0]
    return list(later[len(ids) : bisect_left(starts, end)][: min(allowed, default=None)]) if end else ()


def session_of(body: object, fields: Sequence[str]) -> str | None:
    """Name of the session that a body is sent in: the first of ``fields`` (``session_params.id``) that has one."""
    for field in fields:
        value: object = body
        for key in field.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str) and value:
            return value
    return None


def _numbers(prompts: Sequence[Prompt], sessions: Sequence[str | None]) -> list[int | None]:
    """Of each prompt its conversation, numbered from 0; None of one that no other belongs to.

    Those that name a session are of one conversation with the others of it, and with no other prompt.
    """
    first, several, begun = list(range(len(prompts))), set[int](), dict[str, int]()
    for at, name in enumerate(sessions):
        if name is not None:
            first[at] = begun.setdefault(name, at)
            if first[at] != at:
                several.add(first[at])
    others = [at for at, name in enumerate(sessions) if name is None]
    for earlier, later in conversations.walk([prompts[at] for at in others]):
        first[others[later]] = first[others[earlier]]
        several.add(first[others[later]])
    order: dict[int, int] = {}
    return [order.setdefault(one, len(order)) if one in several else None for one in first]


# ---- what the server said


def _said(
    asking: BlockAsking, session: Session, requests: Sequence[SentPrompt]
) -> tuple[list[int | None], SaidTokens | None]:
    if asking.responses:
        given = load([], asking.responses, source_of, asking.max_unpacked).given
        return _paired([one for file in given for one in file.answers.each], requests, session), None
    sums = compared(session, requests)
    if sums is None:
        blocks = next(known for name, known in ENGINES.items() if in_blocks(name))
        hint = f"give the responses of the same requests: --responses FILE ({blocks.title}: {blocks.usage_option})"
        raise _refused("the log does not show how much was reused", hint, session)
    return [None] * len(requests), sums


def compared(session: Session, requests: Sequence[SentPrompt]) -> SaidTokens | None:
    """Give the sums of the log that the bodies were held against; None where it has none.

    Raises:
        CacheDoctorError: the bodies have more or fewer prompt tokens.
    """
    sums = None if ENGINES[session.engine].table == "samples" and len(requests) > _ROLLING else _sums(session)
    if sums is None:
        return None
    (prompt, within, reused), ours = sums, sum(len(one.tokens) for one in requests)
    if abs(ours - prompt) > within + _FIT * prompt:
        hint = "check that the bodies are complete and from this server, and that the tokenizer is the model's own"
        raise _refused(f"the bodies have {ours:,} prompt tokens, the log {prompt:,}", hint, session)
    return SaidTokens(prompt, reused)


def _paired(each: Sequence[Answer], requests: Sequence[SentPrompt], session: Session) -> list[int | None]:
    """Reused tokens of each request; responses are in the order of the bodies."""
    if len(each) != len(requests):
        what = f"{len(each):,} responses for {len(requests):,} request bodies"
        raise _refused(what, "give the responses to the same requests, in the same order", session)
    alike = sum(one.prompt_tokens == len(sent.tokens) for one, sent in zip(each, requests, strict=True))
    if alike < (1 - _FIT) * len(requests):
        what = f"the prompt lengths of {alike:,} of {len(requests):,} bodies match their responses"
        raise _refused(
            what,
            "check that the responses are in the order of the bodies, and that the tokenizer is the model's own",
            session,
        )
    return [one.cached_tokens for one in each]


def _sums(session: Session) -> tuple[int, int, int] | None:
    """Prompt tokens, by how many they may be off, and reused ones; None where the log does not show."""
    if ENGINES[session.engine].table == "batches":
        batches = [one for one in session.periods if not isinstance(one, SamplePeriod)]
        reused = sum(one.cached_tokens for one in batches)
        return (reused + sum(one.new_tokens for one in batches), 0, reused) if batches else None
    busy = [one for one in session.periods if isinstance(one, SamplePeriod) and one.busy]
    if len(busy) != 1 or busy[0].since != "start":
        return None
    (period,) = busy
    if session.setting("prefix_caching") is False:
        prompt = period.computed_tokens if period.prompt_tokens is None else period.prompt_tokens
        return None if prompt is None else (prompt, period.within or 0, 0)
    prompt, within = period.looked_up_tokens, period.looked_up_within or 0
    if prompt is None:
        prompt, within = period.prompt_tokens, period.within or 0
    if prompt is None or period.last_rate is None or (period.answered or 0) > _ROLLING:
        return None
    return prompt, within, round(period.last_rate * prompt)
