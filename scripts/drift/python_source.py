"""The texts of Python sources: what loggers are given, and all other strings but docstrings.

``logger.info("Using max model len %s", n)`` and ``logger.warning_once(f"Disabling {name}")``; of ``logger.info(msg)``
what was assigned to ``msg`` in the same file.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator

from scripts.drift.texts import HOLE, Text, filled, lines

_LEVELS = {"debug": "D", "info": "I", "warning": "W", "warn": "W", "error": "E", "critical": "E", "exception": "E"}
_METHOD = re.compile(rf"(?:log_|print_)?({'|'.join(_LEVELS)})(?:_once|_on_rank\w*|_rank\w*)?")
_BRACES = re.compile(r"\{[^{}]*\}")


def texts(sources: Iterable[tuple[str, str]]) -> Iterator[Text]:
    """Give the texts of files, which are pairs of name and content; a file that is no Python gives none."""
    for name, content in sources:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the sources, not ours
                tree = ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        yield from _of_file(name, tree)


def _of_file(name: str, tree: ast.Module) -> Iterator[Text]:
    assigned: dict[str, list[ast.expr]] = {}
    silent: set[ast.AST] = set()
    calls: list[tuple[ast.Call, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(node.value)  # a docstring
        elif isinstance(node, ast.Call) and (level := _level(node.func)):
            calls.append((node, level))
        elif isinstance(node, ast.JoinedStr):
            silent.update(node.values)
    for call, level in calls:
        for text in _message(call, assigned):
            yield from lines(text, logged=True, level=level, where=f"{name}:{call.lineno}")
    for node in ast.walk(tree):
        if node not in silent and isinstance(node, ast.expr) and (found := _text(node)) is not None:
            yield from lines(found, logged=False)


def _level(called: ast.expr) -> str:
    """Letter of the level of a call that logs; empty for any other."""
    if isinstance(called, ast.Attribute):
        found = _METHOD.fullmatch(called.attr)
        owner = called.value
        of = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        return _LEVELS[found[1]] if found and "log" in of.lower() else ""
    found = _METHOD.fullmatch(called.id) if isinstance(called, ast.Name) and "_" in called.id else None
    return _LEVELS[found[1]] if found else ""


def _message(call: ast.Call, assigned: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Give what may be printed: the first argument that is a text, or names one; ``"%s"`` is what is put into it."""
    for argument in call.args:
        values = assigned.get(argument.id, []) if isinstance(argument, ast.Name) else [argument]
        found = [text for value in values if (text := _text(value)) is not None and text.strip() != HOLE]
        if found:
            yield from found
            return


def _text(value: ast.expr) -> str | None:
    """Return a text with its values filled; None for what is none."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return filled(value.value)
    if isinstance(value, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else HOLE for one in value.values)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod):
        return _text(value.left)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _text(value.left), _text(value.right)
        return None if left is right is None else (HOLE if left is None else left) + (HOLE if right is None else right)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "format":
        inner = value.func.value
        found = inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else None
        return None if found is None else _BRACES.sub(HOLE, found)
    return None
