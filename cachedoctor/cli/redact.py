"""``cachedoctor redact``: a log that can be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Output, given_or_piped
from cachedoctor.cli.ending import FAULT, INTERRUPTED, NOTHING, Interrupts, expected
from cachedoctor.cli.sink import Sink, spare_inputs

if TYPE_CHECKING:
    from cachedoctor.doctor.redact.redact import Redactor


def redact(
    ctx: typer.Context,
    log: Annotated[
        str | None, typer.Argument(metavar="LOG", help="The log, plain or gz, xz, bz2, zst; - is standard input.")
    ] = None,
    output: Output = None,
) -> None:
    """Write a copy of a log that is safe to publish; analyze gives the same result for it.

    Prompts, bodies, paths, hosts, addresses, keys and model names become placeholders like <path-1>; the same
    value always gets the same placeholder. The server's own words, numbers, clock times and line numbers stay. A
    line that is not a known message of llama-server, vLLM or SGLang becomes <line>.

    Exit status: 0 written; 2 wrong usage or an unreadable input; 3 nothing in the input was recognised (written
    anyway); 130 interrupted (FILE is not written).
    """
    path = given_or_piped(ctx, log)
    spare_inputs(output, [path])
    raise typer.Exit(_run(path, output))


def _run(path: str, output: str | None) -> int:
    from cachedoctor.doctor.redact.redact import Redactor, redact_to
    from cachedoctor.inputs.sources.unpack import MAX_BYTES

    redactor = Redactor()
    try:
        with Interrupts(), Sink(output) as sink, sink.writing() as out:
            error = redact_to(path, redactor, out, MAX_BYTES)
            if error is not None and not redactor.lines:
                raise error
    except KeyboardInterrupt:
        return INTERRUPTED
    if error is not None:
        terminal.complain(error.message, error.hint)
        return FAULT
    return _summary(redactor)


def _summary(redactor: Redactor) -> int:
    if not redactor.recognised:
        what = "nothing in the input was recognised" if redactor.lines else "the input is empty"
        terminal.complain(what, expected(redactor.begin))
        return NOTHING
    from cachedoctor.report.words.numbers import count

    unknown = redactor.lines - redactor.recognised
    kinds = ", ".join(f"{kind} ({n:,})" for kind, n in sorted(redactor.replaced().items()))
    lines = f"{count(redactor.lines, 'line')}, {max(unknown, 0):,} of them unrecognised (written as <line>)"
    terminal.complain(
        f"{lines}; other placeholders: {kinds or 'none'}", "check the result before you publish it", "note"
    )
    return 0
