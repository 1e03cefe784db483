"""Round numbers for an axis, and numbers short enough to stand at it. Knows no report."""

from __future__ import annotations

import math

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def ticks(top: float, most: int = 4) -> list[float]:
    """Give round values from 0 to the first one at or above ``top``, about ``most`` steps."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(s * size for s in _STEPS if s * size >= rough * 0.999)
    return [i * step for i in range(math.ceil(top / step * 0.999) + 1)]


def short(value: float) -> str:
    """Write a number of tokens for an axis: 800, 12k, 1.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def box(x: float, y: float, width: float, height: float) -> str:
    """Give a rectangle as a piece of a path: one path holds all of a kind, so that a chart has few nodes."""
    return f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"
