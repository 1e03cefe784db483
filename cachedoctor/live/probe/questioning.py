"""Runs the decision table against one server, within its requests, tokens and seconds."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.live.probe import judging, measuring, plan
from cachedoctor.live.probe import measuring as rendering
from cachedoctor.live.probe.connection import CHAT, MODELS, ProbeConnection, Reply, read
from cachedoctor.live.probe.identity import BUSY, PORTS, finished, identify, slot_tasks
from cachedoctor.live.probe.plan import Question
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.probed import Probe, ProbeCause, ProbedServer, ProbeQuestion, State
from cachedoctor.model.report import Tool

_AFTER_MISS = ("first", "again", "turn", "tail", "forced", "head")
"""Questions for a server that reuses nothing."""
_COUNTING = {name: facts.usage_option for name, facts in ENGINES.items()}
"""Options that make a server report its reuse."""
_CHARS_AT_MOST = 64
"""Upper bound of characters per token: even a truncated prompt has more tokens than this estimate."""
_ALWAYS = 1 << 30
_TWICE = (("again", "first"), ("tools-again", "tools"), ("image", "look"), ("image", "system"))
"""Questions that send the same prompt as another one."""
_LATER = 1.1
"""Seconds after which a prompt is rendered again: a template that prints the time then prints a different one."""
_RENDERED = ("reasoning", "permuted")
"""What a server's template answers without a request."""


class ProbeLimits(NamedTuple):
    """Limits that the user set."""

    model: str | None
    prompt_tokens: int
    budget: int
    """Prompt tokens of all requests together."""
    force: bool


def find(key: str | None, seconds: float) -> ProbeConnection:
    """Look for a server on this machine's usual ports.

    Raises:
        CacheDoctorError: there is none.
    """
    for port in PORTS:
        at = ProbeConnection(f"http://127.0.0.1:{port}", None, 2)
        try:
            answer = at.get(MODELS)
        except CacheDoctorError as error:
            if "key" not in error.message:
                continue
            return ProbeConnection(at.url, key, seconds)
        if answer is not None:
            return ProbeConnection(at.url, key, seconds)
    ports = ", ".join(map(str, PORTS))
    raise CacheDoctorError(
        f"no server answers on this machine's ports {ports}", "give the server's address: cachedoctor probe URL"
    )


def probe(at: ProbeConnection, wanted: ProbeLimits, announce: Callable[[ProbedServer], None], version: str) -> Probe:
    """Ask the server all questions that limits allow; ``announce`` is called before the first request.

    Raises:
        CacheDoctorError: the server is busy, down, or no server.
    """
    server, model = identify(at, wanted.model)
    if server.busy and not wanted.force:
        raise CacheDoctorError(
            f"{at.url}: the server is busy", "wait, or probe anyway with --force, which slows down the server's users"
        )
    announce(server)
    begun = time.monotonic()
    return _ProbeRun(at, server, wanted._replace(model=model), secrets.token_hex(6)).whole(version, begun)


