"""Changes of a prompt that are no fault of its client. Knows differences of prompts; compares nothing."""

from __future__ import annotations

from cachedoctor.model import Advice, LintHint, PromptDiff
from cachedoctor.prompts.prompt import Prompt

_DEPENDS = Advice("Hybrid and recurrent models need a checkpoint in front of it, sliding windows may.")
_OF_BRANCHES = ("message-edited", "message-removed", "message-inserted")


def hint_of(a: Prompt, b: Prompt, found: PromptDiff, cost: int) -> LintHint | None:
    """Give the hint for a change that no client can or need avoid; None for any other."""
    first = found.first
    assert first is not None  # noqa: S101 - the caller looked
    about = "" if found.exact else "about "
    if _is_reply_opening(a, b, first.char):
        words = (
            f"the chat template opens a reply with other tokens ({about}{cost:,}) than it shows the reply with "
            "later on: these and the reply are computed again"
        )
        advice = [_DEPENDS, Advice("cachedoctor lint --template says what else the template changes.")]
        return LintHint("reply-opening", b.path, None, words, first.a, advice)
    if _is_rewritten(a, b, first.place):
        words = "the last message was written anew: what stands in front of it can be reused"
        return LintHint("last-message-rewritten", b.path, first.place, words, "", [_DEPENDS])
    if first.kind == "compacted":
        words = f"{found.explanation}: {about}{cost:,} tokens are computed again, once"
        return LintHint("compacted", b.path, first.place, words, "", first.advice)
    return None


def _is_rewritten(a: Prompt, b: Prompt, place: str | None) -> bool:
    """Whether the later request differs in its last message only, which the user of a client wrote anew."""
    for name in ("messages", "input"):
        old, new = ((prompt.body or {}).get(name) for prompt in (a, b))
        if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) > 1:
            last = f"{name}[{len(new) - 1}]"
            users = all(isinstance(items[-1], dict) and items[-1].get("role") == "user" for items in (old, new))
            return users and place is not None and place.startswith(last)
    return False


def _is_reply_opening(a: Prompt, b: Prompt, char: int) -> bool:
    """Whether the earlier prompt differs only behind all that its request said."""
    if not a.rendered or not a.spans or char < a.spans[-1].end:
        return False
    return b.place_at(char) != a.spans[-1].place


def is_branch(found: PromptDiff) -> bool:
    """Whether a conversation may go on in two ways, where another request extends the earlier one as well.

    An edit looks the same, but nothing goes on with what was edited away.
    """
    return found.first is not None and found.first.kind in _OF_BRANCHES
