"""Sound inputs to begin from."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from itertools import pairwise
from pathlib import Path

import kv_messages as kv
from tokenizer_files import SPEC, TINY
from wrapped import LOG, docker, jsonl

from cachedoctor.engines.detect import programs
from cachedoctor.engines.llamacpp.messages import ROWS

FIXTURES = Path(__file__).parents[2] / "fixtures"
_CASES = (
    "excerpt-forced-no-checkpoint-b8672",
    "context-shared-b11549",
    "requests-tools-reordered",
    "server-slept-b9713",
    "cache-restore-failed-purged-b11549",
    "sessions-kept-apart-b11549",
    "kv-purged-b11549",
    "idle-slots-restored-b8672",
    "mmproj-dense-b9294",
    "billing-header-swa-b9713",
    "short-prompt-checkpoint-lost-b10068",
)


def _read(*names: str) -> bytes:
    return (FIXTURES / "cases").joinpath(*names).read_bytes()


def logs() -> list[bytes]:
    """Small logs of several eras, bare and wrapped."""
    bare = [_read(name, "server.log") for name in _CASES]
    text = LOG + bare[1].decode()
    lines = text.splitlines(keepends=True)
    wrapped = [
        "".join(map(docker, lines)),
        "".join(jsonl(line.rstrip("\n")) for line in lines),
        "".join(f"llama-{at % 2}  | {line}" for at, line in enumerate(lines)),
        "".join(f"[{53400 + at % 3}] {line}" for at, line in enumerate(lines)),
        text.replace("\n", "\r\n"),
        "".join(f"\x1b[32m{line.rstrip()}\x1b[0m\n" for line in lines),
        "".join(f"Nov 20 12:00:00 host llama-server[77]: {line}" for line in lines),
    ]
    return [*bare, LOG.encode(), *(form.encode() for form in wrapped), *_answering()]


def _answering() -> list[bytes]:
    """Samples of every program that logs numbers of each request, twice."""
    return ["".join(f"{row.sample}\n" for row in program.rows * 2).encode() for program in programs()]


def messages() -> list[bytes]:
    """Samples of all messages of the catalogue."""
    return [row.sample.encode() for row in ROWS]


def packed() -> list[bytes]:
    """Compressed files and byte order marks."""
    import importlib
    import sys

    zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    text = LOG.encode()
    return [
        text,
        gzip.compress(text, mtime=0),
        gzip.compress(gzip.compress(text, mtime=0), mtime=0),
        lzma.compress(text, preset=0),
        bz2.compress(text, 1) * 2,
        zstd.compress(text),
        b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + zstd.compress(text),
        "\ufeff".encode() + text,
        LOG.encode("utf-16"),
        b"\xfe\xff" + LOG.encode("utf-16-be"),
    ]


def metrics() -> list[bytes]:
    """Dumps of /metrics, without the buckets of histograms."""
    folder = FIXTURES / "vllm"
    real = [folder / f"vllm032_{name}.metrics.txt" for name in ("dense_short", "dp2_default")]
    kept = [[line for line in path.read_bytes().split(b"\n") if b"_bucket" not in line] for path in real]
    found = [b"\n".join(line for line in lines if b"token" in line or b"cache" in line) for lines in kept]
    text = found[0].decode()
    return [
        *found,
        text.replace("vllm:", "vllm_").encode(),
        text.replace("vllm:", "sglang:").encode(),
        text.encode("utf-16"),
    ]


def ranges() -> list[bytes]:
    """What Prometheus answers to a question about a range."""
    return [(FIXTURES / "vllm" / "prometheus_range.json").read_bytes()]


def kv_events() -> list[bytes]:
    """Recordings of KV events, and what servers send."""
    recorded = (FIXTURES / "measured" / "vllm-kv-events-small.kv.jsonl").read_bytes().split(b"\n")
    events = [kv.stored("a", "b"), kv.as_arrays(kv.removed("b")), kv.CLEARED]
    return [b"\n".join(recorded[:4]), b"\n".join(recorded[:1] + recorded[28:31]), kv.frames(0, *events)[-1]]


def responses() -> list[bytes]:
    """Responses of every shape, in every kind of file."""
    usage = (FIXTURES / "vllm" / "vllm032_dense_billing.usage.json").read_bytes()
    native = {"text": "x", "meta_info": {"id": "a", "prompt_tokens": 9, "cached_tokens": 4}}
    llama = {"content": "x", "stop": True, "timings": {"prompt_n": 5, "cache_n": 4}}
    start = {
        "type": "message_start",
        "message": {"id": "m", "usage": {"input_tokens": 3, "cache_read_input_tokens": 6}},
    }
    end = {"type": "message_delta", "usage": {"output_tokens": 9}}
    batch = {"response": {"body": {"usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}}}}}
    each = [native, llama, batch]
    lines = "\n".join(map(json.dumps, each)).encode()
    stream = "".join(f"event: e\ndata: {json.dumps(event)}\n\n" for event in (start, end, native)) + "data: [DONE]\n"
    found = [usage, lines, json.dumps(each, indent=1).encode(), json.dumps(each).encode() * 2, stream.encode()]
    return [*found, *(data for data in recordings() if data.startswith((b"{", b"[\n")))]


def prompts() -> list[bytes]:
    """Request bodies, dumps of slots, plain prompts."""
    folder = FIXTURES / "prompts"
    found = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size < 40_000]
    text = [b"[INST] What time is it? [/INST]", b"--- a\n+++ b\n@@ -1 +1 @@\n", b'{"prompt": [1, 2, "x"]}', b"[[[["]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    parts = [{"type": "text", "text": "now 10:30"}, {"type": "image_url", "image_url": {"url": "data:x;base64,AA=="}}]
    chat = [
        {"role": "system", "content": "Today is 2026-11-20."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "reasoning_content": "so", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1,234,567"},
    ]
    anthropic = {
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1c8b4;"}],
        "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}],
    }
    bodies = [{"messages": chat, "tools": tools}, anthropic, {"input": chat, "instructions": "i"}, {"prompt": "x"}]
    return [*found, *recordings(), *text, *(json.dumps(body).encode() for body in bodies)]


def recordings() -> list[bytes]:
    """Requests as other programs recorded them."""
    return [path.read_bytes() for path in sorted((FIXTURES / "recordings").iterdir())]


def pairs() -> list[bytes]:
    """Two prompts, joined by the byte that ``targets.diff`` parts them at."""
    found = prompts()
    return [a + b"\0" + b for a, b in pairwise(found)] + [a + b"\0" + a + b"x" for a in found[-4:]]


def tokenizers() -> list[bytes]:
    """Files of tokenizers."""
    spec = json.loads(TINY.read_text("utf-8"))
    vocab = dict(list(spec["model"]["vocab"].items())[:270])
    small = {**spec, "model": {**spec["model"], "vocab": vocab, "merges": spec["model"]["merges"][:20]}}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"}
    normal = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Prepend", "prepend": "_"}]}
    model = {**small["model"], "byte_fallback": True}
    other = {**small, "model": model, "pre_tokenizer": metaspace, "normalizer": normal}
    return [*(json.dumps(made).encode() for made in (small, other)), json.dumps(SPEC["model"]).encode()[:2000]]


def models() -> list[bytes]:
    """GGUF files: every type of value, and a vocabulary."""
    from test_gguf import ARRAY, EVERYTHING, F32, I32, STRING, U32, gguf

    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "a", "b", "ab", "<|im_start|>"]
    entries = {
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "qwen2"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)),
        "tokenizer.ggml.token_type": (ARRAY, (I32, [1] * len(tokens))),
        "tokenizer.ggml.scores": (ARRAY, (F32, [0.5] * len(tokens))),
        "tokenizer.ggml.merges": (ARRAY, (STRING, ["a b"])),
        "tokenizer.ggml.bos_token_id": (U32, 1),
        "tokenizer.chat_template": (STRING, "{{ messages[0].content }}"),
    }
    scored = entries | {"tokenizer.ggml.model": (STRING, "llama")}
    return [gguf(EVERYTHING), gguf(entries), gguf(scored), b"GGUF", b"GGUF\0\0\0\3"]


def templates() -> list[bytes]:
    """Chat templates."""
    jinja = (FIXTURES / "prompts" / "template.jinja").read_bytes()
    return [
        jinja,
        json.dumps({"chat_template": jinja.decode(), "bos_token": {"content": "<s>"}}).encode(),
        b"{% for m in messages %}{{ m.role ~ m.content|tojson }}{% endfor %}{{ 'x' * 9 }}",
        b"{{ raise_exception('x') }}{{ strftime_now('%Y') }}{% set ns = namespace(a=1) %}{{ messages[-1:]|length }}",
    ]


def launchers() -> list[bytes]:
    """What starts a server, below the name of its file."""
    compose = "services:\n  web: {image: x}\n  llama:   # the server\n    image: ghcr.io/ggml-org/llama.cpp:server\n"
    given = ("command: -m /m/q.gguf -np 1   # keep", 'command:\n      - -m\n      - "a b"', 'command: ["-np", "1"]')
    pod = "containers: [{name: llama, image: 'x/llama.cpp:server', args: ['-m', 'x'], env: [{name: A, value: '1'}]}]"
    unit = "[Service]\nEnvironment=\"LLAMA_ARG_CTX_SIZE=0\" B=2\nExecStart=/usr/bin/llama-server \\\n  -m 'a b' -np 1\n"
    return [text.encode() for text in (
        *(f"compose.yaml\n{compose}    {command}\n    environment:\n      - A=1\n" for command in given),
        f"pod.yaml\napiVersion: v1\nkind: Pod\nspec:\n  {pod}\n",
        'swap.yaml\nmodels:\n  "q":\n    cmd: |\n      llama-server -c ${C}\n      -m q.gguf\n    env: ["A=1"]\n',
        f"compose.yaml\nx: &x [&y {{a: 1}}, *y]\n{compose}    command: [-np, '1']\n    labels: *x\n    <<: *y\n",
        f"llama.service\n[Unit]\nDescription=x\n{unit}Restart=always\n",
        'run.sh\n#!/bin/sh\nexport A=0\nexec llama-server -m "$HOME/m.gguf" \\\n  -np 1 --cache-ram 0 2>&1 | tee log\n',
        "run.sh\ndocker run --gpus all -e A=1 ghcr.io/ggml-org/llama.cpp:server -m x>log\n",
    )]  # fmt: skip


def settings() -> list[bytes]:
    """Files of settings."""
    return [
        b'select = ["CD1"]\nfail-on = "note"\nhide = ["Falcon", "EMP-####"]\n',
        b'format = "json"\ncolor = "never"\n',
    ]


def cmdlines() -> list[bytes]:
    """Command lines of a server."""
    return [
        b"llama-server -m x.gguf -c 32768 -np 4 --cache-ram 0 --ctx-checkpoints=64",
        b"LLAMA_ARG_CACHE_RAM=0 docker run -e LLAMA_ARG_N_PARALLEL=2 img llama-server -m 'a b' | tee log",
        b"sudo /usr/bin/llama-server.exe \\\n --no-kv-unified --swa-full --checkpoint-every-nb 3 --temp 0.7 -fa on",
    ]
