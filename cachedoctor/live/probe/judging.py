"""From the pattern of answers to causes, the first of which is the one to fix first. Pure; knows no connection."""

from __future__ import annotations

from collections.abc import Mapping

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.live.probe.measuring import little
from cachedoctor.model.probed import ProbeCause, ProbedServer, ProbeQuestion

_MORE_CONTEXT = {
    "vllm": "a larger --max-model-len",
    "sglang": "a larger --context-length",
    "ollama": "a larger OLLAMA_CONTEXT_LENGTH",
    "lmstudio": "load the model with a larger context",
}
_MORE_CACHE = {
    "vllm": "more memory for the KV cache: a higher --gpu-memory-utilization, or --kv-cache-dtype fp8",
    "sglang": "a larger pool: a higher --mem-fraction-static, or --kv-cache-dtype fp8_e4m3",
    "ollama": "OLLAMA_NUM_PARALLEL=2 or more",
}
_MUCH = 0.5
"""Share of the expected reuse above which an identical prompt counts as recognised."""
Asked = Mapping[str, ProbeQuestion]
_PLAIN = ("first", "again", "turn", "tail", "forced", "head", "back", "tools-again", "pair-a", "pair-b")
"""Questions that a server can refuse only because its context is small."""
_CAME_BACK = ("as expected", "noted")
_INSERTED = 4
"""Tokens that a server may count beyond the output of its own tokenizer, such as a BOS token."""
_RAM_BLIND, _CUT_BLIND = 7964, range(7079, 7965)
"""Builds that do not use the RAM cache, and builds that search no checkpoint, while a projector is loaded; fixed in
b8156 (CD209)."""
_MENDED = 8156
_BUILD = late(r"b(\d{4,6})\b")
_BETWEEN = (
    "probe the server directly, without gateway or proxy: if the problem disappears, the gateway or proxy causes it"
)


def causes(server: ProbedServer, asked: Asked, rendered: Mapping[str, int]) -> list[ProbeCause]:
    """Give every deviation with what explains it; ``rendered``: tokens of prompts by the server's own template."""
    if (found := _refused(server, asked)) is not None:
        return [found]
    if server.prefix_caching is False:
        return [_switched_off(server)]
    if "more" in (_state(asked, "first"), _state(asked, "head")):
        return [_store_between(asked)]
    if (clock := _template(asked)) is not None:
        return [clock]
    first = _cut_prompt(server, asked, rendered) or _beginning(server, asked, rendered)
    if first is not None:  # what follows from it cannot be told from faults of their own
        return [first]
    later = (_back(server, asked), _tools(asked), _system(asked), _pair(server, asked), _image(server, asked))
    return [cause for cause in later if cause is not None]


def _state(asked: Asked, name: str) -> str:
    return asked[name].state if name in asked else "not asked"


def _less(asked: Asked, name: str) -> bool:
    return _state(asked, name) == "less"


def _kept(asked: Asked, name: str) -> bool:
    return _state(asked, name) == "as expected"


def _refused(server: ProbedServer, asked: Asked) -> ProbeCause | None:
    name = next((name for name in _PLAIN if _state(asked, name) == "refused"), None)
    if name is None:
        return None
    room = f"{server.context_tokens:,} tokens" if server.context_tokens is not None else "too little"
    if server.engine != "llama.cpp":
        says = f"a prompt of this probe does not fit: the context has {room}"
        return ProbeCause(name, [], says, _MORE_CONTEXT.get(server.engine, "a larger context"))
    if server.slots is not None and server.slots > 1:
        says = f"a prompt of this probe does not fit: each of the {server.slots} slots has {room}"
        return ProbeCause(
            name, ["CD403", "CD401"], says, "a larger --ctx-size, which the slots share, or a smaller --parallel"
        )
    return ProbeCause(
        name, ["CD401"], f"a prompt of this probe does not fit: the context has {room}", "a larger --ctx-size"
    )


def _template(asked: Asked) -> ProbeCause | None:
    """Find a template that renders the same messages differently a second later: all expectations depend on it."""
    if not _less(asked, "template"):
        return None
    place = asked["template"].reused_tokens or 0
    says = f"the template writes a value that changes (a clock, an id) after token {place:,}"
    fix = "a chat template without strftime_now or random values (--chat-template-file), or with only the date"
    return ProbeCause("template", ["CD102", "CD108"], says, fix)


