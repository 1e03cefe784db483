"""How secrets are found in quoted text: a sample of the benchmark, and what is not a secret."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
from conftest import ROOT
from loops import each

from cachedoctor.redaction import sanitize, secrets
from cachedoctor.redaction.credentials import CONTEXTS, CREDENTIALS
from cachedoctor.redaction.decoding import decoded, is_random, is_random_short
from cachedoctor.redaction.secrets import beginnings, hidden, needs, parted, shape, without_cut_words

sys.path.insert(0, str(ROOT / "benchmarks"))
import leaks

SOURCE = random.Random(20261122)
SHOWN = leaks.Kind("", "{A30}", False)
HARD = {"Weights & Biases, bare", "AssemblyAI"}
"""Nothing but hexadecimal digits: beside a path or a ``_`` they may be the hash of a file."""


def quoted(log: bytes) -> str:
    """What a report quotes of the lines with a planted credential."""
    lines = log.decode().split("\n")
    cut = [sanitize._few(line) for line in lines if "old:" in line or "new:" in line]
    return "\n".join([*cut, *(hidden(line) for line in lines if "error:" in line or "loading model" in line)])


def shown(kind: leaks.Kind) -> Iterator[str]:
    text, parts = kind.draw(random.Random(kind.name))  # the same whichever tests ran before
    for way, log in leaks.logs(text):
        output = leaks.Output(quoted(log), set())
        if any(output.shows(part) for part in parts if len(part) >= leaks.SHORTEST):
            yield way


@pytest.mark.sample(2)
@pytest.mark.spread(7)
@pytest.mark.parametrize("kind", leaks.KINDS, ids=lambda kind: kind.name)
def test_a_credential_is_shown_in_none_of_the_ways(kind: leaks.Kind) -> None:
    found = set(shown(kind))
    if kind.is_large:
        assert found == set()
    elif kind.name not in HARD:
        assert found <= set(leaks.CUTS)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("names", "ways"), [(("OpenAI project",), 2), (("OpenAI project",), 5), (("Slack app", "AWS secret"), 5)]
)
def test_all_formats_hide_what_is_planted_and_the_benchmark_sees_what_is_shown(
    names: tuple[str, ...], ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [kind for kind in leaks.KINDS if kind.name in names]
    assert len(kinds) == len(names)
    some = ("plain", "behind an escaped newline", "percent-encoded", "zero-width space inside", "glued to _")[:ways]
    monkeypatch.setattr(leaks, "WAYS", {way: leaks.WAYS[way] for way in some})
    asked, found = leaks.leaks(kinds, 1)
    assert set(asked) == {*sanitize_formats(), "redact"}
    assert set(asked.values()) == {len(kinds) * (len(some) + len(leaks.CUTS))}
    assert found == []
    monkeypatch.setattr(sanitize, "hidden", lambda text: text)
    monkeypatch.setattr(sanitize, "parted", lambda pieces: pieces)
    _, found = leaks.leaks(kinds[:1], 1)
    assert {"text", "json", "jsonl", "html"} <= {leak.format for leak in found}
    assert "redact" not in {leak.format for leak in found}


def sanitize_formats() -> set[str]:
    from cachedoctor.report.base import FORMATS

    return set(FORMATS)


@each("kind", leaks.KINDS, ids=lambda kind: kind.name)
def test_what_is_hidden_stays_as_it_is(kind: leaks.Kind) -> None:
    """Formats hide again what was hidden before: they must say the same."""
    text, _ = kind.draw(random.Random(kind.name))
    for way in ("plain", "in JSON", "percent-encoded", "in an address", "as an argument"):
        once = hidden(leaks.WAYS[way](text))
        assert hidden(once) == once


@each(
    "text",
    [
        "hf_hub_download and npm_config_cache and sk-learn and pypi-server",
        "models--Qwen--Qwen3-8B/snapshots/4c446470ba0aec43e22ac1128f9ffd915f338ba3/config.json",
        "/usr/share/ollama/.ollama/models/blobs/sha256-2af3b81862c6be03c769683af18efdadb2c33f60ff32ab6f83e42c043d6c7816",
        "Qwen3NextForCausalLM DeepseekV32ForCausalLM Qwen2_5_VLForConditionalGeneration",
        "gpt-oss-120b-mxfp4-00001-of-00003.gguf Meta-Llama-3.1-70B-Instruct-IQ4_XS.gguf",
        "toolu_01A09q90qw90lq917835lq9x and call_AbC123dEf456GhI789jKl012 and chatcmpl-9xYz8WvU7tSr6QpO5nMl4KjI",
        '"id":"chatcmpl-L91xHXkA3MjygSNKfEcxLKkBCgcX7lX8"',
        "the password is required, and the token is invalid",
        "basic knowledge of basic authentication",
        '"timings_per_token":false,"max_tokens":1024',
        "2026-11-20T14:02:59.123456Z 0x7f0616805480 b11549-9a7b3c1d",
        "getElementById addEventListener XMLHttpRequest2 std::unordered_map",
        "see docs/usage/formats.md#what-a-report-quotes, n_past = 18446744073709551615",
        "Windows C:\\new\\table\\x.gguf",
    ],
)
def test_what_is_not_a_secret_stays(text: str) -> None:
    assert hidden(text) == text


@pytest.mark.parametrize(
    ("pieces", "left"),
    [
        (["k3Yq9Zx is all. Then", "it goes on and k3Y9xQ"], ["<cut> is all. Then", "it goes on and <cut>"]),
        (["ersion=2.1.101.e51; cch=", "b791f;"], ["ersion=2.1.101.e51; cch=", "b791f;"]),
        (
            ["session 123e4567-e89b-12d3-a456-426", "614174000b1a"],
            ["session 123e4567-e89b-12d3-a456-426", "614174000b1a"],
        ),
        (["ding words stay as", "they are, the la"], ["ding words stay as", "they are, the la"]),
        (["4f60a1b2-3c4d-5e6f-7a8b-9c0d then"], ["<cut> then"]),
    ],
)
def test_a_cut_word_is_hidden_but_not_what_prompts_differ_in(pieces: list[str], left: list[str]) -> None:
    assert without_cut_words(pieces) == left


def test_a_key_after_the_bar_needs_nothing_in_front() -> None:
    """Put together, the word before the bar would be glued to it."""
    key, _ = leaks.Kind("", "glpat-{W20}", True).draw(SOURCE)
    assert parted(["Now", f"{key} and on"]) == ["Now", "glpat-<key> and on"]


# ---- how text is meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"a\nb\\tc\"d", 'a\nb\tc"d'),
        (r"\u0041\u00e9\x42", "AéB"),
        ("%41%2D%252D%E4%B8%AD", "A--\ufffd\ufffd\ufffd"),
        ("&quot;&amp;&#65;&#x42;", '"&AB'),
        ("a\u200bb\u00adc\ufeff", "abc"),
        ("ｓｋ－", "sk-"),
        (r"C:\Users", None),
        ("100 % of it", None),
    ],
)
def test_what_text_means(text: str, meant: str | None) -> None:
    view = decoded(text)
    assert (view and view.text) == meant


@pytest.mark.parametrize("text", [r"x\u0041y\nz", "\u200ba\u200bb", "%41%42c", "a&quot;b"])
def test_every_character_knows_where_it_is_written(text: str) -> None:
    view = decoded(text)
    assert view is not None
    ends = [view.span(at, at + 1) for at in range(len(view.text))]
    assert all(a < b for a, b in ends)
    assert all(b <= c for (_, b), (c, _) in pairwise(ends))
    for (start, end), char in zip(ends, view.text, strict=True):
        inside = decoded(text[start:end])
        assert (text[start:end] if inside is None else inside.text) == char


# ---- what looks drawn


def test_drawn_characters_are_told_from_names() -> None:
    """Nearly all drawn ones, and no name of a class or a file."""
    drawn = ["".join(SOURCE.choices(leaks.ALPHABETS["A"], k=32)) for _ in range(500)]
    assert sum(map(is_random, drawn)) > 485
    names = "TokenizersBackendFactory2 AutoModelForCausalLM internlm2chat20b Qwen3VLMoeForConditionalGeneration"
    assert not any(map(is_random, names.split()))
    assert not any(map(is_random_short, ["formatting", "version2024", "20261120", "UPPERCASE", "Capitalised"]))


# ---- words of a user


@pytest.fixture
def mine() -> Iterator[None]:
    yield
    secrets.hide_also([])


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("pattern", "text", "left"),
    [
        ("Falcon", "project FALCON, Fal\u200bcon and falcons", "project <hidden>, <hidden> and <hidden>s"),
        ("EMP-####", "EMP-4711 EMP-47", "<hidden> EMP-47"),
        ("acme-*", "at acme-gpu-7.corp now", "at <hidden> now"),
        ("*.corp.example", "host gpu7.corp.example:80", "host <hidden>:80"),
        ("a.c[d]", "abcd a.c[d]", "abcd <hidden>"),
    ],
)
def test_words_of_a_user(pattern: str, text: str, left: str) -> None:
    secrets.hide_also([pattern])
    assert hidden(text) == left
    assert hidden(left) == left


@pytest.mark.parametrize("pattern", ["", "*", "a*", "##??**", "ab", "x" * 201])
def test_a_pattern_that_says_too_little_or_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="characters"):
        secrets.hide_also([pattern])


def test_every_row_has_a_source_and_what_it_needs() -> None:
    assert all(row.source and row.name for row in CREDENTIALS)
    for context in CONTEXTS:
        assert context.needs
        assert all(need == need.lower() for need in context.needs)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("hf_", ("hf_",)),
        (r"live_(?:pub_)?|t1\.(?=9eu(?:x|y))", ("live_", "t1.")),
        ("ATATT3xFfGF?0?|A3T[A-Z0-9]", ("ATATT3xFfG", "A3T")),
        ("A{18,22}", ()),
        ("hf_|[xyz]prv", ()),
    ],
)
def test_what_a_pattern_begins_with_is_searched_for_before_it_is_compiled(pattern: str, texts: tuple[str, ...]) -> None:
    assert beginnings(pattern) == texts


def test_a_text_that_a_credential_needs_is_in_every_one_that_is_drawn() -> None:
    """Found again by its pattern alone, in all ways in which its kind is written."""
    found = set()
    for kind in leaks.KINDS:
        text, _ = kind.draw(random.Random(kind.name))
        for at, row in enumerate(CREDENTIALS):
            for match in shape(row).finditer(text):
                found.add(row.name)
                assert any(need in match[0] and (need or len(match[0]) >= 30) for need, place in needs() if place == at)
    assert len(found) > 100
