"""What lines of programs that log numbers of each request mean, for ``explain --line``."""

from __future__ import annotations

from cachedoctor.engines.catalogue.base import Event, Message
from cachedoctor.engines.detect import engines, programs

MEANINGS = {
    ("koboldcpp", "start"): "KoboldCpp starts, with an empty context.",
    ("koboldcpp", "progress"): "The prompt is being computed. The second number is what is computed of it, not its length: the rest is reused.",
    ("koboldcpp", "window"): "The prompt diverges from the context further back than the window of some layers reaches, so the context cannot be used.",
    ("koboldcpp", "done"): "A reply ended. Context minus generated tokens is the prompt; minus processed tokens, the reused part.",
    ("llama_cpp_python", "hit"): "The prompt begins like the tokens that the model holds: that part is reused, the rest is computed.",
    ("llama_cpp_python", "computed"): "What was computed of a prompt. Without a line `prefix-match hit` before it, nothing was reused.",
    ("lmstudio", "restore"): "LM Studio's MLX engine found the beginning of the prompt in its cache; the rest is computed.",
    ("lmstudio", "summary"): "What LM Studio's llama.cpp engine of 2025 reused of a prompt: as a beginning, and as chunks further on.",
    ("mlx_lm", "request"): "A request begins. Its prompt, and what was reused, are only in the response.",
    ("mlx_vlm", "prefill"): "A prompt was computed. With a draft model cached_tokens=0 is part of the format: only the time shows reuse.",
    ("ollama", "start"): "ollama starts.",
    ("ollama", "listening"): "ollama takes requests.",
    ("ollama", "slot"): "A runner takes a slot: its content, the prompt, and their common part, which is reused.",
    ("ollama", "hit"): "The MLX runner found the beginning of the prompt: what matched, and what could be restored of it.",
    ("ollama", "miss"): "The MLX runner found nothing of the prompt that it could restore.",
    ("omlx", "restored"): "oMLX restored the beginning of the prompt from blocks; the rest is computed.",
    ("omlx", "walked_back"): "Blocks that matched are not used: some layer stored no state that can be truncated there.",
    ("omlx", "parted"): "Where the prompt diverges from the most similar stored sequence: the client changed it there, or it is another conversation.",
    ("ds4", "start"): "ds4-server starts.",
    ("ds4", "miss"): "The live conversation is not the beginning of the prompt: how much is common, and why it is not used.",
    ("ds4", "computed"): "A prompt was computed: the numbers of its first line, and the time.",
    ("ds4", "prompt"): "A prompt starts: its reused part and its length.",
    ("tabbyapi", "metrics"): "A request ended: what was reused of its prompt, and what was computed.",
    ("tabbyapi", "begin"): "The first part of a line that was broken at 80 columns; its numbers are in the next ones.",
    ("tabbyapi", "rest"): "A later part of a broken line: what was reused of a prompt, and what was computed.",
    ("vllm_mlx", "hit"): "The beginning of the prompt was found in memory; the rest is computed.",
    ("vllm_mlx", "miss"): "Nothing of the prompt was found in memory; it may still be found on disk.",
    ("vllm_mlx", "stuck"): "An entry shares this much with the prompt but cannot be used: the memory of this model cannot be truncated to that place.",
    ("vllm_mlx", "scheduled"): "A request begins: what is computed of its prompt in the end.",
    ("ik_llama", "chosen"): "A slot was chosen: its content, and whether that is saved to RAM first.",
    ("ik_llama", "saving"): "What the slot held is saved to RAM before another prompt takes it.",
    ("ik_llama", "launched"): "A request begins in a slot.",
    ("ik_llama", "common"): "The slot's content, and how much of it is the beginning of the prompt, as tokens and as text.",
    ("ik_llama", "kept"): "The memory is cleared from here on. Before the first batch of a prompt this is what is reused.",
    ("ik_llama", "timing"): "The timings of a slot follow.",
    ("ik_llama", "computed"): "What was computed of a prompt.",
    ("ik_llama", "released"): "A request ended; the slot holds its prompt and its answer.",
}  # fmt: skip
"""Meanings by component and id of a row."""
FIELDS = {
    "asked": "length of the prompt", "cached": "reused", "computed": "computed of the prompt",
    "context": "prompt and reply together", "done": "computed so far", "excess": "tokens by which the entry is too long",
    "generated": "of the reply", "held": "what was held before", "kept": "that are kept", "left": "still to compute",
    "limit": "size of the context", "matched": "in common", "new": "computed of the prompt", "p0": "from which on the memory is cleared",
    "prefix": "reused as a beginning", "moved": "reused further on", "printed": "reused, by this line",
    "prompt": "length of the prompt", "reused": "reused", "trimmed": "removed from the entry",
    "in_slot": "in common, as tokens of the slot", "in_prompt": "in common, as tokens of the prompt", "exact": "in common, token by token",
}  # fmt: skip
"""Numbers of tokens."""


def recognise(body: bytes) -> tuple[str, str, Message, Event] | None:
    """Return the engine, the program, the row and what a line of it holds; None for a line of no such program."""
    known = {program.tracker.engine: program.tracker.program for program in programs()}
    for engine in engines():
        if engine.name not in known:
            continue
        for event in engine.reader().catalogue.recognise(body):
            if event.row is not None and (event.row.component, event.row.id) in MEANINGS:
                return engine.name, known[engine.name], event.row, event
    return None
