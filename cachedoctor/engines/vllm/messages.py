"""Every log message of vLLM that bears on the prefix cache, one row per wording.

Source: the source distributions of vLLM 0.7.3 to 0.33.0. A version counts as ``minor * 100 + patch``: 0.10.2 is 1002. The
versions of a row are the first and last of the sampled ones in which the wording was seen. Rows are data: no code here.
"""

from __future__ import annotations

from cachedoctor.engines.base import Message as R

ROWS: list[R] = [
    R("stats", "vllm", 800, 3300, "I800", "Engine {engine:word}: Avg prompt throughput: {prompt_rate:f} tokens/s, {more:pairs}",
      "(APIServer pid=3047) INFO 11-20 23:44:58 [loggers.py:335] Engine 000: Avg prompt throughput: 212.9 tokens/s, Avg generation throughput: 4.1 tokens/s, Running: 0 reqs, Waiting: 0 reqs, CPU KV cache usage: 0.0%, Prefix cache hit rate: 85.2%"),
    R("access", "vllm", 703, 3300, "I703", 'INFO: {host:host} - "{method:method} {path:url} HTTP/{http:word}" {status:d} {reason:text}',
      'INFO:     127.0.0.1:40782 - "POST /v1/chat/completions HTTP/1.1" 200 OK'),
]
