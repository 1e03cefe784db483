"""``explain --line``: every message and every field has words, the right ones, however the line arrives."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections import Counter
from typing import Any

import command
import jsonschema
import msgspec
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import each

from cachedoctor.doctor.explain.explain import explain, wording
from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.llamacpp.fields import FIELDS, MEANINGS, field
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.knowledge import log_levels
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.model import Explanation, Line
from cachedoctor.redaction.holes import PLAIN
from cachedoctor.report.text import explain_text
from cachedoctor.report.wire import line_v1

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/schemas/line-v1.schema.json").read_text("utf-8")))
HOLES = re.compile(r"\{([A-Za-z_][\w.]*):(\w+)\}")

CHOICE = (
    "0.01.114.772 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity,"
    " sim_best = 0.955 (> 0.100 thold), f_keep = 1.000"
)
CREATED = (
    "created context checkpoint 1 of 32 (pos_min = 2198, pos_max = 2198, n_tokens = 2199, size = 0.016 MiB)"
)  # fmt: skip
PASSED_ON = "router_child_line"
"""Its sample is a line of another process, passed on: that line is explained, the router's tag is its wrapper."""


def name_of(row: Message) -> str:
    return f"{row.id}-{row.first}-{ROWS.index(row)}"


def one(line: str | bytes) -> Explanation:
    """The only reading of the only line."""
    (answer,) = explain(line.encode() if isinstance(line, str) else line)
    (explanation,) = answer.explanations
    return explanation


def fields_of(line: str | bytes) -> dict[str, Any]:
    return {reading.name: reading for reading in one(line).fields}


def shown(line: str | bytes, **look: Any) -> str:
    """The text for all of ``line``."""
    out = io.StringIO()
    for answer in explain(line.encode() if isinstance(line, str) else line):
        explain_text.render_line(answer, out, **look)
    return out.getvalue()


# ---- the tables


@pytest.mark.sample(10)
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_sample_is_explained_by_its_row_with_all_its_fields(row: Message) -> None:
    """Nothing in the catalogue is without words."""
    if row.id == PASSED_ON:
        assert (one(row.sample).message, one(row.sample).origin) == ("force_full", "57130")
        return
    found = one(row.sample)
    assert (found.message, found.sample, found.cut, found.more) == (row.id, found.sample, False, "")
    if row.id != "pc_enabled":  # both wordings print the same sample
        assert (found.first, found.last, found.sample) == (row.first, row.last, row.sample)
        assert [reading.name for reading in found.fields] == [name for name, _ in HOLES.findall(row.template)]
    assert found.meaning.endswith(".")
    assert all(reading.meaning and reading.text is not None for reading in found.fields)
    if row.component == "client":  # no build prints a client's words, at no level
        assert [(level.first, level.last, level.level) for level in found.levels] == [
            (row.first, row.last, "not a log line")
        ]
        return
    assert found.levels[0].first == row.first
    assert found.levels[-1].last == row.last


@each("row", ROWS, ids=name_of)
def test_every_number_has_a_unit(row: Message) -> None:
    """Also of rows whose sample another row reads."""
    for name, kind in HOLES.findall(row.template):
        known = field(row.id, name)
        assert known is not None, name
        assert known.unit or kind not in PLAIN, name
        assert known.meaning, name


def test_the_tables_hold_nothing_else() -> None:
    """A description that nothing has any more must go."""
    used = {
        f"{row.id}.{name}" if f"{row.id}.{name}" in FIELDS else name
        for row in ROWS
        for name, _ in HOLES.findall(row.template)
    }
    assert set(FIELDS) - used == set(), "no message has these fields"
    assert Counter(row.id for row in ROWS if row.meaning) == Counter(MEANINGS.keys()), "one of its wordings says it"


def test_the_tables_have_words_for_all() -> None:
    """Of every message, also where only some rows are asked below and above."""
    silent = {row.id for row in ROWS} - MEANINGS.keys()
    assert silent == set(), "one row of each message has meaning="
    fields = {(row.id, name) for row in ROWS for name, _ in HOLES.findall(row.template)}
    unknown = sorted(f"{id}.{name}" for id, name in fields if field(id, name) is None)
    assert unknown == [], "fields.py has no entry NAME or ID.NAME"


