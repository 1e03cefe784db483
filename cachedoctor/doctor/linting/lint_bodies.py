"""Reads requests in the order of sending and checks that each extends the one before it in its conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

import cachedoctor
from cachedoctor.doctor.extras import extra_inputs
from cachedoctor.doctor.linting import fragile
from cachedoctor.doctor.linting import fragile as expected_changes
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Advice, CacheDoctorError, Lint, LintError, LintHint, PromptDiff
from cachedoctor.model.diff import LeastChange
from cachedoctor.model.report import Tool
from cachedoctor.prompts import compare_prompts, conversations, inputs, request_bodies, run_diff, tools_place
from cachedoctor.prompts.difference_advice import advise
from cachedoctor.prompts.least_change import hashed, least_change
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt, digest, notes_of
from cachedoctor.prompts.tokenizers.base import Remembering
from cachedoctor.redaction import sanitize

HINT = "give consecutive requests of a conversation: JSONL of bodies, or several files in the order sent"
NUMBER = late(r"#(\d+)(?:#\d+)?\Z")
"""Number of a request in its file, after the name of the file."""


class LintRequest(msgspec.Struct):
    """A request as it was read."""

    prompt: Prompt
    line: int | None
    """Line in its file; None if requests are not on a line each."""
    recording: int = 0
    """Requests of different recordings do not follow each other; files of one request each are one recording."""


def read_files(paths: Sequence[str]) -> list[LintRequest]:
    """Read the requests of files: each file of several is a recording by itself, those of one request are one.

    Raises:
        CacheDoctorError: one of them cannot be read, or holds no prompts.
    """
    if list(paths).count("-") > 1:
        raise CacheDoctorError("standard input can be read only once", "give the other inputs as files")
    found: list[LintRequest] = []
    for number, path in enumerate(paths, 1):
        requests = _of_file(path)
        if len(requests) > 1:
            for request in requests:
                request.recording = number
        found += requests
    return found


def _of_file(path: str) -> list[LintRequest]:
    if path != "-" and inputs.is_folder(path):
        return [LintRequest(prompt, None) for prompt in inputs.load(path)]
    data = inputs.read(path)
    name = "<stdin>" if path == "-" else path
    rows = _rows(data)
    return [LintRequest(prompt, _line(prompt, name, rows)) for prompt in inputs.parse(data, name)]


def from_dicts(bodies: Iterable[Mapping[str, Any]]) -> list[LintRequest]:
    """Take bodies as a program has them; they are called ``bodies#1`` and so on.

    Raises:
        CacheDoctorError: one of them is not JSON, or none holds a prompt.
    """
    try:
        data = "\n".join(json.dumps(body) for body in bodies)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give request bodies: dicts of strings, numbers, lists and dicts"
        raise CacheDoctorError(f"bodies: are not JSON: {error}", hint) from error
    if not data:
        raise CacheDoctorError("bodies: no request bodies were given", HINT)
    return [LintRequest(prompt, None) for prompt in inputs.parse(data.encode(), "bodies")]


def pairs_of(sent: list[LintRequest]) -> list[tuple[int, int]]:
    """Which request follows which, as indexes (earlier, later)."""
    recordings: dict[int, list[int]] = {}
    for index, request in enumerate(sent):
        recordings.setdefault(request.recording, []).append(index)
    return [
        (places[earlier], places[later])
        for places in recordings.values()
        for earlier, later in conversations.walk([sent[index].prompt for index in places])
    ]


def _rows(data: bytes) -> list[int]:
    """The lines on which the values of JSONL stand; nothing where the file is something else."""
    rows = [(number, row) for number, row in enumerate(data.split(b"\n"), 1) if row.strip()]
    if all(row.strip()[:1] in b"{[" and row.rstrip().rstrip(b",")[-1:] in (b"}", b"]") for _, row in rows):
        return [number for number, _ in rows]
    return []


def _line(prompt: Prompt, name: str, rows: list[int]) -> int | None:
    if prompt.recorded is not None and prompt.recorded.is_moved:
        return None
    number = NUMBER.search(prompt.path[len(name) :])
    at = 0 if number is None else int(number.group(1)) - 1
    return rows[at] if at < len(rows) and (number is not None or len(rows) == 1) else None


_NO_PAIR = "does not contain two requests of one conversation"
_APART = ("cache-salt", "adapter")
"""Differences outside the text: nothing at all is shared."""
_BESIDE = {"cache_salt": "cache-salt", "extra_key": "cache-salt", "images": "image"} | dict.fromkeys(
    ("lora", "lora_path"), "adapter"
)
"""Kinds of differences outside the text of a request, by field."""
_NOT_OF_TEXT = frozenset({"cache-prompt-off", *_BESIDE.values()})
_FORBIDS = "the request sets cache_prompt to false, so llama-server reuses nothing from its slot"
_ALLOW = Advice("Remove cache_prompt, or set it to true (the default since November 2024).")


class LintAsk(msgspec.Struct):
    """What the user wants."""

    tokenizer: str | None = None
    template: str | None = None
    server: str | None = None
    build: int | None = None
    hash_text: bool = False


def lint_requests(sent: list[LintRequest], ask: LintAsk) -> Lint:
    """Judge requests in the order of sending.

    Raises:
        CacheDoctorError: no two are of one conversation, or a model file or a server cannot be used.
    """
    files = ModelFiles(ask.tokenizer, ask.template, ask.server)
    try:
        return _LintRun(sent, ask, files).judged()
    finally:
        files.close()


class _LintRun:
    """One judgement: the requests, rendered, and what was found."""

    def __init__(self, sent: list[LintRequest], ask: LintAsk, files: ModelFiles) -> None:
        self._ask = ask
        self._cutter = Remembering(files.cutter)
        self._lines = [request.line for request in sent]
        self._raw = [request.prompt for request in sent]
        pairs = pairs_of(sent)
        if not pairs:
            name = NUMBER.sub("", self._raw[0].path) if sent else "the input"
            raise CacheDoctorError(f"{name}: {_NO_PAIR}", HINT)
        self._pairs = pairs
        options = run_diff.DiffJob(ask.tokenizer, ask.template, build=ask.build)
        self._paired = {index for pair in pairs for index in pair}
        self._render: Callable[[Prompt], Prompt] = partial(run_diff.rendered, ask=options, files=files)
        self._prompts = [
            self._render(prompt) if index in self._paired else prompt for index, prompt in enumerate(self._raw)
        ]
        self._before = {later: earlier for earlier, later in pairs}
        self._hints: dict[tuple[str, str], LintHint] = {}

    def judged(self) -> Lint:
        """Compare each request with the one before it."""
        errors: list[LintError] = []
        compared = [(earlier, later, self._compared(earlier, later)) for earlier, later in self._pairs]
        exact = all(found.exact for _, _, found in compared)
        extended = {earlier for earlier, _, found in compared if run_diff.only_appended(found)}
        for earlier, later, found in compared:
            errors += self._forbidden(earlier, later, found)
            if not (earlier in extended and expected_changes.is_branch(found)):
                errors += self._changed(earlier, later, found)
        least = self._least(compared, errors)
        if self._ask.hash_text:
            errors = [_hashed(error) for error in errors]
        hints = [*fragile.hints(self._raw, errors, self._ask.hash_text), *self._hints.values()]
        roots = {earlier for earlier, _ in self._pairs} - set(self._before)
        alone = len(self._raw) - len(self._paired)
        name = self._cutter.name
        rendered = all(prompt.rendered for index, prompt in enumerate(self._prompts) if index in self._paired)
        notes = notes_of(self._raw)
        tool = Tool("cachedoctor", cachedoctor.__version__)
        return Lint(
            tool, not errors, len(self._raw), len(roots), alone, name, exact, rendered, errors, hints, notes=notes,
            least=None if least is None else least[0], least_path=None if least is None else least[1],
        )  # fmt: skip

    def _least(
        self, compared: Sequence[tuple[int, int, PromptDiff]], errors: Sequence[LintError]
    ) -> tuple[LeastChange, str] | None:
        """The smallest set of changes for the request that costs most, with its path; None where it is one change."""
        costs = {(error.before, error.path): error.cost for error in errors if error.kind not in _NOT_OF_TEXT}
        pairs = [(self._raw[earlier], self._raw[later]) for earlier, later, _ in compared]
        a, b = max(pairs, key=lambda pair: costs.get((pair[0].path, pair[1].path), 0))
        if not costs.get((a.path, b.path)):
            return None
        found = least_change(a, b, self._cutter, self._render)
        if len(found.edits) < 2:
            return None
        return sanitize.mask(hashed(found) if self._ask.hash_text else found), b.path

    def _compared(self, earlier: int, later: int) -> PromptDiff:
        a, b = self._prompts[earlier], self._prompts[later]
        options = compare_prompts.DiffOptions(build=self._ask.build or NEWEST)
        for prompt in (a, b):
            run_diff.check_model(prompt, run_diff.DiffJob(template=self._ask.template), self._cutter)
        found = compare_prompts.compare(a, b, self._cutter, options)
        tools = [conversations.tool_names(self._raw[i]) for i in run_diff.earlier_of(self._before, earlier)]
        found = conversations.told(found, a, b, tools)
        return compare_prompts.hashed(found) if self._ask.hash_text else found

    def _changed(self, earlier: int, later: int, found: PromptDiff) -> list[LintError]:
        found = sanitize.mask(found)  # secrets are searched for before anything is cut
        first = found.first
        if first is None or run_diff.only_appended(found):
            return []
        a, b = self._prompts[earlier], self._prompts[later]
        kind, place = _beside(found) or (first.kind, first.place)
        shared = 0 if kind in _APART else found.common_prefix_tokens
        cost = max(0, min(found.a.tokens, found.b.tokens) - shared)
        hint = expected_changes.hint_of(a, b, found, cost)
        if hint is not None and not request_bodies.decides(found.settings):
            self._note(hint)
            return []
        return [
            LintError(
                b.path, a.path, self._lines[later], kind, first.field, place, _explained(found, kind),
                first.token, first.char, cost, found.b.tokens, first.a, first.b,
                first.advice or advise(kind, first.field), first.client, *extra_inputs.of_prompt(self._raw[later]),
                least_cost=tools_place.least_cost(a, b, found, self._cutter, cost),
            )
        ]  # fmt: skip

    def _forbidden(self, earlier: int, later: int, found: PromptDiff) -> list[LintError]:
        b = self._raw[later]
        if b.body is None or b.body.get("cache_prompt") is not False:
            return []
        shared = found.common_prefix_tokens
        return [
            LintError(
                b.path, self._raw[earlier].path, self._lines[later], "cache-prompt-off", None, "cache_prompt",
                _FORBIDS, 0, 0, shared, found.b.tokens, "", "false", [_ALLOW], None, *extra_inputs.of_prompt(b),
            )
        ]  # fmt: skip

    def _note(self, hint: LintHint) -> None:
        """Keep a hint; of several that show the same the first one counts for all."""
        hint.shown = digest(hint.shown) if self._ask.hash_text and hint.kind == "reply-opening" else hint.shown
        kept = self._hints.setdefault((hint.kind, hint.shown), hint)
        kept.requests += kept is not hint


def _beside(found: PromptDiff) -> tuple[str, str] | None:
    """Kind and place of what differs beside the texts, where these were only appended to."""
    if found.first is None or found.first.kind != "appended" or not request_bodies.decides(found.settings):
        return None
    setting = next(setting for setting in found.settings if setting.place != "model")
    return _BESIDE.get(setting.place.partition("[")[0], "cache-salt"), setting.place


def _explained(found: PromptDiff, kind: str) -> str:
    if found.first is None or found.first.kind == kind:
        return found.explanation
    return next(f"{setting.place} differs: {setting.words}" for setting in found.settings if setting.place != "model")


def _hashed(error: LintError) -> LintError:
    """Leave out the value that the request itself sets; the rest was hashed with its difference."""
    return msgspec.structs.replace(error, b="") if error.kind == "cache-prompt-off" else error
