"""``explain --line`` of programs that log numbers of each request: every row has words."""

from __future__ import annotations

import pytest

from cachedoctor.doctor.explain.explain import explain
from cachedoctor.engines import program_words
from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.detect import programs
from tests.command import run

ROWS = [row for program in programs() for row in program.rows]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.component}-{row.id}")
def test_every_row_has_words_and_its_sample_is_explained(row: Message) -> None:
    (line,) = explain(row.sample.encode() + b"\n")
    (one, *others) = line.explanations
    if one.engine == "llama.cpp":  # lines that it prints as llama-server does
        assert row.component in ("ik_llama", "llama_cpp_python")
        return
    assert not others
    assert one.meaning == program_words.MEANINGS[row.component, row.id]
    assert all(reading.unit == "tokens" for reading in one.fields)


def test_words_are_of_rows() -> None:
    assert program_words.MEANINGS.keys() == {(row.component, row.id) for row in ROWS}
    assert program_words.FIELDS.keys() <= {name for row in ROWS for name in row.names}


def test_several_pasted_lines_are_explained_one_by_one() -> None:
    pasted = (
        "Processing Prompt [BLAS] (1008 / 1008 tokens)\n"
        "======== Cache: cache_size = 20335, n_past = 14, n_past_prompt = 14\n"
        "some words of somebody\n"
        "Cache reuse summary: 1000/22000 of prompt (4.5%), 1000 prefix, 0 non-prefix\n"
    )
    done = run("explain", "--line", pasted)
    text = " ".join(done.stdout.decode().split())
    for words in (
        "not the whole prompt",
        "of its common prefix with the prompt",
        "LM Studio's llama.cpp engine of 2025",
    ):
        assert words in text
    assert "1 of 4 lines; the first is line 3" in " ".join(done.stderr.decode().split())
    assert done.returncode == 0
