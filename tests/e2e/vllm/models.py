"""Writes tiny language models for vLLM: folders of configuration and a tokenizer, whose weights vLLM makes up.

  One character of plain text is one
token, because the vocabulary holds bytes and the tokenizer merges none: so lengths are counted in characters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.models import BYTES

END, TURN, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = [END, TURN, TURN_END]
TOKENS = [*SPECIAL, *BYTES]
TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>tools\\n' }}{%- for t in tools %}{{- t | tojson }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

COMMON: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": len(TOKENS),
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "attention_bias": False,
    "bos_token_id": TOKENS.index(END),
    "eos_token_id": TOKENS.index(TURN_END),
}
DENSE = COMMON | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "rope_theta": 10000.0,
}
# Three layers of gated delta net, one of attention. vLLM's implementation asks for at least one layer with experts.
HYBRID = COMMON | {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "rope_theta": 10000000,
    "partial_rotary_factor": 0.25,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [0, 1, 2],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "norm_topk_prob": True,
    "router_aux_loss_coef": 0.001,
}
KINDS = {"tiny-dense": DENSE, "tiny-hybrid": HYBRID}


def tokenizer() -> dict[str, Any]:
    """Content of ``tokenizer.json``: bytes, spelled as GPT-2 spells them, and no merge."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": TOKENS.index(token), "content": token, **flags} for token in SPECIAL],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "vocab": {token: number for number, token in enumerate(TOKENS)}, "merges": []},
    }


def save(kind: str, folder: Path) -> None:
    """Write the model ``kind`` into a new folder."""
    folder.mkdir(parents=True)
    files = {
        "config.json": KINDS[kind],
        "generation_config.json": {"eos_token_id": KINDS[kind]["eos_token_id"]},
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": TURN_END,
            "pad_token": END,
            "model_max_length": COMMON["max_position_embeddings"],
            "chat_template": TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def save_adapter(kind: str, folder: Path) -> None:
    """Write a LoRA adapter of the model ``kind`` that changes nothing: its second matrices are zero."""
    folder.mkdir(parents=True)
    config, rank = KINDS[kind], 8
    width, out = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    about = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(about) + "\n", "utf-8")
    header: dict[str, Any] = {}
    size = 0
    for layer in range(config["num_hidden_layers"]):
        for part, shape in (("A", [rank, width]), ("B", [out, rank])):
            end = size + 2 * shape[0] * shape[1]
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [size, end]}
            size = end
    begin = json.dumps(header).encode()
    data = len(begin).to_bytes(8, "little") + begin + bytes(size)
    (folder / "adapter_model.safetensors").write_bytes(data)
