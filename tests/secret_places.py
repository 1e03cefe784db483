"""Secrets of many kinds, and places of a log in which they can stand."""

from __future__ import annotations

import json

SECRETS = {
    "openai key": "sk-proj-Zq81kkTTvv29sLLm0pQx",
    "anthropic key": "sk-ant-api03-Zq81kkTTvv29sLLm0pQx",
    "hugging face token": "hf_ZqWvTkrLmNsPqRtUvWxYzAbCd",
    "github token": "ghp_Zq16C7e42F292c6912E7710c838347",
    "gitlab token": "glpat-Zq7kkTTvv29sLLm0pQx",
    "slack token": "xoxb-3216549870-Zq7kkTTvv",
    "google key": "AIzaZqSyD3kkTTvv29sLLm0pQxAbCdEfGh",
    "aws key id": "AKIAZQIOSFODNN7EXMPL",
    "aws secret": "zqJalrXUtnFEMI/K7MDENG/bPxRfiCYEXKEY",
    "stripe key": "sk_live_Zq81kkTTvv29sLLm",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ6cSJ9.Zq3wRJSMeKKF2QT4",
    "pem": "-----BEGIN RSA PRIVATE KEY-----MIIEowZq-----END RSA PRIVATE KEY-----",
    "bearer": "Bearer zq-opaque-81kkTT",
    "basic auth url": "https://zqjane:zqhunter2@proxy.example",
    "cookie": "session=zq81kkTTvv29; Path=/",
    "password": "correct-zqhorse-battery",
    "password with blanks": "correct zqhorse battery",
    "mail": "zqjane.doe@example.org",
    "phone": "+49 (0)170 zq 5551234",
    "card": "4111-1111-1111-zq11",
    "iban": "DE89 3704 0044 zq05 3201 3000 00",
    "ipv4": "203.0.113.77-zq",
    "ipv6": "2001:db8:85a3::8a2e:370:zq34",
    "mac": "00:1B:44:11:3A:ZQ",
    "host": "zqgpu-box-7.internal.example",
    "unix path": "/home/zqjane/models/private-zq.gguf",
    "path with blanks": "/home/zqjane doe/my models/private zq.gguf",
    "windows path": r"C:\Users\ZqJane Doe\models\private.gguf",
    "unc path": r"\\zqfiles\share\models\private.gguf",
    "percent-encoded": "%2Fhome%2Fzqjane%2Fsecret",
    "container id": "zq3f4e5d6c7b8a9f0e1d2c3b4a5f6e7d8c9b0a",
    "model name": "zq-acme-internal-70b-Q4_K_M",
    "prompt": "Please keep it quiet that Zqacme buys Foobar on Monday",
    "unicode": "пароль密码zqétude",
    "upper case": "ZQTOPSECRET",
    "snake case": "zq_top_secret",
    "tool arguments": '{"city": "Zqtown", "ssn": "078-05-zq20"}',
    "markup": "<zq-secret>",
    "brackets": "[zq-secret]",
    "bar": "left zq | right zq",
    "escape codes": "\x1b[31mzqred\x1b[0m",
}
"""All hold the letters zq, in some case, which are in no word of the server."""

