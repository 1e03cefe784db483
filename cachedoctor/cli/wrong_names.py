"""Command lines for names that people try and that are not commands."""

from __future__ import annotations

_EXPORT = "analyze server.log -o requests.csv"
_REPORT = "analyze report.json -o report.html"
_WHY = "analyze server.log"
_RECORD = "proxy --upstream http://127.0.0.1:8080 --record requests.jsonl"
_KV = "watch --kv-events tcp://HOST:5557 -o kv.jsonl"
_LIVE = "watch server.log"
_METRICS = "exporter --follow /var/log/llama"
_SUMS = "fleet logs/*.log --by model"
_WHATIF = "tune server.log --set cache-ram=8192"
_TRACE = "analyze server.log -f mooncake -o trace.jsonl"
_PROBE = "probe http://127.0.0.1:8080"
_SETTINGS = "explain settings"

COMMAND_LINES = {
    "doctor": _WHY, "check": _WHY, "diagnose": _WHY, "analyse": _WHY, "why": _WHY, "run": _WHY, "scan": _WHY,
    "read": _WHY, "parse": _WHY, "log": _WHY, "logs": _WHY, "findings": _WHY, "inspect": _WHY,
    "report": _REPORT, "render": _REPORT, "convert": _REPORT, "format": _REPORT, "html": _REPORT, "show": _REPORT,
    "export": _EXPORT, "table": _EXPORT, "tables": _EXPORT, "csv": _EXPORT, "parquet": _EXPORT, "requests": _EXPORT,
    "dump": _EXPORT, "events": "analyze server.log --table events -o events.csv",
    "samples": "analyze vllm.log --table samples -o samples.csv", "trace": _TRACE, "mooncake": _TRACE,
    "monitor": _LIVE, "follow": _LIVE, "tail": _LIVE, "live": _LIVE, "top": _LIVE, "status": _LIVE,
    "capture": _RECORD, "record": _RECORD, "intercept": _RECORD,
    "record-kv": _KV, "kv": _KV, "kv-events": _KV,
    "serve": _METRICS, "metrics": _METRICS, "prometheus": _METRICS, "export-metrics": _METRICS,
    "stats": _SUMS, "summary": _SUMS, "summarize": _SUMS, "sum": _SUMS, "sums": _SUMS, "aggregate": _SUMS,
    "simulate": _WHATIF, "simulation": _WHATIF, "whatif": _WHATIF, "what-if": _WHATIF, "replay": _WHATIF,
    "optimize": "tune server.log", "recommend": "tune server.log",
    "rules": "explain", "rule": "explain CD101", "list": "explain", "codes": "explain", "docs": "explain",
    "glossary": "explain slot", "words": "explain slot", "line": "explain --line 'slot update_slots: ...'",
    "config": _SETTINGS, "settings": _SETTINGS, "options": _SETTINGS, "env": _SETTINGS,
    "anonymize": "redact server.log", "anonymise": "redact server.log", "sanitize": "redact server.log",
    "scrub": "redact server.log", "share": "redact server.log",
    "ping": _PROBE, "test": _PROBE, "query": _PROBE, "bench": _PROBE, "ask": _PROBE,
    "patch": "fix server.log --file compose.yaml", "repair": "fix server.log", "advise": "fix server.log",
    "validate": "lint requests.jsonl", "prompts": "diff requests.jsonl", "prompt": "diff a.json b.json",
    "help": "--help", "version": "--version", "completion": "--install-completion",
}  # fmt: skip


def suggestion(word: str, commands: list[str]) -> str:
    """Return the command line for a name that is not a command, e.g. ``cachedoctor fleet logs/*.log --by model``."""
    from difflib import get_close_matches

    known = COMMAND_LINES.get(word.lower())
    if known is None:
        close = get_close_matches(word.lower(), [*commands, *COMMAND_LINES], n=1, cutoff=0.7)
        known = COMMAND_LINES.get(close[0], f"{close[0]} --help") if close else "--help"
    return f"cachedoctor {known}"
