"""``cachedoctor explain``: the page of a rule, or what a line of a log says.

Knows where pages are and what to do with a line; imports no rule.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import completion

if TYPE_CHECKING:
    from cachedoctor.model import Line

_UNKNOWN = 3
_STDIN_MAX = 1 << 20
"""Bytes; --line is for lines that a person reads."""

Format = Literal["text", "json"]


def explain(
    rule: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE|NAME",
            autocompletion=completion.rule,
            help="A rule, e.g. CD108 or prefix-diverges-early.",
        ),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option("--line", "-l", metavar="LINE", help="Explain this line of a log; - reads standard input."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="Format of the explanation of a line.")] = "text",
) -> None:
    """Print the page of a rule, or the list of all; with --line, say what a line of a log means.

    A page says what the rule means, how it shows in the log, why the cache could not be used, and what fixes it. Of a
    line it is said what it tells about the cache, what its fields are and in which units, and which builds print it at
    which level. The line may be wrapped (docker, journald, router) or cut.

    Exit status: 0; 2 wrong usage or no such rule; 3 no line was recognised.
    """
    if line is None and format == "text":
        _rule(rule)
    elif line is None:
        raise typer.BadParameter("it belongs to --line", param_hint="--format")
    elif rule is not None:
        raise typer.BadParameter("give a rule or --line, not both")
    else:
        _lines(line, format)


def _rule(rule: str | None) -> None:
    from cachedoctor.rules import names

    if rule is None:
        _print("\n".join(f"{code}  {name}" for code, name in names.names()))
        return
    page = names.find(rule)
    if page is None:
        from cachedoctor.model import CacheDoctorError

        raise CacheDoctorError(f"{rule}: no such rule", names.nearest(rule))
    if not page.is_file():
        _print(f"{page.stem[:5].upper()} has no page yet; cachedoctor rules says what it finds.")
        return
    _print(page.read_text("utf-8").rstrip("\n"))


def _lines(line: str, format: Format) -> None:
    from cachedoctor.cli import terminal
    from cachedoctor.cli.sink import Sink
    from cachedoctor.doctor.explaining import explain as explained

    known = seen = 0
    with Sink(None) as sink, sink.writing() as out:
        for answer in explained(_given(line)):
            if answer.explanations and known and format == "text":
                out.write(b"\n")
            seen += 1
            known += bool(answer.explanations)
            if answer.explanations or format == "json":
                _write(answer, out, format)
            if not answer.explanations:
                out.flush()
                terminal.complain(*_unknown(answer), kind="error" if answer.number == 1 else "warning")
    if not seen:
        terminal.complain("the line is empty", "give one line of a log, in quotes")
    if not known:
        raise typer.Exit(_UNKNOWN)


def _given(line: str) -> bytes:
    if line != "-":
        return line.encode("utf-8", "surrogateescape")
    import sys

    from cachedoctor.cli import terminal

    data = sys.stdin.buffer.read(_STDIN_MAX + 1) if sys.stdin is not None else b""
    if len(data) > _STDIN_MAX:
        terminal.complain("only the first MiB is explained", "cachedoctor analyze reads whole logs", kind="warning")
    return data[:_STDIN_MAX]


def _unknown(line: Line) -> tuple[str, str]:
    """Error and hint for a line that is no known message."""
    where = f"line {line.number}: " if line.number > 1 else ""
    if line.nearest:
        return f"{where}no message of llama-server that is known", f'the nearest one begins with "{line.nearest}"'
    return f"{where}no message of llama-server that is known, nor like one", "give a whole line, in quotes"


def _write(line: Line, out: IO[bytes], format: Format) -> None:
    if format == "json":
        import cachedoctor
        from cachedoctor.report.line_json import render as render_json

        render_json(line, out, cachedoctor.__version__)
        return
    import io

    from cachedoctor.cli import terminal
    from cachedoctor.report.line_text import render

    look = terminal.look(to_file=False)
    text = io.StringIO()
    render(line, text, look.width, color=look.color, ascii_only=look.ascii_only)
    out.write(look.encode(text.getvalue()))


def _print(text: str) -> None:
    from cachedoctor.cli import sink, terminal

    with sink.Sink(None) as output, output.writing() as out:
        out.write(terminal.look(to_file=False).encode(text + "\n"))
