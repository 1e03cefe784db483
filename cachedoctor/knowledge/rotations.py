"""How the rotations of a log are named. Knows names; opens no file."""

from __future__ import annotations

import re

_ROTATED = re.compile(r"(?:[.-]\d[\dT_:-]*)?(?:\.(?:gz|xz|bz2|zst))?$")


def base_name(path: str) -> str:
    """Return the name of the log of which ``path`` is a rotation: ``server.log`` for ``server.log.2.gz``."""
    return _ROTATED.sub("", path)