@pytest.mark.parametrize("name", ["n_tokens", "n_past", "size", "path", "name", "n_ctx", "f_keep", "limit", "n_total"])
def test_names_with_several_meanings_have_no_general_one(name: str) -> None:
    """A new message with such a name must say what it means there."""
    assert name not in FIELDS


# ---- what is easily misread


def test_similarity_and_f_keep_have_different_divisors() -> None:
    """One is a share of the new prompt, the other of what the slot held."""
    fields = fields_of(CHOICE)
    assert fields["f_sim_best"].label == "sim_best"
    assert "length of the new prompt" in fields["f_sim_best"].meaning
    assert "length of the slot's old content" in fields["f_keep"].meaning
    old = "slot get_availabl: id 3 | task 7 | selected slot by lcs similarity, lcs_len = 31, similarity = 0.9"
    assert "length of the slot's old content" in fields_of(old)["similarity"].meaning


def test_a_count_is_not_a_position() -> None:
    """``n_tokens`` of memory_seq_rm is what was reused, the number in the bracket is not."""
    fields = fields_of("slot update_slots: id  0 | task 4 | n_tokens = 1810, memory_seq_rm [1822, end)")
    assert (fields["n_tokens"].text, fields["n_tokens"].unit) == ("1810", "tokens")
    assert (fields["p0"].text, fields["p0"].unit) == ("1822", "position")
    assert "first such line" in fields["n_tokens"].meaning


def test_n_tokens_means_what_its_message_says() -> None:
    """Slot length at the end, tokens of a checkpoint, tokens reused, length of a cached prompt, of a refused one."""
    messages = ("release", "ckpt_created", "seq_rm", "pc_state_entry", "err_exceed", "slot_clear")
    assert len({FIELDS[f"{message}.n_tokens"].meaning for message in messages}) == 6


def test_n_past_before_and_after_the_check() -> None:
    """In the check of the memory it is only the common prefix."""
    slot = "slot update_slots: id 0 | task 1 | "
    check = "n_past = 22, slot.prompt.tokens.size() = 41, seq_id = 0, pos_min = 33, n_swa = 8"
    assert "Less may be reused" in fields_of(slot + check)["n_past"].meaning
    restored = "restored context checkpoint (pos_min = 1, pos_max = 1, n_tokens = 2, n_past = 2, size = 0.016 MiB)"
    assert "reused now" in fields_of(slot + restored)["n_past"].meaning


NO_NUMBERS = {
    "srv update: - cache state: 3 prompts, 90.1 MiB (limits: 0.000 MiB, 16384 tokens, 16384 est)": "no limit",
    "slot get_availabl: id 0 | task -1 | selected slot by LRU, t_last = -1": "never used",
    "srv load: - looking for better prompt, base f_keep = -1.000, sim = 0.000": "the slot is empty",
    "slot operator(): id 0 | task 9 | erased invalidated context checkpoint (pos_min = 9, pos_max = 9, n_tokens = 10,"
    " n_swa = 128, pos_next = 0, size = 0.016 MiB)": "no part of the prompt is reused",
    "build: 0 (unknown) with GNU 10.2.1 for Linux x86_64": "unknown",
}
USUAL = {
    "limits: 0.000": "limits: 8192.000",
    "t_last = -1": "t_last = 412",
    "f_keep = -1.000": "f_keep = 0.512",
    "pos_next = 0": "pos_next = 7",
    "build: 0": "build: 9713",
}


@pytest.mark.parametrize(("line", "usual"), list(zip(NO_NUMBERS, USUAL, strict=True)))
def test_values_that_are_not_numbers(line: str, usual: str) -> None:
    """They say something else, and it is said of them alone."""
    said = [reading.here for reading in one(line).fields if reading.here]
    assert len(said) == 1
    assert NO_NUMBERS[line] in said[0]
    assert usual in line
    assert not any(reading.here for reading in one(line.replace(usual, USUAL[usual])).fields)


