"""CD401: a prompt did not fit into the context of a slot."""

from __future__ import annotations

from cachedoctor.model import Remedy, Session
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times


def check(s: Situation) -> Hit | None:
    """Fire on the server's refusal."""
    r = s.request
    if r.error != "context-overflow" or "CD403" in s.fired:
        return None
    return Hit(
        0,
        "high",
        proof(r, ("error", "the refusal"))[0],
        [],
        {"tokens": r.error_tokens or r.prompt_tokens, "limit": r.error_limit or s.session.n_ctx_slot},
    )


def needs(session: Session) -> tuple[str, str] | None:
    """Builds around b6900 refuse a prompt without a line; b6751 and b7079 print one again."""
    if session.at_least(6752) is True and session.at_least(7079) is False:
        return (
            "this build prints nothing when it refuses a prompt that does not fit",
            'look into the client\'s log for "exceeds the available context size", or use b7079 or newer, which print it',
        )
    return None


def words(g: Group) -> Words:
    """Say by how much it is too long."""
    f, slots = g.worst.facts, g.session.n_slots
    whole = slots == 1 or g.session.setting("kv_unified") is True  # one slot may use all of the context
    split = f" The context is divided by {slots} slots." if slots and not whole else ""
    size = f"a prompt of {n(f['tokens'])} tokens" if f["tokens"] else "a prompt"
    return Words(
        f"{size} did not fit into a context of {n(f['limit'])} tokens: {times(g.count)} refused",
        f"llama-server no longer cuts prompts by itself; the client has to stay below the limit.{split}",
        [
            Remedy("Raise the context. Costs KV memory.", ["llama-server ... -c <tokens>"])
            if whole
            else Remedy(
                "Raise the context, or use fewer slots so that each gets more. Costs KV memory.",
                ["llama-server ... -c <tokens> -np 1"],
            ),
            Remedy("Or tell the client the limit, so that it compacts its history in time."),
        ],
        references=["https://github.com/ggml-org/llama.cpp/issues/17284"],
    )


RULE = Rule(
    "CD401",
    "context-overflow",
    "A prompt did not fit into the context",
    check,
    words,
    needs=needs,
    severity="error",
    on=("error",),
    after=("CD403",),
)
