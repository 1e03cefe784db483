"""Demands that each request of a conversation extends the one before it. Knows prompts, no argument and no output."""

from __future__ import annotations

import msgspec

import cachedoctor
from cachedoctor.doctor.extras import extra_inputs
from cachedoctor.doctor.linting import fragile
from cachedoctor.doctor.linting import fragile as expected_changes
from cachedoctor.doctor.linting.sent_requests import HINT, NUMBER, Sent, pairs_of
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.model import Advice, CacheDoctorError, Lint, LintError, LintHint, PromptDiff
from cachedoctor.model.report import Tool
from cachedoctor.prompts import compare_prompts, conversations, request_bodies, run_diff
from cachedoctor.prompts.difference_advice import advise
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import digest, notes_of
from cachedoctor.prompts.tokenizers.base import Remembering
from cachedoctor.redaction import sanitize

_NO_PAIR = "holds no two requests of one conversation"
_APART = ("cache-salt", "adapter")
"""Differences beside the text: nothing at all is shared."""
_BESIDE = {"cache_salt": "cache-salt", "extra_key": "cache-salt", "images": "image"} | dict.fromkeys(
    ("lora", "lora_path"), "adapter"
)
"""Kinds of what stands beside the text of a request."""
_FORBIDS = "the request sets cache_prompt to false: llama-server then reuses nothing of its slot"
_ALLOW = Advice("Leave cache_prompt out, or set it to true: that has been the default since November 2024.")


class LintAsk(msgspec.Struct):
    """What the user wants."""

    tokenizer: str | None = None
    template: str | None = None
    server: str | None = None
    build: int | None = None
    hash_text: bool = False


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
        self._cutter = Remembering(files.cutter)
        self._lines = [request.line for request in sent]
        self._raw = [request.prompt for request in sent]
        pairs = pairs_of(sent)
        if not pairs:
            name = NUMBER.sub("", self._raw[0].path) if sent else "the input"
            raise CacheDoctorError(f"{name}: {_NO_PAIR}", HINT)
        self._pairs = pairs
        options = run_diff.Ask(ask.tokenizer, ask.template, build=ask.build)
        self._paired = {index for pair in pairs for index in pair}
        self._prompts = [
            run_diff.rendered(prompt, options, files) if index in self._paired else prompt
            for index, prompt in enumerate(self._raw)
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
            tool, not errors, len(self._raw), len(roots), alone, name, exact, rendered, errors, hints, notes=notes
        )  # fmt: skip

    def _compared(self, earlier: int, later: int) -> PromptDiff:
        a, b = self._prompts[earlier], self._prompts[later]
        options = compare_prompts.Options(build=self._ask.build or NEWEST)
        for prompt in (a, b):
            run_diff.check_model(prompt, run_diff.Ask(template=self._ask.template), self._cutter)
        found = compare_prompts.compare(a, b, self._cutter, options)
        tools = [conversations.tool_names(self._raw[i]) for i in run_diff.earlier_of(self._before, earlier)]
        found = conversations.told(found, a, b, tools)
        return compare_prompts.hashed(found) if self._ask.hash_text else found

    def _changed(self, earlier: int, later: int, found: PromptDiff) -> list[LintError]:
        found = sanitize.mask(found)  # secrets are looked for before anything is cut
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
