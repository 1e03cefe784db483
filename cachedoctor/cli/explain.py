"""``cachedoctor explain``: all rules or the page of one, a word of the reports, a line of a log, the settings."""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from cachedoctor.cli import arguments, terminal
from cachedoctor.cli.common_options import option
from cachedoctor.knowledge.engines import SERVERS

if TYPE_CHECKING:
    from pathlib import Path

    from cachedoctor.cli.settings import FileValue, FoundSettings
    from cachedoctor.diagnosis.rules.kit import AnyRule
    from cachedoctor.model import Line
    from cachedoctor.report.base import Appearance

_UNKNOWN = 3
_STDIN_MAX = 1 << 20
"""Bytes; --line is for lines that a person reads."""

Format = Literal["text", "json"]
SETTINGS = "settings"


def explain(
    ctx: typer.Context,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE|NAME|WORD|settings",
            autocompletion=arguments.explained,
            help="A rule ('CD108' or 'prefix-diverges-early'), a word from reports ('slot'), 'blind' or 'settings'.",
        ),
    ] = None,
    line: Annotated[str | None, option("--line -l", "Explain this log line; - reads standard input.", "LINE")] = None,
    example: Annotated[bool, option("--example", "Include the sample log lines of a rule's page.")] = False,
    format: Annotated[
        Format, option("--format -f", "Output format for a line, the list of rules, or settings.")
    ] = "text",
) -> None:
    """List all rules, print a rule's page, explain a word or a log line, or show the settings.

    A page has the fix, the meaning of the cause, its log lines, and why the cache could not be used. Words are, for
    example, slot, checkpoint and prefix; the word blind shows what data the unchecked rules need. In the list,
    severity "by cost" means a warning at a total cost of 1,000 tokens or more, and otherwise a note.

    For a line of llama-server, vLLM or SGLang, explain shows the meaning for the cache, the fields with units, and the
    builds or versions that print it, with log levels. The line may be wrapped (docker, journald, router) or
    truncated.

    explain settings shows every setting with its value and origin. Options override environment variables, which
    override files, which override defaults.

    Exit status: 0 shown; 2 wrong usage, no such rule or word, or an unusable settings file; 3 no line was
    recognised.
    """
    look = terminal.look(to_file=False)
    if line is not None:
        if topic is not None:
            raise typer.BadParameter("give a rule or --line, not both")
        _lines(line, format, look)
    elif topic is None:
        _list_rules(format, look)
    elif topic.lower() == SETTINGS:
        _show_settings(ctx, format, look)
    elif format != "text":
        raise typer.BadParameter(
            "--format works only with --line, settings or the list of rules", param_hint="--format"
        )
    else:
        _topic(topic, look, example)


def _list_rules(format: Format, look: Appearance) -> None:
    """Write the table of rules."""
    from cachedoctor.cli.sink import Sink
    from cachedoctor.diagnosis.rules import registry

    loaded, broken = registry.load()
    loaded.sort(key=lambda rule: rule.code)
    with Sink(None) as output, output.writing() as out:
        out.write(_rules_json(loaded) if format == "json" else _rules_table(loaded, look))
    for rule in broken:
        terminal.complain(f"{rule.code} {rule.name} cannot be loaded: {rule.error}", kind="internal error")
    if broken:
        raise typer.Exit(2)


def _rules_json(rules: list[AnyRule]) -> bytes:
    import msgspec

    fields = ("code", "name", "severity", "summary", "url")
    rows = [{field: getattr(rule, field) for field in fields} for rule in rules]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n"


def _rules_table(rules: list[AnyRule], look: Appearance) -> bytes:
    from cachedoctor.report.text.page import TextPage

    text = io.StringIO()
    page = TextPage(text, look.width, look.color, look.ascii_only)
    wide = max((len(r.name) for r in rules), default=0)
    for rule in rules:
        severity = rule.severity.replace("-", " ")
        page.prose([(rule.code, "bold"), f"  {rule.name:<{wide}}  {severity:<7}  "], rule.summary, wide + 18)
    return look.encode(text.getvalue())


def _show_settings(ctx: typer.Context, format: Format, look: Appearance) -> None:
    """Write every setting, its value and its origin."""
    from cachedoctor.cli import settings
    from cachedoctor.cli.sink import Sink

    found = settings.gather(ctx, None, False, but=("format",))
    with Sink(None) as sink, sink.writing() as out:
        out.write(_settings_json(found) if format == "json" else _settings_text(found, look))


def _settings_json(found: FoundSettings) -> bytes:
    import msgspec

    from cachedoctor.cli.settings import KEYS

    rows = [
        {
            "name": key.name,
            "value": found.values[key.name].value,
            "unit": key.unit or None,
            "default": key.default,
            "source": found.values[key.name].source,
            "place": found.values[key.name].place or None,
            "variable": key.variable,
            "reason": key.reason,
        }
        for key in KEYS.values()
    ]
    whole = {"file": _path(found), "settings": rows, "ignored": sorted(found.off)}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def _settings_text(found: FoundSettings, look: Appearance) -> bytes:
    from cachedoctor.cli.settings import KEYS
    from cachedoctor.report.text.page import TextPage

    text = io.StringIO()
    page = TextPage(text, look.width, look.color, look.ascii_only)
    page.prose([("file  ", "bold")], _path(found) or "none", 6)
    page.gap()
    wide = max(map(len, KEYS)) + 2
    for key in KEYS.values():
        value = found.values[key.name]
        page.prose([(f"{key.name:<{wide}}", "bold")], f"{_value_text(value.value, key.unit)}  ({_origin(value)})", wide)
        page.prose([" " * wide], key.reason, wide)
    if found.off:
        page.gap()
        page.prose([("switched off  ", "bold")], ", ".join(sorted(found.off)), 14)
    return look.encode(text.getvalue())


