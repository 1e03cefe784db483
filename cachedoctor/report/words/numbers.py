"""Numbers and sentences for people: separators, units, plurals, and as many sentences as fit."""

from __future__ import annotations

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Cost, Totals


def number(value: float) -> str:
    """Write a whole number with thousands separators."""
    return f"{value:,.0f}"


def count(value: int, noun: str) -> str:
    """Write a number and its noun, in the plural unless there is one."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def percent(part: float, whole: float) -> str:
    """Write a share; ``whole`` is not 0.

    Only what is all or nothing reads 100 % or 0 %.
    """
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.0f} %" if share in (0, 100) else f"{share:.1f} %"


def unknown_lengths(requests: int) -> str:
    """Say that the log does not show how long the prompts of some requests were."""
    return f"the log does not show the length of {'its prompt' if requests == 1 else 'their prompts'}"


def computed(totals: Totals) -> str:
    """Say how many prompt tokens were computed, and of how many the log does not show."""
    whole, spent = totals.prompt_tokens, f" in {duration(totals.prompt_ms)}" if totals.prompt_ms else ""
    known = f"{count(totals.processed_tokens, 'token')} ({percent(totals.processed_tokens, whole)}){spent}"
    if not totals.unknown_tokens:
        return known
    rest, share = count(totals.unknown_tokens, "token"), percent(totals.unknown_tokens, whole)
    why = f"{count(totals.unknown_requests, 'request')} ended without timings"
    if not totals.processed_tokens:
        return f"unknown: {rest} ({share} of the prompt tokens) were not reused, and {why}"
    return f"{known}; {rest} ({share}) may also have been computed: {why}"


def memory(mib: float) -> str:
    """Write a size in the unit that fits it; small models have states of less than one MiB."""
    if mib >= 1024:
        return f"{mib / 1024:,.1f} GiB"
    return f"{mib:,.0f} MiB" if mib >= 10 or not mib else f"{mib:.1f} MiB"


def duration(ms: float) -> str:
    """Write a time in the unit that fits it."""
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def spent_tokens(spent: Cost) -> str:
    """Say how many tokens the fix would have saved, or between which bounds that lies."""
    if spent.at_most is None:
        return count(spent.tokens, "token")
    most = count(spent.at_most, "token")
    return f"{spent.tokens:,} to {most}" if spent.tokens else f"at most {most}"


_END = late(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!\.\.\.) +(?=[A-Z\"'(]|llama-server\b)")


def sentences(text: str) -> list[str]:
    """Split at ends of sentences; a version or a file name has none inside."""
    return _END.split(text)


def first_sentence(text: str) -> str:
    """Return the first sentence."""
    return sentences(text)[0]


def leading(text: str, most: int) -> str:
    """Return the sentences that ``most`` characters have room for, at least the first one."""
    found = sentences(text)
    taken = found[0]
    for sentence in found[1:]:
        if len(taken) + 1 + len(sentence) > most:
            break
        taken += f" {sentence}"
    return taken


def capital(text: str) -> str:
    """Begin with a capital, but for an option, and for a name that is written small."""
    word = text.split(" ", 1)[0]
    plain = (word.isalpha() and word.islower()) or word == "a"
    return text[:1].upper() + text[1:] if plain else text
