"""Every log message of LM Studio's MLX engine that bears on the prompt cache.

Source: mlx-engine (lmstudio-ai/mlx-engine), as shipped with LM Studio 0.4.5 to 0.4.21. Rows are data: no code here.
"""

from __future__ import annotations

from cachedoctor.engines.base import Message as R

ROWS: list[R] = [
    R("restore", "lmstudio", 0, 0, "D0", "Prompt cache restore: cached_tokens={cached:d} uncached_tokens={left:d} lifetime_efficiency={lifetime:f}%",
      "[coordinator][INFO]: Prompt cache restore: cached_tokens=256 uncached_tokens=101 lifetime_efficiency=66.83%"),
]
