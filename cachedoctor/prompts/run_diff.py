"""Answers ``cachedoctor diff``: reads the inputs, renders chat bodies, pairs prompts, compares them."""

from __future__ import annotations

import msgspec

from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError, PromptDiff, RequestSetting, Side
from cachedoctor.model.diff import OWN_VERDICT
from cachedoctor.prompts import compare_prompts, conversations, inputs, request_bodies, tools_place
from cachedoctor.prompts import conversations as mode_switches
from cachedoctor.prompts import inputs as slots_dump
from cachedoctor.prompts.least_change import hashed as hashed_change
from cachedoctor.prompts.least_change import least_change
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt, notes_of
from cachedoctor.prompts.tokenizers.base import Tokenizer

_NORMALISED = 8929
"""From here on llama-server overwrites ``cch=`` in /v1/messages (PR #21793)."""

_OPENING = late(r"<\|[A-Za-z0-9_]{1,40}\|>|<｜[^｜\n]{1,40}｜>|<start_of_turn>")
"""Special token of a chat template with which a prompt begins."""


class DiffJob(msgspec.Struct):
    """Inputs and options of ``cachedoctor diff``."""

    tokenizer: str | None = None
    template: str | None = None
    slot: int | None = None
    full: bool = False
    context: int = 8
    """Tokens."""
    build: int | None = None
    hash_text: bool = False
    least: bool = False
    """Search for the smallest set of changes that restores reuse."""


def answer(path1: str, path2: str | None, ask: DiffJob) -> list[PromptDiff]:
    """Compare two inputs, or walk through one that holds many prompts; the last answer lists the prompts without a
    partner.

    Raises:
        CacheDoctorError: an input cannot be used, or there is nothing to compare.
    """
    if path1 == path2 == "-":
        raise CacheDoctorError("standard input cannot be both prompts", "give one prompt as a file")
    files = ModelFiles(ask.tokenizer, ask.template)
    try:
        return _answer(path1, path2, ask, files)
    finally:
        files.close()


def _answer(path1: str, path2: str | None, ask: DiffJob, files: ModelFiles) -> list[PromptDiff]:
    old = _load(path1, ask.slot, reply=True)
    if path2 is None:
        return _walked(old, path1, ask, files)
    new = _load(path2, ask.slot)
    pairs = _pairs(old, new, path1, path2)
    found = [_compared(a, b, ask, files) for a, b in pairs]
    paired = {id(prompt) for pair in pairs for prompt in pair}
    return _with_alone(found, [p for p in [*old, *new] if id(p) not in paired], notes_of([*old, *new]), ask, files)


def _walked(prompts: list[Prompt], path: str, ask: DiffJob, files: ModelFiles) -> list[PromptDiff]:
    """Compare each prompt with the one before it in its conversation."""
    pairs = conversations.walk(prompts)
    if not pairs:
        hint = "give two prompts, or a JSONL or directory with several prompts of one conversation"
        raise CacheDoctorError(f"{path}: does not contain two prompts of one conversation", hint)
    before = {later: earlier for earlier, later in pairs}
    found = []
    for earlier, later in pairs:
        a, b = prompts[earlier], prompts[later]
        tools = [mode_switches.tool_names(prompts[i]) for i in earlier_of(before, earlier)]
        answer = mode_switches.told(_compared(a, b, ask, files, False), a, b, tools)
        found.append(compare_prompts.hashed(answer) if ask.hash_text else answer)
    paired = {index for pair in pairs for index in pair}
    alone = [p for i, p in enumerate(prompts) if i not in paired]
    return _with_alone(found, alone, notes_of(prompts), ask, files)


def earlier_of(before: dict[int, int], index: int) -> list[int]:
    """The prompts before this one in its conversation, the nearest first."""
    found: list[int] = []
    while index in before and len(found) < conversations.LOOK_BACK:
        index = before[index]
        found.append(index)
    return found


def _compared(a: Prompt, b: Prompt, ask: DiffJob, files: ModelFiles, hashing: bool = True) -> PromptDiff:
    a = _as_asked(a, b)
    for prompt in (a, b):
        check_model(prompt, ask, files.cutter)
    options = compare_prompts.DiffOptions(ask.full, ask.context, ask.build or NEWEST)
    ours, theirs = rendered(a, ask, files), rendered(b, ask, files)
    found = compare_prompts.compare(ours, theirs, files.cutter, options)
    cost = min(found.a.tokens, found.b.tokens) - found.common_prefix_tokens
    lowest = tools_place.least_cost(ours, theirs, found, files.cutter, cost)
    if lowest is not None:
        found = msgspec.structs.replace(found, notes=[*found.notes, tools_place.explained(lowest, cost)])
    if ask.least:
        least = least_change(a, b, files.cutter, lambda prompt: rendered(prompt, ask, files))
        found = msgspec.structs.replace(found, least=hashed_change(least) if ask.hash_text else least)
    found = _with_claim(found, b)
    return compare_prompts.hashed(found) if ask.hash_text and hashing else found


