"""``cachedoctor diff`` as a user meets it: exit statuses, bad input, what reaches the terminal, the JSON contract."""

from __future__ import annotations

import json
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import one_line, run
from test_gguf import SOUND
from tokenizer_files import save_gguf

from cachedoctor.prompts.difference_advice import _GENERIC

ROOT = Path(__file__).parent.parent
PROMPTS = ROOT / "fixtures" / "prompts"
PAIRS = sorted(path.name for path in PROMPTS.iterdir() if path.is_dir())
SCHEMA = json.loads((ROOT / "docs/schemas/diff-v1.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
CONTRACT = {
    "": "schema tool equal a b tokenizer first common_prefix_tokens common_suffix_tokens reusable",
    "tool": "name version",
    "a": "path kind chars tokens",
    "b": "path kind chars tokens",
    "tokenizer": "name exact",
    "first": "token char line column place kind field a b advice client",
    "reusable": "attention swa hybrid",
}
OLD = "The harbour opens at 08:15:01 and the tide tables hang beside the door.\n"
NEW = "The harbour opens at 09:47:33 and the tide tables hang beside the door.\n"


def pair(folder: Path, a: str | bytes = OLD, b: str | bytes = NEW) -> tuple[Path, Path]:
    """Two files with these contents."""
    paths = folder / "a.txt", folder / "b.txt"
    for path, content in zip(paths, (a, b), strict=True):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return paths


def answer(*args: object, **env: str) -> dict[str, Any]:
    """The JSON diff, valid by the schema."""
    done = run("diff", *args, "--format", "json", **env)
    assert done.stderr == b""
    found: dict[str, Any] = json.loads(done.stdout)
    VALIDATOR.validate(found)
    assert done.returncode == int(not found["equal"])
    return found


def body(*messages: str, system: str = "You are the clerk of a small harbour office.") -> str:
    """A chat body whose messages alternate."""
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": text} for i, text in enumerate(messages)]
    return json.dumps({"messages": [{"role": "system", "content": system}, *turns]})


# ---- the contract of the JSON


@pytest.mark.sweep
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    "options", [[], ["--full"], ["--hash-text", "--full"], ["--template", PROMPTS / "template.jinja"]]
)
def test_real_pairs_keep_the_contract(name: str, options: list[object]) -> None:
    """Schema, names and their order, numbers that agree with each other."""
    found = answer(PROMPTS / name / "a.json", PROMPTS / name / "b.json", *options)
    notes = ["notes"] * (name == "tools-reordered" and "--template" not in options)  # where the tools are is not known
    assert [*found] == CONTRACT[""].split() + ["edits"] * ("--full" in options) + notes
    for key, names in CONTRACT.items():
        assert not key or [*found[key]] == names.split()
    assert all([*item] == ["text", "commands"] for item in found["first"]["advice"])
    assert found["first"]["token"] == found["common_prefix_tokens"] <= found["a"]["tokens"]
    assert found["reusable"]["attention"] == found["common_prefix_tokens"]
    edits = found.get("edits")
    if edits is not None:
        assert [*edits[0]] == ["op", "a", "b"]
        assert edits[-1]["b"][1] == found["b"]["tokens"]
        assert all(x["b"][1] == y["b"][0] for x, y in pairwise(edits))


@pytest.mark.sweep
def test_the_schema_is_strict_and_knows_every_kind() -> None:
    """A changed contract fails the schema; a new recogniser must be entered."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert {"billing-header", *_GENERIC} == set(SCHEMA["$defs"]["First"]["properties"]["kind"]["enum"])
    found = answer(PROMPTS / "timestamp" / "a.json", PROMPTS / "timestamp" / "b.json")
    wrong = [
        {**found, "new": 1},
        {**found, "first": None},
        {**found, "equal": True},
        {**found, "a": {**found["a"], "tokens": "285"}},
        {**found, "edits": [{"op": "equal", "a": [0], "b": [0, 1]}]},
        {key: value for key, value in found.items() if key != "reusable"},
    ]
    assert not any(VALIDATOR.is_valid(one) for one in wrong)


# ---- exit statuses


def test_equal_prompts(tmp_path: Path) -> None:
    """0, one line that says so, and null in the JSON."""
    a, b = pair(tmp_path, OLD, OLD)
    done = run("diff", a, b)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"equal: about" in done.stdout
    found = answer(a, b, "--full")
    assert (found["equal"], found["first"], found["edits"]) == (True, None, [])


def test_different_prompts(tmp_path: Path) -> None:
    """1, and the kind and place are the first things said."""
    done = run("diff", *pair(tmp_path))
    assert (done.returncode, done.stderr) == (1, b"")
    head = done.stdout.decode().split("\n\n")[1]
    assert head.startswith("timestamp (time): a time changed\n  --> at token about ")
    assert "character 22, line 1, column 23" in head  # 08 and 09: the first digit is the same


@pytest.mark.sweep
def test_wrong_usage(tmp_path: Path) -> None:
    """2 for options that do not exist or make no sense."""
    a, b = pair(tmp_path)
    for options in (["--context", "-1"], ["--format", "yaml"], ["--slot", "x"], ["--nonsense"]):
        assert run("diff", a, b, *options).returncode == 2
    assert run("diff").returncode == 2


# ---- bad input

SLOT = {"id": 0, "n_ctx": 4096, "is_processing": False, "id_task": 3, "params": {}}
BAD: dict[str, tuple[bytes, list[str]]] = {
    "broken JSON": (b'{"messages": [{"role": "us', ["broken JSON", "line 1, column"]),
    "slots without prompts": (json.dumps([SLOT]).encode(), ["contains no prompts", "LLAMA_SERVER_SLOTS_DEBUG=1"]),
    "empty": (b"", ["is empty"]),
    "blank": (b" \n\n", ["is empty"]),
    "binary": (bytes(range(256)) * 8, ["binary"]),
    "model": (SOUND, ["GGUF", "--tokenizer"]),
    "output of diff": (b"1c1\n< one line\n---\n> another\n", ["output of diff", "cachedoctor diff OLD NEW"]),
    "unified diff": (b"--- a.json\n+++ b.json\n@@ -1 +1 @@\n-x\n+y\n", ["output of diff"]),
    "response": (b'{"choices": [], "usage": {}}', ["is a response"]),
    "error reply": (b'{"error": {"code": 501, "message": "no"}}', ["error reply", "--slots"]),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", BAD)
def test_bad_prompts_are_one_line_with_a_hint(tmp_path: Path, name: str) -> None:
    """On either side: status 2, nothing on standard output."""
    content, words = BAD[name]
    for a, b in (pair(tmp_path, content, NEW), pair(tmp_path, OLD, content)):
        done = run("diff", a, b)
        assert (done.returncode, done.stdout) == (2, b"")
        one_line(done, *words)


@pytest.mark.sweep
def test_bad_tokenizers_are_one_line_with_a_hint(tmp_path: Path) -> None:
    """Truncated, no GGUF, missing, not JSON, unreachable."""
    a, b = pair(tmp_path)
    whole = Path(save_gguf(tmp_path, "whole.gguf")).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "none.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    for spec, word in (
        (tmp_path / "cut.gguf", "cut.gguf"),
        (tmp_path / "none.gguf", "does not begin with GGUF"),
        (tmp_path / "missing.gguf", "No such file"),
        (a, "not JSON"),
        ("http://127.0.0.1:1", "check that llama-server is running at this address"),
    ):
        done = run("diff", a, b, "--tokenizer", spec)
        assert (done.returncode, done.stdout) == (2, b"")
        one_line(done, word)


@pytest.mark.sweep
def test_files_that_cannot_be_had(tmp_path: Path) -> None:
    """A missing file, a folder without dumps, standard input twice, one prompt alone."""
    a, _ = pair(tmp_path)
    for args, word in (
        ([tmp_path / "missing", a], "cannot be read"),
        ([a, tmp_path / "missing"], "No such file"),
        ([tmp_path, a], "--log-prompts-dir"),
        (["-", "-"], "standard input"),
        ([a], "does not contain two prompts of one conversation"),
    ):
        done = run("diff", *args)
        assert (done.returncode, done.stdout) == (2, b"")
        one_line(done, word)


@pytest.mark.sweep
def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    """Its own template does not know the token with which the prompt begins: refused, unless a template is named."""
    other = save_gguf(tmp_path, **{"tokenizer.chat_template": (8, "[GO]{{ messages[0].content }}")})
    dumps = [json.dumps([{**SLOT, "prompt": f"<|of_another|>user\n{text}"}]) for text in (OLD, NEW)]
    a, b = pair(tmp_path, *dumps)
    done = run("diff", a, b, "--tokenizer", other)
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, "<|of_another|>", "give the tokenizer of the server's model")
    assert run("diff", a, b, "--tokenizer", other, "--template", PROMPTS / "template.jinja").returncode == 1


# ---- what is compared


@pytest.mark.sweep
def test_standard_input_on_either_side(tmp_path: Path) -> None:
    """``-`` is a prompt like any other."""
    a, b = pair(tmp_path)
    found = json.loads(run("diff", "-", b, "-f", "json", stdin=OLD.encode()).stdout)
    assert (found["a"]["path"], found["first"]["kind"]) == ("<stdin>", "timestamp")
    assert run("diff", a, "-", stdin=OLD.encode()).returncode == 0


@pytest.mark.sweep
def test_slots_are_matched_or_picked(tmp_path: Path) -> None:
    """Two slots give two answers; ``--slot`` gives one."""
    slots = [[{**SLOT, "id": i, "prompt": f"slot {i}. {text}"} for i in (0, 1)] for text in (OLD, NEW)]
    a, b = pair(tmp_path, *map(json.dumps, slots))
    lines = run("diff", a, b, "-f", "json").stdout.splitlines()
    assert [json.loads(line)["a"]["path"][-2:] for line in lines] == ["#0", "#1"]
    assert answer(a, b, "--slot", "1")["first"]["kind"] == "timestamp"
    one_line(run("diff", a, b, "--slot", "7"), "no slot 7", "the dump has these slots: 0, 1")


@pytest.mark.sweep
def test_a_walk_through_conversations(tmp_path: Path) -> None:
    """Consecutive prompts of each conversation, one object per line, 1 as soon as one pair differs."""
    other = body("Is the lighthouse open on Sundays?", system="You are the guide of a museum.")
    turns = [body(OLD), other, body(OLD, "At eight.", "Thanks."), body(NEW, "At eight.", "Thanks.", "You're welcome.")]
    path = tmp_path / "walk.jsonl"
    path.write_text("\n".join(turns))
    done = run("diff", path, "-f", "json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(VALIDATOR.is_valid(one) for one in found)
    assert done.returncode == 1
    assert [(one["a"]["path"][-2:], one["b"]["path"][-2:]) for one in found] == [("#1", "#3"), ("#3", "#4")]
    assert [one["first"]["kind"] for one in found] == ["appended", "timestamp"]
    assert run("diff", path).stdout.count(b"  --> at token") == 2
    one_line(run("diff", path, path), "contains 4 prompts")


@pytest.mark.sweep
def test_a_cause_of_several_pairs_is_explained_once() -> None:
    """Four requests are three pairs, and the same header changes in each."""
    done = run("diff", ROOT / "fixtures/cases/requests-billing-header/requests.jsonl")
    assert done.stdout.count(b"billing-header (cch)") == 3
    assert done.stdout.count(b"export CLAUDE_CODE_ATTRIBUTION_HEADER=0") == 1
    assert done.stdout.count(b"  = fix: as above\n") == 2
    assert done.stdout.count(b"token counts are approximate") == 1


def test_whole_difference(tmp_path: Path) -> None:
    """``--full`` says what the edits amount to, then lists them."""
    words = ["".join(random.Random(i).choices("aeioulmnrst", k=9)) for i in range(300)]
    a, b = pair(tmp_path, *("".join(f" {word}" for word in part) for part in (words, words[100:])))
    text = run("diff", a, b, "--full").stdout.decode()
    assert "whole difference: the first 100 tokens were dropped, and the rest is equal; nothing follows" in (
        " ".join(text.split())
    )
    assert "delete  a 0..100 (100)  b 0..0 (0)\n" in text
    assert "whole difference" not in run("diff", a, b).stdout.decode()


@pytest.mark.sweep
def test_context(tmp_path: Path) -> None:
    """``--context`` widens and narrows what stands around the difference."""
    a, b = pair(tmp_path, "one two three four five six seven", "one two three four FIVE six seven")
    for context, row in ((0, " [five]\n"), (1, " four [five] six\n"), (9, "one two three four [five] six seven\n")):
        assert f"    a | {row}" in run("diff", a, b, "--context", str(context)).stdout.decode()


# ---- what reaches the terminal


@pytest.mark.sweep
def test_hostile_text_is_only_shown(tmp_path: Path) -> None:
    """Escape sequences, links, bidirectional controls and markup of both prompts, in every format."""
    evil = "\x1b]8;;http://x.example\x1b\\ \u202egnp.exe [red]bold[/red] \x9b31m \r\x07"
    controls = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
    for a, b in ((f"{evil} one {evil}", f"{evil} two {evil}"), (f"x{evil}", "x"), ("say \x1b[2J", "say \u2066")):
        for options in ([], ["--full"], ["--hash-text"]):
            assert not controls.search(run("diff", *pair(tmp_path, a, b), *options).stdout.decode())
        assert b"\x1b" not in run("diff", *pair(tmp_path, a, b), "-f", "json").stdout
    shown = run("diff", *pair(tmp_path, f"{evil} one", f"{evil} two"), "--context", "50").stdout.decode()
    assert "\\u202e" in shown
    assert "[red]bold[/red]" in shown
    coloured = run("diff", *pair(tmp_path, f"{evil} one", f"{evil} two"), FORCE_COLOR="1").stdout.decode()
    assert not re.search(r"\x1b(?!\[[\d;]*m)", coloured)


@pytest.mark.sweep
def test_colour_only_when_it_is_wanted(tmp_path: Path) -> None:
    """Plain in a pipe, with NO_COLOR, and in ASCII where the output cannot do more."""
    a, b = pair(tmp_path, OLD + "äöü one", OLD + "äöü two")
    assert b"\x1b" not in run("diff", a, b).stdout
    assert b"\x1b" not in run("diff", a, b, FORCE_COLOR="", NO_COLOR="1").stdout
    assert run("diff", a, b, FORCE_COLOR="1").stdout.count(b"\x1b[") > 5
    assert run("diff", a, b, PYTHONIOENCODING="ascii", PYTHONUTF8="0").stdout.isascii()


def test_output_file(tmp_path: Path) -> None:
    """``-o`` keeps standard output empty and the exit status."""
    a, b = pair(tmp_path)
    done = run("diff", a, b, "-f", "json", "-o", tmp_path / "out.json")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    VALIDATOR.validate(json.loads((tmp_path / "out.json").read_bytes()))


SECRET = "Zanzibar"
SECRETS = {
    "text": (f"{SECRET}1 {SECRET}: 12 {SECRET}", f"{SECRET}1 {SECRET}: 13 {SECRET}"),
    "edited": (body(f"{SECRET} one"), body(f"{SECRET} two")),
    "system": (body("x", system=f"{SECRET}Id: 11112222"), body("x", system=f"{SECRET}Id: 33334444")),
    "tool name": tuple(
        json.dumps({"messages": [], "tools": [{"type": "function", "function": {"name": name}}]})
        for name in (f"{SECRET}_a", f"{SECRET}_b")
    ),
    "tool removed": (
        json.dumps({"messages": [], "tools": [{"name": f"{SECRET}{i}", "input_schema": {}} for i in (1, 2)]}),
        json.dumps({"messages": [], "tools": [{"name": f"{SECRET}1", "input_schema": {}}]}),
    ),
    "key": tuple(
        json.dumps(
            {"messages": [], "tools": [{"name": "t", "input_schema": {"properties": {f"a.{SECRET}]": {"title": n}}}}]}
        )
        for n in "xy"
    ),
    "header": tuple(f"x-anthropic-billing-header: cc_version=2.1.1; {SECRET}={n};\nHello" for n in "12"),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SECRETS)
def test_hash_text_prints_no_prompt_text(tmp_path: Path, name: str) -> None:
    """Neither quotes nor labels, names, keys, places or advice; numbers, kinds and hashes stay."""
    a, b = pair(tmp_path, *SECRETS[name])
    for options in ([], ["--full", "-f", "json"]):
        done = run("diff", a, b, "--hash-text", *options)
        assert done.returncode == 1
        assert SECRET.lower().encode() not in done.stdout.lower() + done.stderr.lower()
        assert b"sha256 " in done.stdout
    shown = run("diff", a, b, "--context", "50").stdout
    plain, hashed = answer(a, b), answer(a, b, "--hash-text")
    assert SECRET in shown.decode() + json.dumps(plain, ensure_ascii=False)
    assert [plain["first"][key] for key in ("token", "char", "kind")] == [
        hashed["first"][key] for key in ("token", "char", "kind")
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("a", "b", "shown_a", "shown_b"),
    [
        ("It is 12:00:01. Follow the rules", "It is 12:00:07. Follow the rules", "12:00:[01]. F", "12:00:[07]. F"),
        ("Count them one by one.\nWhich boats are in?", "Count them two by two, never three.\nWhich boats are in?",
         "[one by one].\\nWhich", "[two by two, never three].\\nWhich"),
        ("Count the boats that come in", "Count all of the boats that come in",
         "Count[] the boats", "Count[ all of] the"),
        ("Read the file", "Read the file and the next one", "Read the file[]", "Read the file[ and the next one]"),
        ("Which flag is it", "How many sails does it have", "[Which flag is it]", "[How many sails does it have]"),
        ("帆は何枚ですか", "旗は何枚ですか", "[帆]は何枚ですか", "[旗]は何枚ですか"),
    ],
)  # fmt: skip
def test_only_what_differs_is_marked(tmp_path: Path, a: str, b: str, shown_a: str, shown_b: str) -> None:
    (tmp_path / "a.txt").write_text(a, "utf-8")
    (tmp_path / "b.txt").write_text(b, "utf-8")
    shown = run("diff", tmp_path / "a.txt", tmp_path / "b.txt", "--context", "60", COLUMNS="160").stdout.decode()
    rows = {row[4]: row for row in shown.splitlines() if row.startswith(("    a | ", "    b | "))}
    assert shown_a in rows["a"]
    assert shown_b in rows["b"]
    assert rows["a"].count("[") == rows["b"].count("[") == 1


def test_the_least_change_is_in_text_and_json_and_hides_names(tmp_path: Path) -> None:
    """Two tools, of which the second request lacks one, and a value in the system prompt."""
    text = " ".join(f"word{n}" for n in range(200))
    tools = [{"type": "function", "function": {"name": name, "description": text}} for name in ("read", "our_lookup")]
    a = {
        "tools": tools,
        "messages": [{"role": "system", "content": f"Now: 10:41\n{text}"}, {"role": "user", "content": text}],
    }
    b = {
        "tools": tools[:1],
        "messages": [{"role": "system", "content": f"Now: 11:52\n{text}"}, {"role": "user", "content": text}],
    }
    paths = pair(tmp_path, json.dumps(a), json.dumps(b))
    done = run("diff", *paths, "--least", "-f", "json")
    found = json.loads(done.stdout)
    VALIDATOR.validate(found)
    kinds = [(edit["kind"], edit["owner"], edit["place"]) for edit in found["least"]["edits"]]
    assert kinds[0][:2] == ("tool-removed", "client")
    assert kinds[1] == ("timestamp", "client", "messages[0].content")
    assert found["least"]["common"] == found["common_prefix_tokens"]
    shown = run("diff", *paths, "--least").stdout.decode()
    assert "keep `our_lookup` in the tool list" in shown
    assert "the effect on answers is unknown" in " ".join(shown.split())
    hashed = run("diff", *paths, "--least", "--hash-text")
    assert b"our_lookup" not in hashed.stdout
    assert b"least change" in hashed.stdout
