"""How fast a server computes prompts at which depth, fitted to its own timings.

Attention makes every token dearer the more tokens stand before it, so the time per token rises with the depth about
linearly: the tokens that a fix would have saved, which stand in front, cost less than those behind them.
"""

from __future__ import annotations

import msgspec

from cachedoctor.model import Request

LEAST = 256
"""Tokens: shorter prompts are mostly overhead and say nothing of the speed."""
SAMPLES = 4
"""Requests from which on a slope is believed."""
SPREAD = 0.25
"""Standard deviation of the depths, as a share of their mean, below which no slope can be told."""


class PromptSpeed(msgspec.Struct):
    """Weighted regression of milliseconds per token on depth (middle of the computed span, tokens), weight: tokens."""

    count: int = 0
    weight: float = 0.0
    depth: float = 0.0
    depth2: float = 0.0
    per_token: float = 0.0
    product: float = 0.0

    def learn(self, request: Request) -> None:
        """Take a request's timing."""
        tokens, ms = request.processed_tokens, request.prompt_ms
        if not tokens or not ms or tokens < LEAST:
            return
        start = request.cached_tokens or 0
        middle = (start + start + tokens) / 2
        self.count += 1
        self.weight += tokens
        self.depth += tokens * middle
        self.depth2 += tokens * middle * middle
        self.per_token += ms
        self.product += ms * middle

    @property
    def slope(self) -> float:
        """Rise of the time per token with each token of depth, as a share of the time at depth 0; 0: unknown."""
        if self.count < SAMPLES:
            return 0.0
        mean = self.depth / self.weight
        variance = self.depth2 / self.weight - mean * mean
        if variance < (SPREAD * mean) ** 2:
            return 0.0
        rise = (self.product / self.weight - mean * self.per_token / self.weight) / variance
        base = self.per_token / self.weight - rise * mean
        return rise / base if rise > 0 and base > 0 else 0.0

    def cost(self, request: Request, tokens: int) -> tuple[float, bool]:
        """Milliseconds that the first ``tokens`` of what this request computed took; 0 when its time is unknown.

        And whether the speed at that depth is known, not only the mean speed of the request.
        """
        slope, computed, ms = self.slope, request.processed_tokens, request.prompt_ms
        if not computed or not ms:
            return 0.0, slope > 0
        twice, saved = 2 * (request.cached_tokens or 0), min(tokens, computed)
        part, whole = saved * (1 + slope * (twice + saved) / 2), computed * (1 + slope * (twice + computed) / 2)
        return ms * part / whole, slope > 0