def _with_claim(found: PromptDiff, b: Prompt) -> PromptDiff:
    """The same with the agent's own statement on the later prompt: what its recording lacks is not denied."""
    if not b.answer:
        return found
    from cachedoctor.inputs.metrics.responses import claim_of  # few prompts are of a recording

    claimed = claim_of(b.answer)
    if claimed is None:
        return found
    claim = claimed.claim
    lost = "" if claim.tokens is None else f", {claim.tokens:,} tokens not reused"
    words = f"{claim.by} itself gives this reason for the tokens not reused{lost}"
    settings = [*found.settings, RequestSetting(OWN_VERDICT, "", claim.reason, words)]
    first = found.first
    if b.is_whole or first is None or first.kind != "appended":
        return msgspec.structs.replace(found, settings=settings)
    explanation = (
        f"the messages continue where the previous messages end; {claim.by} reports {claim.reason}, "
        "which the messages do not show"
    )
    first = msgspec.structs.replace(first, kind="other")
    return msgspec.structs.replace(found, settings=settings, first=first, explanation=explanation, sure=False)


def _with_alone(
    found: list[PromptDiff], alone: list[Prompt], notes: list[str], ask: DiffJob, files: ModelFiles
) -> list[PromptDiff]:
    """List the prompts that were not compared, and what recordings lack, in the last answer."""
    sides = []
    for prompt in (rendered(p, ask, files) for p in alone):
        tokens = len(files.cutter.encode(prompt.text)) + files.cutter.leading(prompt.text)
        sides.append(Side(prompt.path, prompt.kind, len(prompt.text), tokens))
    if sides or notes:
        found[-1] = msgspec.structs.replace(found[-1], alone=sides, notes=[*found[-1].notes, *notes])
    return found


def only_appended(found: PromptDiff) -> bool:
    """Whether the second prompt continues where the first one ends, and nothing that a cache depends on changed."""
    first = found.first
    grew = first is not None and first.kind == "appended" and found.b.chars > found.a.chars
    return grew and not request_bodies.decides(found.settings)


def _load(path: str, slot: int | None, reply: bool = False) -> list[Prompt]:
    try:
        return inputs.load(path, slot, reply)
    except CacheDoctorError as error:
        if error.hint:
            raise
        raise CacheDoctorError(error.message, "give a readable file, a directory of prompts, or -") from error


def check_model(prompt: Prompt, ask: DiffJob, cutter: Tokenizer) -> None:
    """Refuse the tokenizer of a model that cannot have seen this prompt: counts called exact must be exact."""
    if cutter.chat_template is None or ask.template or prompt.kind not in ("slots", "prompt-dump"):
        return
    opening = _OPENING.match(prompt.text)
    if opening is None or opening.group() in str(cutter.chat_template) or len(cutter.encode(opening.group())) == 1:
        return
    raise CacheDoctorError(
        f"{cutter.name}: does not belong to the model of {prompt.path}; that prompt begins with {opening.group()}",
        "give the tokenizer of the server's model; use --template if the server had another template",
    )


def _as_asked(old: Prompt, new: Prompt) -> Prompt:
    """Leave out the reply of a slot whose prompt is the new one: the dumps are equal."""
    reply = next((span for span in old.spans if span.place == "generated"), None)
    if reply is None or old.text[: reply.start] != new.text:
        return old
    return msgspec.structs.replace(old, text=new.text, spans=[span for span in old.spans if span is not reply])


def _pairs(old: list[Prompt], new: list[Prompt], path1: str, path2: str) -> list[tuple[Prompt, Prompt]]:
    if all(p.kind == "slots" for p in [*old, *new]):
        pairs = slots_dump.pair(old, new)
        if pairs:
            return pairs
        raise CacheDoctorError("the two dumps have no slot in common", "pick slots with --slot N")
    if len(old) == 1 and len(new) == 1:
        return [(old[0], new[0])]
    path, many = (path1, old) if len(old) > 1 else (path2, new)
    hint = "give only this file to compare its conversations, or save one of its prompts as a separate file"
    raise CacheDoctorError(f"{path}: contains {len(many)} prompts", hint)


def rendered(prompt: Prompt, ask: DiffJob, files: ModelFiles) -> Prompt:
    """Render a chat body with the template that was given, or that the tokenizer's source holds.

    One of which parts are missing stays as it is: no template makes of it what the model saw.
    """
    if not prompt.is_whole:
        return prompt
    return files.rendered(prompt, prompt.kind == "anthropic-messages" and (ask.build or NEWEST) >= _NORMALISED)
