"""What a server reports about itself before the probe: engine, build, model, slots, settings, whether it works.

Sources: llama.cpp tools/server/README.md (/props, /slots, /metrics), vLLM
(/version, /metrics, ``cache_config_info``), SGLang (/get_server_info), ollama (/api/ps), LM Studio (/api/v0/models).
"""

from __future__ import annotations

import re
from typing import Any

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.live.probe.connection import MODELS, ProbeConnection
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.probed import ProbedServer

PORTS = (9931, 8080, 1234, 11434, 8000, 30000)
"""Ports on which such servers listen by default."""
_RUNNING = late(
    rb"^(?:llamacpp:requests_processing|vllm:num_requests_running|sglang:num_running_reqs)"
    rb"(?:\{[^}\n]*\})? ([0-9.e+]{1,12})",
    re.MULTILINE,
)
_CONFIG = late(rb"^vllm:cache_config_info\{([^\n]{0,16384})\}", re.MULTILINE)
_LABEL = late(rb'\b(\w++)="(\w*)"')
_BLOCKS = ("block_size", "effective_attention_block_size", "cache_hit_alignment_tokens")
"""Labels of vLLM 0.32; the largest decides, unless ``prefix_match_unit`` is set (vllm/config/cache.py)."""
_FINISHED = late(
    rb"^(?:vllm:request_success_total|sglang:num_requests_total)(?:\{[^\n]*\})? ([0-9.e+]{1,20})", re.MULTILINE
)
BUSY = {
    429: "the server is overloaded, or limits the request rate",
    503: "the server is not ready: it is loading its model or is overloaded",
}
"""Temporary statuses."""
_MODEL = 200
"""Maximum characters of a valid model name."""


def identify(at: ProbeConnection, model: str | None) -> tuple[ProbedServer, str | None]:
    """Identify a server; also gives the name of the model as requests must write it, which is not to be shown.

    Raises:
        CacheDoctorError: it gives no answer, is none of an API, or has several models and none is asked for.
    """
    found = ProbedServer(at.url, "unknown")
    answer = at.ask("GET", MODELS, None, 10)
    if answer.status in BUSY:
        raise CacheDoctorError(f"{at.url}: {BUSY[answer.status]} ({answer.status})", "wait, then run the probe again")
    listed = answer.value if answer.status == 200 else None
    if not isinstance(listed, dict) or not isinstance(listed.get("data"), list):
        what = f"{at.url}: this server has no /v1/models"
        raise CacheDoctorError(what, "give the address of an OpenAI-compatible server, without a path below /v1")
    owners = {str(m.get("owned_by")) for m in listed["data"] if isinstance(m, dict)}
    _llama(at, found)
    if found.engine == "unknown":
        _others(at, found, owners)
    _metrics(at, found)
    asked = model or _model(at, found, listed["data"])
    if found.context_tokens is None:
        about = next((m for m in listed["data"] if isinstance(m, dict) and m.get("id") == asked), {})
        found.context_tokens = _whole(about.get("max_model_len"))  # of vLLM and SGLang
    if found.images is None:
        found.images = _sees(listed["data"], asked)
    found.model = None if asked is None else at.quote(asked)
    return found, asked


def slot_tasks(at: ProbeConnection) -> dict[int, tuple[int, bool]] | None:
    """Give the last task of each slot of a llama-server, and whether the slot works on it; None if the server does not
    report it."""
    try:
        slots = _value(at, "/slots")
    except CacheDoctorError:  # some builds show all prompts there, which may be more than is read
        return None
    rows = [s for s in slots if isinstance(s, dict)] if isinstance(slots, list) else []
    found: dict[int, tuple[int, bool]] = {}
    for slot in rows:
        number, task = _whole(slot.get("id")), _whole(slot.get("id_task"))
        if number is not None:
            found[number] = (-1 if task is None else task, slot.get("is_processing") is True)
    return found or None


def finished(at: ProbeConnection) -> int | None:
    """Give how many requests vLLM or SGLang have answered so far, from /metrics; None if they do not report it."""
    try:
        answer = at.get("/metrics")
    except CacheDoctorError:
        return None
    numbers = [] if answer is None else [_float(number) for number in _FINISHED.findall(answer.body)]
    known = [number for number in numbers if number is not None and number < 1 << 53]
    return int(sum(known)) if known and len(known) == len(numbers) else None


