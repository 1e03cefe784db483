"""One prefill batch of SGLang: how many prompt tokens were computed together, and how many reused.

Unknown is None, never 0.
"""

from __future__ import annotations

import msgspec

from cachedoctor.model.bounds import Amount, Count, LineNumber, Share


class PrefillBatch(msgspec.Struct):
    """What one scheduler says of a batch. A batch is neither a request nor a prompt: it may hold parts of several."""

    session: Count
    """Index of the session."""
    path: str
    line: LineNumber
    rank: str | None = None
    """``DP0 TP0``; None where the line names none."""
    time: str | None = None
    """ISO 8601 as the log has it, in the zone of the server."""
    new_seqs: Amount | None = None
    """Requests in it, one that continues the batch before included."""
    new_tokens: Amount | None = None
    """Tokens computed; rounded up to whole pages before 0.5.20."""
    cached_tokens: Amount | None = None
    """Tokens reused by the requests that were admitted in it, from all tiers together."""
    token_usage: Share | None = None
    """Share of the KV pool in use, from 0 to 1; of a hybrid or SWA model that of full attention."""
    swa_usage: Share | None = None
    mamba_usage: Share | None = None
    running: Amount | None = None
    """Requests."""
    queue: Amount | None = None
    """Requests."""
    pending_tokens: Amount | None = None
    continues: bool | None = None
    """It goes on with the prompt that the batch before could not finish, so that it reuses nothing by itself."""
    whole: bool = False
    """It holds exactly one request from begin to end: prompt = new_tokens + cached_tokens, up to a page."""
