"""How large a number of a report may be. Checked where JSON is read; sums of them stay exact and overflow nothing.

Knows bounds only.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

MOST = 1 << 53
"""Tokens, lines, positions of one request."""
LONGEST = 1e15
"""Milliseconds of one request."""

Count = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
Ms = Annotated[float, msgspec.Meta(ge=0, le=LONGEST)]
Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number that names something, or a sum."""
LongMs = Annotated[float, msgspec.Meta(ge=0, le=1e30)]
"""A sum of times."""