def test_computed_tokens_are_without_the_reused_ones() -> None:
    """In the timing lines, in their sum, and in the progress of b9294 and newer."""
    prompt = "prompt eval time = 794.53 ms / 1874 tokens ( 0.42 ms per token, 2358.64 tokens per second)"
    progress = "prompt processing, n_tokens = 7293, progress = 0.93, t = 3.03 s / 2409.24 tokens per second"
    for line in (prompt, f"slot print_timing: id 0 | task 10 | {progress}"):
        assert "without reused ones" in fields_of(line)["n_prompt_processed"].meaning
    assert "without reused ones" in fields_of("total time = 843.07 ms / 1880 tokens")["n_total"].meaning


def test_the_names_are_those_that_the_line_prints() -> None:
    """``task.n_tokens`` is the catalogue's n_prompt_tokens; several words before a value are not name."""
    new = fields_of("slot operator(): id 0 | task 0 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 1850")
    assert new["n_prompt_tokens"].label == "task.n_tokens"
    assert fields_of("total time = 843.07 ms / 1880 tokens")["total_ms"].label == "total_ms"


def test_the_parts_before_the_message() -> None:
    """Clock, level, component, function, slot, task; TRACE prints the letter of INFO."""
    parts = {part.text: part.meaning for part in one(CHOICE).parts}
    assert list(parts) == ["0.01.114.772", "I", "slot", "get_availabl", "id 0", "task -1"]
    assert "INFO or TRACE" in parts["I"]
    assert "no request" in parts["task -1"]


# ---- builds and levels


def test_levels_by_era() -> None:
    """A line of the library is hidden with the trace level, debug moves from -v over 4 to 5."""
    assert [log_levels.needs("D", build) for build in (5311, 7079, 7376, 9093, 9294, NEWEST)] == [1, 1, 4, 4, 5, 5]
    assert [log_levels.needs("L", build) for build in (5311, 9093, 9294, NEWEST)] == [None, None, 4, 4]
    assert [log_levels.needs(letter, NEWEST) for letter in "IWEOT"] == [None, None, None, None, 4]


def test_the_builds_of_a_line() -> None:
    """Seen, perhaps in those between two samples, and at which level."""
    found = one(CREATED)
    assert found.builds == "seen in b8156 to b11549 (perhaps from b7965 on, newer builds were not checked)"
    assert [(v.first, v.last, v.level.split()[0], v.shown) for v in found.levels] == [
        (8156, 9093, "WARN", "shown by default"),
        (9294, 9713, "INFO", "shown by default"),
        (9873, 11549, "TRACE", "only with -lv 4"),
    ]
    assert [(o.first, o.last) for o in found.others] == [(6751, 7964)]
    assert "<pos_max>" in found.others[0].text


def test_whether_the_analysis_reads_it() -> None:
    """``all slots are idle`` tells a person something, and the analysis nothing."""
    assert one(CHOICE).analyzed
    assert not one("srv update_slots: all slots are idle").analyzed


# ---- however the line arrives


@pytest.mark.parametrize(
    "line",
    [
        f"llama-1  | {CHOICE}",
        f"May 22 01:30:52 host llama-server[37450]: {CHOICE}",
        f"2026-05-22T01:30:52.123456789Z stderr F {CHOICE}",
        json.dumps({"log": CHOICE + "\n", "stream": "stderr", "time": "2026-05-22T01:30:52Z"}),
        f"[57130] {CHOICE}",
        f"> {CHOICE}",
        f"\x1b[34m0.01.114.772\x1b[0m \x1b[32mI \x1b[0m{CHOICE.split(' I ')[1]}\r\n",
        " ".join(CHOICE.split()),
        CHOICE.split(" | ", 1)[1],
        CHOICE.split(" | ")[-1],
        f"some prefix of your own | {CHOICE.split(' | ')[-1]}",
        f"12:31:02 shim: {CHOICE.split(' | ')[-1]}",
    ],
)
def test_wrapped_lines_and_bare_messages(line: str) -> None:
    """The reading is that of the plain line."""
    plain, found = one(CHOICE), one(line)
    assert (found.message, found.fields, found.first) == (plain.message, plain.fields, plain.first)


def test_one_record_may_hold_several_lines() -> None:
    """And several lines may be given at once; empty ones count, and say nothing."""
    block = "slot print_timing: id 0 | task 9 | \n\ntotal time = 843.07 ms / 1880 tokens\n"
    assert [(line.number, line.explanations[0].message) for line in explain(block.encode())] == [
        (1, "timing_head"),
        (3, "timing_total"),
    ]
    record = json.dumps({"type": "log", "time": 1, "level": "info", "msg": block})
    assert [line.explanations[0].message for line in explain(record.encode())] == ["timing_head", "timing_total"]


