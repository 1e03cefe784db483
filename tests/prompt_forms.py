"""Prompts in the forms of templates and APIs, and what the recogniser says of two of them."""

import pytest

from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.prompts.difference_advice import recognise
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.request_bodies import kind_of, prompts_of

REST = "\nYou have access to the tools below. Use them with care.\n"


def text(value):
    return Prompt("x", "text", value)


def body(value):
    kind = kind_of(value)
    assert kind is not None
    return prompts_of(value, kind, "x")[0]


def between(a, b, same_text=False):
    a, b = (text(x) if isinstance(x, str) else body(x) if isinstance(x, dict) else x for x in (a, b))
    return recognise(a, b, common_prefix(a.text, b.text), same_text)


def chatml(*turns):
    return "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns) + "<|im_start|>assistant\n"


def llama(*turns):
    opened = (f"<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>" for role, content in turns)
    return "<|begin_of_text|>" + "".join(opened) + "<|start_header_id|>assistant<|end_header_id|>\n\n"


def gemma(*turns):
    names = {"assistant": "model", "system": "user"}
    opened = (f"<start_of_turn>{names.get(role, role)}\n{content}<end_of_turn>\n" for role, content in turns)
    return "<bos>" + "".join(opened) + "<start_of_turn>model\n"


def openai(*turns, **more):
    return {"messages": [{"role": role, "content": content} for role, content in turns], **more}


def anthropic(*turns, **more):
    blocks = [{"role": role, "content": [{"type": "text", "text": content}]} for role, content in turns]
    return {"system": [{"type": "text", "text": "You are Marlow."}], "messages": blocks, **more}


def responses(*turns):
    return {"instructions": "You are Marlow.", "input": [{"role": role, "content": text} for role, text in turns]}


def tool(name, description="Does a thing.", **properties):
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


SYSTEM = ("system", "You are Marlow, a careful helper.")
U1, A1 = ("user", "Please read the build file and tell me about it."), ("assistant", "It builds two programs.")
U2, A2 = ("user", "And which one is the larger of the two?"), ("assistant", "The first one, by far.")
U3, A3 = ("user", "Then split it into three smaller files."), ("assistant", "Done: three files, all tests pass.")
U4 = ("user", "Thanks. Now write the notes.")
FORMS = [chatml, llama, gemma, openai, anthropic, responses]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
