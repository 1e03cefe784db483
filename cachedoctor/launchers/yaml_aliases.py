"""Refuses YAML whose aliases have no end, or unfold into very much. Knows events of PyYAML, no server.

Compose, Kubernetes and llama-swap refuse such files as well.
"""

from __future__ import annotations

from typing import Any

from cachedoctor.model import CacheDoctorError

_MOST = 1 << 20
"""Characters and nodes that all aliases of a file may stand for together."""
_HINT = "write out what the alias stands for"


def check(text: str, module: Any) -> None:
    """Raise ``CacheDoctorError`` where an alias is part of what it names, or where aliases stand for too much.

    Args:
        text: any text; what is not YAML raises the ``YAMLError`` of ``module``.
        module: PyYAML.
    """
    if "&" not in text or "*" not in text:
        return
    sizes: dict[str, int] = {}
    """Of every anchor that has ended, unfolded."""
    names: list[str | None] = []
    own: list[int] = []
    unfolded = 0
    for event in module.parse(text, Loader=module.SafeLoader):
        size = 0
        if isinstance(event, module.AliasEvent):
            if event.anchor in names:
                raise CacheDoctorError(f"--file: the alias *{event.anchor[:40]} is part of what it names", _HINT)
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
            raise CacheDoctorError("--file: its aliases stand for more than a million characters", _HINT)


def _note(sizes: dict[str, int], anchor: str | None, size: int) -> None:
    if anchor is not None:
        sizes[anchor] = size