def test_a_slot_line_without_a_message_is_only_a_header_of_timings() -> None:
    """Cut right after its prefix it could be anything."""
    (answer,) = explain(b"slot update_slots: id 0 | task 9 | ")
    assert answer.explanations == []


@pytest.mark.parametrize("end", ["", "...", " …", " [... 41 characters ...] MiB)"])
def test_a_cut_line(end: str) -> None:
    """What is left is read; a number at the end may be half a number and is not shown."""
    found = one(CREATED[: CREATED.index("98, n_tokens")] + end)
    assert (found.message, found.cut, found.undecided, found.last) == ("ckpt_created", True, True, NEWEST)
    assert [(f.name, f.text) for f in found.fields] == [
        ("index", "1"), ("max", "32"), ("pos_min", "2198"), ("pos_max", None), ("n_tokens", None), ("size", None),
    ]  # fmt: skip
    later = one(CREATED[: CREATED.index(", size")] + end)
    assert (later.undecided, [f.text for f in later.fields]) == (False, ["1", "32", "2198", "2198", None, None])


@pytest.mark.sample(10)
@pytest.mark.parametrize("row", [row for row in ROWS if len(row.heads[0]) > 20 and row.id != PASSED_ON], ids=name_of)
def test_every_message_is_known_by_its_beginning(row: Message) -> None:
    """Cut after its head it is itself, perhaps among others that begin so, or nothing at all."""
    line = row.sample.encode()
    at = line.find(row.heads[0].split()[-1].encode())
    (answer,) = explain(line[: at + len(row.heads[0].split()[-1])])
    named = [explanation.message for explanation in answer.explanations]
    assert named == [] or row.id in named


def test_a_cut_line_of_two_messages_names_both() -> None:
    """The wording alone does not decide."""
    (answer,) = explain(b"slot get_availabl: id 0 | task -1 | selected slot by L")
    assert [explanation.message for explanation in answer.explanations] == ["slot_select_lcp", "slot_select_lru"]
    assert "may also be" in shown("slot get_availabl: id 0 | task -1 | selected slot by L")


def test_what_newer_builds_append_is_named() -> None:
    """And the known part is read."""
    found = one(CHOICE + ", f_new = 3")
    assert (found.message, found.more, found.cut) == ("slot_select_lcp", ", f_new = 3", False)
    assert "f_new = 3" in shown(CHOICE + ", f_new = 3")


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("hello world", ""),
        ("slot x: id 0 | task 1 | forcing full promt reprocessing", "forcing full prompt re-processing"),
        ("found better prompt with f_keep = 1.000, sim = 0.965", "- found better prompt with f_keep ="),
        ("pos_min = 1, pos_max = 3", ""),
        ("srv  llama_server: loading model", "loading model '"),
        ("srv          init: initializing ...", "initializing, n_slots ="),
    ],
)
def test_unknown_lines(line: str, nearest: str) -> None:
    """Nothing is claimed; what looks alike is named."""
    assert [(a.explanations, a.nearest) for a in explain(line.encode())] == [([], nearest)]


# ---- hostile lines


DAMAGED = st.builds(lambda row, junk: row.sample.encode()[:-3] + junk, st.sampled_from(ROWS), st.binary(max_size=9))


@pytest.mark.sweep
@settings(deadline=None)
@given(st.binary(max_size=300) | DAMAGED)
def test_no_bytes_raise(data: bytes) -> None:
    """Whatever is given, there is an answer, and it can be written in both formats."""
    for answer in explain(data):
        explain_text.render_line(answer, io.StringIO())
        SCHEMA.validate(msgspec.to_builtins(line_v1.document(answer, "0")))


HOSTILE = (
    "slot update_slots: id 0 | task 9 | old: ... \x01\x07\u202e\u009b2J [bold]x[/bold] :smile: \u200b | x".encode()
)