def _path(found: FoundSettings) -> str | None:
    return None if found.path is None else str(found.path).encode("utf-8", "backslashreplace").decode()


def _value_text(value: Any, unit: str) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:,} {unit}" if unit else str(value)


def _origin(value: FileValue) -> str:
    return value.source if not value.place else f"{value.source}: {value.place}"


def _topic(topic: str, look: Appearance, example: bool) -> None:
    """Print the page of a rule, or the meaning of a word."""
    from cachedoctor.diagnosis.rules import names

    gone = names.former(topic)
    for one in gone:
        terminal.complain(str(one), kind="note")
    successors = dict.fromkeys(code for one in gone for code in one.now)
    pages = [names.BLIND] if topic.lower() == names.BLIND.stem else names.pages(topic)
    pages += [page for code in successors for page in names.pages(code)]
    if pages:
        _pages(pages, look, example)
    else:
        _word(topic, look)


def _pages(pages: list[Path], look: Appearance, example: bool) -> None:
    from cachedoctor.report.text.explain_text import render_page
    from cachedoctor.report.text.page import TextPage

    text = io.StringIO()
    for path in pages:
        page = TextPage(text, look.width, look.color, look.ascii_only)
        if path is not pages[0]:
            text.write("\n")
        if path.is_file():
            if render_page(path.read_text("utf-8"), page, example=example):
                page.gap()
                page.row(f"Sample lines: cachedoctor explain {path.stem[:5].upper()} --example")
        else:
            page.prose([], f"{path.stem[:5].upper()} has no page yet; cachedoctor explain lists its cause.", 0)
    _print(text.getvalue().rstrip("\n"), look)


def _word(word: str, look: Appearance) -> None:
    """Say what a word of the reports means."""
    from cachedoctor.knowledge import glossary
    from cachedoctor.report.text.page import TextPage

    term = glossary.find(word)
    if term is None:
        from cachedoctor.diagnosis.rules import names
        from cachedoctor.model import CacheDoctorError

        hint = names.nearest(word, glossary.spellings())
        raise CacheDoctorError(f"{word}: no such rule or word", hint)
    text = io.StringIO()
    TextPage(text, look.width, look.color, look.ascii_only).facts([(f"{term.name}: ", "bold")], term.meaning, 2)
    _print(text.getvalue().rstrip("\n"), look)


def _lines(line: str, format: Format, look: Appearance) -> None:
    from cachedoctor.cli.sink import Sink
    from cachedoctor.doctor.explain.explain import explain as explained

    seen = 0
    unknown: list[Line] = []
    with Sink(None) as sink, sink.writing() as out:
        for answer in explained(_given(line)):
            if answer.explanations and seen > len(unknown) and format == "text":
                out.write(b"\n")
            seen += 1
            if answer.explanations or format == "json":
                _write(answer, out, format, look)
            if not answer.explanations:
                unknown.append(answer)
    if not seen:
        terminal.complain("the line is empty", "give one line of a log, in quotes")
    elif unknown:
        terminal.complain(*_unknown(unknown, seen), kind="error" if seen == len(unknown) else "warning")
    if seen == len(unknown):
        raise typer.Exit(_UNKNOWN)


def _given(line: str) -> bytes:
    if line != "-":
        return line.encode("utf-8", "surrogateescape")
    import sys

    data = sys.stdin.buffer.read(_STDIN_MAX + 1) if sys.stdin is not None else b""
    if len(data) > _STDIN_MAX:
        terminal.complain("only the first MiB is explained", "cachedoctor analyze reads whole logs", kind="warning")
    return data[:_STDIN_MAX]


def _unknown(unknown: list[Line], seen: int) -> tuple[str, str]:
    """Error and hint for lines without a known message: one for a whole paste, as most lines of it may be others."""
    if seen > 1:
        counted = (
            f"no known message of {SERVERS} in {len(unknown)} of {seen} lines; the first is line {unknown[0].number}"
        )
        return counted, "explain one unknown line alone to see the nearest message"
    none = f"no known message of {SERVERS}"
    if unknown[0].nearest:
        return none, f'the nearest message begins with "{unknown[0].nearest}"'
    return f"{none}, and the line is not similar to a known message", "give a whole line, in quotes"


def _write(line: Line, out: IO[bytes], format: Format, look: Appearance) -> None:
    if format == "json":
        import cachedoctor
        from cachedoctor.report.wire.line_v1 import render as render_json

        render_json(line, out, cachedoctor.__version__)
        return

    from cachedoctor.report.text.explain_text import render_line

    text = io.StringIO()
    render_line(line, text, look.width, color=look.color, ascii_only=look.ascii_only)
    out.write(look.encode(text.getvalue()))


def _print(text: str, look: Appearance) -> None:
    from cachedoctor.cli.sink import Sink

    with Sink(None) as output, output.writing() as out:
        out.write(look.encode(text + "\n"))
