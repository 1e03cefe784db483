"""Small tokenizers written as tokenizer.json and as GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from test_gguf import ARRAY, BOOL, F32, I32, STRING, U32, gguf

TINY = Path(__file__).parents[1] / "fixtures" / "tokenizers" / "tiny.json"
SPEC: dict[str, Any] = json.loads(TINY.read_text())
IM_START, IM_END, THINK = 268, 269, 270


def save(folder: Path, **changes: Any) -> str:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(SPEC | changes))
    return str(path)


def save_gguf(folder: Path, name: str = "m.gguf", **changes: tuple[int, Any]) -> str:
    vocab = SPEC["model"]["vocab"]
    added = [token["content"] for token in SPEC["added_tokens"]]
    entries = {
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "qwen2"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, [*vocab, *added])),
        "tokenizer.ggml.token_type": (ARRAY, (I32, [1] * len(vocab) + [3, 3, 4])),
        "tokenizer.ggml.merges": (ARRAY, (STRING, SPEC["model"]["merges"])),
        "tokenizer.ggml.bos_token_id": (U32, IM_START),
        "tokenizer.chat_template": (STRING, "{{ messages }}"),
    }
    entries |= {"tokenizer.ggml." + key: changed for key, changed in changes.items()}
    path = folder / name
    path.write_bytes(gguf({key: entry for key, entry in entries.items() if entry[1] is not None}))
    return str(path)


def save_sentencepiece(folder: Path, prefix: bool, kind: str = "llama") -> str:
    """Scored pieces, ties included; ``▁`` only ever begins one."""
    words = ["he", "ll", "hell", "hello", "▁w", "or", "▁wor", "ld", "▁world", "▁▁", "12", "lo", "lowe", "▁a", "日本"]
    letters = sorted({char for word in words for char in word} | set("it'swordy.12"))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *words, "<|im_start|>"]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(letters) + len(words)), 3]
    scores = [0.0] * (259 + len(letters)) + [-float(rank // 2) for rank in range(len(words))] + [0.0]
    merges = ["h e", "l l", "he ll", "hell o", "▁ w", "o r", "▁w or", "l d", "▁wor ld", "▁ ▁", "1 2", "日 本"]
    return save_gguf(
        folder,
        f"{kind}-{prefix}.gguf",
        model=(STRING, kind),
        tokens=(ARRAY, (STRING, tokens)),
        token_type=(ARRAY, (I32, types)),
        scores=(ARRAY, (F32, scores)),
        merges=(ARRAY, (STRING, merges)),
        add_space_prefix=(BOOL, prefix),
        bos_token_id=(U32, 1),
    )
