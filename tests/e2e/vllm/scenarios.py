"""The scenarios: what is wrong with server or client, and the code that it must get.

One entry is one scenario; adding one is described in tests/e2e/README.md.
"""

from __future__ import annotations

from e2e.vllm import traffic
from e2e.vllm.scenario import Scenario

DENSE, HYBRID = "tiny-dense", "tiny-hybrid"
NONE = (0.0, 0.0)
"""Bounds of a server that reused nothing."""

ALL = [
    Scenario("healthy", None, DENSE, traffic.chat(), reuse=(0.8, 1.0)),
    Scenario("prefix-changed", "CD102 volatile-prefix", DENSE, traffic.chat(traffic.clock), reuse=NONE),
    Scenario(
        "caching-off", "CD503 prefix-caching-off", DENSE, traffic.chat(), reuse=NONE,
        options=("--no-enable-prefix-caching",),
    ),
    Scenario("short-prefix", "CD501 block-granularity", HYBRID, traffic.short_questions, reuse=NONE, severity="note"),
    Scenario(
        # The log shows that it has no statistics, CD509 statistics-off, a note; the responses say what goes wrong.
        "several-api-servers", "CD508 routing-without-affinity", DENSE, traffic.chat(), reuse=(0.4, 1.0),
        options=("--data-parallel-size", "2"),
    ),
    Scenario(
        "one-shots", "CD510 prefix-not-shared", DENSE, traffic.one_shots, reuse=NONE, severity="note",
    ),
    Scenario(
        "batch-beside-agent", "CD504 kv-pressure", DENSE, traffic.batch_beside_agent, reuse=(0.0, 0.1),
        options=("--num-gpu-blocks-override", "48", "--max-model-len", "4096", "--kv-cache-metrics",
                 "--kv-cache-metrics-sample", "1.0"),
    ),
    Scenario(
        "clock-beside-healthy", "CD102 volatile-prefix", DENSE, traffic.clock_beside_healthy, reuse=(0.3, 0.6),
    ),
    Scenario(
        "agents-in-any-turn", "CD504 kv-pressure", DENSE, traffic.agents_in_any_turn, reuse=(0.2, 0.5),
        options=("--num-gpu-blocks-override", "48", "--max-model-len", "4096"),
    ),
    Scenario("salted", "CD112 cache-salt", DENSE, traffic.salted, reuse=NONE),
    Scenario("hybrid-chats", None, HYBRID, traffic.two_chats, reuse=(0.5, 1.0)),
]  # fmt: skip
