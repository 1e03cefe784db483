"""Sentences with one meaning in any log: ``msg="truncating input prompt" limit=4096 prompt=22739 keep=4 new=4096``.

Programs around llama.cpp, old builds of it, the kernel, systemd and docker write them. Each sentence is certain by
itself, without the lines of a request. A line shows the incident of its row in the one table, and nothing else is
concluded from it. Numbers are tokens unless their name says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cachedoctor.engines.catalogue.reading import read as read_line
from cachedoctor.engines.detect import ERROR_LINE, EVERYWHERE
from cachedoctor.engines.llamacpp.excerpts import unknown
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import IncidentName, Mark


class Sentence(NamedTuple):
    """A row of the table."""

    id: str
    engine: str
    """Name of the writer as sessions use it; empty for the system, whose lines name a process."""
    incident: IncidentName | None
    """None for a line that shows that nothing is wrong."""
    literal: bytes
    pattern: str
    """Regular expression with the names of its numbers as groups; ``process`` is the name of a process."""
    meaning: str
    sample: str
    behind: str = ""
    """Pattern of the lines directly before it, if it has its meaning only after these; with numbers as well."""


_SLOG = "time=2026-08-19T19:35:53.590+02:00 level=WARN source=runner.go:154 "
_OLD = "INFO [            update_slots] "
_JSON = '{"tid":"0x1f2","timestamp":1712345678,"level":"INFO","function":"update_slots","line":1801,'
_DISK = "0.31.004.118 W srv          load: "
_LEAD = r"^[^\"'{}\n]{0,200}?"
"""What may come before a sentence: a sentence in a quoted string is user text."""
_MSG = _LEAD + r"\blevel=[A-Z]{1,8} (?:source=\S{1,100} )?msg="
_KEY = r'(?:, |,|\| |\s)"?{0}"?[=:] ?'

TABLE: tuple[Sentence, ...] = (
    # ---- prompts that do not fit
    Sentence("prompt_cut", "ollama", "cut", b'msg="truncating input prompt"',
        _MSG + r'"truncating input prompt" limit=(?P<limit>\d{1,10}) prompt=(?P<tokens>\d{1,10}) keep=(?P<keep>\d{1,10}) new=\d{1,10}',
        "The prompt is longer than num_ctx. ollama removes its middle, so the model never sees that text. Nothing after the first `keep` tokens matches the cache.",
        _SLOG + 'msg="truncating input prompt" limit=4096 prompt=22739 keep=4 new=4096'),
    Sentence("input_too_long", "ollama", "overflow", b'msg="input exceeds context length"',
        _MSG + r'"input exceeds context length" prompt=(?P<tokens>\d{1,10}) limit=(?P<limit>\d{1,10})',
        "The prompt is longer than num_ctx and is rejected.",
        _SLOG + 'msg="input exceeds context length" prompt=9120 limit=8192'),
    Sentence("messages_cut", "ollama", "cut", b'msg="truncating input messages which exceed context length"',
        _MSG + r'"truncating input messages which exceed context length" truncated=(?P<messages>\d{1,10})',
        "The conversation is longer than num_ctx. ollama leaves out its oldest messages: nothing after the system prompt matches the cache.",
        _SLOG + 'msg="truncating input messages which exceed context length" truncated=3'),
    Sentence("input_truncated", "llama.cpp", "cut", b"input truncated",
        _LEAD + r"\binput truncated\b.{0,200}?" + _KEY.format("n_ctx") + r"(?P<limit>\d{1,10}).{0,200}?" + _KEY.format("n_erase") + r"(?P<erased>\d{1,10})",
        "The prompt is longer than the context (llama.cpp of 2024). The server removes its middle: nothing after the kept beginning matches the cache.",
        _OLD + 'input truncated | tid="139" timestamp=1718000000 id_slot=0 id_task=5 n_ctx=4096 n_keep=0 n_left=4096 n_erase=2048'),
    Sentence("python_overflow", "llama-cpp-python", "overflow", b"exceed context window of ",
        _LEAD + r"\bRequested tokens \((?P<tokens>\d{1,10})\) exceed context window of (?P<limit>\d{1,10})",
        "The prompt is longer than n_ctx and is rejected.",
        "ValueError: Requested tokens (2650) exceed context window of 2048"),
    # ---- a context that was shifted
    Sentence("limit_hit", "ollama", "shifted", b'msg="context limit hit - shifting"',
        _MSG + r'"context limit hit - shifting"(?: id=\d{1,10})?(?: limit=(?P<limit>\d{1,10}))?',
        "The context is full while the answer is generated. ollama drops the older half: the next prompt no longer matches the remaining context.",
        _SLOG + 'msg="context limit hit - shifting" limit=4096'),
    Sentence("old_shift", "llama.cpp", "shifted", b"slot context shift",
        r"^(?:\{\"[^{}\n]{0,400}\"msg\":\"|[^\"'{}\n]{0,200}?)slot context shift\b(?:.{0,200}?" + _KEY.format("n_ctx") + r"(?P<limit>\d{1,10}))?",
        "The context is full while the answer is generated (llama.cpp of 2024). The server drops the older half: the next prompt no longer matches the remaining context.",
        _JSON + '"msg":"slot context shift","id_slot":0,"id_task":7,"n_keep":0,"n_left":8191,"n_discard":4095,"n_ctx":8192,"n_past":8191}'),
    Sentence("older_shift", "llama.cpp", "shifted", b": context shift - n_keep = ",
        r"^[^\"'{}\n]{0,200}?\bslot \d{1,3} ?: context shift - n_keep = \d{1,10}, n_left = \d{1,10}, n_discard = (?P<erased>\d{1,10})",
        "The context is full (llama.cpp of early 2024). The server drops the older half: the next prompt no longer matches the remaining context.",
        "slot 0: context shift - n_keep = 0, n_left = 6858, n_discard = 3429"),
    # ---- a request that did not ask for the cache, in builds whose default is not to use it
    Sentence("old_launch", "llama.cpp", None, b" is processing [task id: ",
        r"^slot (?P<slot>\d{1,3}) is processing \[task id: \d{1,10}\]",
        "A slot begins a request (llama.cpp up to early 2024).",
        "slot 0 is processing [task id: 2]"),
    Sentence("old_release", "llama.cpp", None, b" tokens in cache)",
        r"^slot (?P<slot>\d{1,3}) released \((?P<tokens>\d{1,10}) tokens in cache\)",
        "A request ended (llama.cpp up to early 2024); the line shows how many tokens its slot contains.",
        "slot 0 released (158 tokens in cache)"),
    Sentence("old_reuse", "llama.cpp", None, b" : in cache: ",
        r"^slot (?P<slot>\d{1,3}) : in cache: (?P<tokens>\d{1,10}) tokens \| to process: (?P<computed>\d{1,10}) tokens",
        "How many tokens of a prompt are reused, and how many are computed (llama.cpp up to early 2024). Printed only for requests with cache_prompt true.",
        "slot 0 : in cache: 120 tokens | to process: 40 tokens"),
    Sentence("old_emptied", "llama.cpp", "unasked", b" : kv cache rm - [0, end)",
        r"^slot (?P<slot>\d{1,3}) : kv cache rm - \[0, end\)",
        "The slot is emptied from its first token on (llama.cpp up to early 2024). If no `in cache:` line comes right before this line, the request did not use the cache.",
        "slot 0 : kv cache rm - [0, end)",
        r"(?:^|\n)slot (?P<slot>\d{1,3}) released \((?P<tokens>\d{1,10}) tokens in cache\)\n(?:(?!slot \d)[^\n]{0,200}\n){0,10}"
        r"slot (?P=slot) is processing \[task id: \d{1,10}\]\n\Z"),
    # ---- no room, and batches that fail
    Sentence("no_cells", "llama.cpp", "no_room", b"failed to find free space in the KV cache",
        _LEAD + r"failed to find free space in the KV cache, retrying with smaller (?:n_batch|batch size, n_batch|batch size) = (?P<batch>1)\b",
        "The KV cache has no free space for a batch of two tokens. The server tries single tokens; if these do not fit either, requests fail.",
        'update_slots : failed to find free space in the KV cache, retrying with smaller n_batch = 1'),
    Sentence("old_decode", "llama.cpp", "batch_failed", b"failed to decode the batch",
        _LEAD + r"failed to decode the batch, n_batch = (?P<batch>\d{1,10}), ret = (?P<status>-?\d{1,10})",
        "A batch could not be computed, and the requests in it fail. ret = 1 means that the KV cache has no free space. Any other number means that the batch itself failed.",
        'update_slots : failed to decode the batch, n_batch = 1, ret = 1'),
    # ---- saved prefixes and models that are dropped
    Sentence("prefix_evicted", "ollama", "dropped", b'msg="evicting ',
        _MSG + r'"evicting (?:leaf|interior node)" offset=\d{1,10} tokens=(?P<tokens>\d{1,10}) freed=',
        "The MLX runner drops a saved prefix to stay within its memory limit: a later prompt with this prefix is recomputed.",
        'time=2026-08-19T19:35:53.590+02:00 level=DEBUG source=prefix_cache.go:311 msg="evicting leaf" offset=8192 tokens=4096 freed="512.0 MiB"'),
    Sentence("all_freed", "ollama", "dropped", b'msg="failed to restore cache, freeing all caches"',
        _MSG + r'"failed to restore cache, freeing all caches"',
        "The MLX runner could not restore a saved prefix and drops all saved prefixes: the next prompts are computed in full.",
        'time=2026-08-19T19:35:53.590+02:00 level=WARN source=prefix_cache.go:201 msg="failed to restore cache, freeing all caches" offset=16383'),
    Sentence("model_evicted", "ollama", "unloaded", b'msg="llama-server model predicted to exceed available memory, evicting"',
        _MSG + r'"llama-server model predicted to exceed available memory, evicting"',
        "There is not enough memory for the next model: ollama unloads another one, whose cached prompts are lost.",
        'time=2026-08-19T19:35:53.590+02:00 level=INFO source=sched.go:466 msg="llama-server model predicted to exceed available memory, evicting" predicted="21.4 GiB" predicted_num_ctx=32768 num_batch=512 available="14.0 GiB" gpu_free="12.1 GiB" system_free="30.0 GiB" system_limited=false'),
    Sentence("models_evicted", "ollama", "unloaded", b"evicting all other models and retrying once",
        _MSG + r'"llama-server load failed; evicting all other models and retrying once"',
        "A model could not be loaded: ollama unloads all others, whose cached prompts are lost, and tries again.",
        _SLOG + 'msg="llama-server load failed; evicting all other models and retrying once" model=/models/q error="exit status 1"'),
    # ---- the disk tier of the prompt cache, in branches of llama-server
    Sentence("disk_over", "llama.cpp", "disk_evicted", b"disk prompt cache: ",
        _LEAD + r"disk prompt cache: size (?P<size>\d{1,9}\.\d{1,3}) MiB over budget (?P<limit>\d{1,9}\.\d{1,3}) MiB, evicting oldest entry",
        "The disk prompt cache is over its budget: the oldest prompt is deleted. If its conversation continues, the prompt is recomputed.",
        _DISK + "disk prompt cache: size 9120.500 MiB over budget 8192.000 MiB, evicting oldest entry '/c/a1.bin'"),
    Sentence("disk_broken", "llama.cpp", "disk_failed", b"disk prompt cache: ",
        _LEAD + r"disk prompt cache: (?:'[^'\n]{0,400}' is (?:corrupt|truncated)|token mismatch in |failed to (?:restore|deserialize|allocate))",
        "A prompt on disk could not be read: the prompt is recomputed.",
        _DISK + "disk prompt cache: '/c/a1.bin' is corrupt"),
    Sentence("disk_unsaved", "llama.cpp", "disk_failed", b"disk prompt cache: ",
        _LEAD + r"disk prompt cache: (?:failed to (?:write|rename|serialize)|token list cannot be hashed)",
        "A prompt could not be saved to disk: it is lost when the server ends or the RAM cache drops it.",
        _DISK + "disk prompt cache: failed to write '/c/a1.bin'"),
    Sentence("disk_fine", "llama.cpp", None, b"disk prompt cache: ",
        _LEAD + r"disk prompt cache(?: '[^'\n]{0,400}')?: (?:saved|restored) prompt with \d{1,10} tokens",
        "A prompt was saved to disk, or restored from disk.",
        "0.31.004.118 I srv          load: disk prompt cache: restored prompt with 20411 tokens, 640.112 MiB from '/c/a1.bin'"),
    # ---- the system ends a server for lack of memory
    Sentence("oom_process", "", "killed", b"ut of memory: Kill",
        _LEAD + r"\b[Oo]ut of memory: Kill(?:ed)? process \d{1,10} \((?P<process>[^()\n]{1,64})\)",
        "The kernel ended this process because the machine, or the process's memory group, ran out of memory. Its caches are gone.",
        "[1234.567890] Out of memory: Killed process 4242 (llama-server) total-vm:61234567kB, anon-rss:30123456kB"),
    Sentence("oom_kill", "", "killed", b"oom-kill:",
        _LEAD + r"\boom-kill:.{0,600}\btask=(?P<process>[^,\n]{1,64}),",
        "The kernel ended this process because the machine, or the process's memory group, ran out of memory. Its caches are gone.",
        "kernel: oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice,task=llama-server,pid=4242,uid=0"),
    Sentence("oom_unit", "", "killed", b"killed by the OOM killer",
        _LEAD + r"(?P<process>[\w.@-]{1,64})\.(?:service|scope): A process of this unit has been killed by the OOM killer",
        "systemd: the kernel ended a process of this unit because memory ran out. Its caches are gone.",
        "systemd[1]: llama-server.service: A process of this unit has been killed by the OOM killer."),
    Sentence("oom_result", "", "killed", b"'oom-kill'",
        _LEAD + r"(?P<process>[\w.@-]{1,64})\.(?:service|scope): Failed with result 'oom-kill'",
        "systemd: the unit ended because memory ran out. Its caches are gone.",
        "systemd[1]: ollama.service: Failed with result 'oom-kill'."),
    Sentence("oom_alone", "", "killed", b"killed by the OOM killer",
        r"^\s{0,20}A process of this unit has been killed by the OOM killer\.\s{0,20}$",
        "systemd: the kernel ended a process of the unit named in the lines around this one because memory ran out. Its caches are gone.",
        "A process of this unit has been killed by the OOM killer."),
    Sentence("exit_137", "", "killed", b"exited with code 137",
        _LEAD + r"(?:\s|^)(?P<process>[\w.@-]{1,64}) exited with code 137\b",
        "The container was ended by a signal that cannot be caught. The cause is a lack of memory, or a stop that took too long.",
        "llama-server-1 exited with code 137"),
)  # fmt: skip

FIELDS = {
    "tokens": "length of the prompt, of the prefix, or of the slot's content",
    "limit": "size of the context, or budget of the disk cache",
    "keep": "tokens that are kept at the beginning of the prompt",
    "erased": "tokens that are removed from the prompt or from the context",
    "messages": "number of the oldest messages that are left out",
    "batch": "tokens of the batch that is tried next, or was tried last",
    "status": "result of the library. 1: no free space in the KV cache; a negative number: the batch failed",
    "size": "size of the prompts on disk",
    "slot": "number of the slot",
    "computed": "tokens of the prompt that are computed",
    "process": "process, unit or container that was ended",
}
"""What the numbers and names of the patterns are."""
MEASURED = frozenset({"tokens", "computed", "limit", "keep", "erased", "batch", "size"})
"""Numbers with a unit."""
AROUND = frozenset({"old_launch", "old_release", "old_reuse"})
"""Rows that are meaningful only next to others: they are explained, and kept by redact, but never searched for."""
_PATTERNS = {row.id: late(row.pattern) for row in TABLE}
_BEHIND = {row.id: late(row.behind) for row in TABLE if row.behind}
_BEFORE = 1_000
"""Bytes before a line that are searched for the lines it must follow."""
_SERVERS = {"ollama": "ollama", "llama": "llama.cpp", "koboldcpp": "koboldcpp"} | {name: name for name in ENGINES}
"""Engines by a part of the name of a process, unit or container."""
_OWN = late(rb"\d++\.\d\d\.\d\d\d\.\d\d\d |slot |srv ")
"""Beginnings of the lines of llama-server, which its catalogue has."""
_BESIDE_LMCACHE = next(iter(ENGINES))
"""The engine that usually runs with LMCache."""
_MOST_ERRORS = 50
"""Error lines that are checked."""
_MOST = 20_000
"""Bytes of a line that are searched."""


class CertainLine(NamedTuple):
    """A line with such a sentence."""

    row: Sentence
    engine: str
    """Empty if the process may be any."""
    line: int
    mark: Mark
    numbers: dict[str, float]


def engine_of(process: str) -> str:
    """Return the engine of a process, unit or container by its name; empty for another program."""
    name = process.lower()
    return next((engine for word, engine in _SERVERS.items() if word in name), "")


def recognise(line: bytes) -> tuple[Sentence, re.Match[str]] | None:
    """Find the sentence of a line, without a wrapper or with one; None for any other line."""
    line = line[:_MOST]
    rows = [row for row in TABLE if row.literal in line]
    text = line.decode("utf-8", "replace") if rows else ""
    for row in rows:
        found = _PATTERNS[row.id].search(text)
        if found is not None:
            return row, found
    return None


def harmless(line: bytes) -> bytes | None:
    """Return the sample of a line's sentence with the numbers of this line; None for any other line.

    The name of a process is reduced to the part that shows which server it is.
    """
    found = recognise(line)
    if found is None:
        return None
    row, said = found
    process = said.groupdict().get("process")
    if process is not None and not engine_of(process):
        return None
    text, shown = row.sample, _PATTERNS[row.id].search(row.sample)
    values = {name: value for name, value in said.groupdict().items() if value is not None}
    spans = (
        []
        if shown is None
        else [(*shown.span(name), value) for name, value in values.items() if name in shown.groupdict()]
    )
    for start, end, value in sorted(spans, reverse=True):
        word = next((word for word in _SERVERS if word in value.lower()), value)
        text = text[:start] + word + text[end:]
    return text.encode()


def read(data: bytes, literals: list[bytes]) -> Iterator[tuple[int, Sentence, re.Match[str], bytes]]:
    """Yield each line with a sentence: its index, row, match and text. ``literals``: those that the lines contain."""
    places = sorted({data.rfind(b"\n", 0, at) + 1 for literal in literals for at in _places(data, literal)})
    number = 0
    counted = 0
    for start in places:
        number += data.count(b"\n", counted, start)
        counted = start
        end = data.find(b"\n", start)
        line = data[start : end if end >= 0 else len(data)]
        found = recognise(line)
        if found is None or not (found[0].literal in EVERYWHERE or _OWN.match(line) is None):
            continue
        row, said = found
        shown = _behind(row, data, start) if row.behind else said
        if shown is not None:
            yield number, row, shown, line


def _behind(row: Sentence, data: bytes, start: int) -> re.Match[str] | None:
    """Find the lines right before a sentence that give it its meaning."""
    return _BEHIND[row.id].search(data[max(0, start - _BEFORE) : start].decode("utf-8", "replace"))


def unknown_errors(data: bytes) -> Iterator[tuple[int, str, bytes]]:
    """Yield each error line of an excerpt that no reader knows: its index, the engine that it is about, and the line.

    ``E srv  update_slots: ...`` in the words of a fork, ``LMCache ERROR: Num retrieved tokens: 0, ...``: these lines are
    quoted, so that no error is left out silently.
    """
    for count, found in enumerate(ERROR_LINE.finditer(data)):
        if count >= _MOST_ERRORS:
            return
        line, engine = found[0], _BESIDE_LMCACHE
        if found["llama"] is not None:
            judged = unknown(line, 0)
            if read_line(ROWS, line).found or (judged is not None and judged.event is not None):
                continue
            engine = "llama.cpp"
        if recognise(line) is None:
            yield data.count(b"\n", 0, found.start()), engine, line


def unknown_error(engine: str, line: int, text: bytes) -> CertainLine:
    """Return an error line that no reader knows."""
    row = Sentence(
        "unknown_error", engine, "unknown_error", b"", "", "An error message that cachedoctor does not know.", ""
    )
    return CertainLine(row, engine, line, Mark(line, text), {})


def _places(data: bytes, literal: bytes) -> Iterator[int]:
    at = data.find(literal)
    while at >= 0:
        yield at
        at = data.find(literal, at + len(literal))


def certain_line(row: Sentence, found: re.Match[str], line: int, text: bytes) -> CertainLine | None:
    """Return what a line shows; None for the end of a process that is not a known server."""
    groups = found.groupdict()
    process = groups.pop("process", None)
    engine = row.engine if process is None else engine_of(process)
    if not engine and process is not None:
        return None
    numbers = {name: float(value) for name, value in groups.items() if value is not None}
    return CertainLine(row, engine, line, Mark(line, text), numbers)
