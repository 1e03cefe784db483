"""Writes tiny language models with random weights for llama-server: plain attention, sliding window, hybrid, recurrent.

  One
character of a prompt is one token (the vocabulary holds bytes, and a merge that no text needs), and only digits are
ever generated: so lengths are counted in characters, and a reply that is sent back is the tokens that were generated.
"""

from __future__ import annotations

import array
import random
import struct
from collections.abc import Sequence
from pathlib import Path

VOCAB_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
VOCAB_SPECIAL += ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]  # without them a server refuses /infill
CONTROL, USER_DEFINED, NORMAL = 3, 4, 1
WIDTH, INNER, HEADS, KV_HEADS, HEAD = 64, 96, 4, 2, 16
"""Embedding, feed-forward, attention heads, key/value heads, size of a head."""
WINDOW = 1024
"""Tokens that a sliding-window layer sees."""

# Like templates of current reasoning models: tools are in the head, and reasoning of turns before the last user
# message is dropped, unless the switch preserve_thinking is set.
TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}"
    '{{- \'\\n</tools>\\nTo call one, answer with:\\n<tool_call>\\n{"name": <name>, "arguments": <json>}\\n\' }}'
    "{{- '</tool_call><|im_end|>\\n' }}{%- endif %}"
    "{%- set ns = namespace(last=-1) %}"
    "{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and m.reasoning_content and (preserve_thinking or loop.index0 > ns.last) %}"
    "{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}"
    "{{- m.content or '' }}"
    '{%- if m.tool_calls %}{%- for call in m.tool_calls %}{{- \'\\n<tool_call>\\n{"name": "\' + call.function.name }}'
    '{{- \'", "arguments": \' }}{%- if call.function.arguments is string %}{{- call.function.arguments }}'
    "{%- else %}{{- call.function.arguments | tojson }}{%- endif %}{{- '}\\n</tool_call>' }}{%- endfor %}{%- endif %}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def _byte_tokens() -> list[str]:
    """Printable spelling of the 256 bytes, as GPT-2 made it: bytes that are not printable Latin-1 move after U+0100."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + moved.index(b)) for b in range(256)]


BYTES = _byte_tokens()
TOKENS = [*BYTES, BYTES[0] * 2, *VOCAB_SPECIAL]
TYPES = [NORMAL] * 257 + [CONTROL if t.startswith("<|") else USER_DEFINED for t in VOCAB_SPECIAL]

Value = int | float | bool | str | Sequence[int] | Sequence[float] | Sequence[str]


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    """Type and content of a metadata value; integers are written as u32, in lists as i32."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
    kind = 8 if isinstance(value[0], str) else 6 if isinstance(value[0], float) else 5
    items = b"".join(
        _text(v) if isinstance(v, str) else struct.pack("<f" if isinstance(v, float) else "<i", v) for v in value
    )
    return struct.pack("<IIQ", 9, kind, len(value)) + items


