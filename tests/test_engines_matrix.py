"""The matrix of causes and engines in docs/engines.md: made from the cases, and no cell that a case contradicts."""

from __future__ import annotations

import runpy
from types import SimpleNamespace

from conftest import ROOT

from cachedoctor.diagnosis.rules.names import names

MATRIX = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "make-engines-matrix")))


def test_the_page_is_what_the_script_writes() -> None:
    assert MATRIX.page() == (ROOT / "docs" / "engines.md").read_text("utf-8"), "run scripts/make-engines-matrix"


def test_each_code_is_one_of_ours_and_each_reason_has_its_cell() -> None:
    known = {code for code, _ in names()}
    assert {code for row in MATRIX.ROWS for code in row.codes} <= known
    titles = {row.title for row in MATRIX.ROWS}
    columns = {column.title for column in MATRIX.COLUMNS}
    assert all(row in titles and column in columns for row, column in MATRIX.REASONS)


def test_what_a_client_did_is_shown_on_each_family_of_engines() -> None:
    """llama-server, a program with numbers of each request, vLLM and SGLang: the same code."""
    cases = MATRIX.shown()
    for code in ("CD101", "CD102", "CD103", "CD104", "CD105"):
        for engine in ("llama.cpp", "koboldcpp", "vllm", "sglang"):
            assert cases.get((code, engine)), f"{code} on {engine}"
