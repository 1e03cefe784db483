"""Tries a chat template with scripted conversations: which of them does it keep append-only?

Each script is two requests, of which the second must begin as the first one ends; what a template does in between is
its own doing, since the script's client only appends, or says what it left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cachedoctor
from cachedoctor.doctor.linting.lint_bodies import LintAsk
from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.model import CacheDoctorError, Lint, TrialAnswer
from cachedoctor.model.report import Tool
from cachedoctor.prompts.confined.child import FailedError
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.request_bodies import prompts_of

_SHOWN = 60
"""Code points of each side that an answer quotes."""
_SYSTEM = {"role": "system", "content": "You keep the log of a lighthouse."}
_ASKED = {"role": "user", "content": "Which ship passed first?"}
_REPLY = {"role": "assistant", "content": "The barge Amalia passed first."}
_AGAIN = {"role": "user", "content": "And which one last?"}
_REASONING = "Two ships are in the log, and the barge stands above the cutter."
_MIDDLE = {"role": "system", "content": "From here on answer in one word only."}
_TOOL = {
    "type": "function",
    "function": {
        "name": "read_log",
        "description": "Reads a page of the log.",
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]},
    },
}
_CALL: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "readlog01", "type": "function", "function": {"name": "read_log", "arguments": '{"page": 7}'}}
    ],
}
_RESULT = {"role": "tool", "tool_call_id": "readlog01", "name": "read_log", "content": "barge Amalia, cutter Brigid"}
_YEAR = "2026"
"""Year of the date that templates take as today (prompts/render); the scripted messages do not contain it."""
_DAY_WORDS = (
    "the template writes today's date at the start, so every conversation is recomputed once a day",
    "the template writes no date",
    "for a request without a system prompt, the template writes a system prompt with today's date, which changes "
    "once a day",
)


class Script(NamedTuple):
    """Two requests of one conversation."""

    name: str
    question: str
    earlier: list[dict[str, Any]]
    later: list[dict[str, Any]]
    kept: str
    """The answer if the later rendering extends the earlier one."""
    broken: str
    """The answer if it does not."""
    shows: str = ""
    """Text without which the earlier rendering does not show what is asked about."""
    tools: bool = False
    kwargs: dict[str, Any] | None = None


def _thinking(message: dict[str, Any], on: bool = True) -> dict[str, Any]:
    return {**message, "reasoning_content": _REASONING} if on else message


_LOOP = [_SYSTEM, _ASKED, _thinking(_CALL), _RESULT]
SCRIPTS = (
    Script(
        "plain",
        "Are plain turns only appended?",
        [_SYSTEM, _ASKED], [_SYSTEM, _ASKED, _REPLY, _AGAIN],
        "plain turns are only appended",
        "a reply is rendered differently in later turns, from its first token on, so every turn recomputes the reply",
    ),
    Script(
        "tools",
        "Do tool calls and results stay unchanged?",
        [_SYSTEM, _ASKED, _CALL, _RESULT], [_SYSTEM, _ASKED, _CALL, _RESULT, _REPLY, _AGAIN],
        "tool calls and results stay unchanged",
        "tool calls or results are rendered differently in later turns",
        "cutter Brigid", tools=True,
    ),
    Script(
        "reasoning-kept",
        "Does reasoning that the client sends back stay in the prompt?",
        _LOOP, [*_LOOP, _thinking(_REPLY), _AGAIN],
        "reasoning of earlier turns stays in the prompt",
        "the template drops reasoning of earlier turns at the next user message: everything after the reasoning "
        "is recomputed",
        _REASONING, tools=True,
    ),
    Script(
        "reasoning-preserved",
        "Does reasoning stay with preserve_thinking=true and clear_thinking=false (--chat-template-kwargs)?",
        _LOOP, [*_LOOP, _thinking(_REPLY), _AGAIN],
        "with these switches reasoning of earlier turns stays in the prompt",
        "the template does not have these switches and drops reasoning of earlier turns anyway",
        _REASONING, tools=True, kwargs={"preserve_thinking": True, "clear_thinking": False},
    ),
    Script(
        "mid-system",
        "Does a system message in the middle stay in place?",
        [_SYSTEM, _ASKED], [_SYSTEM, _ASKED, _REPLY, _MIDDLE, _AGAIN],
        "a system message in the middle stays in place",
        "a system message in the middle changes the text before it, and everything after that change is recomputed",
    ),
)  # fmt: skip


def try_template(ask: LintAsk) -> Lint:
    """Render every script and say where its renderings part.

    Raises:
        CacheDoctorError: there is no template, or it cannot be used at all.
    """
    files = ModelFiles(ask.tokenizer, ask.template, ask.server)
    try:
        answers = [_answer(script, files) for script in SCRIPTS]
        if all(answer.verdict == "refused" for answer in answers):
            raise CacheDoctorError(f"{_name(ask)}: {answers[0].words}", "check that this is a model's chat template")
        answers.insert(-1, _dropped(files))
        answers.append(_day(files))
        exact = files.cutter.exact
        sound = all(answer.verdict != "no" for answer in answers)
        tool = Tool("cachedoctor", cachedoctor.__version__)
        return Lint(tool, sound, 0, 0, 0, files.cutter.name, exact, True, template=answers)
    finally:
        files.close()


def _name(ask: LintAsk) -> str:
    return ask.template or ask.server or ask.tokenizer or "the template"


def _prompt(script: Script, messages: list[dict[str, Any]], files: ModelFiles) -> Prompt:
    body: dict[str, Any] = {"messages": messages}
    if script.tools:
        body["tools"] = [_TOOL]
    if script.kwargs:
        body["chat_template_kwargs"] = script.kwargs
    prompt = files.rendered(prompts_of(body, "openai-chat", script.name)[0], False)
    if not prompt.rendered:
        what = "there is no chat template to check"
        raise CacheDoctorError(what, "give a template with --template, or request bodies to lint")
    return prompt


def _answer(script: Script, files: ModelFiles) -> TrialAnswer:
    try:
        a, b = (_prompt(script, messages, files) for messages in (script.earlier, script.later))
    except CacheDoctorError as error:
        if not _is_refusal(error):
            raise
        return TrialAnswer(script.name, script.question, "refused", f"the template rejects it: {_said(error, script)}")
    if script.shows and script.shows not in a.text:
        words = "the template does not render such text, so such text cannot change"
        return TrialAnswer(script.name, script.question, "unknown", words)
    lost = [text for text in _texts(script.later) if text not in b.text and text != _REASONING]
    if b.text.startswith(a.text) and not lost:
        return TrialAnswer(script.name, script.question, "yes", script.kept)
    if b.text.startswith(a.text):
        words = f"{_LEFT_OUT}: {lost[0]!r}"
        return TrialAnswer(script.name, script.question, "unknown", words)
    answer = _parted(script.name, script.question, script.broken, (a, b), files)
    if lost:
        answer.words += f"; {_LEFT_OUT}: {lost[0]!r}"
    return answer


def _dropped(files: ModelFiles) -> TrialAnswer:
    """Whether a client that drops reasoning changes more than the template does by itself."""
    question = "Does the prompt stay the same if a client drops earlier reasoning?"
    name = "reasoning-dropped"
    kept = Script(name, question, [], [*_LOOP, _thinking(_REPLY), _AGAIN], "", "", tools=True)
    bare = [_SYSTEM, _ASKED, _CALL, _RESULT, _REPLY, _AGAIN]
    try:
        a, b = (_prompt(kept, messages, files) for messages in (kept.later, bare))
    except CacheDoctorError as error:
        if not _is_refusal(error):
            raise
        return TrialAnswer(name, question, "refused", f"the template rejects it: {_said(error, kept)}")
    if a.text == b.text:
        words = "dropped reasoning makes no difference, because the template never renders reasoning of earlier turns"
        return TrialAnswer(name, question, "yes", words)
    return _parted(
        name, question, "a client that drops reasoning changes the first reply that had reasoning", (a, b), files
    )


def _parted(name: str, question: str, words: str, prompts: tuple[Prompt, Prompt], files: ModelFiles) -> TrialAnswer:
    a, b = prompts
    at = common_prefix(a.text, b.text)
    tokens = len(files.cutter.encode(a.text)) - len(files.cutter.encode(a.text[:at]))
    place = b.place_at(at) or a.place_at(at)
    if a.spans and at >= a.spans[-1].end:
        words, place = f"{_OPENING} {a.text[a.spans[-1].end :][-_SHOWN:]!r}", None
    return TrialAnswer(
        name, question, "no", words, place, at, max(tokens, 1),
        a.text[at : at + _SHOWN], b.text[at : at + _SHOWN],
    )  # fmt: skip


_LEFT_OUT = "the template omits message text"
_OPENING = "only the start of the reply changes, so the reply is recomputed. The template starts it with"


def _texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["content"]]


def _is_refusal(error: CacheDoctorError) -> bool:
    """Whether a template or a server would not render this script; unreadable or unreachable is not an answer."""
    return isinstance(error, FailedError) or "/apply-template answered" in error.message


def _said(error: CacheDoctorError, script: Script) -> str:
    return error.message.removeprefix(f"{script.name}: ")


def _day(files: ModelFiles) -> TrialAnswer:
    """Whether the template writes the date of today, which moves by itself."""
    question = "Is the start of the prompt free of changing values?"
    texts: list[tuple[str, str]] = []
    for words, messages, tools in (
        (_DAY_WORDS[0], [_SYSTEM, _ASKED], False),
        (_DAY_WORDS[0], [_SYSTEM, _ASKED], True),
        (_DAY_WORDS[2], [_ASKED], False),
    ):
        try:
            texts.append((words, _prompt(Script("day", question, [], [], "", "", tools=tools), messages, files).text))
        except CacheDoctorError as error:
            if not _is_refusal(error):
                raise
    dated = next(((words, text) for words, text in texts if _YEAR in text), None)
    if dated is None:
        words = _DAY_WORDS[1] if texts else "the template renders none of the test conversations for this question"
        return TrialAnswer("day", question, "yes" if texts else "unknown", words)
    at = dated[1].find(_YEAR)
    shown = dated[1][max(0, at - _SHOWN // 2) : at + len(_YEAR)]
    return TrialAnswer("day", question, "no", dated[0], None, at, 0, shown, "")
