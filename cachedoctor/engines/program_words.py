"""The meanings of lines of programs that log numbers of each request, for ``explain --line``."""

from __future__ import annotations

from cachedoctor.engines.catalogue.base import Event, Message
from cachedoctor.engines.detect import engines, programs

MEANINGS = {
    ("koboldcpp", "start"): "KoboldCpp starts, with an empty context.",
    ("koboldcpp", "progress"): "The prompt is being computed. The second number counts only the tokens to compute, not the whole prompt: the rest is reused.",
    ("koboldcpp", "window"): "The prompt diverges from the context at a position that the window of some layers no longer covers, so the context cannot be reused.",
    ("koboldcpp", "done"): "A reply ended. Context minus generated tokens is the length of the prompt; that length minus processed tokens is the reused part.",
    ("llama_cpp_python", "hit"): "The prompt begins with tokens that are already in the model's memory: these are reused, the rest is computed.",
    ("llama_cpp_python", "computed"): "How many tokens of a prompt were computed. If no `prefix-match hit` line comes before this line, nothing was reused.",
    ("lmstudio", "restore"): "LM Studio's MLX engine found the beginning of the prompt in its cache; the rest is computed.",
    ("lmstudio", "summary"): "How many tokens of a prompt LM Studio's llama.cpp engine of 2025 reused, as a common prefix and as later chunks.",
    ("mlx_lm", "request"): "A request begins. Only the response shows the length of its prompt and how much was reused.",
    ("mlx_vlm", "prefill"): "A prompt was computed. With a draft model the line always has cached_tokens=0: only the time shows reuse.",
    ("ollama", "start"): "ollama starts.",
    ("ollama", "listening"): "ollama accepts requests.",
    ("ollama", "slot"): "A runner chose a slot. The line shows the lengths of the slot's content, of the prompt, and of their common prefix, which is reused.",
    ("ollama", "hit"): "The MLX runner found the beginning of the prompt in its cache. The line shows how many tokens matched, and how many could be restored.",
    ("ollama", "miss"): "The MLX runner found no part of the prompt that it could restore.",
    ("omlx", "restored"): "oMLX restored the beginning of the prompt from blocks; the rest is computed.",
    ("omlx", "walked_back"): "Blocks that matched are not used: a layer stored no state that can be truncated at that position.",
    ("omlx", "parted"): "The line shows where the prompt diverges from the most similar stored sequence. The client changed the prompt there, or the prompt belongs to another conversation.",
    ("ds4", "start"): "ds4-server starts.",
    ("ds4", "miss"): "The prompt does not continue the live conversation. The line shows how many tokens the two have in common, and why they are not reused.",
    ("ds4", "computed"): "A prompt was computed. The line repeats the numbers of its `prompt start` line and adds the time.",
    ("ds4", "prompt"): "The computation of a prompt begins. The line shows how many tokens are reused, and the length of the prompt.",
    ("tabbyapi", "metrics"): "A request ended. The line shows how many tokens of its prompt were reused, and how many were computed.",
    ("tabbyapi", "begin"): "The first part of a line that was broken at 80 columns; its numbers are in the next lines.",
    ("tabbyapi", "rest"): "A later part of a broken line. It shows how many tokens of a prompt were reused, and how many were computed.",
    ("vllm_mlx", "hit"): "The beginning of the prompt was found in memory; the rest is computed.",
    ("vllm_mlx", "miss"): "No part of the prompt was found in memory. A part may still be found on disk.",
    ("vllm_mlx", "stuck"): "A cache entry has a common prefix with the prompt but cannot be used: the memory of this model cannot be truncated to that length.",
    ("vllm_mlx", "scheduled"): "A request begins. The line shows how many tokens of its prompt are really computed.",
    ("ik_llama", "chosen"): "A slot was chosen. The line shows the length of the slot's content, and whether that content is saved to RAM first.",
    ("ik_llama", "saving"): "The slot's content is saved to RAM before another prompt takes the slot.",
    ("ik_llama", "launched"): "A request begins in a slot.",
    ("ik_llama", "common"): "The length of the slot's content and of its common prefix with the prompt, compared as tokens and as text.",
    ("ik_llama", "kept"): "The KV cache is cleared from this position on. Before the first batch of a prompt the number is how many tokens are reused.",
    ("ik_llama", "timing"): "The timings of a slot follow.",
    ("ik_llama", "computed"): "How many tokens of a prompt were computed.",
    ("ik_llama", "released"): "A request ended; the slot keeps its prompt and answer.",
}  # fmt: skip
"""Meanings by component and id of a row."""
FIELDS = {
    "asked": "length of the prompt", "cached": "reused tokens", "computed": "computed tokens of the prompt",
    "context": "prompt and reply together", "done": "tokens computed so far", "excess": "tokens by which the entry is too long",
    "generated": "tokens of the reply", "held": "length of the cached content", "left": "tokens still to compute",
    "limit": "size of the context", "matched": "common prefix", "new": "computed tokens of the prompt", "p0": "position from which the KV cache is cleared",
    "prefix": "tokens reused as a common prefix", "moved": "tokens reused as later chunks", "printed": "reused tokens, as this line counts them",
    "prompt": "length of the prompt", "reused": "reused tokens", "trimmed": "tokens removed from the entry",
    "in_slot": "common prefix, in tokens of the slot", "in_prompt": "common prefix, in tokens of the prompt", "exact": "common prefix, compared token by token",
}  # fmt: skip
"""Numbers of tokens."""


def recognise(body: bytes) -> tuple[str, str, Message, Event] | None:
    """Return the engine, the program, the row and the event of a line; None if no such program wrote the line."""
    known = {program.tracker.engine: program.tracker.program for program in programs()}
    for engine in engines():
        if engine.name not in known:
            continue
        for event in engine.reader().catalogue.recognise(body):
            if event.row is not None and (event.row.component, event.row.id) in MEANINGS:
                return engine.name, known[engine.name], event.row, event
    return None
