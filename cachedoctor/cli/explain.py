"""``cachedoctor explain``: the page of a rule. Knows where pages are; imports no rule."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    rule: Annotated[
        str | None, typer.Argument(metavar="CODE|NAME", help="A rule, e.g. CD108 or prefix-diverges-early.")
    ] = None,
) -> None:
    """Print the page of a rule, or the list of all.

    A page says what the rule means, how it shows in the log, why the cache could not be used, and what fixes it.
    """
    from cachedoctor.rules import registry

    if rule is None:
        _print("\n".join(f"{code}  {name}" for code, name in registry.names()))
        return
    page = registry.find(rule)
    if page is None:
        from cachedoctor.model import CacheDoctorError

        raise CacheDoctorError(f"{rule}: no such rule", _nearest(rule, registry.names()))
    if not page.is_file():
        _print(f"{page.stem[:5].upper()} has no page yet; cachedoctor rules says what it finds.")
        return
    _print(page.read_text("utf-8").rstrip("\n"))


def _nearest(wanted: str, names: list[tuple[str, str]]) -> str:
    from difflib import get_close_matches

    known = {word.lower(): f"{code} {name}" for code, name in names for word in (code, name)}
    close = get_close_matches(wanted.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {known[close[0]]}?" if close else "cachedoctor explain lists all rules"


def _print(text: str) -> None:
    from cachedoctor.cli import sink, terminal

    with sink.Sink(None) as output, output.writing() as out:
        out.write(terminal.look(to_file=False).encode(text + "\n"))
