"""Dumps of llama-server's GET /slots, in the shapes of all builds. Knows what a slot is, no file and no body."""

from __future__ import annotations

from typing import Any

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.conversations import common_prefix
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.request_bodies import Builder

MAX_MATRIX = 128
"""Slots a side that are still compared each with each."""


def slots_of(value: Any) -> list[dict[str, Any]] | None:
    """The slots in a JSON value, or None when it is no dump."""
    if isinstance(value, dict) and isinstance(value.get("slots"), list):
        value = value["slots"]
    slots = value if isinstance(value, list) else [value]
    if not slots or not all(isinstance(slot, dict) and _is_slot(slot) for slot in slots):
        return None
    return slots


def prompts_of(slots: list[dict[str, Any]], path: str, slot: int | None = None, reply: bool = False) -> list[Prompt]:
    """Prompts of the slots that hold one; ``reply`` appends what was generated, as the slot's cache holds it."""
    many = len(slots) > 1
    if slot is not None:
        ids = [item["id"] for item in slots]
        slots = [item for item in slots if item["id"] == slot]
        if not slots:
            known = ", ".join(str(number) for number in ids[:20])
            raise CacheDoctorError(f"{path}: no slot {slot} in this dump", f"it has {known}")
    prompts = [
        _prompt(item, f"{path}#{item['id']}" if many else path, reply)
        for item in slots
        if isinstance(item.get("prompt"), str) and item["prompt"]
    ]
    if not prompts:
        raise _without_prompts(slots, path)
    return prompts


def pair(a: list[Prompt], b: list[Prompt]) -> list[tuple[Prompt, Prompt]]:
    """Match the slots of two dumps: those with the same id, then the rest by longest common prefix."""
    later = {prompt.slot: prompt for prompt in reversed(b) if prompt.slot is not None}
    pairs: list[tuple[Prompt, Prompt]] = []
    rest: list[Prompt] = []
    for prompt in a:
        match = None if prompt.slot is None else later.pop(prompt.slot, None)
        if match is None:
            rest.append(prompt)
        else:
            pairs.append((prompt, match))
    taken = {id(match) for _, match in pairs}
    return pairs + _closest(rest, [prompt for prompt in b if id(prompt) not in taken])


def _is_slot(slot: dict[str, Any]) -> bool:
    number = slot.get("id")
    named = isinstance(number, int) and not isinstance(number, bool)
    return named and "n_ctx" in slot and bool(slot.keys() & {"is_processing", "next_token", "id_task", "state"})


def _prompt(slot: dict[str, Any], path: str, reply: bool) -> Prompt:
    builder = Builder()
    builder.add("prompt", slot["prompt"])
    generated = slot.get("generated")
    if reply and isinstance(generated, str):
        builder.add("generated", generated)
    prompt = builder.prompt(path, "slots", None, rendered=True)
    prompt.slot = slot["id"]
    return prompt


def _without_prompts(slots: list[dict[str, Any]], path: str) -> CacheDoctorError:
    # From b6751 on a slot that never had a task has neither id_task nor params, whatever the environment says.
    used = [slot for slot in slots if "id_task" in slot or "params" in slot]
    if not used or any("prompt" in slot for slot in used):
        which = f"slot {slots[0]['id']} is" if len(slots) == 1 else f"all {len(slots)} slots are"
        return CacheDoctorError(f"{path}: {which} empty", "dump /slots after a request, before the next one")
    return CacheDoctorError(
        f"{path}: this /slots dump holds no prompts",
        "start llama-server with the environment variable LLAMA_SERVER_SLOTS_DEBUG=1 and dump again",
    )


def _closest(a: list[Prompt], b: list[Prompt]) -> list[tuple[Prompt, Prompt]]:
    if len(a) > MAX_MATRIX or len(b) > MAX_MATRIX:
        return list(zip(a, b, strict=False))
    scored = [(-common_prefix(x.text, y.text), i, j) for i, x in enumerate(a) for j, y in enumerate(b)]
    pairs: list[tuple[Prompt, Prompt]] = []
    used_a: set[int] = set()
    used_b: set[int] = set()
    for _, i, j in sorted(scored):
        if i not in used_a and j not in used_b:
            used_a.add(i)
            used_b.add(j)
            pairs.append((a[i], b[j]))
    return pairs
