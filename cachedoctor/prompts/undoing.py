"""Undoes the first change between two requests: in the body if there is one, else in the text."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.prompts import request_bodies
from cachedoctor.prompts.align import align
from cachedoctor.prompts.prompt import CHAT, Prompt
from cachedoctor.prompts.recognisers.tools import tool_name

_PIECE = late(r"\w+|\s+|[^\w\s]")
_CHANCE = 8
"""Consecutive pieces that two texts may share by chance within one change: the colons of a time, the dashes of an
id."""
_ALIKE = 0.3
"""Share of the longer of two messages that must match at both ends for one to be an edit of the other."""
_RENDERING = ("chat_template_kwargs", "reasoning_effort")
_REASONING = ("reasoning_content", "reasoning")

Body = dict[str, Any]


def undone(a: Prompt, b: Prompt, places: Sequence[str]) -> Prompt | None:
    """Give ``b`` with its first change undone, so that it continues like ``a``; None if only the end differs.

    ``places``: where in the two requests that is, as far as it is known.
    """
    if a.body is None or b.body is None or a.kind != b.kind or a.kind not in CHAT:
        text = _text(a.text, b.text)
        return None if text is None else replace(b, text=text, spans=[], body=None)
    body = _body(a.body, copy.deepcopy(b.body), places)
    if body is None:
        return None
    return request_bodies.prompts_of(body, b.kind, b.path)[0]


# ---- texts


def changes(a: str, b: str) -> list[tuple[int, int, int, int]]:
    """Ranges of code points of both texts that differ, in order; nearby ones are merged."""
    pieces = [_PIECE.findall(text) for text in (a, b)]
    at = [[0], [0]]
    for ends, found in zip(at, pieces, strict=True):
        for piece in found:
            ends.append(ends[-1] + len(piece))
    runs = [(0, 0, 0), *_equal(*pieces), (len(pieces[0]), len(pieces[1]), 0)]
    found, i, j = list[tuple[int, int, int, int]](), 0, 0
    for start_a, start_b, size in runs:
        if (start_a, start_b) != (i, j):
            if found and _is_chance(pieces[0][found[-1][1] : i], i - found[-1][1]):
                i, j = found[-1][0], found.pop()[2]
            found.append((i, start_a, j, start_b))
        i, j = start_a + size, start_b + size
    return [(at[0][i0], at[0][i1], at[1][j0], at[1][j1]) for i0, i1, j0, j1 in found]


def _is_chance(between: Sequence[str], size: int) -> bool:
    return size < _CHANCE and not any("\n" in piece for piece in between)


def _equal(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int, int]]:
    return [(e.a[0], e.b[0], e.a[1] - e.a[0]) for e in align.edit_script(a, b) if e.op == "equal"]


def _text(a: str, b: str) -> str | None:
    found = changes(a, b)
    if not found:
        return None
    i0, i1, j0, j1 = found[0]
    return None if i1 == len(a) else b[:j0] + a[i0:i1] + b[j1:]


# ---- bodies


def _body(a: Body, b: Body, places: Sequence[str]) -> Body | None:
    for name in _RENDERING:
        if a.get(name) != b.get(name) and _is_at(places, name):
            return _with(b, name, a.get(name))
    if a.get("tools") != b.get("tools") and (_is_at(places, "tools") or not places):
        return _with(b, "tools", _tools(a.get("tools") or [], b.get("tools") or []))
    for name in ("system", "instructions"):
        if a.get(name) != b.get(name) and (_is_at(places, name) or not places):
            return _with(b, name, _value(a.get(name), b.get(name)))
    name = "messages" if "messages" in b else "input"
    if a.get(name) == b.get(name):
        return None
    if not isinstance(a.get(name), list) or not isinstance(b.get(name), list):
        return None
    items = _items(a[name], b[name])
    return None if items is None else _with(b, name, items)


def _is_at(places: Sequence[str], name: str) -> bool:
    return any(place.startswith(name) for place in places)


def _with(body: Body, name: str, value: Any) -> Body:
    if value is None:
        body.pop(name, None)
    else:
        body[name] = value
    return body


def _tools(a: list[Any], b: list[Any]) -> list[Any]:
    """The second list, nearer to the first by one change: tools that came, that went, their order, or one of them."""
    names_a, names_b = [tool_name(tool) for tool in a], [tool_name(tool) for tool in b]
    at = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if at < len(b) and names_b[at] not in names_a:
        return [tool for tool, name in zip(b, names_b, strict=True) if name in names_a]
    if at < len(a) and names_a[at] not in names_b:
        kept = dict(zip(names_b, b, strict=True))
        found = [kept.pop(name, tool) for tool, name in zip(a, names_a, strict=True)]
        new = [tool for tool, name in zip(b, names_b, strict=True) if name in kept]
        common = [name for name in names_b if name in names_a]
        in_order = common == [name for name in names_a if name in names_b]
        return [*found, *new] if in_order else _put_back(a, b, names_a, names_b)
    if names_a[at] == names_b[at]:
        return [*b[:at], a[at], *b[at + 1 :]]
    place = {name: number for number, name in enumerate(names_a)}
    sorted_tools = iter(sorted((tool for tool in b if tool_name(tool) in place), key=lambda one: place[tool_name(one)]))
    return [next(sorted_tools) if tool_name(tool) in place else tool for tool in b]


def _put_back(a: list[Any], b: list[Any], names_a: list[str], names_b: list[str]) -> list[Any]:
    """The second list with the removed tools, each at its position in the first one."""
    found = list(b)
    for number, name in enumerate(names_a):
        if name not in names_b:
            found.insert(number, a[number])
    return found


def _value(a: Any, b: Any) -> Any:
    """The second of two values of one place, nearer to the first by one change."""
    if isinstance(a, str) and isinstance(b, str):
        found = changes(a, b)
        if not found:
            return a
        i0, i1, j0, j1 = found[0]
        return b[:j0] + a[i0:i1] + b[j1:]
    if isinstance(a, dict) and isinstance(b, dict):
        name = next((name for name in {**a, **b} if a.get(name) != b.get(name)), None)
        if name is None:
            return a
        return {**b, name: _value(a[name], b[name])} if name in a and name in b else a
    if isinstance(a, list) and isinstance(b, list):
        items = _items(a, b, is_history=False)
        return a if items is None else items
    return a


def _items(a: list[Any], b: list[Any], *, is_history: bool = True) -> list[Any] | None:
    """The second list, nearer to the first by one change; None if only the end differs."""
    keys = [[_key(item) for item in items] for items in (a, b)]
    runs = [*_equal_items(*keys), (len(a), len(b))]
    i, j = 0, 0
    for start_a, start_b in runs:
        if (start_a, start_b) != (i, j):
            break
        i, j = start_a + 1, start_b + 1
    else:
        return None
    i1, j1 = start_a, start_b
    if is_history and (reasoned := _reasoned(a, b, i, j)) is not None:
        return reasoned
    if i < i1 and j < j1 and _is_edit(a[i], b[j]):
        return [*b[:j], _value(a[i], b[j]), *b[j + 1 :]]
    if is_history and j < j1 and (moved := _moved(a, b, keys, keys[1][j:j1])) is not None:
        return moved
    if is_history and i1 == len(a):
        return None
    return [*b[:j], *a[i:i1], *b[j1:]]


def _moved(a: list[Any], b: list[Any], keys: list[list[str]], new: list[str]) -> list[Any] | None:
    """The second list in the order of the first, if what is new at a place is elsewhere in the first."""
    place = {key: number for number, key in enumerate(keys[0])}
    if len(place) < len(a) or len(set(keys[1])) < len(b) or not all(key in place for key in new):
        return None
    common = iter(sorted((key for key in keys[1] if key in place), key=place.__getitem__))
    return [a[place[next(common)]] if key in place else item for key, item in zip(keys[1], b, strict=True)]


def _equal_items(a: list[str], b: list[str]) -> list[tuple[int, int]]:
    return [(run.i + n, run.j + n) for run in align.equal_runs(a, b) for n in range(run.n)]


def _key(item: Any) -> str:
    return json.dumps(item, sort_keys=False, default=str)


def _reasoned(a: list[Any], b: list[Any], i: int, j: int) -> list[Any] | None:
    """Every message with its reasoning from the first list, if the first change concerns only reasoning."""
    if i >= len(a) or j >= len(b) or a[i] == b[j] or _bare(a[i]) is None or _bare(a[i]) != _bare(b[j]):
        return None
    known: dict[str | None, list[Any]] = {}
    for item in reversed(a):
        known.setdefault(_bare(item), []).append(item)
    return [known[bare].pop() if (bare := _bare(item)) is not None and known.get(bare) else item for item in b]


def _bare(item: Any) -> str | None:
    """A message without its reasoning."""
    if not isinstance(item, dict):
        return None
    return _key({key: value for key, value in item.items() if key not in _REASONING})


def _is_edit(a: Any, b: Any) -> bool:
    """Whether one message is an edit of the other: of one role, and much of it at both ends the same."""
    if not isinstance(a, dict) or not isinstance(b, dict) or a.get("role") != b.get("role"):
        return False
    one, two = _key(a), _key(b)
    front = align.common_prefix(one, two)
    back = align.common_suffix(one, two, min(len(one), len(two)) - front)
    return front + back >= _ALIKE * max(len(one), len(two))
