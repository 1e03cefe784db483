"""What an input in which nothing was recognised looks like, so that a hint can say what was given instead of a log.

A guess from its first bytes, for one sentence; nothing is concluded from it.
"""

from __future__ import annotations

import re

import msgspec

from cachedoctor.doctor.analysis.intake import BEGIN
from cachedoctor.doctor.analysis.own_reports import is_report
from cachedoctor.inputs.envelope import MOST
from cachedoctor.knowledge.engines import METRICS_OF_LLAMA, PATTERN
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound_json

_KEYS = 4
"""Keys of a record that are named."""
_KEY = late(r"[\w@.-]{1,40}")
_QUOTED = late(r'"([\w@.-]{1,40})"\s{0,8}:')
_PAGE = late(rb"<(?:!doctype html|html|head|body|!--|\?xml)", re.IGNORECASE)
_BODY = late(rb'"(?:messages|input|prompt)"\s{0,8}:')
_BODIES = "request bodies: cachedoctor diff compares them; cachedoctor analyze LOG --requests reads them with their log"
_KINDS = tuple(
    (late(pattern), words)
    for pattern, words in (
        (rb"GGUF", "a model file"),
        (rb"\S{2,45} \S{1,60} \S{1,60} \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d", "the access log of a web server"),
        (rb"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} \S", "the journal of other programs"),
        (rb"Traceback \(most recent call last\):", "the traceback of a Python program"),
        (
            rb"diff --git |--- \S.*\n\+\+\+ |@@ -\d|"
            rb"(?:\d[\d,]*[acd]\d[\d,]*\n)?< .*\n(?:< .*\n)*---\n> |-(?!-).+\n\+(?!\+)",
            "the output of a text comparison; if these are prompts, give both to cachedoctor diff",
        ),
        (rb"[\w .@-]{1,40}(?:[,;\t][\w .@-]{1,40}){3,99}\r?\n", "a table"),
        (rb"(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|\[?(?:DEBUG|INFO|WARN|ERROR)\b)", "the log of another program"),
    )
)
_OLD = "the log of a llama-server of 2023 or 2024; cachedoctor reads logs of b5311 (May 2025) and newer"
_OLD_FORM = "the log of a llama-server of 2024 or earlier, or of ik_llama.cpp without the lines that cachedoctor reads"
_OLLAMA = "the log of ollama, without a line that shows reuse"
_KOBOLD = "a part of KoboldCpp's log; the complete CtxLimit: lines after each reply have the numbers"
_MLX = "the log of LM Studio's MLX engine; its lines 'Prompt cache restore' in the developer log have the numbers"
_OMLX, _DS4, _RAPID = "the log of oMLX", "the log of ds4-server", "the log of Rapid-MLX or vllm-mlx"
_MLX_LM, _MLX_VLM = "the log of mlx_lm.server", "the log of mlx-vlm"
_OWN = "a report of cachedoctor, not a log"
_BOX = "the log of llama-box; cachedoctor reads only its rejected requests"
_GIVE = {
    _OWN: "Give the log itself, or a JSON report: cachedoctor analyze report.json.",
    _OLD: 'Update llama.cpp, or look for "kv cache rm [N, end)" in the log: N prompt tokens were reused.',
    _OLD_FORM: 'Give the whole log of a request, from start to end: "kv cache rm [N, end)" shows N reused tokens.',
    _OLLAMA: (
        "Also give the lines of ollama's runner: `loading cache slot`, `cache hit`, or lines that begin with "
        "`slot`. These lines need OLLAMA_DEBUG=1 in the server's environment."
    ),
    _KOBOLD: "Give the lines with CtxLimit:, which follow each reply. "
    'In "Processing Prompt (a / b tokens)" b counts the computed tokens, not the prompt length.',
    _MLX: 'Give the developer log with its lines "Prompt cache restore: cached_tokens=".',
    _OMLX: 'Give the oMLX lines "prefix cache: request ... re-prefills N of N tokens (reused N)", which show where '
    "a prompt diverges.",
    _DS4: 'Give the ds4-server lines "kv cache miss live=N prompt=N common=N reason=..." '
    'and "chat ctx=CACHED..PROMPT:NEW prompt start".',
    _RAPID: 'Give the lines "[cache_fetch] request=ID HIT" or "MISS", with prompt_tokens and cached.',
    _MLX_LM: "mlx_lm.server does not print reused tokens; pass responses with usage (--responses).",
    _MLX_VLM: 'Give the mlx-vlm lines "Prefill completed: request=... prompt_tokens=N cached_tokens=N elapsed=Ns".',
    _BOX: "llama-box does not print reused tokens; pass responses with usage (--responses).",
}
"""What to give of a program's log."""
_SIGNS = tuple(
    (late(rb"(?m)" + pattern), words)
    for pattern, words in (
        (rb"^(?:(?:rule {1,9})?(?:error|warning|note)\[CD\d{3}\][: ]|#### \d{1,4}\. `CD\d{3}` )", _OWN),
        (rb"\blevel=(?:DEBUG|INFO|WARN|ERROR) source=[\w.]{1,60}\.go:\d|^\[GIN\] \d{4}/\d\d/\d\d - ", _OLLAMA),
        (rb"\bomlx\.\w{1,40}\b", _OMLX),
        (rb"\bds4-server: ", _DS4),
        (rb"\[cache_(?:fetch|store)\] |\bLCP unavailable: shared=\d", _RAPID),
        (rb"^(?:\S{1,40} ){0,5}?Prompt processing progress: \d{1,9}/\d{1,9}", _MLX_LM),
        (rb"\b(?:Prefill|Decode) (?:started|progress|completed): request=\S{1,80} ", _MLX_VLM),
        (
            rb"^(?:# (?:HELP|TYPE) )?" + METRICS_OF_LLAMA.encode() + rb":\w{3,80}(?:\{| +\w|[ \t]*$)",
            "/metrics of llama-server, which does not count reused tokens; the log of the server does",
        ),
        (
            rb"^(?:# (?:HELP|TYPE) )?(?:" + PATTERN.encode() + rb"):\w{3,80}(?:\{| +\w|[ \t]*$)",
            "a dump of /metrics: cachedoctor analyze --metrics FILE reads its counters",
        ),
        (rb"\[TensorRT-LLM\]|\[TRT-LLM\]", "the log of TensorRT-LLM, which cachedoctor does not read"),
        (
            rb"\btext_generation_(?:launcher|router)\b",
            "the log of text-generation-inference, which cachedoctor does not read",
        ),
        (
            rb'\{"function":"\w{3,40}","level":"[A-Z]{3,8}","line":\d{1,5},'
            rb"|\bupdate_slots : |^(?:\S{1,80} +\| +)?slot \d{1,3} ?: (?:kv cache rm|in cache:)",
            _OLD,
        ),
        (rb"\| tid=\"\w+\" timestamp=\d{10}\b", _OLD_FORM),
        (rb"\bC(?:tx|ontext)Limit: ?\d|^Processing Prompt |^Starting Kobold API on port |^Active Modules: ", _KOBOLD),
        (rb"\[(?:ModelKit|CacheWrapper)\]\[[A-Z]+\]", _MLX),
        (
            rb"^(?:\S{0,40} ?)?[WE]? ?find_slot: non-consecutive token position \d",
            "warnings of the llama.cpp library about image positions, which show nothing about the cache",
        ),
        (
            rb"^Output generated in \d{1,9}\.\d\d seconds ",
            "the log of text-generation-webui; if it uses llama-cpp-python, "
            "lines 'Llama.generate: N prefix-match hit' show the reuse",
        ),
        (
            rb"\bllama_(?:print_timings|perf_context_print): ",
            "timings of the llama.cpp library, which do not show reuse",
        ),
        (rb"\b(?:slt|srv) +\w{3,40}: rid \d{4,20} \| ", _BOX),
        (rb"\btoken_to_kv_pool_allocator\b", "an error of SGLang, without the lines of its scheduler"),
    )
)
"""Lines of programs and versions that are not read, or whose needed lines are missing, and what to say of them."""
_SECONDS = late(rb"(?m)^\[1\d{9}\] ")
"""Unix time before the lines of a llama.cpp of 2023 or 2024."""
_KERNEL = late(rb"\[ {0,5}\d{1,9}\.\d{6}\] ")
_ROUTED = late(rb"\[\d{2,5}\] +[^\s,\]]")
_MARKS = late(r"(?m)^(?:#{1,6} |```|\* |- |> )")


