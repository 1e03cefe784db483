"""Why was my prompt recomputed? Reads llama-server logs and answers with evidence.

The public API is ``analyze(path) -> Report``, ``diff(a, b) -> PromptDiff``, ``lint(bodies) -> Lint``, the types of
their results, and ``CacheDoctorError``. Importing this package is fast, because types are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike
    from typing import Any

    from cachedoctor.model import (
        Account,
        AccountEntry,
        Advice,
        AgentDifference,
        AgentVerdict,
        Answer,
        Answers,
        BatchPeriod,
        Bucket,
        CacheDoctorError,
        CacheSample,
        CheckpointRow,
        ClientAccount,
        ClientName,
        ClientSetting,
        Confidence,
        Cost,
        Counters,
        Edit,
        Evidence,
        Excerpt,
        Filtered,
        Finding,
        First,
        Fix,
        FixStep,
        Incident,
        InputInfo,
        KnownClient,
        KvEvents,
        Launcher,
        LeastChange,
        LeastEdit,
        Lint,
        LintError,
        LintHint,
        Memory,
        NotEvaluated,
        OptionChange,
        OptionReplay,
        OtherFix,
        Outcome,
        PrefillBatch,
        PromptDiff,
        Remedy,
        Report,
        RequestLines,
        RequestRow,
        RequestSetting,
        Restart,
        Rows,
        RuledOut,
        RuleInfo,
        SamplePeriod,
        Session,
        Setting,
        Severity,
        Side,
        SlotReuse,
        SlowTurn,
        Totals,
        TrialAnswer,
        UnknownShape,
    )

__version__ = "1.0.0"
__all__ = [
    "Account",
    "AccountEntry",
    "Advice",
    "AgentDifference",
    "AgentVerdict",
    "Answer",
    "Answers",
    "BatchPeriod",
    "Bucket",
    "CacheDoctorError",
    "CacheSample",
    "CheckpointRow",
    "ClientAccount",
    "ClientName",
    "ClientSetting",
    "Confidence",
    "Cost",
    "Counters",
    "Edit",
    "Evidence",
    "Excerpt",
    "Filtered",
    "Finding",
    "First",
    "Fix",
    "FixStep",
    "Incident",
    "InputInfo",
    "KnownClient",
    "KvEvents",
    "Launcher",
    "LeastChange",
    "LeastEdit",
    "Lint",
    "LintError",
    "LintHint",
    "Memory",
    "NotEvaluated",
    "OptionChange",
    "OptionReplay",
    "OtherFix",
    "Outcome",
    "PrefillBatch",
    "PromptDiff",
    "Remedy",
    "Report",
    "RequestLines",
    "RequestRow",
    "RequestSetting",
    "Restart",
    "Rows",
    "RuleInfo",
    "RuledOut",
    "SamplePeriod",
    "Session",
    "Setting",
    "Severity",
    "Side",
    "SlotReuse",
    "SlowTurn",
    "Totals",
    "TrialAnswer",
    "UnknownShape",
    "__version__",
    "analyze",
    "diff",
    "lint",
]

if not TYPE_CHECKING:  # so that mypy still finds names that are not there

    def __getattr__(name: str) -> object:
        """Import a type of the public API on first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from cachedoctor import model

        return getattr(model, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def analyze(
    *paths: str | PathLike[str],
    build: int | None = None,
    cmdline: str | None = None,
    prompts: Sequence[str | PathLike[str]] = (),
    tokenizer: str | None = None,
    template: str | None = None,
    metrics: Sequence[str | PathLike[str]] = (),
    responses: Sequence[str | PathLike[str]] = (),
    kv_events: Sequence[str | PathLike[str]] = (),
    select: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
) -> Report:
    """Analyse the log files ``paths`` (``-`` is standard input) and return the Report.

    Settings files and environment variables are ignored. If reading an input fails midway, its ``error`` in
    ``report.inputs`` is set.

    Args:
        build: build number of llama.cpp, if the log does not show it.
        cmdline: command line of the server, as one string; its options are checked and used as facts.
        prompts: files with prompts: request bodies (JSONL), ``/slots`` dumps, directories of ``--log-prompts-dir``.
        tokenizer: as for ``diff``; prompts are then matched to requests by exact length.
        template: chat template for request bodies.
        metrics: dumps of ``/metrics`` of vLLM or SGLang; for several dumps of one server, the differences count.
        responses: files of responses with ``usage``. If ``responses`` or ``metrics`` is given, ``paths`` may be empty.
        kv_events: recordings of ``cachedoctor watch --kv-events``; if given, ``paths`` may be empty.
        select: rules to report: codes, code prefixes or names; None for all rules.
        ignore: rules to leave out of the report.

    Raises:
        CacheDoctorError: no input can be read, or an argument cannot be used (``message`` and ``hint`` say why).
    """
    from cachedoctor.doctor.analysis.run import Beside, analyze_paths

    files = [[str(p) for p in given] for given in (metrics, responses, kv_events)]
    beside = Beside(cmdline, [str(p) for p in prompts], tokenizer, template, *files)
    return analyze_paths([str(p) for p in paths], build, beside, select, ignore)


def diff(
    a: str | PathLike[str],
    b: str | PathLike[str],
    *,
    tokenizer: str | None = None,
    template: str | None = None,
    full: bool = False,
    build: int | None = None,
) -> PromptDiff:
    """Compare the prompts in two files: ``a`` is in the cache of the server, and ``b`` is the new prompt.

    Args:
        tokenizer: a ``tokenizer.json``, a ``.gguf``, or ``http://host:port`` of a running server; makes counts exact.
        template: chat template for request bodies.
        full: if True, the result also has the whole difference, not only the first one.
        build: llama.cpp build for which the reusable tokens are computed.

    Raises:
        CacheDoctorError: an input or an argument cannot be used (``message`` and ``hint`` say why).
    """
    from cachedoctor.prompts.run_diff import DiffJob, answer

    return answer(str(a), str(b), DiffJob(tokenizer, template, full=full, build=build))[0]


def lint(
    bodies: Iterable[Mapping[str, Any]],
    *,
    tokenizer: str | None = None,
    template: str | None = None,
    server: str | None = None,
    build: int | None = None,
) -> Lint:
    """Check that each request body extends the previous one of its conversation; bodies are in the order sent.

    Args:
        bodies: request bodies of OpenAI chat, completions and responses, or Anthropic messages.
        tokenizer: as for ``diff``.
        template: chat template of the model; shows changes by the template, and makes counts exact.
        server: ``http://host:port`` of a running llama-server that renders and tokenises the bodies.
        build: llama.cpp build that will serve the requests.

    Raises:
        CacheDoctorError: no two bodies belong to one conversation, or an argument cannot be used.
    """
    from cachedoctor.doctor.linting.lint_bodies import LintAsk, from_dicts, lint_requests

    return lint_requests(from_dicts(bodies), LintAsk(tokenizer, template, server, build))
