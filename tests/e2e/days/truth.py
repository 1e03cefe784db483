"""Who lost the tokens of a day: every prompt token in exactly one row, from the bodies and the server's own counts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from e2e.days.recorder import CHAT, COMPLETIONS, MESSAGES, Sent
from e2e.days.tokens import common, rendered, repeated, runs, tokens

ROWS = ("reused", "new", "client", "server", "request", "together", "elsewhere")
"""reused: the server's own count. server: an earlier request of this conversation began so, and it was recomputed.
request: the same, and the request itself asked for it (``cache_prompt: false``). together: the same beginning was being
computed when this request was sent. elsewhere: only another conversation had begun so. client: text that this client
had sent before, after a difference. new: the rest."""


class NotAsRenderedError(Exception):
    """The server counted other tokens than this account: a row would be wrong."""


@dataclass
class Accounted:
    """One request with its rows."""

    sent: Sent
    prompt: int | None = None
    cached: int | None = None
    processed: int | None = None
    """Tokens as the server reported them: ``cached + processed == prompt``."""
    previous: int | None = None
    """Number of the request before it in its conversation."""
    previous_tokens: int | None = None
    """Length of that prompt with its reply, as far as the server computed it."""
    shared: int | None = None
    """Tokens at the beginning that this prompt has in common with it."""
    rows: dict[str, int] = field(default_factory=dict)
    """Empty where the server gave no count: not placed."""


@dataclass
class _Held:
    """What one request left to be reused."""

    sent: Sent
    prompt: str
    content: str
    """Prompt and reply without its last token, which was sampled and never computed."""


def counts(answer: dict[str, Any]) -> tuple[int | None, int | None]:
    """Return prompt tokens and reused ones of an answer, as the server says."""
    usage, timings = answer.get("usage") or {}, answer.get("timings") or {}
    processed = timings.get("prompt_n")
    cached = timings.get("cache_n", (usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
    prompt = usage.get("prompt_tokens")
    if prompt is None and None not in (processed, cached):
        prompt = processed + cached
    if prompt is None and "input_tokens" in usage:
        cached = usage.get("cache_read_input_tokens", 0)
        prompt = usage["input_tokens"] + cached
    return prompt, cached if cached is not None or None in (prompt, processed) else prompt - processed


def account(sent: list[Sent]) -> list[Accounted]:
    """Place every token of every answered request.

    Raises NotAsRenderedError where the server's count of a prompt is not the one that the template makes.
    """
    held: list[_Held] = []
    known: dict[str, set[int]] = defaultdict(set)
    out = []
    for request in sent:
        if request.path not in (CHAT, COMPLETIONS, MESSAGES):
            out.append(_unrendered(request))
            continue
        prompt = tokens(rendered(request.body))
        done = _placed(request, prompt, held, known[request.client])
        out.append(done)
        # Nobody knows how far a server had come when a client hung up before the first piece of the reply; of a prompt
        # that it refused it computed nothing.
        if _reply(request) if request.cut else request.status == 200:
            held.append(_Held(request, prompt, prompt + _reply(request)[:-1]))
            known[request.client] |= runs(prompt)
    return out


def _reply(request: Sent) -> str:
    if "heard" in request.answer:
        return str(request.answer["heard"])
    if isinstance(request.answer.get("content"), list):
        return "".join(block.get("text", "") for block in request.answer["content"])
    choices = request.answer.get("choices") or [{"message": {}}]
    return str(choices[0].get("text") or choices[0].get("message", {}).get("content") or "")


def _unrendered(request: Sent) -> Accounted:
    """Account for a request without a chat template: all that was not reused is new."""
    prompt, cached = counts(request.answer)
    if prompt is None or cached is None:
        return Accounted(request, prompt, cached)
    rows = dict.fromkeys(ROWS, 0) | {"reused": cached, "new": prompt - cached}
    return Accounted(request, prompt, cached, prompt - cached, rows=rows)


def _placed(request: Sent, prompt: str, held: list[_Held], known: set[int]) -> Accounted:
    before = [h for h in held if h.sent.ended and h.sent.ended <= request.started]
    own = [h for h in before if h.sent.conversation == request.conversation]
    done = Accounted(request)
    if own:
        done.previous, done.previous_tokens = own[-1].sent.number, len(own[-1].content)
        done.shared = common(prompt, own[-1].content)
    total, cached = counts(request.answer)
    if total is None or cached is None:
        return done
    if total != len(prompt):
        raise NotAsRenderedError(f"request {request.number}: the server counts {total}, the template {len(prompt)}")
    done.prompt, done.cached, done.processed = total, cached, total - cached
    # The last token of a prompt is always computed.
    ends = [("request" if request.body.get("cache_prompt") is False else "server", _best(prompt, own))]
    ends += [("elsewhere", _best(prompt, before))]
    ends += [("together", _best(prompt, [h for h in held if h not in before and h.sent.status == 200]))]
    done.rows = dict.fromkeys(ROWS, 0) | {"reused": cached}
    at = cached
    for row, end in ends:
        end = min(end, total - 1)
        done.rows[row] += max(0, end - at)
        at = max(at, end)
    done.rows["client"] = repeated(prompt, at, known)
    done.rows["new"] = total - sum(done.rows.values())
    return done


def _best(prompt: str, held: list[_Held]) -> int:
    """Longest beginning of a prompt that any of these left."""
    return max((common(prompt, h.content) for h in held), default=0)


def totals(accounted: list[Accounted]) -> dict[str, int]:
    """Sum of the rows of a day."""
    return {row: sum(done.rows.get(row, 0) for done in accounted) for row in ROWS}


def side(total: dict[str, int]) -> str:
    """Say who lost most: none, client, server, together, or both where neither lost two thirds of it.

    What a request asked for counts as the client's. Below 500 tokens and 2 % of the prompts nobody lost anything that
    is worth a finding.
    """
    lost = {"client": total["client"] + total["request"], "server": total["server"], "together": total["together"]}
    whole, prompts = sum(lost.values()), sum(total.values())
    most = max(lost, key=lambda name: lost[name])
    if whole < max(500, prompts // 50):
        return "none"
    return most if lost[most] * 3 >= whole * 2 else "both"