@pytest.mark.parametrize("look", [{}, {"ascii_only": True}, {"width": 20}])
def test_nothing_of_a_line_reaches_the_terminal_unescaped(look: dict[str, Any]) -> None:
    """Control and invisible characters are shown as escapes, markup as it is."""
    text = shown(HOSTILE + b"\xff", **look)
    assert all(char == "\n" or (char.isprintable() and char != "\u202e") for char in text)
    assert "\\x01\\x07\\u202e\\x9b2J" in re.sub(r"\n *(\| *)?", "", text)
    assert "[bold]x[/bold]" in re.sub(r"\n *(\| *)?", " ", text) or look.get("width")


def test_a_huge_line_is_cut_in_the_text() -> None:
    """A body of megabytes does not fill the screen."""
    assert len(shown("srv log_server_r: request: {" + "x" * 3_000_000)) < 10_000


@pytest.mark.sample(1)
@pytest.mark.parametrize("row", ["llama_model_loader: - kv 0: " + " " * 60_000, "a: " * 20_000, "x | " * 20_000])
def test_a_line_of_blanks_or_separators_ends(row: str) -> None:
    """Such lines once took forever; here they must merely end."""
    assert len(list(explain(row.encode()))) == 1


# ---- the command


def run(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return command.run("explain", *args, stdin=stdin, COLUMNS="80", NO_COLOR="1")


def test_the_command_explains_a_line() -> None:
    """Text or JSON, status 0; a message may begin with a dash."""
    text = run("--line", CHOICE)
    assert (text.returncode, text.stderr) == (0, b"")
    assert text.stdout.startswith(b"The slot was chosen because its content begins like the new prompt.\n")
    assert b"its id is slot_select_lcp\n" in text.stdout
    answer = json.loads(run("--line", CHOICE, "--format", "json").stdout)
    SCHEMA.validate(answer)
    assert [f["text"] for f in answer["readings"][0]["fields"]] == ["0.955", "0.100", "1.000"]
    dash = run("--line", "- looking for better prompt, base f_keep = 0.100, sim = 0.200")
    assert b"its id is pc_looking\n" in dash.stdout


@pytest.mark.sweep
def test_the_command_reads_lines_from_a_pipe() -> None:
    """Unknown ones are counted; one known line is enough for status 0."""
    done = run("--line", "-", stdin=f"{CHOICE}\nwhat is this\nsrv update_slots: all slots are idle\n".encode())
    assert done.returncode == 0
    assert re.findall(rb"its id is (\w+)$", done.stdout, re.MULTILINE) == [b"slot_select_lcp", b"idle"]
    assert re.fullmatch(
        rb"cachedoctor: warning: no known message [^\n]* in 1 of 3 lines; the first is line 2 [^\n]*\n", done.stderr
    )
    nothing = run("--line", "-", stdin=b"what is this\nand that\n")
    assert (nothing.returncode, nothing.stdout) == (3, b"")
    assert nothing.stderr.startswith(
        b"cachedoctor: error: no known message of llama-server, vLLM or SGLang in 2 of 2 lines; "
    )
    objects = run("--line", "-", "-f", "json", stdin=f"{CHOICE}\nwhat is this\n".encode()).stdout.splitlines()
    assert [len(json.loads(o)["readings"]) for o in objects] == [1, 0]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("forcing full promt reprocessing", b'the nearest message begins with "forcing full prompt re-processing"'),
        ("\x1b]0;evil\x07hello \x9b2J", b"not similar to a known message"),
        ("", b"the line is empty"),
    ],
)
def test_an_unknown_line_is_one_line_and_status_3(line: str, words: bytes) -> None:
    """With a hint, and nothing on the standard output."""
    done = run("--line", line)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (3, b"", 1)
    assert words in done.stderr
    assert b"\x1b" not in done.stderr


@pytest.mark.sweep
def test_wrong_usage() -> None:
    """A rule and a line, a format without a line."""
    assert run("CD108", "--line", CHOICE).returncode == 2
    assert run("CD108", "--format", "json").returncode == 2


def test_a_wording_names_its_fields() -> None:
    """As in the list of other wordings."""
    row = next(row for row in ROWS if row.id == "npast_set")
    assert wording(row) == "n_past was set to <n_past>"
    assert isinstance(next(explain(row.sample.encode())), Line)