def _other_slot(server: ProbedServer, asked: Asked) -> ProbeCause | None:
    """Find a next turn that went to another slot, because too little of it matched for the similarity threshold."""
    turn, held = asked["turn"], {asked[name].slot for name in ("first", "again") if name in asked}
    if server.engine != "llama.cpp" or turn.slot is None or None in held or turn.slot in held:
        return None
    share = (turn.expected_tokens or 0) / turn.prompt_tokens if turn.prompt_tokens else 0.0
    says = (
        f"the next turn went to slot {turn.slot}, which did not hold the conversation: only {share:.0%} of "
        "the prompt matches the conversation, which is below the server's threshold"
    )
    fix = "--slot-prompt-similarity at its default (0.1), and --cache-ram 8192, which restores such turns"
    return ProbeCause("turn", ["CD301", "CD303"], says, fix)


def _store_between(asked: Asked) -> ProbeCause:
    name = "first" if _state(asked, "first") == "more" else "head"
    says = "a new prompt was reported as cached: something between client and server invents responses or counts"
    return ProbeCause(name, [], says, f"these counts are unreliable; {_BETWEEN}")


def _cut_prompt(server: ProbedServer, asked: Asked, rendered: Mapping[str, int]) -> ProbeCause | None:
    """Find a prompt that the server made shorter than it was sent."""
    first = asked.get("first")
    if first is None or first.prompt_tokens is None or "first" not in rendered:
        return None
    if first.prompt_tokens >= rendered["first"] - rendered["first"] // 20 - _INSERTED:
        return None
    counted = f"the prompt has {rendered['first']:,} tokens but the server counted {first.prompt_tokens:,}"
    says = f"{counted}: the prompt was truncated"
    if server.engine != "llama.cpp":
        return ProbeCause("first", [], says, f"{_MORE_CONTEXT.get(server.engine, 'a larger context')}; {_BETWEEN}")
    return ProbeCause("first", ["CD401", "CD402"], says, "a larger --ctx-size, without --context-shift")


def _beginning(server: ProbedServer, asked: Asked, rendered: Mapping[str, int]) -> ProbeCause | None:
    """Explain why the same prompt, or one that continues, was recomputed."""
    again = asked.get("again")
    untimed = again is not None and again.state == "unknown" and again.reused_tokens is None
    if _less(asked, "again") or (untimed and _less(asked, "turn") and _less(asked, "tail")):
        if _kept(asked, "forced"):
            says = "the same prompt is reused only if the request turns the cache on (cache_prompt true)"
            return ProbeCause(
                "again", ["CD109"], says, "start the server without --no-cache-prompt (or with --cache-prompt)"
            )
        if _kept(asked, "turn"):
            return _sometimes(server, asked)
        return _never(server, asked, rendered)
    if _less(asked, "turn") and _state(asked, "again") in _CAME_BACK:
        if (other := _other_slot(server, asked)) is not None:
            return other
        says = "the same prompt is reused, but the next turn does not reuse it: the history is rewritten"
        fix = f"messages must reach the server unchanged; {_BETWEEN}"
        return ProbeCause("turn", ["CD105", "CD108"], says, fix)
    if (_less(asked, "tail") and _kept(asked, "turn")) and (
        server.engine != "llama.cpp" or little(asked["tail"]) or asked["tail"].reused_tokens is None
    ):
        return _no_way_back("tail", server)
    return None


def _sometimes(server: ProbedServer, asked: Asked) -> ProbeCause:
    """Explain a repeat that was not reused although the next turn was."""
    if _state(asked, "tail") == "noted":
        says = (
            "an identical repeat is recomputed, but an edited prompt goes back to a checkpoint: this build "
            "cannot truncate"
        )
        return ProbeCause(
            "again",
            ["CD206"],
            f"{says} the last token of this model's memory",
            "b9294 or newer; until then do not repeat a prompt after a reply of one token",
        )
    if not _kept(asked, "tail"):
        return _no_way_back("again", server)
    if server.engine == "vllm":
        says = "the first repeat is recomputed, later repeats are reused"
        return ProbeCause(
            "again", ["CD505", "CD508"], says, "normal for hybrid models; with several replicas, route by conversation"
        )
    used = {q.slot for q in asked.values() if q.slot is not None}
    if server.slots is not None and server.slots > 1 and len(used) != 1:
        says = f"the same prompt went to a different one of the {server.slots} slots, which did not hold the prompt"
        return ProbeCause("again", ["CD301"], says, "--slot-prompt-similarity at its default (0.1); 0 switches it off")
    if server.engine != "llama.cpp" or asked["again"].reused_tokens is None:
        says = "a prompt is reused for some requests but not for others: several servers or slots handle them"
        code = ["CD607"] if server.engine == "sglang" else []
        return ProbeCause("again", code, says, "send each conversation to one server, and give the server fewer slots")
    says = "every second request is reused: requests alternate between servers"
    return ProbeCause(
        "again", ["CD508"], says, "send each conversation to one server (session affinity by its first messages)"
    )


