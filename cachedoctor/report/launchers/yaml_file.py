"""YAML files that start servers: the same text with other options; endless aliases are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from cachedoctor.knowledge.engines import PATTERN
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.libraries import install
from cachedoctor.model import CacheDoctorError, Launcher, OptionChange
from cachedoctor.report.launchers.command_words import Word, changed, given, program_at, words
from cachedoctor.report.launchers.forms import LaunchRequest, divided, quoted

_MOST = 1 << 20
"""Maximum characters and nodes that all aliases of a file may expand to together."""
_HINT = "replace the alias with its content"


def check(text: str, module: Any) -> None:
    """Raise ``CacheDoctorError`` if an alias is part of its own anchor, or if aliases expand to too much.

    Args:
        text: any text; what is not YAML raises the ``YAMLError`` of ``module``.
        module: PyYAML.
    """
    if "&" not in text or "*" not in text:
        return
    sizes: dict[str, int] = {}
    """Expanded size of every anchor that has ended."""
    names: list[str | None] = []
    own: list[int] = []
    unfolded = 0
    for event in module.parse(text, Loader=module.SafeLoader):
        size = 0
        if isinstance(event, module.AliasEvent):
            if event.anchor in names:
                raise CacheDoctorError(f"--file: the alias *{event.anchor[:40]} contains itself", _HINT)
            size = sizes.get(event.anchor, 0)
            unfolded += size
        elif isinstance(event, module.CollectionStartEvent):
            names.append(event.anchor)
            own.append(1)
        elif isinstance(event, module.CollectionEndEvent):
            size = own.pop()
            _note(sizes, names.pop(), size)
        elif isinstance(event, module.ScalarEvent):
            size = 1 + len(event.value)
            _note(sizes, event.anchor, size)
        if own:
            own[-1] += size
        if unfolded > _MOST:
            raise CacheDoctorError("--file: the aliases in the file expand to more than a million characters", _HINT)


def _note(sizes: dict[str, int], anchor: str | None, size: int) -> None:
    if anchor is not None:
        sizes[anchor] = size


_UNREADABLE = (RecursionError, ValueError, LookupError, AttributeError, TypeError, OverflowError)
"""What PyYAML raises besides its own errors: of ``!!int ''``, ``!!bool x``, ``!!timestamp x``, of lists in lists."""
_SERVER = late(rf"llama[-_.]?(?:cpp|server)|{PATTERN}", re.IGNORECASE)


class YamlServer(NamedTuple):
    """A server in a file."""

    name: str
    node: Any
    """Its mapping, as PyYAML composes it."""
    path: tuple[Any, ...]
    """Keys and numbers that lead to it, the number of the document first."""


class Cut(NamedTuple):
    """A part of the text, and what is there instead."""

    start: int
    end: int
    text: str


def yaml() -> Any:
    """Import PyYAML.

    Raises:
        CacheDoctorError: it is not there.
    """
    try:
        import yaml
    except ImportError:
        what = "--file: reading YAML needs PyYAML, which is not installed"
        raise CacheDoctorError(what, install("patch")) from None
    return yaml


def kind_of(text: str) -> Launcher | None:
    """The program that reads a file, by its keys; None if it is none of the three."""
    for data in _loaded(text):
        if isinstance(data, dict):
            if isinstance(data.get("services"), dict):
                return "compose"
            if "kind" in data and "spec" in data:
                return "kubernetes"
            if isinstance(data.get("models"), dict):
                return "llama-swap"
    return None


def servers(text: str, launcher: Launcher) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the services, containers or models of a file by their names, with what they hold; aliases are followed.

    Raises:
        CacheDoctorError: the file is not a YAML.
    """
    documents = _loaded(text)
    for place in _places(text, launcher):
        yield place.name, _at(documents, place)


