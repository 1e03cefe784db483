"""Demands that each request of a conversation extends the one before it. Knows prompts, no argument and no output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cachedoctor.doctor.linting import fragile
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.model import Advice, CacheDoctorError, Lint, LintError, LintHint, PromptDiff
from cachedoctor.prompts import compare_prompts, conversations, inputs, mode_switches, request_settings, run_diff
from cachedoctor.prompts.digest import digest
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.tokenizers.base import Tokenizer, Tokens

_NO_PAIR = "holds no two requests of one conversation"
_HINT = "give consecutive requests of a conversation: JSONL of bodies, or several files in the order of sending"
_NUMBER = re.compile(r"#(\d+)(?:#\d+)?\Z")
_APART = ("cache-salt", "adapter")
"""Differences beside the text: nothing at all is shared."""
_OF_BRANCHES = ("message-edited", "message-removed", "message-inserted")
_FORBIDS = "the request sets cache_prompt to false: llama-server then reuses nothing of its slot"
_ALLOW = Advice("Leave cache_prompt out, or set it to true: that has been the default since November 2024.")


class LintAsk(msgspec.Struct):
    """What the user wants."""

    tokenizer: str | None = None
    template: str | None = None
    server: str | None = None
    build: int | None = None
    hash_text: bool = False


class Sent(msgspec.Struct):
    """A request as it was read."""

    prompt: Prompt
    line: int | None
    """In its file; None where requests do not stand on a line each."""
    recording: int = 0
    """Requests of different recordings do not follow each other; files of one request each are one recording."""


def read_files(paths: Sequence[str]) -> list[Sent]:
    """Read the requests of files: each file of several is a recording by itself, those of one request are one.

    Raises:
        CacheDoctorError: one of them cannot be read, or holds no prompts.
    """
    if list(paths).count("-") > 1:
        raise CacheDoctorError("standard input can be read once only", "give the others as files")
    found: list[Sent] = []
    for number, path in enumerate(paths, 1):
        requests = _of_file(path)
        if len(requests) > 1:
            for request in requests:
                request.recording = number
        found += requests
    return found


def _of_file(path: str) -> list[Sent]:
    if path != "-" and inputs.is_folder(path):
        return [Sent(prompt, None) for prompt in inputs.load(path)]
    data = inputs.read(path)
    name = "<stdin>" if path == "-" else path
    rows = _rows(data)
    return [Sent(prompt, _line(prompt, name, rows)) for prompt in inputs.parse(data, name)]


def from_dicts(bodies: Iterable[Mapping[str, Any]]) -> list[Sent]:
    """Take bodies as a program has them; they are called ``bodies#1`` and so on.

    Raises:
        CacheDoctorError: one of them is no JSON, or none holds a prompt.
    """
    try:
        data = "\n".join(json.dumps(body) for body in bodies)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give what is posted: dicts of strings, numbers, lists and dicts"
        raise CacheDoctorError(f"bodies: are not JSON: {error}", hint) from error
    if not data:
        raise CacheDoctorError("bodies: there are none", _HINT)
    return [Sent(prompt, None) for prompt in inputs.parse(data.encode(), "bodies")]


def lint_requests(sent: list[Sent], ask: LintAsk) -> Lint:
    """Judge requests in the order of sending.

    Raises:
        CacheDoctorError: no two are of one conversation, or a model file or a server cannot be used.
    """
    files = ModelFiles(ask.tokenizer, ask.template, ask.server)
    try:
        return _Run(sent, ask, files).judged()
    finally:
        files.close()


class _Run:
    """One judgement: the requests, rendered, and what was found."""

    def __init__(self, sent: list[Sent], ask: LintAsk, files: ModelFiles) -> None:
        self._ask = ask
        self._cutter = _Remembering(files.cutter)
        self._lines = [request.line for request in sent]
        self._raw = [request.prompt for request in sent]
        pairs = _pairs(sent)
        if not pairs:
            name = _NUMBER.sub("", self._raw[0].path) if sent else "the input"
            raise CacheDoctorError(f"{name}: {_NO_PAIR}", _HINT)
        self._pairs = pairs
        options = run_diff.Ask(ask.tokenizer, ask.template, build=ask.build)
        self._paired = {index for pair in pairs for index in pair}
        self._prompts = [
            run_diff.rendered(prompt, options, files) if index in self._paired else prompt
            for index, prompt in enumerate(self._raw)
        ]
        self._before = {later: earlier for earlier, later in pairs}
        self._openings: dict[str, LintHint] = {}

    def judged(self) -> Lint:
        """Compare each request with the one before it."""
        errors: list[LintError] = []
        compared = [(earlier, later, self._compared(earlier, later)) for earlier, later in self._pairs]
        exact = all(found.exact for _, _, found in compared)
        extended = {earlier for earlier, _, found in compared if run_diff.only_appended(found)}
        for earlier, later, found in compared:
            errors += self._forbidden(earlier, later, found)
            if not (earlier in extended and _is_branch(found)):
                errors += self._changed(earlier, later, found)
        if self._ask.hash_text:
            errors = [_hashed(error) for error in errors]
        hints = [*fragile.hints(self._raw, errors, self._ask.hash_text), *self._openings.values()]
        roots = {earlier for earlier, _ in self._pairs} - set(self._before)
        alone = len(self._raw) - len(self._paired)
        name = self._cutter.name
        rendered = all(prompt.rendered for index, prompt in enumerate(self._prompts) if index in self._paired)
        return Lint(not errors, len(self._raw), len(roots), alone, name, exact, rendered, errors, hints)

    def _compared(self, earlier: int, later: int) -> PromptDiff:
        a, b = self._prompts[earlier], self._prompts[later]
        options = compare_prompts.Options(build=self._ask.build or NEWEST)
        for prompt in (a, b):
            run_diff.check_model(prompt, run_diff.Ask(template=self._ask.template), self._cutter)
        found = compare_prompts.compare(a, b, self._cutter, options)
        tools = [mode_switches.tool_names(self._raw[i]) for i in run_diff.earlier_of(self._before, earlier)]
        found = mode_switches.told(found, a, b, tools)
        return compare_prompts.hashed(found) if self._ask.hash_text else found

    def _changed(self, earlier: int, later: int, found: PromptDiff) -> list[LintError]:
        first = found.first
        if first is None or run_diff.only_appended(found):
            return []
        a, b = self._prompts[earlier], self._prompts[later]
        shared = 0 if first.kind in _APART else found.common_prefix_tokens
        cost = max(0, min(found.a.tokens, found.b.tokens) - shared)
        if _is_reply_opening(a, b, first.char) and not request_settings.decides(found.settings):
            self._opening(b, found, cost)
            return []
        return [
            LintError(
                b.path, a.path, self._lines[later], first.kind, first.field, first.place, found.explanation,
                first.token, first.char, cost, found.b.tokens, first.a, first.b, first.advice, first.client,
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
                _FORBIDS, 0, 0, shared, found.b.tokens, "", "false", [_ALLOW],
            )
        ]  # fmt: skip

    def _opening(self, prompt: Prompt, found: PromptDiff, cost: int) -> None:
        """Note that the template opens a reply in other words than it shows the reply later on."""
        first = found.first
        assert first is not None  # noqa: S101 - the caller looked
        hint = self._openings.get(first.a)
        if hint is not None:
            hint.requests += 1
            return
        about = "" if found.exact else "about "
        words = (
            f"the chat template opens a reply with other tokens ({about}{cost:,}) than it shows "
            "the reply with later on: these and the reply are computed again; hybrid and recurrent models need a "
            "checkpoint in front of it"
        )
        advice = [Advice("cachedoctor lint --template says what else the template changes.")]
        shown = first.a if not self._ask.hash_text else digest(first.a)
        self._openings[first.a] = LintHint("reply-opening", prompt.path, None, words, shown, advice)


def _is_branch(found: PromptDiff) -> bool:
    """Whether a conversation may go on in two ways, where another request extends the earlier one as well.

    An edit looks the same, but nothing goes on with what was edited away.
    """
    return found.first is not None and found.first.kind in _OF_BRANCHES


def _pairs(sent: list[Sent]) -> list[tuple[int, int]]:
    """Which request follows which, as indexes (earlier, later)."""
    recordings: dict[int, list[int]] = {}
    for index, request in enumerate(sent):
        recordings.setdefault(request.recording, []).append(index)
    return [
        (places[earlier], places[later])
        for places in recordings.values()
        for earlier, later in conversations.walk([sent[index].prompt for index in places])
    ]


def _is_reply_opening(a: Prompt, b: Prompt, char: int) -> bool:
    """Whether the earlier prompt differs only behind all that its request said."""
    if not a.rendered or not a.spans or char < a.spans[-1].end:
        return False
    return b.place_at(char) != a.spans[-1].place


class _Remembering:
    """A tokenizer that remembers the last texts: each prompt is asked for as the later one, then as the earlier one."""

    _MOST = 4

    def __init__(self, cutter: Tokenizer) -> None:
        self._cutter = cutter
        self._last: dict[str, Tokens] = {}
        self._leading: dict[str, int] = {}
        self.name, self.exact, self.local = cutter.name, cutter.exact, cutter.local
        self.chat_template = cutter.chat_template

    def encode(self, text: str) -> Tokens:
        """Tokenise; see ``Tokenizer``."""
        found = self._last.pop(text, None) or self._cutter.encode(text)
        self._last[text] = found
        while len(self._last) > self._MOST:
            del self._last[next(iter(self._last))]
        return found

    def leading(self, text: str) -> int:
        """Tokens that the server puts in front, which its beginning decides."""
        head = text[:256]
        if head not in self._leading:
            self._leading = {head: self._cutter.leading(text)}
        return self._leading[head]


def _hashed(error: LintError) -> LintError:
    """Leave out the value that the request itself sets; the rest was hashed with its difference."""
    return msgspec.structs.replace(error, b="") if error.kind == "cache-prompt-off" else error


def _rows(data: bytes) -> list[int]:
    """The lines on which the values of JSONL stand; nothing where the file is something else."""
    rows = [(number, row) for number, row in enumerate(data.split(b"\n"), 1) if row.strip()]
    if all(row.strip()[:1] in b"{[" and row.rstrip().rstrip(b",")[-1:] in (b"}", b"]") for _, row in rows):
        return [number for number, _ in rows]
    return []


def _line(prompt: Prompt, name: str, rows: list[int]) -> int | None:
    number = _NUMBER.search(prompt.path[len(name) :])
    at = 0 if number is None else int(number.group(1)) - 1
    return rows[at] if at < len(rows) and (number is not None or len(rows) == 1) else None
