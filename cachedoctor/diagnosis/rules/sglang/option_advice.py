"""Remedies that several rules about SGLang give: options by the names of the user's version, and the experiments.

Covers options of SGLang 0.4.3 to 0.5.23 (server_args.py, from 0.5.19 on arg_groups/fields).
"""

from __future__ import annotations

from cachedoctor.diagnosis.rules.measured.batch_periods import strategy
from cachedoctor.model import Remedy, Session, as_typed

NO_TRACE = (
    "a cache salt or extra_key, a LoRA adapter, an image, a router that sends the requests to several servers, "
    "a request that disables caching"
)
"""What separates requests without a line in this log."""


def extra_buffer(session: Session) -> Remedy:
    """Advise the strategy that keeps states where prompts diverge, by the name that the version has."""
    what = (
        "Also save a recurrent state at the point where prompts diverge. This takes up to two more states per running request and needs an attention "
        "backend that supports pages of 64 tokens."
    )
    if session.since("0.5.7") is False:
        return Remedy(f"Use 0.5.14 or newer. {what} 0.5.7 is the first version that supports this strategy (PR 14792), and from 0.5.14 on it is the default for Qwen3-Next, Qwen3.5 and most other hybrid models.")  # fmt: skip
    if session.since("0.5.14"):
        return Remedy(
            f"{what} On AMD this strategy needs 0.5.16 or newer (PR 30359).",
            options=as_typed("--mamba-radix-cache-strategy extra_buffer --page-size 64"),
        )
    if session.since("0.5.14") is False:
        return Remedy(
            f"{what} This strategy needs CUDA, MUSA or an NPU in this version; with speculative decoding it also needs SGLANG_ENABLE_SPEC_V2=1 "
            "(0.5.10 to 0.5.13). From 0.5.14 on, it is the default of most hybrid models.",
            options=as_typed("--mamba-scheduler-strategy extra_buffer --page-size 64"),
        )
    return Remedy(
        f"{what} The option is called --mamba-scheduler-strategy from 0.5.7 on and --mamba-radix-cache-strategy from 0.5.14 on; "
        "the log does not show the version.",
        [
            "--mamba-radix-cache-strategy extra_buffer --page-size 64",
            "--mamba-scheduler-strategy extra_buffer --page-size 64",
        ],
    )


def experiment(session: Session, *, shared: bool = False) -> Remedy:
    """Advise the two requests that show whether the server or the prompts are the cause.

    Args:
        session: the server.
        shared: the prompts are known to share their beginning, so that they are not the cause.
    """
    blame = (
        "something else in the requests, or a router, separates the prompts" if shared else "the prompts are the cause"
    )
    if strategy(session) == "no_buffer":
        second = "one turn of a conversation, then the same turn with its answer and a new message. Do not repeat the same request: with no_buffer a repeated request reuses nothing, whatever the cause (issue 21158)"
    else:
        second = "the same request, of a few thousand tokens, twice"
    return Remedy(
        f"To decide: start the server with --enable-cache-report and send {second}. If cached_tokens in the usage of the second "
        f"response covers nearly the whole first prompt, the server is fine and {blame}.",
        options=as_typed("--enable-cache-report"),
        purpose="look",
    )


def compare_bodies() -> Remedy:
    """Advise a comparison of two request bodies."""
    return Remedy(
        "To see where two prompts diverge: save the bodies of two requests that should share their beginning.",
        ["cachedoctor diff first.json second.json"],
    )


LOG_REQUESTS = "--log-requests --log-requests-level 2"
"""Level 2 logs the beginning of a prompt in all versions; up to 0.4.6 the whole prompt."""


def log_requests() -> Remedy:
    """Advise the option that writes each request's reuse and prompt into the log."""
    return Remedy(
        "To see the cause in the next log: make the server log the reused tokens and the beginning of the prompt for each request. The log then contains prompt text.",
        options=as_typed(LOG_REQUESTS),
        purpose="look",
    )


# ---- what this log cannot show


def needs_requests() -> tuple[str, str]:
    """Why no single requests are known, and what would show them."""
    return (
        "too few requests ran alone; the log line of a batch has no counts per request",
        f"make the server log every request (this writes prompt text to the log)\n{LOG_REQUESTS}",
    )


def needs_start() -> tuple[str, str]:
    """Why the settings are unknown, and what would show them."""
    return (
        "the log lacks the server start, where the settings are printed",
        "keep the log from the start of the server",
    )
