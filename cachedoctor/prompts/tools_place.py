"""What a change of the tools costs where it is unknown at which place of the prompt the chat template puts them."""

from __future__ import annotations

from cachedoctor.model import PromptDiff
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.tokenizers.base import Tokenizer

_USER = "user"


def is_of_tools(found: PromptDiff) -> bool:
    """Whether the first difference lies in the list of tools."""
    return found.first is not None and (found.first.place or "").startswith("tools")


def least_cost(a: Prompt, b: Prompt, found: PromptDiff, tokenizer: Tokenizer, cost: int) -> int | None:
    """Tokens that are recomputed if the template puts the tools before the last user message.

    Most put them before all messages, some (Mistral's) there. None if the prompts are as the model sees them,
    or do not part in their tools, or where that is not less than ``cost``.
    """
    if (a.rendered and b.rendered) or not is_of_tools(found):
        return None
    at = _last_user(a)
    if at is None:
        return None
    behind = len(tokenizer.encode(a.text[at:]))
    least = max(0, min(behind, found.b.tokens, found.a.tokens - found.common_prefix_tokens))
    return least if least < cost else None


def explained(least: int, cost: int) -> str:
    """Say why the cost is a range."""
    return (
        f"the chat template is unknown: {cost:,} tokens are recomputed if the template puts the tools before all "
        f"messages, or about {least:,} if the tools come before the last user message, as in some templates"
    )


def _last_user(prompt: Prompt) -> int | None:
    """Where the last message of a user begins in the text."""
    messages = (prompt.body or {}).get("messages")
    if not isinstance(messages, list):
        return None
    users = [n for n, one in enumerate(messages) if isinstance(one, dict) and one.get("role") == _USER]
    if not users:
        return None
    place = f"messages[{users[-1]}]"
    starts = [span.start for span in prompt.spans if span.place == place or span.place.startswith(f"{place}.")]
    return min(starts, default=None)
