"""``cachedoctor diff``: where two prompts diverge, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Output, by_name, option
from cachedoctor.cli.ending import Interrupts
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.report.base import Appearance

if TYPE_CHECKING:
    from cachedoctor.model import PromptDiff

_FORMATS: tuple[Literal["text", "json"], ...] = ("text", "json")
_EQUAL, _DIFFERENT = 0, 1


def diff(
    ctx: typer.Context,
    prompt1: Annotated[
        str, typer.Argument(metavar="PROMPT1", help="The older prompt, which the server has in its cache.")
    ],
    prompt2: Annotated[
        str | None,
        typer.Argument(metavar="[PROMPT2]", help="The newer prompt; without it, PROMPT1 must contain several prompts."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        option("--tokenizer", "Tokenizer: tokenizer.json, .gguf, or http://host:port of a running server.", "FILE|URL"),
    ] = None,
    template: Annotated[
        str | None, option("--template", "Chat template: .jinja, /props JSON, tokenizer_config.json, .gguf.", "FILE")
    ] = None,
    slot: Annotated[int | None, option("--slot", "Slot number in a /slots dump.", "N", min=0)] = None,
    full: Annotated[bool, option("--full", "Show all differences, not only the first one.")] = False,
    least: Annotated[bool, option("--least", "Show the smallest set of changes that restores reuse.")] = False,
    context: Annotated[
        int, option("--context", "Number of tokens shown around the difference.", "N", min=0, max=200)
    ] = 8,
    build: Annotated[
        int | None,
        option("--build", "llama.cpp build; shows what this build could reuse.", "N", parser=terminal.build_number),
    ] = None,
    hash_text: Annotated[bool, option("--hash-text", "Print hashes and lengths instead of prompt text.")] = False,
    format: Annotated[Literal["text", "json"], option("--format -f", "Format of the result.")] = "text",
    output: Output = None,
) -> None:
    """Show where two prompts diverge, the difference, and its cost.

    A prompt can be plain text, a /slots dump, a request body (OpenAI chat, completions, responses; Anthropic
    messages), JSONL of bodies, a recording, a --log-prompts-dir directory, or - for standard input. Recordings are
    HAR, llama-swap, LiteLLM, OpenTelemetry, vLLM or SGLang request logs, or a Claude Code transcript. One argument
    with many prompts compares consecutive prompts of each conversation.

    Exit status: 0 equal, or many prompts that only append text; 1 different; 2 an error.
    """
    from cachedoctor.prompts import run_diff

    chosen = by_name(ctx, format, output, _FORMATS)
    spare_inputs(output, [prompt1, prompt2, tokenizer, template])
    _refuse_logs([prompt1] if prompt2 is None else [prompt1, prompt2])
    ask = run_diff.DiffJob(tokenizer, template, slot, full, context, build, hash_text, least)
    answers = run_diff.answer(prompt1, prompt2, ask)
    with Interrupts(), Sink(output) as sink:
        _write(answers, sink, chosen, terminal.look(sink.path is not None))
    sys.stdout.flush()
    walked = prompt2 is None
    same = all(answer.equal or (walked and run_diff.only_appended(answer)) for answer in answers)
    raise typer.Exit(_EQUAL if same else _DIFFERENT)


def _refuse_logs(paths: list[str]) -> None:
    """Raise ``CacheDoctorError`` where logs without prompts were given: they are text, but no prompts."""
    from shlex import quote

    from cachedoctor.doctor.tables.tables import is_log
    from cachedoctor.prompts.inputs import has_logged_prompts

    if not all(map(is_log, paths)) or all(map(has_logged_prompts, paths)):
        return
    from cachedoctor.model import CacheDoctorError

    if len(paths) == 1:
        raise CacheDoctorError(f"{paths[0]}: is a log, not a prompt", f"cachedoctor analyze {quote(paths[0])}")
    hint = f"cachedoctor compare {' '.join(map(quote, paths))} shows the changes between them"
    raise CacheDoctorError(f"{paths[0]} and {paths[1]}: are logs, not prompts", hint)


def _write(answers: list[PromptDiff], sink: Sink, format: str, look: Appearance) -> None:
    if format == "json":
        import cachedoctor
        from cachedoctor.report.wire.diff_v1 import render as render_json

        with sink.writing() as out:
            render_json(answers, out, cachedoctor.__version__)
        return
    import io

    from cachedoctor.report.text.diff_text import render

    with sink.writing() as out:
        known: set[str] = set()
        for number, answer in enumerate(answers):
            text = io.StringIO()
            if number:
                text.write("\n")
            render(answer, text, look.width, color=look.color, ascii_only=look.ascii_only, known=known)
            out.write(look.encode(text.getvalue()))
