"""Why was my prompt recomputed? Reads llama-server logs and answers with evidence.

The whole public API: ``analyze(path) -> Report``, ``diff(a, b) -> PromptDiff``,
``lint(bodies) -> Lint``, the types of what they return, and
``CacheDoctorError``. Importing this package imports nothing heavy; a type is imported when it is asked for.
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
        """Import a type of the public API when it is asked for."""
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

    Neither files of settings nor the environment have a say in it. An input that fails midway is named in
    ``report.inputs``.

    Args:
        build: the llama.cpp build number, when the log does not show it.
        cmdline: what started the server; its options are checked, and are facts where the log is silent.
        prompts: files for the log: request bodies (JSONL), ``/slots`` dumps, directories of ``--log-prompts-dir``.
        tokenizer: as for ``diff``; matches prompts to requests by their exact length.
        template: chat template for request bodies.
        metrics: dumps of ``/metrics`` of vLLM or SGLang; of several of one server the differences count.
        responses: files of responses that have ``usage``. With these or ``metrics``, ``paths`` may be empty.
        kv_events: recordings of ``cachedoctor watch --kv-events``; with these ``paths`` may be empty, too.
        select: rules to report: codes, beginnings of codes, names; None is all of them.
        ignore: rules not to report.

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
    """Compare the prompts in the files ``a`` (what the server holds) and ``b`` (the new one).

    Args:
        tokenizer: a ``tokenizer.json``, a ``.gguf``, or ``http://host:port`` of a running server; makes counts exact.
        template: chat template for request bodies.
        full: give the whole edit script, not only the first difference.
        build: of llama.cpp, for what it could reuse.

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
    """Demand of request bodies, in the order of sending, that each extends the one before it in its conversation.

    Args:
        bodies: what was posted: OpenAI chat, completions and responses, Anthropic messages.
        tokenizer: as for ``diff``.
        template: chat template of the model; shows what it changes by itself, and makes counts exact.
        server: ``http://host:port`` of a running llama-server that renders and tokenises instead.
        build: of llama.cpp that will read them.

    Raises:
        CacheDoctorError: no two bodies are of one conversation, or an argument cannot be used.
    """
    from cachedoctor.doctor.linting.lint_bodies import LintAsk, from_dicts, lint_requests

    return lint_requests(from_dicts(bodies), LintAsk(tokenizer, template, server, build))
