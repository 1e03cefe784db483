"""Traffic for the replay: out of request bodies, and out of a log alone. The logs are of real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.replaying import from_bodies, from_log
from cachedoctor.doctor.replaying.from_log import recorded
from cachedoctor.model import Judged, Request, Session
from cachedoctor.prompts import inputs
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.request_bodies import prompts_of

FIXTURES = Path(__file__).parent.parent / "fixtures"
CASES = FIXTURES / "cases"
TEMPLATE = FIXTURES / "prompts/template.jinja"
NO_FILES = ModelFiles()


class Watching(Analyzer):
    """An analyzer that keeps every finished request."""

    def __init__(self, build: int | None) -> None:
        super().__init__(build)
        self.requests: list[Request] = []

    def _ask(self, request: Request) -> Judged:
        self.requests.append(request)
        return super()._ask(request)

    def last_session(self) -> Session:
        """The session of the last request."""
        return self._sessions[self.requests[-1].session]


def _watched(case: str | Path, build: int | None) -> Watching:
    watching = Watching(build)
    log = CASES / case / "server.log"
    watching.open(str(log))
    watching.feed(log.read_bytes())
    watching.finish()
    return watching


@pytest.fixture(scope="module")
def files() -> Iterator[ModelFiles]:
    """Words for tokens, and the template of the model that wrote the logs."""
    found = ModelFiles(None, str(TEMPLATE))
    yield found
    found.close()


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("requests-slot-taken", ServerSettings(build=11549, slots=1, cache_ram_mib=0)),
        ("requests-tools-reordered", ServerSettings(build=11549, slots=1)),
        ("requests-timestamp", ServerSettings(build=11549, slots=1)),
        ("shared-prefix-steal-bodies-b8672", ServerSettings(build=8672, slots=1)),
    ],
)
def test_bodies_give_the_share_that_the_server_reused(case: str, settings: ServerSettings, files: ModelFiles) -> None:
    """Without tokenizer and answers: words for tokens, and replies that the client sent back."""
    watching = _watched(case, settings.build)
    sent = [from_bodies.SentBody(prompt) for prompt in inputs.load(str(CASES / case / "requests.jsonl"))]
    built = from_bodies.build(sent, files, settings.build, watching.requests)
    assert built.left_out == []
    assert built.sent == list(range(len(sent)))
    for asked, request, served in zip(built.traffic.asked, built.requests, serve(built.traffic, settings), strict=True):
        assert request is not None
        assert request.prompt_tokens is not None
        share = (request.cached_tokens or 0) / request.prompt_tokens
        assert served.reused / built.traffic.tree.length(asked.prompt) == pytest.approx(share, abs=0.04)


def test_bodies_are_matched_by_their_exact_lengths() -> None:
    """One body that the log does not have in front, and one request whose body is not given."""
    first, second, third, *_ = _watched("requests-slot-taken", 11549).requests
    lengths = [7, first.prompt_tokens, 9, third.prompt_tokens]
    sent = [from_bodies.SentBody(None)] * 4
    found = from_bodies.matched(lengths, sent, [first, second, third], exact=True)
    assert {at: one.index for at, one in found.items()} == {1: first.index, 3: third.index}
    assert from_bodies.matched(lengths[:1], sent[:1], [first], exact=False) == {}


@pytest.mark.parametrize(
    ("case", "build"),
    [
        ("healthy-dense-b6301", None),
        ("healthy-hybrid-b9294", 9294),
        ("history-edited-dense", None),
        ("cache-ram-off-hybrid", None),
        ("cache-ram-state-too-big", None),
        ("idle-slots-restored-b8672", None),
        ("cache-prompt-off-dense", None),
        ("slot-contention-dense-b8672", 8672),
        ("server-restarted-b9713", 9713),
        ("server-slept-b9713", 9713),
    ],
)
def test_a_log_alone_gives_what_the_server_reused(case: str, build: int | None) -> None:
    watching = _watched(case, build)
    built = from_log.build(watching.requests)
    served = serve(built.traffic, recorded(watching.last_session(), watching.requests).settings)
    assert [one.reused for one in served] == [one.cached_tokens or 0 for one in built.requests]


def test_a_prompt_for_which_no_idle_slot_was_chosen_continues_from_none_of_them() -> None:
    """Eight people begin; by their lengths alone each prompt could be the next turn of the one before."""
    day = FIXTURES / "days/dense-eight_auto_ram_small-b11549-default"
    truth = json.loads((day / "truth.json").read_text("utf-8"))["requests"]
    watching = _watched(day, 11549)
    built = from_log.build(watching.requests)
    first = [at for at, row in enumerate(truth) if row["previous"] is None]
    assert first == list(range(8))
    assert [built.traffic.ideal[at].tokens for at in first] == [0] * 8
    assert not built.assumed & set(first)


def _completion(text: str) -> Prompt:
    return Prompt("-", "openai-completion", text, body={"prompt": text})


def test_bodies_alone_are_answered_one_after_the_other() -> None:
    texts = ["one two three four", "one two three four five six", "one two"]
    sent = [from_bodies.SentBody(_completion(text), reply=" five", generated=1) for text in texts]
    built = from_bodies.build(sent, NO_FILES)
    assert [(one.started, one.ended) for one in built.traffic.asked] == [(0, 1), (2, 3), (4, 5)]
    assert built.requests == [None] * 3
    lengths = [built.traffic.tree.length(one.prompt) for one in built.traffic.asked]
    assert [one.reused for one in serve(built.traffic, ServerSettings(slots=1))] == [0, lengths[0], lengths[2] - 1]


def test_a_body_without_a_prompt_has_no_place_without_a_log() -> None:
    built = from_bodies.build([from_bodies.SentBody(None), from_bodies.SentBody(_completion("a b c"))], NO_FILES)
    assert built.left_out == [0]
    assert built.sent == [1]


def test_fields_of_the_body_reach_the_traffic() -> None:
    prompt = Prompt(
        "-", "openai-completion", "a b", body={"prompt": "a b", "cache_prompt": False, "id_slot": 2, "n": 3}
    )
    one = from_bodies.build([from_bodies.SentBody(prompt)], NO_FILES).traffic.asked[0]
    assert (one.cache_prompt, one.id_slot, one.choices) == (False, 2, 3)
    odd = Prompt("-", "openai-completion", "a b", body={"prompt": "a b", "id_slot": "x", "n": -1, "cache_prompt": None})
    two = from_bodies.build([from_bodies.SentBody(odd)], NO_FILES).traffic.asked[0]
    assert (two.cache_prompt, two.id_slot, two.choices) == (True, None, 1)


def test_user_messages_begin_where_the_template_opens_them(files: ModelFiles) -> None:
    """Two of the user, and a tool's result that the template writes as one."""
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "second"},
        {"role": "tool", "content": "result"},
    ]
    prompt = prompts_of({"messages": messages}, "openai-chat", "-")[0]
    asked = from_bodies.build([from_bodies.SentBody(prompt)], files).traffic.asked[0]
    text = files.rendered(prompt, mask_cch=False).text
    starts = files.cutter.encode(text).starts
    assert [text[starts[at] :][:16] for at in asked.user_starts] == ["<|im_start|>user"] * text.count(
        "<|im_start|>user"
    )
    assert len(asked.user_starts) >= 2
