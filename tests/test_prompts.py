"""Prompts beside a log: each finds its request, by exact length or by order, and the findings carry what changed."""

from __future__ import annotations

import json
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import command
import jsonschema
import made
import pytest
from conftest import CASES, FIXTURES, ROOT, case_of, content_of, log_of, prompts_of, report_of

from cachedoctor.doctor.extras.prompt_matching import GivenPrompts, TextTurn
from cachedoctor.model import Mark, PromptDiff, Request
from cachedoctor.prompts.tokenizers import base

NUMBERS = count(1)
TINY = str(FIXTURES / "tokenizers" / "tiny.json")
TEMPLATE = str(FIXTURES / "prompts" / "template.jinja")
HEAD = "You are the clerk of a small harbour office. " * 40
ONE, TWO, A, B = (f"{word} boats came in today. " * 20 for word in ("Red", "Two", "All", "Big"))
BESIDE = [folder for folder in CASES if "prompts" in case_of(folder)]
CLIENT = {"CD101", "CD102", "CD103", "CD104", "CD105", "CD106", "CD107"}
VALIDATOR = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs/schemas/report-v1.schema.json").read_text("utf-8"))
)


def chat(*users: str, system: str = HEAD) -> dict[str, Any]:
    """A body whose every message but the last was answered."""
    turns: list[dict[str, str]] = [{"role": "system", "content": system}]
    for text in users:
        turns += [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
    return {"messages": turns[:-1]}


def slot(number: int, prompt: str, generated: str = "") -> dict[str, Any]:
    return {"id": number, "n_ctx": 4096, "is_processing": False, "prompt": prompt, "generated": generated}


def given(folder: Path, *values: object, tokenizer: str | None = None, template: str | None = None) -> GivenPrompts:
    path = folder / "bodies.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
    return GivenPrompts([str(path)], tokenizer, template)


def asked(tokens: int | None, thread: int | None = 0, slot: int = 0, **more: Any) -> Request:
    """A finished request of the log, after those asked for before."""
    line = 10 * next(NUMBERS)
    marks = {"start": Mark(line, b"start")}
    known = {"last_line": line + 8, "marks": marks, "slot": slot, "prompt_tokens": tokens, "thread": thread}
    return made.request(**{**known, **more})


def pieces(body: dict[str, Any]) -> int:
    """About the number of tokens of a body."""
    return len(base.pieces().encode(" ".join(m["content"] for m in body["messages"])))


def changed(prompts: GivenPrompts, request: Request) -> PromptDiff | None:
    """What changed from the prompt that this one continues."""
    turn = prompts.turn(request)
    return None if turn is None else turn.difference


def kind(prompts: GivenPrompts, request: Request) -> str | None:
    """What changed, or None when there is nothing to compare with."""
    found = changed(prompts, request)
    return None if found is None or found.first is None else found.first.kind


# ---- which prompt belongs to which request


def test_by_order_alone(tmp_path: Path) -> None:
    """Without a tokenizer the next prompt is the next request's."""
    bodies = [chat("one"), chat("one", "two"), chat("ONE", "two", "three")]
    prompts = given(tmp_path, *bodies)
    found = [changed(prompts, asked(pieces(body))) for body in bodies]
    assert prompts.matched == len(prompts) == 3
    assert found[0] is None
    assert found[1] is not None
    assert found[2] is not None
    assert found[1].first is not None
    assert found[2].first is not None
    assert (found[1].first.kind, found[2].first.kind) == ("appended", "message-edited")
    assert found[2].first.place == "messages[1].content"
    assert not found[2].exact
    assert [side.path.rpartition("#")[2] for side in (found[2].a, found[2].b)] == ["2", "3"]


@pytest.mark.parametrize("share", [0.4, 2.2])
def test_a_length_that_cannot_be(tmp_path: Path, share: float) -> None:
    """Neither matched nor used up: the next request may be its own."""
    body = chat("one")
    prompts = given(tmp_path, body)
    assert changed(prompts, asked(round(pieces(body) / share))) is None
    assert prompts.matched == 0
    changed(prompts, asked(pieces(body)))
    assert prompts.matched == 1


def test_by_exact_length(tmp_path: Path) -> None:
    """With the model's tokenizer and template, prompts whose requests are not in the log are passed over."""
    bodies = [chat("one"), chat("something else"), chat("one", "two"), chat("none of it"), chat("one", "TWO", "three")]
    prompts = given(tmp_path, *bodies, tokenizer=TINY, template=TEMPLATE)
    lengths = list(prompts._lengths)
    assert len(set(lengths)) == 5
    assert changed(prompts, asked(lengths[0])) is None
    assert changed(prompts, asked(lengths[2] + 1)) is None, "in the log, not among the prompts"
    appended, edited = changed(prompts, asked(lengths[2])), changed(prompts, asked(lengths[4]))
    assert prompts.matched == 3
    assert appended is not None
    assert edited is not None
    assert edited.first is not None
    assert edited.exact
    assert edited.first.kind == "message-edited"
    assert (edited.a.tokens, edited.b.tokens) == (lengths[2], lengths[4])


def test_more_requests_than_prompts(tmp_path: Path) -> None:
    """The rest has no prompt."""
    body = chat("one")
    prompts = given(tmp_path, body)
    for _ in range(3):
        assert changed(prompts, asked(pieces(body))) is None
    assert prompts.matched == 1


def test_two_conversations(tmp_path: Path) -> None:
    """Each is compared with its own previous turn, however they alternate."""
    other = "Count the boats. " * 100
    bodies = [chat("one"), chat("a", system=other), chat("one", "two"), chat("a", "b", system=other)]
    prompts = given(tmp_path, *bodies)
    kinds = [kind(prompts, asked(pieces(body), thread=i % 2)) for i, body in enumerate(bodies)]
    assert kinds == [None, None, "appended", "appended"]


def alternating(folder: Path, bodies: list[dict[str, Any]], kept: int) -> TextTurn | None:
    """The last of these bodies, all of one thread by their lengths, as a turn; the last request kept this much."""
    prompts = given(folder, *bodies)
    last = len(bodies) - 1
    found = [
        prompts.turn(
            asked(
                pieces(b),
                released_tokens=1000 + i,
                held_tokens=999 + i,
                common_prefix_tokens=kept if i == last else None,
            )
        )
        for i, b in enumerate(bodies)
    ]
    return found[-1]


def test_two_conversations_that_lengths_took_for_one(tmp_path: Path) -> None:
    """The third continues the first, which left 1,000 tokens in the slot; the slot holds the second."""
    turn = alternating(tmp_path, [chat(ONE), chat(A, B), chat(ONE, TWO)], 700)
    assert turn is not None
    assert turn.reference == 1000
    assert turn.turn == 1
    assert turn.held_thread not in (None, turn.thread)


def test_branches_of_one_conversation_are_not_two(tmp_path: Path) -> None:
    """The second turn was edited, and the edit taken back: all are turns of one conversation."""
    bodies = [chat(ONE), chat(ONE, TWO), chat(ONE, A, B), chat(ONE, TWO, A)]
    turn = alternating(tmp_path, bodies, 700)
    assert turn is not None
    assert turn.held_thread == turn.thread
    assert turn.reference == 1001


PLACES = ("quay", "pier", "slip", "lock", "dock", "buoy", "mole", "weir")
LONG = " ".join(f"Berth {at} at the {PLACES[at % 8]} has been free since day {at * 7 % 31}." for at in range(60))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (f"Who left? {LONG}", f"And which berth is the oldest? {LONG}", True),
        (LONG, LONG[400:], True),
        (
            f"Who left? {LONG}",
            "And which berth is the oldest? " + LONG[:900] + "Nothing of this is known yet. " * 60,
            False,
        ),
        (f"Who left? {LONG}", "A" * len(LONG), False),
    ],
    ids=["question before a document", "oldest text dropped", "a part of it", "other text"],
)
def test_text_that_is_sent_again_after_another_beginning(tmp_path: Path, first: str, second: str, same: bool) -> None:
    """Half of a prompt or more, from another place of an earlier one: the client sends it again."""
    bodies = [{"prompt": first}, {"prompt": second}]
    prompts = given(tmp_path, *bodies)
    lengths = [len(base.pieces().encode(body["prompt"])) for body in bodies]
    one, two = (prompts.turn(asked(length, thread=at)) for at, length in enumerate(lengths))
    assert one is not None
    assert two is not None
    assert (two.thread == one.thread) is same
    assert (two.difference is not None) is same


