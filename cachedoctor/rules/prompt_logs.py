"""What makes vLLM and SGLang write requests into their log, by version.

Sources: vLLM logged requests with their prompts by default up to 0.10.0 (``--disable-log-requests``), from 0.10.1 on with
``--enable-log-requests``, and the prompts themselves only at DEBUG from 0.11.1 on (source distributions 0.10.0 to 0.33.0).
SGLang: ``--log-requests``, with the prompt from ``--log-requests-level 2`` on (wheels 0.4.3 to 0.5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from cachedoctor.model import Session

OF_LLAMA_ALONE = frozenset({"CD109"})
"""Causes of clients that other servers do not have: a request cannot switch the cache off by ``cache_prompt``."""
_DIFF = "cachedoctor diff first.json second.json"


def unseen(sessions: Sequence[Session]) -> tuple[str, str]:
    """Say why the causes of clients cannot be seen in logs of these servers, and what would show them.

    The first row of what would show them is a sentence, the others are commands.
    """
    answers = [answers for s in sessions for answers in s.answers]
    if any(session.parted for session in sessions):
        reason = "the request bodies that were given could not be matched to requests: the log has no numbers of these"
        return (
            reason,
            "see how each body differs from the one before it in its conversation\ncachedoctor diff bodies.jsonl",
        )
    if any(answer.prefix is not None for found in answers for answer in found.each):
        reason = "of the prompts only the length of their common prefix was seen, not what changed in them"
        return reason, f"compare two request bodies that should have a prefix in common\n{_DIFF}"
    told = any(found.told for found in answers)
    reason = (
        "there are numbers of requests, and no prompts" if told else "there are no numbers of requests, and no prompts"
    )
    logged = dict.fromkeys(command for session in sessions for command in _commands(session))
    engines = {session.engine for session in sessions}
    log = f"{engines.pop()}.log" if len(engines) == 1 else "server.log"
    words = "give request bodies beside the log, or compare two that should have a prefix in common"
    if logged:
        words += "; or have the prompts logged, which then stand in the log as they are"
    return reason, "\n".join([words, f"cachedoctor analyze {log} --requests bodies.jsonl", _DIFF, *logged])


def _commands(session: Session) -> list[str]:
    if session.engine == "sglang":
        return ["--log-requests --log-requests-level 2"]
    if session.engine != "vllm" or session.since("0.10.1") is False:  # it logs them by itself
        return []
    debug = [] if session.since("0.11.1") is False else ["export VLLM_LOGGING_LEVEL=DEBUG"]
    return [*debug, "--enable-log-requests"]