def edited(text: str, launcher: Launcher, asked: LaunchRequest) -> str:
    """Write a file with other options of one of its servers.

    Raises:
        CacheDoctorError: the file is not YAML, the server is not in it, or it cannot be changed safely.
    """
    place = _the_one(list(_places(text, launcher)), asked.name)
    _own(text, place, launcher)
    cuts = sorted(_cuts(text, place, launcher, asked), key=lambda cut: (cut.start, cut.end))
    new = text
    for cut in reversed(cuts):  # what begins at one place keeps its order
        new = new[: cut.start] + cut.text + new[cut.end :]
    _prove(text, new, place, launcher)
    return new


def _loaded(text: str) -> list[Any]:
    module = yaml()
    try:
        check(text, module)
        return list(module.safe_load_all(text))
    except (module.YAMLError, *_UNREADABLE) as error:
        is_told = isinstance(error, (module.YAMLError, ValueError))
        where = str(error).replace("\n", " ")[:120] if is_told else "a value does not fit its tag, or is too deep"
        raise CacheDoctorError(f"--file: the file is not valid YAML ({where})", "fix the file first") from None


def _places(text: str, launcher: Launcher) -> Iterator[YamlServer]:
    module = yaml()
    _loaded(text)  # says what is wrong with it
    for number, node in enumerate(module.compose_all(text, Loader=module.SafeLoader)):
        if launcher == "kubernetes":
            yield from _containers(node, (number,), set())
        else:
            key = "services" if launcher == "compose" else "models"
            for name, child in _pairs(_child(node, key)):
                if isinstance(child, module.MappingNode):
                    yield YamlServer(name.value, child, (number, key, name.value))


