"""What a collector's record contains besides the line: pod, container, host, time, stream, whether the line continues.

Names of keys as the documents of Loki, Elastic (ECS), Vector, Fluent Bit and Fluentd, GCP, CloudWatch, stern and
journald have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal

import msgspec

from cachedoctor.knowledge.late_patterns import late

Path = tuple[str, ...]
"""Keys from the outside in."""
Role = Literal["pod", "container", "stream name", "unit", "host", "id", "file", "time", "stream", "part", "last"]

_DEEP = 6
"""Objects inside each other; Elastic's ``_source`` around ``kubernetes`` around ``pod`` makes three."""
_MOST = 256
"""Keys of a record that are checked."""
_SHAPES = 256
"""Sets of keys whose labels are remembered."""
_LONGEST = 512
"""Characters of a name; a longer one names no server."""
_NAMES: dict[str, Role] = {
    "pod": "pod", "podname": "pod", "kspodname": "pod", "kubernetespodname": "pod",
    "container": "container", "containername": "container", "kscontainername": "container",
    "kubernetescontainername": "container",
    "logstream": "stream name", "logstreamname": "stream name",
    "systemdunit": "unit", "unit": "unit", "composeservice": "unit",
    "host": "host", "hostname": "host", "nodename": "host", "ksnodename": "host",
    "instanceid": "host", "instance": "host",
    "containerid": "id", "ecstaskarn": "id",
    "filename": "file", "file": "file",
    "timestamp": "time", "time": "time", "ts": "time", "date": "time", "realtimetimestamp": "time",
    "eventtime": "time",
    "stream": "stream", "source": "stream",
    "logtag": "part", "p": "part", "partialmessage": "part", "partial": "part", "partiallast": "last",
}  # fmt: skip
_AROUND = frozenset({
    "attributes", "body", "content", "data", "docker", "ecs", "entry", "event", "events", "fields", "hits",
    "jsonpayload", "kubernetes", "labels", "line", "log", "logoriginal", "message", "metadata", "msg", "name",
    "original", "originalmessage", "payload", "record", "resource", "resourceattributes", "result",
    "source", "structuredmetadata", "text", "textpayload", "value", "values",
})  # fmt: skip
"""Names of keys that hold the line, or objects, in the documents of these collectors."""
_NO_LABELS = frozenset({"annotations"})
_ORIGINS: tuple[tuple[Role, tuple[Role, ...]], ...] = (
    ("pod", ("pod", "container")), ("container", ("host", "container")), ("stream name", ("stream name",)),
    ("unit", ("host", "unit")), ("host", ("host",)), ("id", ("id",)), ("file", ("file",)),
)  # fmt: skip
"""The required role, most certain first, and all roles that then name the server."""
_OTHER = late(r"[^a-z]")
_BETWEEN = late(r"[._@/-]")


class Label(msgspec.Struct, frozen=True):
    """One value of a record that is read besides the line."""

    role: Role
    path: Path
    value: Any


@lru_cache(4096)
def _role(key: str) -> Role | None:
    return _NAMES.get(_OTHER.sub("", key.lower()))


class Labels:
    """Reads the labels of records, most of which have the same keys, so that their places are known."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, ...], list[tuple[Role, Path]]] = {}

    def of(self, record: dict[str, Any]) -> dict[Role, Label]:
        """Return the labels of a record, as ``labels`` does."""
        keys = (*record, *(key for value in record.values() if type(value) is dict for key in value))
        places = self._places.get(keys)
        if places is not None:
            found: dict[Role, Label] = {}
            for role, path in places:
                value = record[path[0]] if len(path) == 1 else at(record, path)
                if not isinstance(value, str | int | float) or value == "":
                    break
                found[role] = Label(role, path, value)
            else:
                return found
        found = record_labels(record)
        if len(self._places) < _SHAPES:
            self._places[keys] = [(label.role, label.path) for label in found.values()]
        return found


def record_labels(record: dict[str, Any]) -> dict[Role, Label]:
    """Return the first label of each role, those of the outer objects before those of the inner ones."""
    found: dict[Role, Label] = {}
    for path, value in _values(record):
        role = _role(path[-1])
        if role is None and path[-1] == "name" and len(path) > 1:  # {"pod": {"name": ...}}, {"host": {"name": ...}}
            role = _role(path[-2])
        if role is not None and role not in found and isinstance(value, str | int | float) and value != "":
            found[role] = Label(role, path, value)
    return found


def origin_labels(found: dict[Role, Label]) -> list[Label]:
    """Return the labels of a record that name the server, the outer name first."""
    for needed, roles in _ORIGINS:
        named = [found[role] for role in roles if role in found and _is_name(found[role].value)]
        if any(label.role == needed for label in named):
            return named
    return []


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST


def origin(found: dict[Role, Label]) -> bytes | None:
    """Name the server that wrote the record: ``pod/container``; None if nothing names one."""
    names = [str(label.value).strip("/ ") for label in origin_labels(found)]
    return "/".join(names).encode("utf-8", "backslashreplace") or None


def stream(found: dict[Role, Label]) -> str:
    """Standard output or error, if the record shows it."""
    value = found["stream"].value if "stream" in found else ""
    return value if value in ("stdout", "stderr") else ""


def goes_on(found: dict[Role, Label]) -> bool:
    """Whether the next record of the stream holds the rest of the line."""
    part = "part" in found and str(found["part"].value).lower() in ("p", "true")
    return part and not ("last" in found and str(found["last"].value).lower() == "true")


def at(record: Any, path: Path) -> Any:
    """Return the value at ``path``; None if there is none."""
    for key in path:
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record


def put(record: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at ``path``, with the objects around it."""
    for key in path[:-1]:
        record = record.setdefault(key, {})
    record[path[-1]] = value


def strings(record: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the texts of a record that may be a line, the outer ones first."""
    for path, value in _values(record):
        text = text_of(value)
        if text:
            yield path, text


def with_known_keys(path: Path, name: Callable[[str, bytes], bytes]) -> Path:
    """Return a path with every key that is not a collector's named by ``name``: others may hold anything."""
    return tuple(key if _is_known(key) else name("key", key.encode("utf-8", "replace")).decode() for key in path)


@lru_cache(4096)
def _is_known(key: str) -> bool:
    plain = _BETWEEN.sub("", key.lower().replace("k8s", "ks"))
    return plain in _NAMES or plain in _AROUND


def text_of(value: Any) -> str | None:
    """Return a text; journald gives one that has colours as a list of its bytes."""
    if isinstance(value, list) and value and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _values(record: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    level: list[tuple[Path, dict[str, Any]]] = [((), record)]
    left = _MOST
    for _ in range(_DEEP):
        inner: list[tuple[Path, dict[str, Any]]] = []
        for path, values in level:
            for key, value in values.items():
                left -= 1
                if not left:
                    return
                if not isinstance(value, dict):
                    yield (*path, key), value
                elif key not in _NO_LABELS:
                    inner.append(((*path, key), value))
        if not inner:
            return
        level = inner
