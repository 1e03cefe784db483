"""Why was my prompt recomputed? Reads llama-server logs and answers with evidence.

The whole public API: ``analyze(path) -> Report`` and ``diff(a, b) -> PromptDiff``. Importing this package imports
nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from cachedoctor.model import PromptDiff, Report

__version__ = "0.1.0"
__all__ = ["__version__", "analyze", "diff"]


def analyze(*paths: str | PathLike[str], build: int | None = None) -> Report:
    """Analyse the log files ``paths`` (``-`` is standard input) and return the Report.

    Args:
        build: the llama.cpp build number, when the log does not say it.

    Raises:
        CacheDoctorError: an input cannot be read at all.
    """
    from cachedoctor.doctor.run import analyze_paths

    return analyze_paths([str(p) for p in paths], build=build)


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
        CacheDoctorError: an input cannot be used.
    """
    from cachedoctor.prompts.session import Ask, answer

    return answer(str(a), str(b), Ask(tokenizer, template, full=full, build=build))[0]