def test_bodies_that_contradict_the_log_move_no_request(tmp_path: Path) -> None:
    """The slot held 1,001 tokens and all of them were kept: the bodies of parallel requests came in another order."""
    assert alternating(tmp_path, [chat(ONE), chat(A, B), chat(ONE, TWO)], 1001) is None


def test_the_sessions_of_a_log_are_kept_apart(tmp_path: Path) -> None:
    """After a restart thread 0 is another one."""
    bodies = [chat("one"), chat("one", "two")]
    prompts = given(tmp_path, *bodies)
    changed(prompts, asked(pieces(bodies[0])))
    assert changed(prompts, asked(pieces(bodies[1]), session=1)) is None
    assert prompts.matched == 2


def test_a_request_without_a_thread(tmp_path: Path) -> None:
    """Its prompt is used up, so the order of the others holds."""
    bodies = [chat("one"), chat("lost"), chat("one", "two")]
    prompts = given(tmp_path, *bodies)
    assert kind(prompts, asked(pieces(bodies[0]))) is None
    assert kind(prompts, asked(pieces(bodies[1]), thread=None)) is None
    assert kind(prompts, asked(pieces(bodies[2]))) == "appended"


def test_a_cancelled_request(tmp_path: Path) -> None:
    """Its length may never be printed; its body stands between the others all the same."""
    bodies = [chat("one"), chat("one", "two " * 900), chat("one", "two")]
    prompts = given(tmp_path, *bodies)
    changed(prompts, asked(pieces(bodies[0])))
    assert changed(prompts, asked(None, thread=None, cancelled=True, outcome="cancelled")) is None
    assert kind(prompts, asked(pieces(bodies[2]))) == "appended"


