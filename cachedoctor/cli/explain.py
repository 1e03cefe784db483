"""``cachedoctor explain``: the page of a rule, or what a line of a log says.

Knows where pages are and what to do with a line; imports no rule.
"""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import arguments, terminal
from cachedoctor.cli.common_options import ColorOption, Width
from cachedoctor.knowledge.engines import SERVERS

if TYPE_CHECKING:
    from pathlib import Path

    from cachedoctor.model import Line
    from cachedoctor.report.base import Look

_UNKNOWN = 3
_STDIN_MAX = 1 << 20
"""Bytes; --line is for lines that a person reads."""

Format = Literal["text", "json"]


def explain(
    rule: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE|NAME|WORD",
            autocompletion=arguments.explained,
            help="A rule, e.g. CD108 or prefix-diverges-early; a word of the reports, e.g. slot; or blind.",
        ),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option("--line", "-l", metavar="LINE", help="Explain this line of a log; - reads standard input."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="Format of the explanation of a line.")] = "text",
    color: ColorOption = "auto",
    width: Width = None,
) -> None:
    """Print the page of a rule, or the list of all; say what a word of the reports means, or a line of a log.

    A page says what the rule means, what fixes it, how it shows in the log, and why the cache could not be used. Words
    are slot, checkpoint, prefix and the like; blind is the page about rules that could not be evaluated. Of a line of
    llama-server, vLLM or SGLang it is said what it tells about the cache, what its fields are and in which units, and
    which builds or versions print it at which level. The line may be wrapped (docker, journald, router) or cut.

    Exit status: 0; 2 wrong usage, or no such rule or word; 3 no line was recognised.
    """
    if line is None and format == "text":
        _rule(rule, terminal.look(to_file=False, color=color, width=width))
    elif line is None:
        raise typer.BadParameter("it belongs to --line", param_hint="--format")
    elif rule is not None:
        raise typer.BadParameter("give a rule or --line, not both")
    else:
        _lines(line, format, terminal.look(to_file=False, color=color, width=width))


def _rule(rule: str | None, look: Look) -> None:
    from cachedoctor.diagnosis.rules import names

    if rule is None:
        _print("\n".join(f"{code}  {name}" for code, name in names.names()), look)
        return
    pages = [names.BLIND] if rule.lower() == names.BLIND.stem else names.pages(rule)
    if pages:
        _pages(pages, look)
    else:
        _word(rule, look)


def _pages(pages: list[Path], look: Look) -> None:
    from cachedoctor.report.text.explain_text import render_page
    from cachedoctor.report.text.page import Page

    text = io.StringIO()
    for path in pages:
        page = Page(text, look.width, look.color, look.ascii_only)
        if path is not pages[0]:
            text.write("\n")
        if path.is_file():
            render_page(path.read_text("utf-8"), page)
        else:
            page.prose([], f"{path.stem[:5].upper()} has no page yet; cachedoctor rules says what it finds.", 0)
    _print(text.getvalue().rstrip("\n"), look)


def _word(word: str, look: Look) -> None:
    """Say what a word of the reports means."""
    from cachedoctor.knowledge import glossary
    from cachedoctor.report.text.page import Page

    term = glossary.find(word)
    if term is None:
        from cachedoctor.diagnosis.rules import names
        from cachedoctor.model import CacheDoctorError

        hint = names.nearest(word, glossary.spellings())
        raise CacheDoctorError(f"{word}: no such rule, and no word of the reports", hint)
    text = io.StringIO()
    Page(text, look.width, look.color, look.ascii_only).facts([(f"{term.name}: ", "bold")], term.meaning, 2)
    _print(text.getvalue().rstrip("\n"), look)


def _lines(line: str, format: Format, look: Look) -> None:
    from cachedoctor.cli.sink import Sink
    from cachedoctor.doctor.explain.explain import explain as explained

    known = seen = 0
    with Sink(None) as sink, sink.writing() as out:
        for answer in explained(_given(line)):
            if answer.explanations and known and format == "text":
                out.write(b"\n")
            seen += 1
            known += bool(answer.explanations)
            if answer.explanations or format == "json":
                _write(answer, out, format, look)
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

    data = sys.stdin.buffer.read(_STDIN_MAX + 1) if sys.stdin is not None else b""
    if len(data) > _STDIN_MAX:
        terminal.complain("only the first MiB is explained", "cachedoctor analyze reads whole logs", kind="warning")
    return data[:_STDIN_MAX]


def _unknown(line: Line) -> tuple[str, str]:
    """Error and hint for a line that is no known message."""
    where = f"line {line.number}: " if line.number > 1 else ""
    none = f"{where}no message of {SERVERS} that is known"
    if line.nearest:
        return none, f'the nearest one begins with "{line.nearest}"'
    return f"{none}, nor like one", "give a whole line, in quotes"


def _write(line: Line, out: IO[bytes], format: Format, look: Look) -> None:
    if format == "json":
        import cachedoctor
        from cachedoctor.report.wire.line_v1 import render as render_json

        render_json(line, out, cachedoctor.__version__)
        return

    from cachedoctor.report.text.explain_text import render_line

    text = io.StringIO()
    render_line(line, text, look.width, color=look.color, ascii_only=look.ascii_only)
    out.write(look.encode(text.getvalue()))


def _print(text: str, look: Look) -> None:
    from cachedoctor.cli.sink import Sink

    with Sink(None) as output, output.writing() as out:
        out.write(look.encode(text + "\n"))