def _llama(at: ProbeConnection, found: ProbedServer) -> None:
    props = _value(at, "/props")
    if not isinstance(props, dict) or _whole(props.get("total_slots")) is None:
        return
    settings, modes, build = props.get("default_generation_settings"), props.get("modalities"), props.get("build_info")
    found.engine, found.slots = "llama.cpp", _whole(props["total_slots"])
    found.context_tokens = _whole(settings.get("n_ctx")) if isinstance(settings, dict) else None
    found.images = modes.get("vision") is True if isinstance(modes, dict) else None
    found.build = at.quote(build) if isinstance(build, str) and not build.startswith("b0") else None
    slots = _value(at, "/slots")
    if isinstance(slots, list) and slots:
        found.busy = any(isinstance(s, dict) and s.get("is_processing") is True for s in slots)


def _others(at: ProbeConnection, found: ProbedServer, owners: set[str]) -> None:
    version = _value(at, "/version")
    if "vllm" in owners and isinstance(version, dict):
        found.engine, found.build = "vllm", at.quote(version["version"]) if "version" in version else None
        return
    info = _value(at, "/get_server_info")
    if isinstance(info, dict) and "disable_radix_cache" in info:
        found.engine, found.build = "sglang", at.quote(info["version"]) if "version" in info else None
        found.prefix_caching, found.block_tokens = (
            info["disable_radix_cache"] is not True,
            _whole(info.get("page_size")),
        )
        return
    # LM Studio answers what it does not know with 200 and an error.
    if _listed(at, "/api/ps", "models") is not None:
        version = _value(at, "/api/version")
        found.engine = "ollama"
        found.build = at.quote(version["version"]) if isinstance(version, dict) and "version" in version else None
    elif _listed(at, "/api/v0/models", "data") is not None:
        found.engine = "lmstudio"
    elif "vllm" in owners or "sglang" in owners:
        found.engine = "vllm" if "vllm" in owners else "sglang"


def _metrics(at: ProbeConnection, found: ProbedServer) -> None:
    answer = at.get("/metrics") if found.engine in ("llama.cpp", "vllm", "sglang") else None
    if answer is None:
        return
    running = [number for number in map(_float, _RUNNING.findall(answer.body)) if number is not None]
    if running:
        found.busy = bool(found.busy) or any(running)
    config = _CONFIG.search(answer.body)
    if config is not None:
        said = {name.decode(): value.decode("ascii", "replace") for name, value in _LABEL.findall(config[1])}
        found.block_tokens = _block(said)
        found.prefix_caching = {"True": True, "False": False}.get(said.get("enable_prefix_caching", ""))


def _block(said: dict[str, str]) -> int | None:
    """Tokens of a block, which vLLM reuses as a whole."""
    unit, *blocks = (_number(said.get(name, "")) for name in ("prefix_match_unit", *_BLOCKS))
    return unit or max((block for block in blocks if block is not None), default=None)


def _float(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 7 else None


def _model(at: ProbeConnection, found: ProbedServer, listed: list[Any]) -> str | None:
    """Give the model to ask: the only one, or the one that is loaded; to load another would take minutes."""
    names = [m["id"] for m in listed if isinstance(m, dict) and isinstance(m.get("id"), str) and len(m["id"]) <= _MODEL]
    loaded: list[Any] = []
    if found.engine == "ollama":
        loaded = [m.get("name") for m in _listed(at, "/api/ps", "models") or []]
    elif found.engine == "lmstudio":
        loaded = [m.get("id") for m in _listed(at, "/api/v0/models", "data") or [] if m.get("state") == "loaded"]
    known = [name for name in names if name in loaded]
    if known or len(names) == 1:
        return str((known or names)[0])
    if not names:
        raise CacheDoctorError(f"{at.url}: the server has no model", "load a model, or select one: --model NAME")
    shown = ", ".join(at.quote(name) for name in names[:3])
    what = f"{at.url}: the server has {len(names):,} models: {shown} ..."
    raise CacheDoctorError(what, "select a model: --model NAME")


def _sees(listed: list[Any], asked: str | None) -> bool | None:
    """Whether the list of models shows that this one takes images, as llama-server's and gateways' do; None if it does
    not show it."""
    about = next((m.get("architecture") for m in listed if isinstance(m, dict) and m.get("id") == asked), None)
    modes = about.get("input_modalities") if isinstance(about, dict) else None
    return "image" in modes if isinstance(modes, list) else None


def _value(at: ProbeConnection, path: str) -> Any:
    answer = at.get(path)
    return None if answer is None else answer.value


def _listed(at: ProbeConnection, path: str, key: str) -> list[dict[str, Any]] | None:
    """Give the objects of a list below ``key``; None if there is no such list."""
    answer = _value(at, path)
    rows = answer.get(key) if isinstance(answer, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None