def test_a_failed_request(tmp_path: Path) -> None:
    """The length is in the error."""
    bodies = [chat("one"), chat("one", "two " * 900), chat("one", "two")]
    prompts = given(tmp_path, *bodies)
    changed(prompts, asked(pieces(bodies[0])))
    changed(prompts, asked(None, thread=None, error_tokens=pieces(bodies[1]), outcome="failed"))
    assert kind(prompts, asked(pieces(bodies[2]))) == "appended"
    assert prompts.matched == 3


# ---- /slots dumps


def test_dumps_belong_to_their_slot(tmp_path: Path) -> None:
    """A dump holds every slot, also those without a new request; the order counts for each slot alone."""
    a, b = HEAD + "one", "Count the boats. " * 100
    dumps = [
        [slot(0, a)],
        [slot(0, a), slot(1, b)],
        [slot(0, a), slot(1, b + "two")],
        [slot(0, a + " two"), slot(1, b)],
    ]
    prompts = given(tmp_path, *dumps)
    order = [(0, a), (1, b), (1, b + "two"), (0, a + " two")]
    kinds = [
        kind(prompts, asked(len(base.pieces().encode(text)), thread=number, slot=number)) for number, text in order
    ]
    assert kinds == [None, None, "appended", "appended"]
    assert prompts.matched == 4


def test_a_dump_of_another_slot_is_not_taken(tmp_path: Path) -> None:
    """However well its length fits."""
    prompts = given(tmp_path, [slot(3, HEAD)])
    assert changed(prompts, asked(len(base.pieces().encode(HEAD)), slot=0)) is None
    assert prompts.matched == 0


def test_the_reply_in_a_dump(tmp_path: Path) -> None:
    """It is not part of the length of its request, and what the next prompt is compared with."""
    first, reply = HEAD + "<|im_start|>assistant\n", "Seven boats came in at dawn."
    again = first + reply.replace("at dawn", "at  dawn") + "<|im_end|>\n<|im_start|>user\nAnd then?"
    prompts = given(tmp_path, [slot(0, first, reply)], [slot(0, again)])
    cut = base.pieces()
    assert prompts._lengths == [len(cut.encode(text)) for text in (first, again)]
    assert changed(prompts, asked(prompts._lengths[0])) is None
    found = changed(prompts, asked(prompts._lengths[1]))
    assert found is not None
    assert found.first is not None
    assert len(first) < found.first.char < len(first + reply)


