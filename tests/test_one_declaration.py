"""A field of the report is declared once: the document, the reader and the stream follow."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import msgspec

import cachedoctor
from cachedoctor.model import Report
from cachedoctor.model.report import DECLARED
from cachedoctor.report import contract
from cachedoctor.report.wire import stored

PACKAGE = Path(cachedoctor.__file__).parent
DECLARATION = re.compile(r"^ +(\w+):", re.MULTILINE)


def respelt(source: str, fields: set[str]) -> dict[str, set[str]]:
    """Which class bodies declare at least three of the fields, and which fields these are."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            names = {
                part.target.id
                for part in node.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            }
            if len(names & fields) >= 3:
                found[node.name] = names & fields
    return found


def test_no_class_but_report_declares_the_fields_of_the_document() -> None:
    fields = set(DECLARED) | {"findings", "not_evaluated", "rules"}
    sources = [path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))]
    declaring = [source for source in sources if len(fields & set(DECLARATION.findall(source))) >= 3]
    assert {name for source in declaring for name in respelt(source, fields)} == {"Report"}


def test_a_second_declaration_is_seen() -> None:
    source = "class Rest:\n    restart: int\n    slots: int\n    ignored: list[str]\n"
    assert respelt(source, set(DECLARED)) == {"Rest": {"restart", "slots", "ignored"}}


def test_document_stream_and_reader_have_each_declared_field() -> None:
    assert "fix" in DECLARED
    for kind, without in (
        (contract.ReportDocument, set()),
        (stored.document(), set()),
        (contract.SummaryLine, {"filtered", "unknown"}),
    ):
        assert set(DECLARED) - set(kind.__struct_fields__) == without


def test_the_document_requires_what_the_first_release_wrote() -> None:
    fields = {one.name: one.required for one in msgspec.structs.fields(contract.ReportDocument)}
    assert [name for name in fields if name in Report.__struct_fields__ and fields[name]] == [
        "interrupted", "inputs", "sessions", "totals", "requests", "samples", "batches", "findings", "not_evaluated",
        "rules",
    ]  # fmt: skip
