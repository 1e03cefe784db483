"""``cachedoctor rules``: the table of rules. Knows what a rule says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import ColorOption, Width

if TYPE_CHECKING:
    from typing import IO

    from cachedoctor.diagnosis.rules.kit import AnyRule
    from cachedoctor.report.base import Look

_SEVERITY = {"by-cost": "by cost"}


def rules(
    format: Annotated[Literal["text", "json"], typer.Option("--format", "-f", help="Format of the list.")] = "text",
    color: ColorOption = "auto",
    width: Width = None,
) -> None:
    """List all rules and what they find.

    A severity "by cost" is a warning once the cause has cost 1,000 tokens in all, a note before.
    """
    from cachedoctor.cli.sink import Sink
    from cachedoctor.diagnosis.rules import registry

    loaded, broken = registry.load()
    loaded.sort(key=lambda rule: rule.code)
    look = terminal.look(to_file=False, color=color, width=width)
    with Sink(None) as output, output.writing() as out:
        _json(loaded, out) if format == "json" else _table(loaded, out, look)
    for rule in broken:
        terminal.complain(f"{rule.code} {rule.name} cannot be loaded: {rule.error}", kind="internal error")
    if broken:
        raise typer.Exit(2)


def _json(rules: list[AnyRule], out: IO[bytes]) -> None:
    import msgspec

    fields = ("code", "name", "severity", "summary", "url")
    rows = [{field: getattr(rule, field) for field in fields} for rule in rules]
    out.write(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")


def _table(rules: list[AnyRule], out: IO[bytes], look: Look) -> None:
    import io

    from cachedoctor.report.text.page import Page

    text = io.StringIO()
    page = Page(text, look.width, look.color, look.ascii_only)
    wide = max((len(r.name) for r in rules), default=0)
    for rule in rules:
        severity = _SEVERITY.get(rule.severity, rule.severity)
        page.prose([(rule.code, "bold"), f"  {rule.name:<{wide}}  {severity:<7}  "], rule.summary, wide + 18)
    out.write(look.encode(text.getvalue()))
