"""Chat templates and tokenizers made to take all time or memory, or to break who reads them.

Data only, for ``test_model_files.py`` (a sample of it by default) and ``benchmarks/model_files.py`` (all of them).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPEC: dict[str, Any] = json.loads((Path(__file__).parents[1] / "fixtures" / "tokenizers" / "tiny.json").read_text())
_R = "{% for a in range(99999) %}"
_END = "{% endfor %}"

TEMPLATES: dict[str, str] = {
    # time
    "empty loops": _R * 4 + _END * 4,
    "empty loops of two": _R + "{% for b in range(99999) %}" + _END * 2,
    "loop with if": _R * 3 + "{% if a == 7 and a == 8 %}x{% endif %}" + _END * 3,
    "loop that filters": "{% for a in range(99999) %}{% for b in range(99999) if b < 0 %}x{% endfor %}{% endfor %}",
    "loop of assignments": _R * 3 + "{% set c = a %}" + _END * 3,
    "macro calling itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "macros in a chain": "{% macro f0() %}x{% endmacro %}"
    + "".join(f"{{% macro f{n}() %}}{{{{ f{n - 1}() }}}}{{{{ f{n - 1}() }}}}{{% endmacro %}}" for n in range(1, 60))
    + "{{ f59() }}",
    "recursive loop": "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "macro without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "caller in caller": "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
    "sort of sorts": _R * 2 + "{% set c = range(99999)|list|sort %}" + _END * 2,
    "unique": _R + "{% set c = range(99999)|unique|list %}" + _END,
    "sum": _R + "{% set c = range(99999)|sum %}" + _END,
    "in a range of floats": _R + "{% set c = 0.5 in range(99999) %}" + _END,
    "groupby": _R + "{% set c = range(99999)|groupby('real')|list %}" + _END,
    "tojson of a long list": _R + "{% set c = range(99999)|list|tojson %}" + _END,
    "striptags": "{% set s = '<' * 60000000 %}{{ s|striptags|length }}",
    "wordwrap": "{% set s = 'a ' * 30000000 %}{{ s|wordwrap(1)|length }}",
    "urlize": "{% set s = 'www.a.' * 9000000 %}{{ s|urlize|length }}",
    "replace": _R + "{% set c = ('a' * 9000000)|replace('a', 'b') %}" + _END,
    "split": _R + "{% set c = ('a ' * 9000000).split() %}" + _END,
    "product of integers": "{% set ns = namespace(n=3) %}{% for a in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "power filter": "{{ (9).__pow__(999999999) }}",
    "shift by product": "{% set ns = namespace(n=2) %}{% for a in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n % 7 }}",
    # memory
    "doubling by adding": "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}",
    "doubling by ~": "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}",
    "doubling by join": "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s]|join %}{% endfor %}{{ ns.s|length }}",
    "doubling by replace": "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(60) %}{% set ns.s = ns.s|replace('x', 'xx') %}{% endfor %}{{ ns.s|length }}",
    "doubling by set block": "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(60) %}{% set c %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = c %}{% endfor %}{{ ns.s|length }}",
    "doubling lists": "{% set ns = namespace(s=[1]) %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}",
    "list in list": "{% set ns = namespace(s=[]) %}{% for a in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
    "list in list to JSON": "{% set ns = namespace(s=[]) %}{% for a in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s|tojson }}",
    "shared lists": "{% set ns = namespace(s=[1]) %}{% for a in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|string|length }}",
    "shared lists to JSON": "{% set ns = namespace(s=[1]) %}{% for a in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson|length }}",
    "repetition": "{{ 'x' * 63000000 ~ 'y' * 63000000 ~ 'z' * 63000000 }}",
    "wide characters": "{% set s = '\U0001f600' * 60000000 %}{{ s ~ s }}",
    "repeated lists": "{% set s = [[1]] * 60000000 %}{{ s|length }}",
    "width by format": "{{ '{:>1000000000}'.format('x') }}",
    "width of width": "{{ '{:>{w}}'.format('x', w=1000000000) }}",
    "precision": "{{ '%.999999999f'|format(1.5) }}",
    "precision by method": "{{ '{:.999999999f}'.format(1.5) }}",
    "percent width": "{{ '%*d'|format(999999999, 1) }}",
    "percent operator": "{{ '%999999999d' % 1 }}",
    "format_map": "{{ '{a:>999999999}'.format_map({'a': 'x'}) }}",
    "zfill": "{{ '1'.zfill(999999999) }}",
    "ljust": "{{ 'x'.ljust(999999999) }}",
    "center": "{{ 'x'.center(999999999) }}",
    "expandtabs": "{{ ('\t' * 9999).expandtabs(99999) }}",
    "indent": "{{ ('a\n' * 30000000)|indent(999) }}",
    "indent of JSON": "{{ range(99999)|list|tojson(indent=9999) }}",
    "batch": "{{ [1]|batch(99999999, 'x')|list|length }}",
    "slice": "{{ range(9)|slice(99999999)|list|length }}",
    "range by lists": "{{ (range(99999)|list) * 999 }}",
    "lipsum": "{{ lipsum(n=9999999) }}",
    "cycler": "{{ cycler(*(range(99999)|list * 600)) }}",
    "dict of everything": "{% set ns = namespace(d={}) %}{% for a in range(99999) %}{% for b in range(99999) %}{% set ns.d = dict(ns.d, **{a|string ~ b: a}) %}{% endfor %}{% endfor %}",
    "output without end": _R * 2 + "0123456789" + _END * 2,
    "output of messages": _R * 2 + "{{ messages }}" + _END * 2,
    # the parser
    "deep brackets": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "deep lists": "{{ " + "[" * 3_000 + "]" * 3_000 + " }}",
    "deep ifs": "{% if 1 %}" * 3_000 + "{% endif %}" * 3_000,
    "long chain of adding": "{{ 1" + " + 1" * 200_000 + " }}",
    "long chain of filters": "{{ 1" + "|string" * 50_000 + " }}",
    "long chain of not": "{{ " + "not " * 50_000 + "1 }}",
    "many blocks": "".join(f"{{% set a{n} = {n} %}}" for n in range(200_000)),
    "long literal": "{{ " + "9" * 1_000_000 + " }}",
    # out of the sandbox
    "class of a text": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals of a macro": "{{ raise_exception.__globals__ }}",
    "attr filter": "{{ ''|attr('__class__') }}",
    "map of attributes": "{{ [1]|map(attribute='__class__')|list }}",
    "format to attributes": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}{{ os }}",
    "message of many lines": "{{ raise_exception('a\nb\x1b[31m\r' * 10000) }}",
}
"""By what they do; each is rendered with one short message."""


def _model(**changes: Any) -> dict[str, Any]:
    return SPEC | {"model": SPEC["model"] | changes}


def _split(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    level = {"type": "ByteLevel", "use_regex": False}
    return SPEC | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}}


def _normal(*steps: dict[str, Any]) -> dict[str, Any]:
    return SPEC | {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def _replace(pattern: str, content: str, kind: str = "Regex") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def _token(content: str, **more: Any) -> dict[str, Any]:
    return {"id": 9, "content": content, **more}


TOKENIZERS: dict[str, Callable[[], object]] = {
    "pattern without end": lambda: _split(r"(?:(?:a+)+)+$"),
    "pattern of choices": lambda: _split(r"(?:a|a|aa)*b"),
    "pattern with a back reference": lambda: _split(r"(a*)*\1*b"),
    "pattern that looks ahead": lambda: _split(r"(?=(?:a?){60}(?:a){60}b)"),
    "pattern of nothing": lambda: _split(""),
    "pattern with a count": lambda: _split("(?:a{1,60000}){1,60000}"),
    "pattern of a million characters": lambda: _split("a|" * 500_000),
    "pattern that fuzzes": lambda: _split("(?:aaaaaaaaaaaaaaaaaaaaab){e<=20}"),
    "pattern of brackets": lambda: _split("(" * 50_000 + ")" * 50_000),
    "pattern that calls itself": lambda: _split("(?R)?a|(?R)b"),
    "Replace without end": lambda: _normal(_replace(r"(?:(?:a+)+)+$", "x")),
    "Replace that doubles": lambda: _normal(*[_replace("a", "aa", "String")] * 60),
    "Replace of nothing": lambda: _normal(_replace("", "x" * 1_000_000)),
    "Replace by much": lambda: _normal(_replace("a", "b" * 30_000_000, "String")),
    "Replace that squares": lambda: _normal(*[_replace(".", "x" * 1_000)] * 4),
    "Prepend of 50 MB": lambda: _normal({"type": "Prepend", "prepend": "y" * 50_000_000}),
    "Prepend of 2 MB": lambda: _normal({"type": "Prepend", "prepend": "y " * 1_000_000}),
    "Prepend again and again": lambda: _normal(*[{"type": "Prepend", "prepend": "y" * 1_000}] * 50_000),
    "steps in steps": lambda: _nested(900),
    "steps by the million": lambda: _normal(*[{"type": "Lowercase"}] * 500_000),
    "merges by the million": lambda: _model(merges=[["a", "b"]] * 3_000_000),
    "merges without end": lambda: _model(merges=[["a" * n, "a"] for n in range(1, 3_000)]),
    "merges that are numbers": lambda: _model(merges=[1, 2, 3]),
    "ids that are words": lambda: _model(vocab=dict.fromkeys(SPEC["model"]["vocab"], "x")),
    "ids without end": lambda: _model(vocab=dict.fromkeys(SPEC["model"]["vocab"], 10**300)),
    "ids that are lists": lambda: _model(vocab={key: [[]] for key in SPEC["model"]["vocab"]}),
    "a vocabulary of millions": lambda: _model(vocab={f"t{n}": n for n in range(3_000_000)}),
    "a token of 50 MB": lambda: _model(vocab={"a" * 50_000_000: 1}),
    "added tokens by the million": lambda: SPEC | {"added_tokens": [_token(f"<{n}>") for n in range(600_000)]},
    "added tokens of one letter": lambda: SPEC | {"added_tokens": [_token("a" * n) for n in range(1, 9_000)]},
    "added tokens of infinite ids": lambda: SPEC | {"added_tokens": [_token("<inf>", id=float("inf"))]},
    "added tokens that are lists": lambda: SPEC | {"added_tokens": [[]]},
    "an unknown that is a list": lambda: _model(unk_token=[]),
    "brackets": lambda: b'{"model":' + b"[" * 5_000_000,
    "objects": lambda: b'{"model":' * 1_000_000,
    "a number of a million digits": lambda: b'{"model": {"vocab": ' + b"9" * 1_000_000 + b"}}",
    "spaces": lambda: b" " * 60_000_000,
    "a list of a list": lambda: b'{"model": {"merges": [' + b"[]," * 15_000_000 + b"[]]}}",
    "not UTF-8": lambda: b'{"model": {"vocab": {"\xff\xfe": 1}}}',
    "half a surrogate": lambda: _model(vocab={"\ud800": 1, "a": 2}, unk_token="\ud800"),
}
"""Contents of a ``tokenizer.json``, each made when it is asked for; the prompt is ``PROMPT``."""

PROMPT = "a" * 4_000 + "! Why was this computed again?"


def _nested(depth: int) -> bytes:
    steps = '{"type":"Sequence","normalizers":[' * depth + '{"type":"Lowercase"}' + "]}" * depth
    return json.dumps(SPEC | {"normalizer": "@"}).replace('"@"', steps).encode()


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _gguf(entries: bytes, count: int = 1) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, count) + entries


MODELS: dict[str, Callable[[], bytes]] = {
    "GGUF with a string of 2^60": lambda: _gguf(_string(b"a") + struct.pack("<IQ", 8, 1 << 60)),
    "GGUF with 2^40 strings": lambda: _gguf(_string(b"a") + struct.pack("<IIQ", 9, 8, 1 << 40)),
    "GGUF with empty strings": lambda: _gguf(_string(b"a") + struct.pack("<IIQ", 9, 8, 4_000_000) + bytes(32_000_000)),
    "GGUF with many entries": lambda: _gguf(b"", 1 << 50),
    "GGUF with 200 MB of numbers": lambda: _gguf(
        _string(b"a") + struct.pack("<IIQ", 9, 0, 200_000_000) + bytes(200_000_000)
    ),
    "GGUF with a template of 200 MB": lambda: _gguf(
        _string(b"tokenizer.chat_template") + struct.pack("<I", 8) + _string(b"{{ 1 }}" + b"x" * 200_000_000)
    ),
}


def _device(_: Path) -> str:
    return "/dev/zero"


def _pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


def _huge(folder: Path) -> str:
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
    return str(folder / "huge")


def _folder(folder: Path) -> str:
    return str(folder)


PLACES: dict[str, Callable[[Path], str]] = {
    "a device without end": _device,
    "a pipe that nobody writes to": _pipe,
    "a file of a TiB": _huge,
    "a folder": _folder,
}
"""What is not a file of a moderate size: makes it in a folder, and gives its path."""


def write(content: object, path: Path) -> str:
    """Write a tokenizer down, as bytes or as JSON."""
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(path)