_PLACES = """\
0.00.010.665 I srv    load_model: loading model '{s}'
0.00.010.665 I srv    load_model: loaded multimodal model, '{s}'
0.00.036.250 I print_info: general.name          = {s}
0.00.036.154 I print_info: arch                  = {s}
0.00.029.056 I llama_model_loader: - kv   0:                       general.{s} str              = {s}
0.00.029.056 I llama_model_loader: - kv   1:                       tokenizer.chat_template str              = {s}
0.12.345.678 I {s}: chat template, example_format: '{s}'
main: chat template, chat_template: {s}, example_format: '{s}'
0.00.061.383 I srv          init: listening on http://{s}:19027
main: server is listening on {s} - starting the main loop
build: 0 ({s}) with {s} for {s}
build_info: b8672-{s}
error: invalid argument: {s}
error: invalid argument: --api-key={s}
main: started with --api-key {s} --hf-token {s} -m {s} --alias {s}
srv  log_server_r: request: GET /health?{s} 127.0.0.1 503
srv  log_server_r: done request: POST /v1/chat/completions {s} 200
srv  log_server_r: done request: POST /{s} 127.0.0.1 200
srv  log_server_r: done request: {s} /v1/chat/completions 127.0.0.1 200
0.12.345.678 D srv  log_server_r: request:  {j}
0.12.345.678 D srv  log_server_r: response:  {j}
0.12.345.678 D srv    operator(): converted request: {j}
0.12.345.678 E anthropic string not as expected: {s}
0.12.345.678 D slot launch_slot_: id  3 | task 71 | launching slot : {j}
0.00.098.843 I slot launch_slot_: id  0 | task -1 | sampler chain: logits -> {s} -> dist
0.12.345.678 I slot save_slot_ch: id  0 | task -1 | appended 6 context checkpoint(s) (0.097 MiB) to '/slots/{s}.bin'
0.12.345.678 I slot load_slot_ch: id  0 | task -1 | restored 6 context checkpoint(s) from '{s}'
0.00.637.407 W slot   operator(): id  0 | task 9 | old: ... {s} | {s}
0.00.637.415 W slot   operator(): id  0 | task 9 | new: ... {s}
0.00.637.415 W slot   operator(): id  0 | task 9 | new: ... 01.e51; cc_entrypoint={s}; cch= | {s};
0.00.637.415 W slot   operator(): id  0 | task 9 | new: ... x-anthropic-billing-header: cc_{s}=4 | {s};
0.00.637.415 W slot   operator(): id  0 | task 9 | {s}
0.03.829.031 E srv    send_error: task id = 1310, error: {s}
0.03.829.031 E srv    send_error: task id = 1310, error: {s} exceeds the available context size {s}
srv  update_slots: failed to decode {s}, i = 1, n_batch = 1, ret = 1
0.12.345.678 E srv         alloc: failed to allocate memory for prompt cache state: {s}
0.12.345.678 I srv  proxy_reques: proxying request to model {s} on port 50021
0.12.345.678 I srv  proxy_reques: proxying POST request to http://{s}:50021/{s}
0.12.345.678 I srv          load: spawning server instance with name={s} on port 50021
0.00.361.077 I srv          init: preserve_reasoning kwarg: {s}
0.00.047.570 I srv    load_model: prompt cache is enabled, size limit: {s}
/build/{s}/src/llama-kv-cache.cpp:842: GGML_ASSERT({s}) failed
{s}: n_ctx = 4096
{s}:842: n_ctx = 4096
slot {s}: id  0 | task 9 | n_tokens = 58, memory_seq_rm [58, end)
srv  {s}: updating prompt cache
srv  a|{s}: {s}: updating prompt cache
slot update_slots: id  0 | task 9 | n_tokens = 58, memory_seq_rm [58, end) {s}
slot update_slots: id  0 | task 9 | n_tokens = 58{s}, memory_seq_rm [58, end)
slot update_slots: id  0 | task 9 | kv cache rm [{s}, end)
slot update_slots: id  0 | task 9 | something new about {s}
srv  update_slots: something new about {s}
0.00.000.100 I {s}
{s}
 {s}
<|im_start|>user {s}<|im_end|>
I {s}
total time = {s}
       eval time = nan({s}) ms /     6 tokens (    8.09 ms per token,   123.61 tokens per second)
50%{s}\r0.01.002.003 I srv  get_availabl: updating prompt cache
Nov 20 12:00:00 {h} llama[12]: srv  get_availabl: updating prompt cache
Nov 20 12:00:00 box {h}[12]: srv  get_availabl: updating prompt cache
Nov 20 12:00:00 box llama[12]: {s}
2026-11-20T12:00:00+0100 {h} {h}[12]: {s}
<34>1 2026-11-20T12:00:00Z {h} {h} {h} {h} [x@1 user="{s}"] srv  get_availabl: updating prompt cache
2026-11-20T12:00:00Z stderr F:{h} srv  get_availabl: updating prompt cache
2026-11-20T12:00:00Z stderr F {s}
2026-11-20 12:00:00,123 INFO {h}: srv  get_availabl: updating prompt cache
[2026-11-20 12:00:00][DEBUG][{s}]
[{s}] srv  get_availabl: updating prompt cache
[{s}] {s}
<{h}> srv  get_availabl: updating prompt cache
[pod/{h}] {s}
[50021] 0.00.036.250 I print_info: general.name          = {s}
[50021] {s}
{h}-1  | srv  get_availabl: updating prompt cache
{h}  | {s}
12: srv  {s}: updating prompt cache
> srv  get_availabl: updating prompt cache {s}
time={h} level=INFO source={h} msg="srv  get_availabl: updating prompt cache" extra={s}
time={h} level=INFO msg={j}
"""


def log_with(secret: str) -> str:
    """A log with ``secret`` in every place; values of JSON are escaped, words have no blanks."""
    word = "".join(c for c in secret if c.isalnum() or c in "-._") or "zq"
    quoted = json.dumps({"prompt": secret})
    text = _PLACES.replace("{s}", secret).replace("{h}", word).replace("{j}", quoted)
    records = [
        {"log": f"{secret}\n", "stream": "stderr", "time": secret},
        {"log": f"srv  get_availabl: {secret}\n", "stream": "stdout", "attrs": {"tag": secret}},
        {"log": "srv  get_availabl: updating\n", "stream": secret, secret: 1},
        {"type": "log", "time": 1, "level": "info", "msg": f"print_info: general.name = {secret}"},
        {"type": "log", "time": secret, "level": secret, "msg": secret, "logger": secret},
        {"type": secret, "msg": secret},
        {"log": f"slot f: id 0 | task 1 | old: ... {secret}", "stream": "stderr"},
        {"log": f"{secret}", "stream": "stderr"},
        {"log": f"{secret}\n{secret}\n", "stream": "stderr"},
    ]
    return text + "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
