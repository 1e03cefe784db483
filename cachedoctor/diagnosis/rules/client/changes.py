"""The cost of a change by the client, and its proof by the prompts: shared by the rules CD1xx."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.kit import (
    EARLY,
    MIN_LOST,
    ChangeText,
    Match,
    MatchGroup,
    Proof,
    RuleContext,
    marked,
    n,
    token,
)
from cachedoctor.knowledge import clients
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Confidence, First, PromptDiff, Remedy, RuledOut

MOST = 0.25
"""Share of the reference: a change this large is charged with all tokens lost after it, a smaller one with its own
tokens."""


def cost_of_change(s: RuleContext) -> int:
    """Tokens that an unchanged history would have saved."""
    large = s.client_lost >= MOST * (s.request.reference_tokens or 0)
    return s.lost if large or s.server_lost < MIN_LOST else s.client_lost


def from_prompts(s: RuleContext, first: First, tokens: int | None = None) -> Match:
    """Report a difference that the prompts given beside the log prove."""
    sure: Confidence = "high" if s.difference is not None and s.difference.exact else "medium"
    key = first.client.habit if first.client is not None else ""
    return Match(s.lost if tokens is None else tokens, sure, key, found=first)


def prompts_prove(s: RuleContext, match: Match) -> Proof:
    """Prove a difference by the prompts themselves."""
    r, first = s.request, match.found
    primary, *related = marked(
        r,
        ("cached", "tokens reused"),
        ("select", "the slot choice"),
        ("timing", "tokens recomputed"),
        ("start", "the request"),
    )
    exact = s.difference is not None and s.difference.exact
    # Without the model's tokenizer the place is known in the text, its token only about.
    at = first.token if exact else s.lcp if s.lcp is not None else f"~{n(first.token)}"
    numbers = {
        "field": first.field, "kind": first.kind, "lcp": at, "place": first.place,
        "reference": r.reference_tokens, "changed": r.lost_client, "sent": first.token,
    }  # fmt: skip
    return Proof(primary, related[:2], numbers, s.difference)


def texts_prove(s: RuleContext, **numbers: object) -> Proof:
    """Prove a difference by both texts that the server printed."""
    new = s.request.marks.get("new")
    bar = "the bar marks" if new is None or b" | " in new.text else "the bar on a later line marks"
    return Proof(
        marked(s.request, ("new", f"the new prompt: {bar} the first differing token"))[0],
        marked(s.request, ("old", "the slot's content"), ("n_past", "common prefix"), ("cached", "tokens reused")),
        {**numbers, "lcp": s.lcp},
    )


def seen_in_prompts(first_token: int | str) -> RuledOut:
    """The look-alike that is excluded if the prompts are known."""
    return RuledOut("slot-held-other-prompt", f"the two prompts themselves diverge at {token(first_token)}")


def client_of(g: MatchGroup) -> clients.KnownHabit | None:
    """The client that caused the worst request of a group, by its prompts or by the printed texts; None if unknown."""
    first = _first(g)
    if first is not None:
        return None if first.client is None else clients.known(first.client.habit)
    r = g.worst_request
    return clients.printed(r.seen.old_text or "", r.seen.new_text or "")


def why_client(g: MatchGroup) -> str:
    """Name the client, its habit and its first version with it, to follow a sentence; empty if unknown."""
    found = client_of(g)
    if found is None:
        return ""
    fixed = f" Version {found.habit.fixed} no longer causes this change." if found.habit.fixed else ""
    return f" {found.client.title} {found.habit.writes} ({found.habit.versions}).{fixed}"


def why_before(g: MatchGroup) -> str:
    """Name the tokens that came before the change, to follow a sentence; empty if there are hardly any.

    The fix saves these tokens, too, but the server caused their recomputation.
    """
    r = g.worst_request
    before = g.worst.tokens - (r.lost_client or 0)
    if before < MIN_LOST or before > (r.lost_server or 0):
        return ""
    end = r.seen.restored_at
    why = "" if end is None else f", because the restored checkpoint ends at token {n(end[1] + 1)}"
    return (
        f" In the worst request, {n(before)} of the recomputed tokens were before the change and had stayed the same. The server could not restore these tokens{why}. "
        "An unchanged prompt would have saved these tokens as well."
    )


def with_client(g: MatchGroup, remedies: list[Remedy]) -> list[Remedy]:
    """Put the remedy that stops the client before ``remedies``."""
    found = client_of(g)
    return remedies if found is None else [advice.client(found.handle), *remedies]


def by_difference(g: MatchGroup, remedies: list[Remedy]) -> list[Remedy]:
    """The advice on the kind and place of the difference if the prompts show it; else ``remedies``."""
    first = _first(g)
    if first is None or not first.advice:
        return with_client(g, remedies)
    return [advice.of_difference(a) for a in first.advice]


def references(g: MatchGroup) -> list[str]:
    """The sources that prove the habit of the client."""
    found = client_of(g)
    return [] if found is None else list(found.habit.sources)


def place(difference: PromptDiff) -> str:
    """Where two bodies diverge, as claims write it."""
    at = 0 if difference.first is None else difference.first.token
    return token(at if difference.exact else f"~{n(at)}")


def is_early(difference: PromptDiff) -> bool:
    """Whether two bodies diverge near their head."""
    return difference.common_prefix_tokens < EARLY * min(difference.a.tokens, difference.b.tokens)


def of_bodies(difference: PromptDiff, head: str, why: str, remedies: list[Remedy]) -> ChangeText:
    """Describe a difference between two given bodies: the client known for it, and the advice on its kind."""
    first = difference.first
    known = None if first is None or first.client is None else clients.known(first.client.habit)
    given = [] if first is None else first.advice
    # options of llama-server are not options of the programs whose requests are told by bodies
    advised = [advice.of_difference(a) for a in given if not any(line.startswith("--") for line in a.commands)]
    if known is None:
        return ChangeText(head, why, advised or remedies)
    by = f" {known.client.title} {known.habit.writes} ({known.habit.versions})."
    return ChangeText(head, why + by, advised or [advice.client(known.handle), *remedies], list(known.habit.sources))


def _first(g: MatchGroup) -> First | None:
    difference = g.proof.difference if g.proof is not None else None
    return None if difference is None else difference.first


_FIELD_BEFORE = late(r"(cch|cc_[a-z_]+)=[^;\s]*$")
_FIELD_AFTER = late(r"^[0-9A-Za-z._-]*; ?(cch|cc_[a-z_]+)=")
_INSIDE = late(r"(?:x-anthropic-billing-header:|;)\s*+(?:[\w.=-]++\s*+)?$")
"""The text before a bar that is inside the header."""
_HEADER = late(r"x-anthropic-billing-header|\bcc_version=|\bcc_entrypoint=|\bcch=")


def field_that_differs(old: str, new: str) -> str | None:
    """Name of the header field at the bars of an ``old:`` / ``new:`` pair whose values differ; "" if not visible."""
    field = header_field(new)
    if field is None or field != header_field(old):
        return None
    if not field and not stands_inside(new):
        return None  # the header is the same in both, and text after it differs
    before, after = (text.partition(" | ")[2].strip() for text in (old, new))
    return field if before and after and before != after else None


def stands_inside(text: str) -> bool:
    """Whether the bar of an ``old:`` / ``new:`` text is inside the header, or directly after one of its fields."""
    return _INSIDE.search(text.partition(" | ")[0]) is not None


def header_field(text: str) -> str | None:
    """Name of the header field with the bar of an ``old:`` / ``new:`` text; "" if the field is not visible."""
    before, bar, after = text.partition(" | ")
    if not bar:
        return None
    inside = _FIELD_BEFORE.search(before.rstrip(" "))
    if inside:
        return inside.group(1)
    following = _FIELD_AFTER.match(after.lstrip(" "))
    if following:
        return "cc_version" if following.group(1) in ("cc_entrypoint", "cch") else ""
    return "" if _HEADER.search(before) and "\n" not in before and "\\n" not in before else None
