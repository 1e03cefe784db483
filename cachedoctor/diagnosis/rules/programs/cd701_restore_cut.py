"""CD701: ollama's MLX runner restores a prompt only up to a multiple of 8,192 tokens below what matched."""

from __future__ import annotations

from collections import Counter

from cachedoctor.diagnosis.rules import kit

_STRIDE = 8192
"""Tokens between the snapshots that a long prompt leaves (issue 18267, ollama 0.33.3)."""
_LEAST = 512
"""Tokens by which the restored part must be shorter than the match: a few are lost wherever a conversation is resumed."""
_FAR = 4096
"""The same if the restored part does not end at a multiple of the stride: half of the stride."""
_WORTH = 8192
"""Total lost tokens from which on it is a warning."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if the restored part ends one token below a multiple of the stride, and far below the match."""
    logged = [a for answers in session.answers for a in answers.each if answers.source == "log"]
    cut = [a for a in logged if _is_cut(a)] or _to_one_place(logged)
    line = session.settings.get("restore_cut")
    if not cut or line is None or line.line is None:
        return []
    lost = sum((a.prefix or 0) - (a.cached_tokens or 0) for a in cut)
    worst = max(cut, key=lambda a: (a.prefix or 0) - (a.cached_tokens or 0))
    return [
        kit.finding(
            f"{kit.times(len(cut))} matched more tokens than were restored: {kit.n(lost)} tokens recomputed, up to {kit.n((worst.prefix or 0) - (worst.cached_tokens or 0))} in one request",
            f"The runner keeps a snapshot every {kit.n(_STRIDE)} tokens of a prompt, and goes back to the last snapshot before the divergence. The first prompt after a prompt that was computed in full recomputes the tokens in between.",
            [
                kit.Remedy("Try a newer ollama; no setting of ollama 0.33.3 changes this."),
                kit.Remedy(
                    "Put changing text (a session id, a path, a date) at the end of the prompt, so the whole earlier prompt matches."
                ),
            ],
            references=["https://github.com/ollama/ollama/issues/18267"],
            evidence=[(kit.Mark(line.line, line.text), "matched and restored")],
            severity="warning" if lost >= _WORTH else "note",
        )
    ]


def _is_cut(answer: kit.Answer) -> bool:
    matched, cached = answer.prefix, answer.cached_tokens
    return matched is not None and cached is not None and is_cut(matched, cached)


def _to_one_place(logged: list[kit.Answer]) -> list[kit.Answer]:
    """Return the requests that went back to a length that comes again, far below their matches.

    A snapshot near the end of an earlier prompt lies at no multiple: ``matched=32112 cached=24933``, then
    ``matched=32838 cached=24933``.
    """
    back = [a for a in logged if a.cached_tokens and (a.prefix or 0) - a.cached_tokens >= _FAR]
    lengths = Counter(a.cached_tokens for a in back)
    return [a for a in back if lengths[a.cached_tokens] > 1]


def is_cut(matched: int, cached: int) -> bool:
    """Whether a restored length is that of a snapshot though more matched: ``matched=21742 cached=16383``."""
    return cached > 0 and matched - cached >= _LEAST and (cached + 1) % _STRIDE == 0


def _needs(session: kit.Session) -> tuple[str, str] | None:
    if any(a.prefix is not None for answers in session.answers for a in answers.each):
        return None
    return (
        "this runner does not print how much of a prompt matched",
        "the MLX runner of newer ollama versions prints the match",
    )


RULE = kit.session_rule(
    __name__,
    "ollama's MLX runner goes back to a multiple of 8,192 tokens below the match",
    inspect,
    needs=_needs,
    severity="warning",
    engine="ollama",
)
