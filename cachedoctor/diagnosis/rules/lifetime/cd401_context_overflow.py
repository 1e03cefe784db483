"""CD401: a prompt did not fit into the context of a slot."""

from __future__ import annotations

from typing import Any

from cachedoctor.diagnosis.rules import advice, kit


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on the server's refusal, or where a prompt that does not fit was given back before its first batch."""
    if s.request.seen.error != "context-overflow":
        return None
    return kit.Match(0, "high" if "error" in s.request.marks else "medium")


def prove(s: kit.RuleContext, _: kit.Match) -> kit.Proof:
    """Show the refusal."""
    r = s.request
    numbers = {"tokens": r.seen.error_tokens or r.prompt_tokens, "limit": r.seen.error_limit or s.facts.n_ctx_slot}
    return kit.proof(
        r, ("error", "the rejection"), ("prompt", "the prompt, and the size of its slot"), most=0, numbers=numbers
    )


def needs(session: kit.Session) -> tuple[str, str] | None:
    """Builds around b6900 refuse a prompt without a line; b6751 and b7079 print one again."""
    if session.at_least(6752) is True and session.at_least(7079) is False:
        return (
            "this build prints nothing when it rejects a prompt that does not fit",
            'search the client\'s log for "exceeds the available context size", or use b7079 or newer, which log the rejection',
        )
    return None


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say by how much it is too long."""
    return _text(g.numbers, g.session, f"{kit.times(g.count)} rejected")


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the error's text alone, as a client got it."""
    said = kit.stated(session, "overflow")
    if said is None:
        return _cut(session)
    f = {"tokens": said.numbers.get("tokens"), "limit": said.numbers.get("limit", session.n_ctx_slot)}
    return [
        kit.SessionFinding(
            _text(f, session, "the request was rejected", said.field), "", [(said.mark, "the rejection")], "error"
        )
    ]


def _cut(session: kit.Session) -> list[kit.SessionFinding]:
    """Say what was removed from a prompt that did not fit, by programs and builds that shorten prompts."""
    said = kit.stated(session, "cut")
    if said is None:
        return []
    f = said.numbers
    tokens, limit = (int(f[name]) if name in f else None for name in ("tokens", "limit"))
    context = f"a context of {kit.n(limit)} tokens" if limit else "the context"
    times = f", {kit.n(said.count)} times in this log" if said.count > 1 else ""
    if "messages" in f:
        claim = f"a conversation did not fit into {context}: its {kit.n(f['messages'])} oldest messages were left out{times}"
    elif tokens:
        claim = f"a prompt of {kit.n(tokens)} tokens did not fit into {context} and was shortened{times}"
    else:
        claim = f"a prompt did not fit into {context} and was shortened: {kit.n(f.get('erased'))} tokens removed{times}"
    words = kit.FindingText(
        claim,
        "The model never sees the removed part, and after that place nothing matches the cache: every later turn is recomputed.",
        [
            advice.more_context(
                session,
                "Raise the context above the longest prompt. A larger context costs KV memory.",
                tokens,
                writer=said.field,
            ),
            kit.Remedy("Or set the context limit in the client, so the client compacts its history in time."),
        ],
    )
    return [kit.SessionFinding(words, "cut", [(said.mark, "the prompt is shortened")], "warning")]


def _text(f: dict[str, Any], session: kit.Session, what: str, writer: str = "") -> kit.FindingText:
    slots, program = session.n_slots, session.program if session.engine != "llama.cpp" else None
    whole = (  # one slot may use all of the context, or its size is given for each, as in ollama
        program is not None
        or slots == 1
        or session.setting("kv_unified") is True
        or (slots is None and session.launcher == "ollama")
    )
    split = f" The context is divided among {slots} slots." if slots and not whole else ""
    context = f"a context of {kit.n(f['limit'])} tokens" if f["limit"] else "the context"
    size = f"a prompt of {kit.n(f['tokens'])} tokens" if f["tokens"] else "a prompt"
    return kit.FindingText(
        f"{size} did not fit into {context}: {what}",
        f"{f'{program} rejects such prompts' if program else 'llama-server no longer truncates prompts'}; the client has to stay below the limit.{split}",
        [
            advice.more_context(
                session, "Raise the context. A larger context costs KV memory.", f["tokens"], writer=writer
            )
            if whole
            else advice.more_context(
                session,
                "Raise the context, or use fewer slots (--parallel) so each gets more. A larger context costs KV memory.",
                f["tokens"] and slots and f["tokens"] * slots,
            ),
            kit.Remedy("Or set the context limit in the client, so the client compacts its history in time."),
        ],
        references=["https://github.com/ggml-org/llama.cpp/issues/17284"],
    )


RULE = kit.rule(
    __name__,
    "A prompt did not fit into the context",
    decide,
    prove,
    say,
    needs=needs,
    severity="error",
    on=("error",),
    unless=("CD403",),
    alone=alone,
    stated=("overflow", "cut"),
)