def _no_way_back(question: str, server: ProbedServer) -> ProbeCause:
    says = (
        "a growing prompt is reused, but a prompt that diverges earlier is computed from the start: there is "
        "no checkpoint"
    )
    if server.engine == "vllm":
        return ProbeCause(
            question,
            ["CD501", "CD502"],
            says,
            "the blocks are larger than the prompt, or the model is hybrid: see explain CD502",
        )
    if server.engine == "sglang":
        return ProbeCause(
            question, ["CD602"], says, "SGLang: --mamba-scheduler-strategy extra_buffer; see explain CD602"
        )
    build = build_of(server)
    if server.images and build in _CUT_BLIND:
        says = f"{says}; this build does not search for checkpoints while a multimodal projector is loaded"
        return ProbeCause(question, ["CD209"], says, f"b{_MENDED} or newer, or --no-mmproj")
    fix = "--ctx-checkpoints 32 (0 switches them off), and a build with context checkpoints for this model's memory"
    if server.images and build is None:
        fix = f"{fix} (with --mmproj b{_MENDED} or newer)"
        return ProbeCause(question, ["CD202", "CD201", "CD209"], says, f"{fix}; --swa-full for a sliding window")
    return ProbeCause(question, ["CD202", "CD201"], says, f"{fix}; --swa-full for a sliding window")


def _switched_off(server: ProbedServer) -> ProbeCause:
    if server.engine == "sglang":
        says = "the radix cache is off, according to the server"
        return ProbeCause("again", ["CD601"], says, "start without --disable-radix-cache")
    return ProbeCause(
        "again", ["CD503"], "prefix caching is off, according to the server", "start with --enable-prefix-caching"
    )


def _never(server: ProbedServer, asked: Asked, rendered: Mapping[str, int]) -> ProbeCause:
    """Explain why nothing is ever reused."""
    again = asked["again"]
    counts = {
        asked[n].prompt_tokens
        for n in ("first", "again", "forced")
        if n in asked and asked[n].prompt_tokens is not None
    }
    more = (again.prompt_tokens or 0) - rendered["first"] if "first" in rendered and again.prompt_tokens else 0
    known = again.reused_tokens is not None  # else prompts may be counted without what was reused of them
    reused = again.reused_tokens or 0
    if server.engine != "llama.cpp" and len(counts) == 1 and reused >= _MUCH * (again.expected_tokens or 0) > 0:
        code = {"vllm": ["CD501", "CD510"], "sglang": ["CD610"]}.get(server.engine, [])
        says = f"reuse ends at token {reused:,} of {again.prompt_tokens or 0:,}, although the prompt is the same"
        fix = f"longer prompts (--prompt-tokens) show whether large blocks are the reason; {_BETWEEN}"
        return ProbeCause("again", code, says, fix)
    if known and (more > _INSERTED or len(counts) > 1 or reused):
        grown = f", and the prompt has {more:,} tokens that the probe did not send" if more > _INSERTED else ""
        where = "at the start" if little(again) else f"from token {reused:,} on"
        says = f"the same prompt is different {where} each time it arrives{grown}"
        fix = f"remove the changing value (clock, id, billing header) from the start of the prompt; {_BETWEEN}"
        return ProbeCause("again", ["CD102", "CD101"], says, fix)
    if server.engine == "llama.cpp":
        says = (
            "nothing is reused, even if the request turns the cache on: the server or something on the way "
            "disables reuse"
        )
        fix = f"start without --no-cache-prompt; remove cache_prompt=false from a gateway's defaults; {_BETWEEN}"
        return ProbeCause("again", ["CD109"] if "first" in rendered else ["CD109", "CD102"], says, fix)
    if server.prefix_caching:
        codes = {"vllm": ["CD510"], "sglang": ["CD610"]}.get(server.engine, [])
        says = (
            "nothing is ever reused, although prefix caching is on: the start of the prompt is changed on the way, or"
        )
        salt = "extra_key" if server.engine == "sglang" else "cache_salt"
        says = f"{says} each request has a different {salt}, adapter or server"
        return ProbeCause("again", codes, says, _BETWEEN)
    codes = {"vllm": ["CD503", "CD501"], "sglang": ["CD601"]}.get(server.engine, [])
    says = "nothing is ever reused: the cache is off, or the start of the prompt is changed on the way"
    return ProbeCause("again", codes, says, f"switch prefix caching on; {_BETWEEN}")


