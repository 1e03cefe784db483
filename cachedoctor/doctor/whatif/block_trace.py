"""What a trace of vLLM or SGLang is made of: bodies with their exact tokens, in the order in which they were sent.

A trace says what was asked, not what became of it: any cache that these servers have will do.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic
from cachedoctor.doctor.whatif.block_evidence import BlockAsking, compared, one_run, read_bodies
from cachedoctor.model import Session
from cachedoctor.model.whatif import Placed

_SALTED = -2
"""First tokens of salted prompts are numbered from here downwards; -1 stands for a BOS."""


class BlockTraffic(msgspec.Struct):
    """Traffic, and what is known beside it; lists are parallel to what was asked."""

    traffic: Traffic
    generated: list[int | None]
    """Tokens of the reply that the client sent back in a later prompt; None where it did not."""
    times: list[str | None]
    """None for every body: these logs do not show which request it is."""
    placed: Placed


def traced(asking: BlockAsking, sessions: Sequence[Session]) -> BlockTraffic:
    """Make traffic of a log of vLLM or SGLang and the bodies that were given beside it.

    Raises:
        CacheDoctorError: it is of several servers or runs, something is missing, or the bodies are not of this log.
    """
    session = one_run(asking.path, sessions)
    _, requests, placed = read_bodies(asking, session, "a trace")
    compared(session, requests)
    tree, salted, asked = PromptTree(), dict[tuple[str, int], int](), list[TimedRequest]()
    for at, one in enumerate(requests):
        tokens = array("i", one.tokens)
        if one.key and tokens:  # what begins otherwise shares nothing
            tokens[0] = salted.setdefault((one.key, tokens[0]), _SALTED - len(salted))
        prompt = tree.add(tokens)
        asked.append(TimedRequest(prompt, prompt, 2 * at, 2 * at + 1))
    return BlockTraffic(
        Traffic(tree, asked), [len(one.reply) or None for one in requests], [None] * len(requests), placed
    )
