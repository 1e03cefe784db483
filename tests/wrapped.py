"""Lines of a server, records of programs that store them, and what the Unwrapper makes of both."""

from __future__ import annotations

import itertools
import json

from cachedoctor.inputs.envelope import Unwrapper

Bodies = dict[str | None, list[tuple[int, str]]]

SLOT = "slot update_slots: id  0 | task 9 | n_tokens = 58, memory_seq_rm [58, end)"
SRV = "srv  get_availabl: updating prompt cache"
UP = "0.01.058.254 I slot   operator(): id  0 | task 10 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 58"
EVAL = "       eval time =     317.10 ms /    16 tokens (   19.82 ms per token,    50.46 tokens per second)"

LOG = """\
0.00.000.256 I srv          init: initializing ...
0.00.002.920 I srv          init: build_info: b0-unknown
0.00.024.980 I llama_model_loader: - kv  20:                    tokenizer.chat_template str = {%- if a < b %}\\n...
0.00.024.981 I print_info: EOG token             = 1109 '<|endoftext|>'

........................
0.00.100.000 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 16384, kv_unified = 'true'
0.00.100.001 I init: chat template, example_format: '<|im_start|>system
You are a helpful assistant<|im_end|>
<|im_start|>user
Hello<|im_end|>
'
0.00.205.552 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1
0.00.205.612 I srv  get_availabl: updating prompt cache
0.00.205.700 W srv   prompt_save:  - saving prompt with length 0, total state size = 0.000 MiB
0.00.206.000 I slot launch_slot_: id  0 | task 7 | processing task, is_child = 0
0.00.206.100 I slot launch_slot_: id  0 | task -1 | sampler params:\x20
\trepeat_last_n = 64, repeat_penalty = 1.000, frequency_penalty = 0.000
\ttop_k = 40, top_p = 0.950
0.00.736.029 I slot   operator(): id  0 | task 7 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 1966
0.00.736.093 W slot   operator(): id  0 | task 7 | old: ...  | 82 "quoted\\\\" é
0.00.736.124 W slot   operator(): id  0 | task 7 |       23      17
slot update_slots: id  0 | task 9 | n_tokens = 58, memory_seq_rm [58, end)
slot print_timing: id  0 | task 9 |\x20
prompt eval time =     317.10 ms /  1966 tokens (    0.16 ms per token,  6199.94 tokens per second)
       eval time =     120.10 ms /    16 tokens (    7.51 ms per token,   133.22 tokens per second)
      total time =     437.20 ms /  1982 tokens
I slot      release: id  0 | task 9 | stop processing: n_tokens = 1981, truncated = 0
W srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200
que    start_loop: waiting for new tasks
"""
LINES = LOG.removesuffix("\n").split("\n")


def unwrap(text: str | bytes, cuts: tuple[int, ...] = ()) -> Bodies:
    """Feed ``text``, cut before each of the lines ``cuts`` (0-based)."""
    data = text if isinstance(text, bytes) else text.encode()
    lines = data.split(b"\n")[:-1]
    unwrapper = Unwrapper()
    bounds = [0, *sorted(cuts), len(lines)]
    segments = []
    for start, end in itertools.pairwise(bounds):
        segments += unwrapper.feed(b"".join(line + b"\n" for line in lines[start:end]), start + 1)
    segments += unwrapper.flush()
    found: Bodies = {}
    for segment in segments:
        assert segment.data.endswith(b"\n")
        bodies = segment.data.decode(errors="backslashreplace").removesuffix("\n").split("\n")
        assert segment.numbers is None or len(bodies) == len(segment.numbers)
        assert segment.first == segment.number(0)
        found.setdefault(segment.origin, []).extend((segment.number(i), body) for i, body in enumerate(bodies))
    return found


def docker(text: str, stream: str = "stderr") -> str:
    record = json.dumps({"log": text, "stream": stream, "time": "2026-11-20T12:00:00.001373417Z"}, ensure_ascii=False)
    return record.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace(": ", ":", 1) + "\n"


def jsonl(message: str, micros: int = 1058254, level: str = "info") -> str:
    return json.dumps({"type": "log", "time": micros, "level": level, "msg": message}, separators=(",", ":")) + "\n"