class _ProbeRun:
    """Questions that were sent, and the remaining limits."""

    def __init__(self, at: ProbeConnection, server: ProbedServer, wanted: ProbeLimits, nonce: str) -> None:
        self.at, self.server, self.wanted, self.nonce = at, server, wanted, nonce
        self.table = {ask.name: ask for ask in plan.table(nonce, wanted.prompt_tokens)}
        self.asked: dict[str, ProbeQuestion] = {}
        self.ids: dict[str, list[int] | None] = {}
        self.notes: list[str] = []
        self.left_out: list[str] = []
        self.requests = self.tokens = 0
        self.order: dict[str, int] = {}
        """Questions by the number of requests that were sent before."""
        self.others: list[int] = []
        """Request numbers before which another client used the server."""
        self.left_out_counts: set[str] = set()
        self.answers: dict[str, str] = {}
        """Ids of answers."""
        self.slots: dict[int, tuple[int, bool]] | None = None
        self.rendered = 0.0
        """When the first prompt was rendered."""

    def whole(self, version: str, begun: float) -> Probe:
        """Ask, judge and sum up."""
        before = finished(self.at) if self.server.engine in _COUNTING else None
        self._table()
        measure = "count" if self._counted() else measuring.by_time(list(self.asked.values()), *self._characters())
        seen = self._look_back(before)
        self._leave_stored()
        self._render_later()
        refused = any(q.state == "refused" and not self.table[name].optional for name, q in self.asked.items())
        told = measure != "none" or refused or self.server.prefix_caching is False
        found = self._causes() if told else []
        if measure != "count" and self.server.engine in _COUNTING:
            self.notes.append(
                f"to make the expected counts exact, start the server with {_COUNTING[self.server.engine]}"
            )
        if found and not seen:
            self.notes.append("other users of the server during the probe cannot be detected: probe again to be sure")
        if not found and judging.one_slot(self.server, self.asked):
            slot = self.asked["head"].slot
            self.notes.append(
                f"prompts that share nothing went to slot {slot} although the server has other slots (CD309)"
            )
        if self.left_out:
            self.notes.append(f"not sent (limit of requests or tokens reached): {', '.join(self.left_out)}")
        return Probe(
            Tool("cachedoctor", version), self.server, measure, self.requests, self.tokens, self.wanted.budget,
            time.monotonic() - begun, list(self.asked.values()), found, self.notes,
        )  # fmt: skip

    def _causes(self) -> list[ProbeCause]:
        rendered = {name: len(ids) for name, ids in self.ids.items() if ids is not None}
        return judging.causes(self.server, self.asked, rendered)

    def _table(self) -> None:
        for ask in list(self.table.values()):
            if ask.name == "pair-b" or self._needless(ask):
                continue
            if ask.name in _RENDERED and self._by_template(ask):
                continue
            if ask.name == "system" and self.server.images:
                self._pictures(ask)
            else:
                self._within(ask)
            if ask.name == "again" and self._uncounted("again"):
                self._extra(plan.short(self.nonce))
            if ask.name == "tail" and self.server.engine == "llama.cpp" and self._nothing_back():
                self._extra(plan.forced(self.table["first"]))

    def _within(self, ask: Question) -> None:
        """Ask it, and what belongs to it, if the limits allow."""
        both = [ask, self.table[ask.together]] if ask.together else [ask]
        if self._affordable(both):
            self._ask(both)
        else:
            self.left_out += [one.name for one in both]

    def _pictures(self, system: Question) -> None:
        """Ask for an image twice; where the template takes a system message in the middle, the first time with it.

        Twelve requests are not enough for each by itself.
        """
        if self._ids(system) is not None:
            self.table["system"] = system._replace(picture=self.table["look"].picture)
            self._within(self.table["system"])
        if self._state("system") in ("refused", "not asked") and "system" not in self.left_out:
            self._within(self.table["look"])
        else:
            self.table["image"] = self.table["image"]._replace(body=system.body, after=("system",))
        before = self.table["image"].after[0]
        if self._state(before) not in ("refused", "not asked"):
            self._within(self.table["image"])
        elif before in self.left_out:
            self.left_out.append("image")
        if "system" not in self.asked and "system" not in self.left_out:
            self._within(system)

    def _state(self, name: str) -> State:
        return self.asked[name].state if name in self.asked else "not asked"

    def _needless(self, ask: Question) -> bool:
        """Whether the answer could show nothing new."""
        if ask.name in ("look", "image"):
            return True  # they go with the system message
        if any(found.state == "refused" and not self.table[name].optional for name, found in self.asked.items()):
            return True  # the context is too small for more
        if ask.name not in _AFTER_MISS and self._nothing_back():
            return True
        if ask.name == "tools-again":
            return "tools" in self.asked and self.asked["tools"].state == "refused"
        return ask.name == "permuted" and "tools-again" not in self.asked

    def _uncounted(self, name: str) -> bool:
        return name in self.asked and self.asked[name].reused_tokens is None

    def _nothing_back(self) -> bool:
        return all(name in self.asked and self.asked[name].state == "less" for name in ("again", "turn"))

    def _extra(self, ask: Question) -> None:
        """Ask a question that is not in the table, within the same limits."""
        self.table[ask.name] = ask
        if self._affordable([ask]):
            self._ask([ask])
        else:
            self.left_out.append(ask.name)

    def _affordable(self, asks: list[Question]) -> bool:
        tokens = sum(len(plan.words(ask.body)) + len(ask.picture) for ask in asks) // 3
        tokens += plan.IMAGE_TOKENS * sum(ask.picture != "" for ask in asks)
        return self.requests + len(asks) <= plan.MOST_REQUESTS and self.tokens + tokens <= self.wanted.budget

    def _ask(self, asks: list[Question]) -> None:
        """Send one question, or two at once, and judge the answers."""
        before = self._look()
        self.order |= dict.fromkeys((ask.name for ask in asks), self.requests)
        self.requests += len(asks)
        if len(asks) == 1:
            replies = [self._send(asks[0])]
        else:
            with ThreadPoolExecutor(len(asks)) as pool:
                replies = list(pool.map(self._send, asks))
        self.slots = after = self._slots()
        used = [slot for slot, (task, _) in (after or {}).items() if before and before.get(slot, (-1,))[0] != task]
        if len(used) > len(asks) or any(works for _, works in (after or {}).values()):
            self.others.append(self.requests)
        for ask, reply in zip(asks, replies, strict=True):
            self._take(ask, reply, used[0] if len(used) == 1 and len(asks) == 1 else None)

    def _send(self, ask: Question) -> Reply:
        path = "/v1/messages" if ask.name == "messages" else CHAT
        sent = plan.pictured(ask, self.nonce) if ask.picture else ask.body
        body = {**sent, **dict(ask.extra), "max_tokens": 1, "temperature": 0, "stream": False}
        if ask.name == "messages":  # a system message is beside the others there
            first, *others = ask.body["messages"]
            body |= {"system": first["content"], "messages": others}
        facts = ENGINES.get(self.server.engine)
        if ask.body.get("tools") and facts is not None and facts.tools_need_parser:
            body["tool_choice"] = "none"  # "auto" is refused without a parser; tools are in the prompt all the same
        if self.wanted.model is not None:
            body["model"] = self.wanted.model
        least = len(plan.words(ask.body)) // _CHARS_AT_MOST
        return read(self.at, self.at.post(path, body), max(1, least))

    def _take(self, ask: Question, reply: Reply, slot: int | None) -> None:
        if reply.refused is not None and reply.refused[:3] in map(str, BUSY):
            raise CacheDoctorError(
                f"{self.at.url}: {BUSY[int(reply.refused[:3])]}, during the probe ({reply.refused})",
                "probe again when the server is idle; this probe shows nothing",
            )
        if reply.refused is not None and not ask.optional and not reply.too_long:
            raise CacheDoctorError(
                f"{self.at.url}: the server rejected a plain chat request ({reply.refused})",
                "check the server's log; --model NAME selects another model",
            )
        expected, exact = self._expected(ask)
        state: State = "refused" if reply.refused is not None else "unknown"
        found = ProbeQuestion(
            ask.name, ask.asks, state, reply.prompt_tokens, expected, exact, reply.reused_tokens,
            round(reply.seconds, 4), slot, reply.refused or "",
        )  # fmt: skip
        self.left_out_counts |= {ask.name} if reply.left_out else set()
        if reply.id is not None:
            self.answers[ask.name] = reply.id
        if reply.refused is None:
            found.state = self._judged(ask, found)
            self._doubt(ask, found)
        if found.state == "noted" and ask.name != "tools":
            found.note = "reused up to a checkpoint"
        self.asked[ask.name] = found
        self.tokens += reply.prompt_tokens if reply.prompt_tokens is not None else len(plan.words(ask.body)) // 4

    def _judged(self, ask: Question, found: ProbeQuestion) -> State:
        if ask.name == "tools":
            return "noted"
        goes_back = ask.goes_back
        before = {name: question.state for name, question in self.asked.items()}
        if ask.name in ("tools-again", "image") and before.get("again") == "as expected":
            goes_back = False
        if ask.name == "system" and before.get("back") == "noted":
            goes_back = True  # what comes back from main memory is as far as a checkpoint only
        if ask.control:
            return measuring.judge_control(found, len(plan.words(ask.body)))
        return measuring.judge(found, self.server, goes_back, self._inserted(ask, found))

    def _inserted(self, ask: Question, found: ProbeQuestion) -> int:
        """Tokens that were added to a prompt on its way; the number for an image is unknown."""
        if ask.picture:
            return self._inserted(self.table["back"], self.asked["back"]) if "back" in self.asked else 0
        mine = self.ids.get(ask.name)
        return max(0, (found.prompt_tokens or 0) - len(mine)) if found.exact and mine is not None else 0

    def _expected(self, ask: Question) -> tuple[int | None, bool]:
        """Tokens of the common prefix with the earlier prompts, and whether they were counted."""
        if ask.control:
            return self._shared_head(ask), False
        if ask.name == "image":  # the same again, of which the server has just counted the tokens
            known = self.asked[ask.after[0]].prompt_tokens
            return known, known is not None
        mine = self._ids(ask)
        others = [self._ids(self.table[name]) for name in ask.after if name in self.asked]
        if mine is not None and others and all(ids is not None for ids in others):
            return max(plan.common(mine, ids) for ids in others if ids is not None), True
        return self._estimated(ask), False

    def _shared_head(self, ask: Question) -> int:
        """Tokens of the prefix that all prompts of the template share, as far as known."""
        mine, first = self._ids(ask), self.ids.get("first")
        return plan.common(mine, first) if mine is not None and first is not None and ask.name != "first" else 0

    def _estimated(self, ask: Question) -> int | None:
        first = self.asked.get("first")
        if first is None or first.prompt_tokens is None or not ask.after:
            return None
        tokens_per_char = first.prompt_tokens / len(plan.words(self.table["first"].body))
        return int(self._shared(ask) * tokens_per_char)

    def _shared(self, ask: Question) -> int:
        mine = plan.words(ask.body)
        sent = [plan.words(self.table[name].body) for name in ask.after if name in self.asked]
        return max((plan.common(mine, other) for other in sent), default=0)

    def _characters(self) -> tuple[dict[str, int], dict[str, int]]:
        asks = [self.table[name] for name in self.asked if not self.table[name].picture]
        return {a.name: len(plan.words(a.body)) for a in asks}, {a.name: self._shared(a) for a in asks}

    def _ids(self, ask: Question) -> list[int] | None:
        """Tokens by the server's own template; each prompt is asked once, and none after the first failure."""
        if None in self.ids.values() and ask.name not in self.ids and self.ids.get("first") is None:
            return None
        if ask.name not in self.ids:
            self.rendered = self.rendered or time.monotonic()
            self.ids[ask.name] = rendering.tokens(self.at, self.server, self.wanted.model, ask.body)
        return self.ids[ask.name]

    def _by_template(self, ask: Question) -> bool:
        """Answer a question from the rendered template, if the server shows it."""
        mine = self._ids(ask)
        others = [ids for name in ask.after if name in self.asked and (ids := self._ids(self.table[name])) is not None]
        if mine is None or not others:
            return False
        same = max(plan.common(mine, ids) for ids in others)
        note = f"rendered by the template: {same:,} of {len(mine):,} tokens match"
        self.asked[ask.name] = ProbeQuestion(ask.name, ask.asks, "noted", len(mine), same, True, note=note)
        return True

    def _render_later(self) -> None:
        """Let the template render the first prompt again a second later, so that a clock in it shows another time."""
        first = self.ids.get("first")
        if first is None:
            return
        time.sleep(max(0.0, self.rendered + _LATER - time.monotonic()))
        later = rendering.tokens(self.at, self.server, self.wanted.model, self.table["first"].body)
        if later is None:
            return
        same = plan.common(first, later)
        state: State = "as expected" if first == later else "less"
        note = f"rendered by the template: {same:,} of {len(later):,} tokens match"
        self.asked["template"] = ProbeQuestion(
            "template", "rendered again a second later", state, len(later), len(first), True, same, note=note
        )

    def _counted(self) -> bool:
        """Whether the server reports reuse; some servers omit the count if it is 0."""
        counted = any(q.reused_tokens is not None and q.name != "messages" for q in self.asked.values())
        if counted and self.server.engine in ENGINES and ENGINES[self.server.engine].omits_zero_usage:
            for name, found in self.asked.items():
                if name in self.left_out_counts and found.state == "unknown":
                    found.reused_tokens = 0
                    found.state = self._judged(self.table[name], found)
        return counted

    def _slots(self) -> dict[int, tuple[int, bool]] | None:
        return slot_tasks(self.at) if self.server.engine == "llama.cpp" else None

    def _look(self) -> dict[int, tuple[int, bool]] | None:
        """Check the slots before a question: other clients caused what changed since the last one."""
        now, last = self._slots(), self.slots
        if now is not None and (any(works for _, works in now.values()) or (last is not None and now != last)):
            self.others.append(self.requests)
        return now

    def _look_back(self, before: int | None) -> bool:
        """Mark answers as doubtful whose prompts other clients may have evicted; False if it is unknown whether there
        were any.

        vLLM and SGLang count their answers; when the others came is not known there.
        """
        after = finished(self.at) if before is not None else None
        if before is not None and after is not None and after - before > self.requests:
            self.others.append(_ALWAYS)
        for name, found in self.asked.items():
            self._doubt(self.table[name], found)
        if self.others:
            self.notes.append(
                "another client used the server during the probe: losses that may be evictions do not count as "
                "deviations"
            )
        return self.slots is not None or after is not None

    def _leave_stored(self) -> None:
        """Withdraw the verdicts on answers that came from a response cache in front of the server."""
        if len(set(self.answers.values())) < 2:
            return  # this server gives all the same id
        stored = [name for name, before in _TWICE if self.answers.get(name, 0) == self.answers.get(before, 1)]
        for name in stored:
            self.asked[name].state = "unknown"
            self.asked[name].note = "has the id of the previous response: it came from a cache, not from the server"
        if stored:
            self.notes.append(
                f"something between client and server caches responses: {', '.join(stored)} show nothing about "
                "the server's cache"
            )

    def _doubt(self, ask: Question, found: ProbeQuestion) -> None:
        """Withdraw the verdict that too little was reused, if other clients used the server since the prompt was sent
        that should be reused."""
        since = min((self.order[name] for name in ask.after if name in self.order), default=0)
        if found.state == "less" and any(at > since for at in self.others):
            found.state = "unknown"
            found.note = "unknown: another client has used the server since that prompt was sent"