def _containers(node: Any, path: tuple[Any, ...], seen: set[int]) -> Iterator[YamlServer]:
    """Every container below a node, however deep: pods, deployments, lists of them; what an alias names, once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    for key, child in _pairs(node):
        if key.value == "containers" and child.id == "sequence":
            for at, one in enumerate(child.value):
                if one.id == "mapping":
                    name = _child(one, "name")
                    yield YamlServer(str(name.value) if name is not None else "", one, (*path, "containers", at))
        else:
            yield from _containers(child, (*path, key.value), seen)
    if node is not None and node.id == "sequence":
        for at, one in enumerate(node.value):
            yield from _containers(one, (*path, at), seen)


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    return list(node.value) if node is not None and node.id == "mapping" else []


def _child(node: Any, key: str) -> Any:
    return next((child for name, child in _pairs(node) if name.value == key), None)


def _the_one(places: list[YamlServer], name: str | None) -> YamlServer:
    named = [place for place in places if name is not None and place.name == name]
    likely = [place for place in places if _SERVER.search(_begin(place.node))]
    for found in (named, likely, places):
        if len(found) == 1:
            return found[0]
        if found:
            break
    if not places:
        raise CacheDoctorError(
            "--file: the file contains no service, container or model", "give the file that starts the server"
        )
    names = ", ".join(place.name for place in places[:8])
    raise CacheDoctorError(f"--file: it is not clear which of {names} is the server", "name the server with --service")


def _begin(node: Any) -> str:
    """Image, command and arguments as one text."""
    parts = [_child(node, key) for key in ("image", "command", "entrypoint", "args", "cmd")]
    texts = []
    for part in parts:
        ones = [] if part is None else part.value if part.id == "sequence" else [part]
        texts += [one.value for one in ones if one.id == "scalar"]
    return " ".join(texts)


_KEYS: dict[Launcher, tuple[tuple[str, ...], str]] = {
    "compose": (("command", "entrypoint"), "environment"),
    "kubernetes": (("args", "command"), "env"),
    "llama-swap": (("cmd",), "env"),
}
"""Keys of the command, first the one for new options, and of the environment."""


def _cuts(text: str, place: YamlServer, launcher: Launcher, asked: LaunchRequest) -> Iterator[Cut]:
    """Changes to the text: options at their present places, new ones as variables if the builds have them."""
    commands, environment = _KEYS[launcher]
    nodes = [node for key in commands if (node := _child(place.node, key)) is not None]
    for node in (*nodes, _child(place.node, environment)):
        if node is not None and not _inside(node, place.node):
            hint = "change the alias at its anchor"
            raise CacheDoctorError("--file: the server's command or environment is an alias", hint)
    standing = [c for c in asked.changes if not c.variable and any(_has(node, c) for node in nodes)]
    fresh = [c for c in asked.changes if c not in standing and not (c.remove and not c.variable)]
    parts = divided(msgspec.structs.replace(asked, changes=fresh))
    if launcher == "llama-swap":  # its cmd is where options stand
        parts = divided(msgspec.structs.replace(asked, changes=[c for c in fresh if c.variable]))
        parts.options.extend(c for c in fresh if not c.variable)
    for node in nodes:
        own = [c for c in standing if _has(node, c)]
        yield from _command(text, node, [*own, *(parts.options if node is nodes[0] else [])])
    if not nodes and parts.options:
        rows = [f"{commands[0]}:", *(f"  - {quoted(word)}" for c in parts.options for word in c.words)]
        yield _appended(text, place.node, rows)
    yield from _environment(text, place.node, environment, launcher, parts.variables, parts.left_out)


def _own(text: str, place: YamlServer, launcher: Launcher) -> None:
    """Refuse a server whose command or environment is merged in by ``<<``, which what is written would hide, or twice.

    Raises:
        CacheDoctorError: it is so.
    """
    commands, environment = _KEYS[launcher]
    written = [key.value for key, _ in _pairs(place.node)]
    data = _at(_loaded(text), place)
    for key in (*commands, environment):
        if key in data and key not in written:
            raise CacheDoctorError(
                f"--file: the server's {key} is merged in by <<", f"write {key} directly in the entry of the server"
            )
        if written.count(key) > 1:
            raise CacheDoctorError(f"--file: the server has {key} twice", "remove one of the two keys")
        if key in commands and isinstance(data.get(key), dict):
            raise CacheDoctorError(f"--file: the server's {key} is not a command", "fix the file first")


def _at(documents: list[Any], place: YamlServer) -> dict[str, Any]:
    """The mapping of a server in what was loaded."""
    found: Any = documents
    try:
        for key in place.path:
            found = found[key]
    except (KeyError, IndexError, TypeError):
        found = None
    if not isinstance(found, dict):
        raise CacheDoctorError(
            "--file: the file cannot be changed safely", "change the command by hand, without --file"
        )
    return found


def _inside(node: Any, outer: Any) -> bool:
    return bool(outer.start_mark.index <= node.start_mark.index and node.end_mark.index <= outer.end_mark.index)


def _items(node: Any) -> list[Word]:
    if any(one.id != "scalar" for one in node.value):
        raise CacheDoctorError("--file: a command in the file contains a list or a mapping", "fix the file first")
    return [Word(one.start_mark.index, one.end_mark.index, one.value) for one in node.value]


def _has(node: Any, change: OptionChange) -> bool:
    if node.id == "scalar":
        found = words(node.value)
        return bool(given(found, change.name, program_at(found) or 0))
    line = _shell_item(node)
    if line is not None:
        return _has(line, change)
    return bool(given(_items(node), change.name))


def _shell_item(node: Any) -> Any:
    """The item of a list that holds a whole command line: ``sh -c "llama-server ..."``."""
    return next((one for one in node.value if one.id == "scalar" and _is_line(one.value)), None)


def _is_line(value: str) -> bool:
    found = words(value)
    return len(found) > 1 and program_at(found) is not None


def _command(text: str, node: Any, changes: list[OptionChange]) -> Iterator[Cut]:
    if not changes:
        return
    if node.id == "scalar" and not node.value:
        raise CacheDoctorError("--file: the server's command is empty", "remove the key first")
    if node.id == "sequence":
        line = _shell_item(node)
        if line is None:
            yield from _list(text, node, changes)
            return
        node = line
    start, end = node.start_mark.index, node.end_mark.index
    raw = text[start:end]
    if node.style in ("|", ">"):
        head, _, body = raw.partition("\n")
        yield Cut(start, end, f"{head}\n{changed(body, changes)}")
        return
    new = changed(node.value, changes)
    if node.style is None and "\n" not in raw:
        plain = changed(raw, changes)
        if _reads_as(plain, new):
            yield Cut(start, end, plain)
            return
    yield Cut(start, end, quoted(new))


def _reads_as(plain: str, value: str) -> bool:
    """Whether a scalar without quotes means this text."""
    try:
        return bool(yaml().safe_load(f"a: {plain}\n") == {"a": value})
    except yaml().YAMLError:
        return False


def _list(text: str, node: Any, changes: list[OptionChange]) -> Iterator[Cut]:
    """Items of a list of words: values are rewritten, what is new comes after the last one."""
    items, new = _items(node), list[str]()
    for change in changes:
        spans = given(items, change.name)
        for span in spans[0 if change.remove else 1 :]:
            yield _items_cut(text, node, items[span.first], items[span.last])
        if change.remove:
            continue
        if not spans:
            new += change.words
            continue
        first, last = items[spans[0].first], items[spans[0].last]
        if "=" in first.text:
            yield Cut(first.start, first.end, quoted("=".join(change.words)))
            continue
        yield Cut(first.start, first.end, quoted(change.words[0]))
        if len(change.words) > 1 and last is not first:
            yield Cut(last.start, last.end, quoted(change.words[1]))
        elif len(change.words) > 1:
            yield _behind(text, node, first, change.words[1:])
    if new:
        yield _behind(text, node, items[-1] if items else None, new)


def _behind(text: str, node: Any, item: Word | None, added: Sequence[str]) -> Cut:
    if item is None:
        inner = ", ".join(quoted(word) for word in added)
        return Cut(node.start_mark.index, node.end_mark.index, f"[{inner}]")
    if node.flow_style:
        return Cut(item.end, item.end, "".join(f", {quoted(word)}" for word in added))
    row = text.rfind("\n", 0, item.start) + 1
    dash = text[row : item.start]
    at = _row_end(text, item.end)
    rows = "".join(f"{dash}{quoted(word)}\n" for word in added)
    return Cut(at, at, rows if at and text[at - 1] == "\n" else "\n" + rows.rstrip("\n"))


def _row_end(text: str, at: int) -> int:
    """Start of the next row; a value that ends with its row already has it after itself."""
    if at and text[at - 1] == "\n":
        return at
    newline = text.find("\n", at)
    return len(text) if newline < 0 else newline + 1


def _items_cut(text: str, node: Any, first: Word, last: Word) -> Cut:
    """Items that follow each other, with one of the commas beside them, or with their rows."""
    if not node.flow_style:
        return Cut(text.rfind("\n", 0, first.start) + 1, _row_end(text, last.end), "")
    behind = re.compile(r"\s*,\s*").match(text, last.end)
    if behind is not None:
        return Cut(first.start, behind.end(), "")
    before = text.rfind(",", node.start_mark.index, first.start)
    return Cut(before if before >= 0 else first.start, last.end, "")


def _last_leaf(node: Any) -> Any:
    while node.id != "scalar" and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node


def _appended(text: str, node: Any, rows: Sequence[str]) -> Cut:
    """Rows after the last one of a mapping in block style, with its indentation."""
    if node.flow_style:
        raise CacheDoctorError("--file: the server's entry uses YAML braces", "write the server as a block first")
    at = _row_end(text, _last_leaf(node).end_mark.index)
    indentation = " " * node.start_mark.column
    block = "".join(f"{indentation}{row}\n" for row in rows)
    return Cut(at, at, block if not at or text[at - 1] == "\n" else "\n" + block.rstrip("\n"))


def _environment(
    text: str, node: Any, key: str, launcher: Launcher, variables: dict[str, str], gone: list[str]
) -> Iterator[Cut]:
    values = {name: value.replace("$", "$$") if launcher == "compose" else value for name, value in variables.items()}
    there = _child(node, key)
    if there is None or (there.id == "scalar" and not there.value):
        if values and there is None:
            yield _appended(text, node, [f"{key}:", *_block(launcher, values)])
        elif values:
            raise CacheDoctorError(f"--file: the server's {key} is empty", "remove the key first")
        return
    if there.id == "scalar":
        raise CacheDoctorError(f"--file: the server's {key} is not a list of variables", "fix the file first")
    entries = list(_entries(there, launcher))
    for name, value in values.items():
        old = next((entry for entry in entries if entry[0] == name), None)
        if old is not None:
            whole = quoted(f"{name}={value}") if old[2] else quoted(value)
            yield Cut(old[1].start_mark.index, old[1].end_mark.index, whole)
    new = {name: value for name, value in values.items() if all(name != entry[0] for entry in entries)}
    if new and there.id == "mapping":
        yield _new_pairs(text, there, new)
    elif new:
        rows = (
            _block(launcher, new) if launcher == "kubernetes" else [f"- {quoted(f'{n}={v}')}" for n, v in new.items()]
        )
        yield _new_items(text, there, rows)
    for name, value_node, _ in entries:
        if name in gone:
            row = text.rfind("\n", 0, value_node.start_mark.index) + 1
            begin = text.rfind("\n", 0, max(row - 1, 0)) + 1 if launcher == "kubernetes" else row
            yield Cut(begin, _row_end(text, value_node.end_mark.index), "")


def _entries(node: Any, launcher: Launcher) -> Iterator[tuple[str, Any, bool]]:
    """(variable, node of its value, whether that is ``NAME=value``)."""
    if node.id == "mapping":
        yield from ((key.value, value, False) for key, value in _pairs(node))
        return
    for one in node.value:
        if launcher == "kubernetes":
            name, value = _child(one, "name"), _child(one, "value")
            if name is not None and value is not None:
                yield name.value, value, False
        elif one.id == "scalar":
            yield str(one.value).partition("=")[0], one, True


def _block(launcher: Launcher, values: dict[str, str]) -> list[str]:
    if launcher == "kubernetes":
        return [row for name, value in values.items() for row in (f"  - name: {name}", f"    value: {quoted(value)}")]
    if launcher == "llama-swap":
        return [f"  - {quoted(f'{name}={value}')}" for name, value in values.items()]
    return [f"  {name}: {quoted(value)}" for name, value in values.items()]


def _new_pairs(text: str, node: Any, values: dict[str, str]) -> Cut:
    if node.flow_style:
        inner = ", ".join(f"{name}: {quoted(value)}" for name, value in values.items())
        at = node.end_mark.index - 1
        return Cut(at, at, f", {inner}" if node.value else inner)
    return _appended(text, node, [f"{name}: {quoted(value)}" for name, value in values.items()])


def _new_items(text: str, node: Any, rows: list[str]) -> Cut:
    if node.flow_style:
        raise CacheDoctorError(
            "--file: the server's environment is written in brackets", "write the server as a block first"
        )
    at = _row_end(text, _last_leaf(node).end_mark.index)
    indentation = " " * node.start_mark.column
    rows = [row.removeprefix("  ") for row in rows]
    block = "".join(f"{indentation}{row}\n" for row in rows)
    return Cut(at, at, block if text[at - 1] == "\n" else "\n" + block.rstrip("\n"))


def _prove(old: str, new: str, place: YamlServer, launcher: Launcher) -> None:
    """Compare the new text with the old one: nothing but command and environment of the one server may differ."""
    commands, environment = _KEYS[launcher]
    sides = [_loaded(text) for text in (old, new)]
    for side in sides:
        found = _at(side, place)
        for key in (*commands, environment):
            found.pop(key, None)
    if not _same(*sides):
        raise CacheDoctorError(
            "--file: the file cannot be changed safely", "change the command by hand, without --file"
        )


def _same(one: Any, other: Any) -> bool:
    """Whether two loaded texts are equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other) or one != one  # .nan is not equal to itself