# ---- findings and the command line


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", BESIDE, ids=lambda folder: folder.name)
def test_findings_carry_the_difference(case: Path) -> None:
    """Valid by the schema, with both sides and the place; without prompts there is none, and rules say so."""
    report = report_of(content_of(case), prompts_of(case))
    VALIDATOR.validate(report)
    for finding in report["findings"]:
        if finding["code"] not in CLIENT:
            continue
        found = finding["diff"]
        assert [*found] == ["a", "b", "first", "common_prefix_tokens", "exact"]
        assert {*found["a"]} == {*found["b"]} == {"path", "kind", "chars", "tokens"}
        assert found["first"]["token"] == found["common_prefix_tokens"] <= found["a"]["tokens"]
        # Changed once in the first message of the user: an edit, or a new conversation with the same system prompt.
        opening = finding["code"] == "CD105" and not finding["cost"]["tokens"]
        opening = opening and found["first"]["place"].startswith(("messages[0]", "messages[1]"))
        assert finding["confidence"] == ("low" if opening else "high" if found["exact"] else "medium")
    assert not {"CD101", "CD102", "CD103", "CD106", "CD107"} & {rule["code"] for rule in report["not_evaluated"]}
    alone = report_of(content_of(case))
    assert all(finding["diff"] is None for finding in alone["findings"])
    doubtful = any(r["outcome"] in ("partial", "reprocessed", "unknown") for r in alone["requests"])
    silent = {"CD103", "CD106", "CD107"} & {rule["code"] for rule in alone["not_evaluated"]}
    assert silent == ({"CD103", "CD106", "CD107"} if doubtful else set())  # nothing lost leaves nothing to explain


def test_the_case_files_are_matched_whole() -> None:
    """Every body of these cases has its request."""
    assert len(BESIDE) >= 10
    for case in BESIDE:
        prompts = prompts_of(case)
        assert prompts is not None
        report_of(content_of(case), prompts)
        assert prompts.matched == len(prompts), case.name


def run(*args: object) -> subprocess.CompletedProcess[str]:
    done = command.run("analyze", *args)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.sweep
def test_the_command_says_how_many_were_matched(tmp_path: Path) -> None:
    """Only when some were not; the report is written all the same."""
    case = FIXTURES / "cases" / "requests-tools-reordered"
    bodies = case / "requests.jsonl"
    done = run(log_of(case), "--requests", bodies, "-f", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [f["code"] for f in json.loads(done.stdout)["findings"]] == ["CD103"]
    more = tmp_path / "more.jsonl"
    more.write_text(bodies.read_text("utf-8") + bodies.read_text("utf-8").splitlines()[0] + "\n", "utf-8")
    done = run(log_of(case), "--requests", more)
    assert done.returncode == 0
    assert "CD103" in done.stdout
    assert "4 of 5 prompts were matched to requests of the log" in done.stderr


def test_the_three_options(tmp_path: Path) -> None:
    """Dumps one by one, a directory of prompts; what holds none is one line and status 2."""
    case = FIXTURES / "cases" / "slots-tail-retokenised-hybrid"
    folder = tmp_path / "prompts"
    folder.mkdir()
    options: list[object] = []
    for number, line in enumerate((case / "slots.jsonl").read_text("utf-8").splitlines()):
        path = tmp_path / f"slots-{number}.json"
        path.write_text(line, "utf-8")
        options += ["--slots", path]
        (folder / f"{number:012d}.txt").write_text(json.loads(line)[0]["prompt"], "utf-8")
    done = run(log_of(case), *options, "-f", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [f["code"] for f in json.loads(done.stdout)["findings"]] == ["CD107"]
    done = run(log_of(case), "--prompts", folder, "-f", "json")
    assert (done.returncode, done.stderr) == (0, "")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", "utf-8")
    done = run(log_of(case), "--requests", empty)
    assert done.returncode == 2
    assert "is empty" in done.stderr
    assert "Traceback" not in done.stderr