def resemblance(begin: bytes, size: int = 0) -> str | None:
    """Name what the first bytes of an input of ``size`` look like; None where that is not known.

    A page, ``an array of JSON objects with "id", "name"``, ``the access log of a web server`` ...
    """
    if is_report(begin):
        return _OWN
    begin = _SECONDS.sub(b"", begin[:BEGIN].removeprefix(b"\xef\xbb\xbf").lstrip())
    if _KERNEL.match(begin):
        return "a kernel log"
    if size > MOST and re.match(rb"\[\s*+\{", begin):
        return f"a JSON array of more than {MOST >> 20} MiB; convert it to one record per line: jq -c '.[]' FILE"
    if begin[:1] in (b"[", b"{") and _BODY.search(begin) and b'"model"' in begin:
        return _BODIES
    found = next((words for sign, words in _SIGNS if sign.search(begin)), None)
    if begin[:1] in (b"[", b"{") and found != _OLD and (json := _json(begin)) is not None:
        return json
    if found is not None:
        return found
    if _PAGE.match(begin):
        return "a web page, not the text in it"
    for pattern, words in _KINDS:
        if pattern.match(begin):
            return words
    text = begin.decode("utf-8", "replace")
    letters = sum(char.isalpha() or char == " " for char in text)
    if len(text) >= 80 and (letters > 0.9 * len(text) or _MARKS.search(text)):
        return "ordinary text"
    return None


def give(words: str | None) -> str | None:
    """Return what to give of a program's log, by the words of ``resemblance``; None for anything else."""
    return None if words is None else _GIVE.get(words)


def _json(begin: bytes) -> str | None:
    first, newline, _ = begin.partition(b"\n")
    try:
        record = msgspec.json.decode(sound_json(first)) if newline or first.endswith((b"]", b"}")) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        record = None
    if isinstance(record, dict):
        return _named("JSON records", [key for key in record if _KEY.fullmatch(key)])
    if _ROUTED.match(begin):
        return None  # the port of a router's child comes before its lines
    if re.match(rb"\[\s*+[-\d\"tfn]", begin):
        return "a JSON array of values" if re.match(rb"\[\s*+(?:-?\d[\d.]*+|\"[^\"\n]*+\")\s*+[,\]]", begin) else None
    array = re.match(rb"\[\s*+\{", begin) is not None
    if not array and not re.match(rb"\{\s*+\"", begin):
        return None
    keys = list(dict.fromkeys(_QUOTED.findall(begin.decode("utf-8", "replace"))))
    return _named("a JSON array of objects" if array else "a JSON object", keys)


def _named(what: str, keys: list[str]) -> str:
    more = " ..." if len(keys) > _KEYS else ""
    said = f" with {', '.join(keys[:_KEYS])}{more}" if keys else ""
    return f"{what}{said}, without a server log line in it"