class Model:
    """Metadata and tensors of one model; ``save`` writes the file."""

    def __init__(self, architecture: str, layers: int, seed: int) -> None:
        self.layers = layers
        self.random = random.Random(seed)
        self.tensors: list[tuple[str, tuple[int, ...], bytes]] = []
        self.meta: dict[str, Value] = {
            "general.architecture": architecture,
            "general.name": f"tiny random {architecture}",
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen2",
            "tokenizer.ggml.tokens": TOKENS,
            "tokenizer.ggml.token_type": TYPES,
            "tokenizer.ggml.merges": [f"{BYTES[0]} {BYTES[0]}"],
            "tokenizer.ggml.bos_token_id": TOKENS.index("<|endoftext|>"),
            "tokenizer.ggml.eos_token_id": TOKENS.index("<|im_end|>"),
            "tokenizer.ggml.add_bos_token": False,
            "tokenizer.chat_template": TEMPLATE,
        }
        self.keys(
            {"context_length": 65536, "embedding_length": WIDTH, "block_count": layers, "feed_forward_length": INNER}
        )
        self.keys({"attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS})
        self.keys({"attention.key_length": HEAD, "attention.value_length": HEAD})
        self.keys({"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6})
        self.tensor("token_embd.weight", WIDTH, len(TOKENS))
        self.tensor("output_norm.weight", WIDTH, fill=1.0)
        self._head()

    def keys(self, values: dict[str, Value]) -> None:
        """Set metadata under the name of the architecture."""
        self.meta |= {f"{self.meta['general.architecture']}.{key}": value for key, value in values.items()}

    def tensor(self, name: str, *shape: int, fill: float | None = None) -> None:
        """Add a tensor of floats, the fastest dimension first: random, or all ``fill``."""
        count, scale = 1, shape[0] ** -0.5
        for side in shape:
            count *= side
        numbers = [fill] * count if fill is not None else [self.random.gauss(0, scale) for _ in range(count)]
        self.tensors.append((name, shape, array.array("f", numbers).tobytes()))

    def _head(self) -> None:
        """Add an output layer in which only the ten digits can win."""
        rows = array.array("f", bytes(4 * WIDTH * len(TOKENS)))
        for digit in "0123456789":
            at = TOKENS.index(digit) * WIDTH
            rows[at : at + WIDTH] = array.array("f", [self.random.gauss(0, 1) for _ in range(WIDTH)])
        self.tensors.append(("output.weight", (WIDTH, len(TOKENS)), rows.tobytes()))

    def attention(self, block: str, query: int = HEADS * HEAD) -> None:
        """Add the tensors of an attention layer with normed queries and keys."""
        self.tensor(block + "attn_q.weight", WIDTH, query)
        self.tensor(block + "attn_k.weight", WIDTH, KV_HEADS * HEAD)
        self.tensor(block + "attn_v.weight", WIDTH, KV_HEADS * HEAD)
        self.tensor(block + "attn_output.weight", HEADS * HEAD, WIDTH)
        self.norms(block, "attn_q_norm", "attn_k_norm", size=HEAD)

    def norms(self, block: str, *names: str, size: int = WIDTH) -> None:
        """Add norms that change nothing."""
        for name in names:
            self.tensor(f"{block}{name}.weight", size, fill=1.0)

    def feed_forward(self, block: str) -> None:
        """Add the tensors of a gated feed-forward layer."""
        self.tensor(block + "ffn_gate.weight", WIDTH, INNER)
        self.tensor(block + "ffn_up.weight", WIDTH, INNER)
        self.tensor(block + "ffn_down.weight", INNER, WIDTH)

    def save(self, path: Path) -> Path:
        """Write the model as GGUF, version 3; tensors begin at multiples of 32 bytes."""
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.meta))
        head += b"".join(_text(key) + _value(value) for key, value in self.meta.items())
        data = b""
        for name, shape, raw in self.tensors:
            head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
            data += raw + bytes(-len(raw) % 32)
        path.write_bytes(head + bytes(-len(head) % 32) + data)
        return path


def dense() -> Model:
    """Plain attention (qwen3): any prefix can be reused."""
    model = Model("qwen3", 2, seed=1)
    for i in range(model.layers):
        block = f"blk.{i}."
        model.norms(block, "attn_norm", "ffn_norm")
        model.attention(block)
        model.feed_forward(block)
    return model


def swa() -> Model:
    """Sliding window in five layers of six (gemma3)."""
    model = Model("gemma3", 6, seed=2)
    model.keys({"attention.sliding_window": WINDOW})
    for i in range(model.layers):
        block = f"blk.{i}."
        model.norms(block, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        model.attention(block)
        model.feed_forward(block)
    return model


def hybrid() -> Model:
    """Three recurrent layers and one of attention (qwen35): goes back to checkpoints only. From b8352 on."""
    model = Model("qwen35", 4, seed=3)
    state, groups, ranks, kernel = 16, 2, 4, 4
    inner, mixed = state * ranks, 2 * state * groups + state * ranks
    model.keys({"ssm.conv_kernel": kernel, "ssm.inner_size": inner, "ssm.state_size": state})
    model.keys({"ssm.time_step_rank": ranks, "ssm.group_count": groups, "full_attention_interval": 4})
    model.keys({"rope.dimension_count": HEAD, "rope.dimension_sections": [3, 3, 2, 0]})
    for i in range(model.layers):
        block = f"blk.{i}."
        model.norms(block, "attn_norm", "post_attention_norm")
        if i == 3:
            model.attention(block, query=2 * HEADS * HEAD)
        else:
            model.tensor(block + "attn_qkv.weight", WIDTH, mixed)
            model.tensor(block + "attn_gate.weight", WIDTH, inner)
            model.tensor(block + "ssm_conv1d.weight", kernel, mixed)
            model.tensor(block + "ssm_dt.bias", ranks)
            model.tensor(block + "ssm_a", ranks, fill=-0.5)
            model.tensor(block + "ssm_beta.weight", WIDTH, ranks)
            model.tensor(block + "ssm_alpha.weight", WIDTH, ranks)
            model.tensor(block + "ssm_out.weight", inner, WIDTH)
            model.norms(block, "ssm_norm", size=state)
        model.feed_forward(block)
    return model


def recurrent() -> Model:
    """State-space layers only (mamba): nothing but the newest state and its checkpoints. From b8352 on."""
    model = Model("mamba", 2, seed=5)
    state, inner, rank, kernel = 16, 2 * WIDTH, 4, 4
    model.keys({"feed_forward_length": 0, "attention.head_count": 0, "attention.head_count_kv": 0})
    model.keys({"ssm.conv_kernel": kernel, "ssm.inner_size": inner, "ssm.state_size": state})
    model.keys({"ssm.time_step_rank": rank})
    for i in range(model.layers):
        block = f"blk.{i}."
        model.norms(block, "attn_norm")
        model.tensor(block + "ssm_in.weight", WIDTH, 2 * inner)
        model.tensor(block + "ssm_conv1d.weight", kernel, inner)
        model.tensor(block + "ssm_conv1d.bias", inner, fill=0.0)
        model.tensor(block + "ssm_x.weight", inner, rank + 2 * state)
        model.tensor(block + "ssm_dt.weight", rank, inner)
        model.tensor(block + "ssm_dt.bias", inner, fill=0.0)
        model.tensor(block + "ssm_a", state, inner, fill=-0.5)
        model.tensor(block + "ssm_d", inner, fill=1.0)
        model.tensor(block + "ssm_out.weight", inner, WIDTH)
    return model


def projector() -> Model:
    """Vision part (CLIP with the projector of LLaVA) for models of this width: 56 x 56 pixels make 16 tokens."""
    model = Model("clip", 2, seed=8)
    width, inner, side, patch = 32, 64, 56, 14
    model.tensors = []
    model.meta = {
        "general.architecture": "clip",
        "general.type": "mmproj",
        "general.name": "tiny random clip",
        "clip.has_vision_encoder": True,
        "clip.has_llava_projector": True,
        "clip.projector_type": "mlp",
        "clip.use_gelu": True,
    }
    model.keys({"vision.image_size": side, "vision.patch_size": patch, "vision.embedding_length": width})
    model.keys(
        {"vision.feed_forward_length": inner, "vision.block_count": model.layers, "vision.projection_dim": WIDTH}
    )
    model.keys({"vision.attention.head_count": 4, "vision.attention.layer_norm_epsilon": 1e-5})
    model.keys({"vision.image_mean": [0.48, 0.46, 0.41], "vision.image_std": [0.27, 0.26, 0.28]})
    model.tensor("v.patch_embd.weight", patch, patch, 3, width)
    model.tensor("v.position_embd.weight", width, (side // patch) ** 2)
    layers = [("v.pre_ln", 0, width)]
    for i in range(model.layers):
        block = f"v.blk.{i}."
        layers += [(block + "ln1", 0, width), (block + "ln2", 0, width)]
        layers += [(f"{block}attn_{name}", width, width) for name in ("q", "k", "v", "out")]
        layers += [(block + "ffn_up", width, inner), (block + "ffn_down", inner, width)]
    for name, given, size in [*layers, ("mm.0", width, WIDTH), ("mm.2", WIDTH, WIDTH)]:
        if given:
            model.tensor(f"{name}.weight", given, size)
        else:
            model.tensor(f"{name}.weight", size, fill=1.0)
        model.tensor(f"{name}.bias", size, fill=0.0)
    return model


def adapter() -> Model:
    """A LoRA adapter of the dense model, for the queries of its first layer."""
    model = Model("qwen3", 2, seed=9)
    model.tensors, rank = [], 4
    model.meta = {
        "general.architecture": "qwen3",
        "general.type": "adapter",
        "general.name": "tiny random adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": 4.0,
    }
    model.tensor("blk.0.attn_q.weight.lora_a", WIDTH, rank)
    model.tensor("blk.0.attn_q.weight.lora_b", rank, HEADS * HEAD)
    return model


KINDS = {"dense": dense, "swa": swa, "hybrid": hybrid, "recurrent": recurrent}
