"""How the page is made: templates that let no text out unescaped or unseen, and a policy that lets nothing in."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.report.text.text_safe import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


_UNIT = late(r"(?<=\d) (?=%|(?:ms|s|min|h|MiB|GiB)\b)")


def render(template: str = "report.html.j2", **values: Any) -> str:
    """Fill the template of a page."""
    from markupsafe import Markup

    # Our own files: they go into the page byte for byte, because the policy holds their hashes.
    style, script = _file("report.css"), _file("report.js")
    values |= {"style": Markup(style), "script": Markup(script), "policy": _policy(style, script)}  # noqa: S704
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    """Templates are compiled once: who writes many pages would spend most of the time on it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from cachedoctor.report.html import request_columns
    from cachedoctor.report.words import numbers
    from cachedoctor.report.words.powershell import in_powershell

    environment = Environment(
        loader=PackageLoader("cachedoctor.report.html", "templates"), autoescape=True, finalize=_made_visible,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {
        "number": numbers.number, "percent": numbers.percent, "duration": numbers.duration,
        "short": request_columns.short, "kept": _kept,
    }  # fmt: skip
    environment.globals["count"] = numbers.count
    environment.globals["in_powershell"] = in_powershell
    return environment


def _kept(words: str) -> Markup:
    """Keep numbers and their units in one row."""
    from markupsafe import Markup, escape

    return Markup(_UNIT.sub("&nbsp;", escape(visible(words))))  # noqa: S704  # escaped just now


def _made_visible(value: Any) -> Any:
    """Make control and invisible characters visible in everything that a template writes; then it is escaped."""
    from markupsafe import Markup

    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _file(name: str) -> str:
    return resources.files("cachedoctor.report.html").joinpath("templates", name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing is loaded or sent, and nothing runs but the one script of the page."""
    allowed = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