def _back(server: ProbedServer, asked: Asked) -> ProbeCause | None:
    """Explain a conversation that another one had evicted."""
    if not _less(asked, "back") or not _kept(asked, "turn"):
        return None
    if server.engine != "llama.cpp":
        codes = {"vllm": ["CD504"], "sglang": ["CD603"]}.get(server.engine, [])
        says = "a conversation is lost as soon as another conversation comes in between"
        fix = _MORE_CACHE.get(server.engine, "more memory for the cache, or more parallel requests")
        return ProbeCause("back", codes, says, fix)
    build = build_of(server)
    if server.images and build is not None and build <= _RAM_BLIND:
        says = "another conversation took the slot, and with a multimodal projector this build keeps no copy"
        return ProbeCause("back", ["CD303"], says, f"b{_MENDED} or newer, or --no-mmproj, or one more slot (-np)")
    if server.slots == 1:
        says = "another conversation took the only slot, and no copy of the first conversation was kept"
        if server.images and build is None:
            fix = f"--cache-ram 8192 (0 is off; with --mmproj from b{_MENDED} on), or -np 2"
            return ProbeCause("back", ["CD303", "CD301"], says, fix)
        return ProbeCause(
            "back", ["CD303", "CD301"], says, "--cache-ram 8192 (0 is off; builds before b6751 have none), or -np 2"
        )
    if one_slot(server, asked):
        return _pinned("back", asked)
    says = "a conversation is lost as soon as another conversation comes in between, although there are several slots"
    return ProbeCause(
        "back", ["CD301", "CD303"], says, "--cache-ram 8192, --slot-prompt-similarity at its default (0.1)"
    )


def one_slot(server: ProbedServer, asked: Asked) -> bool:
    """Whether prompts that share nothing went to one slot although the server has others."""
    used = [asked[name].slot for name in ("tail", "head") if name in asked]
    return (server.slots or 0) > 1 and len(used) == 2 and used[0] is not None and used[0] == used[1]


def _pinned(question: str, asked: Asked) -> ProbeCause:
    says = f"two conversations were put into slot {asked['head'].slot} although the server has other slots"
    fix = f"do not send id_slot, and do not set --slot-prompt-similarity close to 0; {_BETWEEN}"
    return ProbeCause(question, ["CD309", "CD302"], says, fix)


def _tools(asked: Asked) -> ProbeCause | None:
    if not _less(asked, "tools-again") or _state(asked, "again") not in _CAME_BACK:
        return None
    says = "the same prompt with the same tools is different each time: their order or text changes on the way"
    return ProbeCause("tools-again", ["CD103"], says, f"send tools in a fixed order, sorted by name; {_BETWEEN}")


def _system(asked: Asked) -> ProbeCause | None:
    """A system message in the middle that the server's own template leaves where it is."""
    found = asked.get("system")
    if found is None or found.state != "less" or not found.exact or not _kept(asked, "back"):
        return None
    if _less(asked, "image") and "look" not in asked:  # the same request again: a moved message would have come back
        return None
    says = "a system message sent in the middle is moved to the start, or merged, on the way"
    return ProbeCause("system", ["CD105", "CD102"], says, f"leave system messages where they are; {_BETWEEN}")


def _pair(server: ProbedServer, asked: Asked) -> ProbeCause | None:
    blocks = {"vllm": ["CD504"], "sglang": ["CD603"]}.get(server.engine)
    missed = [name for name in ("pair-a", "pair-b") if _less(asked, name) and (blocks or little(asked[name]))]
    if not missed or not _kept(asked, "back"):
        return None
    if blocks is not None:
        says = "a conversation is lost after a few others: the cache is too small for the prompts of this probe"
        return ProbeCause(missed[0], blocks, says, _MORE_CACHE[server.engine])
    if one_slot(server, asked):
        return _pinned(missed[0], asked)
    says = "with two simultaneous conversations, one is recomputed, although both are reused in sequence"
    fix = (
        "a slot for each conversation (-np), and --cache-ram 8192"
        if server.engine == "llama.cpp"
        else "more cache memory"
    )
    return ProbeCause(missed[0], ["CD302"] if server.engine == "llama.cpp" else [], says, fix)


def _image(server: ProbedServer, asked: Asked) -> ProbeCause | None:
    """Explain why a prompt with an image was recomputed."""
    found = asked.get("image")
    if found is None or found.state != "less" or not _kept(asked, "again"):
        return None
    before = asked["look" if "look" in asked else "system"].expected_tokens or 0
    if (found.reused_tokens or 0) >= before - before // 20 - _INSERTED - (server.block_tokens or 0):
        says = "the same image is different each time it arrives: it is re-encoded or fetched again on the way"
        return ProbeCause("image", ["CD110"], says, f"send the same bytes of an image each time; {_BETWEEN}")
    says = "a prompt with an image is computed from the start, but a prompt without an image is reused"
    fix = (
        "b5833 or newer; earlier builds do not reuse prompts with images" if server.engine == "llama.cpp" else _BETWEEN
    )
    return ProbeCause("image", [], says, fix)


def build_of(server: ProbedServer) -> int | None:
    """Give the number of llama.cpp's build, if the server reports one."""
    found = _BUILD.match(server.build) if server.build is not None and server.engine == "llama.cpp" else None
    return None if found is None else int(found[1])
