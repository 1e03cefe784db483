"""``redact`` for logs of vLLM and SGLang: no secret survives, and the analysis of the redacted log is the same."""

from __future__ import annotations

import re
import sys
from itertools import pairwise

import pytest
from conftest import FIXTURES, MEASURED, ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.sglang.messages import ROWS as SGLANG
from cachedoctor.engines.vllm.messages import ROWS as VLLM
from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.redaction import stand_ins
from cachedoctor.redaction.holes_measured import architecture
from cachedoctor.redaction.stand_ins import StandIns

sys.path.insert(0, str(ROOT / "benchmarks"))
from redacted import differences, report, without_quotes

LOGS = sorted({case["log"] for case in MEASURED} | {f"vllm/{path.name}" for path in FIXTURES.glob("vllm/*.log")})
PAGES = sorted(
    [*ROOT.glob("cachedoctor/diagnosis/rules/vllm/cd5*.md"), *ROOT.glob("cachedoctor/diagnosis/rules/sglang/cd6*.md")]
)
START = "(APIServer pid=1) INFO 11-20 08:14:22 [api_utils.py:347] vLLM server version 0.32.0, serving model acme/zq\n"
SECRET = "zqHunterzq"


def redacted(log: str | bytes) -> str:
    redactor = Redactor()
    return (redactor.feed(log.encode() if isinstance(log, str) else log) + redactor.finish()).decode()


def one(line: str, before: str = START) -> str:
    """A single line, redacted, of a log that vLLM is known to write."""
    return redacted(f"{before}{line}\n").removesuffix("\n").rpartition("\n")[2]


def same_report(log: str | bytes) -> list[str]:
    data = log.encode() if isinstance(log, str) else log
    was, now = report(data), report(redacted(data).encode())
    return list(differences(without_quotes(was), without_quotes(now)))


# ---- the same diagnosis


@pytest.mark.spread(9)
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", LOGS)
def test_the_report_of_a_log_stays(name: str) -> None:
    """Findings, sessions with their periods and settings, versions; only the name of the model is another."""
    log = (FIXTURES / name).read_bytes()
    assert report(log)["sessions"], "nothing was compared"
    assert same_report(log) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_report_of_an_example_stays(page: object) -> None:
    """Each rule fires, or stays silent, on the redacted example as on the example."""
    for block in re.findall(r"```log[^\n]*\n(.*?)```", page.read_text("utf-8"), re.DOTALL):  # type: ignore[attr-defined]
        assert same_report(block) == []


REQUESTS = "\n".join(
    [
        "[2026-07-04 04:30:11] server_args=ServerArgs(model_path='acme/zq', port=30000, page_size=16, dp_size=2,"
        " schedule_policy='lpm', attention_backend='fa3', disable_radix_cache=False, enable_lora=None, my_zq='zq')",
        "[2026-07-04 04:31:24] Receive: obj=GenerateReqInput(rid='zq1', text='You are zq. Hello', input_ids=None)",
        "[2026-07-04 04:31:24] Receive: obj=GenerateReqInput(rid='zq2', text='You are zq. Yes\\'s é', stream=False)",
        "[2026-07-04 04:31:25] Finish: obj=GenerateReqInput(rid='zq1', text='You are zq. Hello'), out={'text': 'zq',"
        " 'meta_info': {'id': 'zq1', 'prompt_tokens': 60, 'cached_tokens': 5}}",
        "[2026-07-04 04:31:25] Finish: obj=GenerateReqInput(rid='zq2'), out={'meta_info': {'prompt_tokens': 61,"
        " 'cached_tokens': 50}}",
        '[2026-07-04 04:31:26] {"timestamp": "2026-07-04T04:31:26.1", "event": "request.received", "rid": "zq3",'
        ' "obj": {"rid": "zq3", "text": "You are zq. Yes or no"}}',
        '[2026-07-04 04:31:26] {"timestamp": "2026-07-04T04:31:27.1", "event": "request.finished", "rid": "zq3",'
        ' "obj": {"rid": "zq3"}, "out": {"meta_info": {"prompt_tokens": 70, "cached_tokens": 64}}}',
        "",
    ]
)


def test_requests_and_settings_of_sglang_stay() -> None:
    """Answers with their tokens and common beginnings, settings with their values; other names go."""
    (session,) = report(REQUESTS.encode())["sessions"]
    assert [answers["requests"] for answers in session["answers"]] == [3]
    assert session["settings"]["schedule_policy"]["value"] == "lpm"
    out = redacted(REQUESTS)
    assert same_report(REQUESTS) == []
    assert "zq" not in out
    assert "schedule_policy='lpm'" in out
    assert "'prompt_tokens': 61, 'cached_tokens': 50" in out


def test_a_prompt_of_vllm_keeps_its_beginnings_in_common_and_the_header() -> None:
    """Both are what rules read of a prompt."""
    header = "x-anthropic-billing-header: cc_version=zq; "
    prompts = ["You are zq", "You are zqé or not", f"{header}You are zq", f"{header}You can zq"]
    lines = [
        f"INFO 04-29 08:20:4{at} [logger.py:39] Received request zq{at}: prompt: '{prompt}', params:"
        " SamplingParams(n=1), prompt_token_ids: None, lora_request: None, prompt_adapter_request: None."
        for at, prompt in enumerate(prompts)
    ]
    log = "".join(f"{line}\n" for line in lines)
    (session,) = report(log.encode())["sessions"]
    assert session["settings"]["billing_header"]["value"] is True
    assert same_report(log) == []
    out = redacted(log)
    assert "zq" not in out
    assert out.count("x-anthropic-billing-header:") == 2


# ---- secrets


@pytest.mark.sample(1)
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("rows", [VLLM, SGLANG], ids=["vllm", "sglang"])
def test_a_secret_at_any_place_of_any_line_is_gone(rows: list[Message], part: int) -> None:
    """Every other place of every sample; the sample itself is recognised."""
    for row in rows[part::5]:
        line, redactor = row.sample, Redactor()
        before = START if rows is VLLM else "[2026-07-04 04:31:09] The server is fired up and ready to roll!\n"
        planted = [line[:at] + SECRET + line[at:] for at in range(0, len(line) + 1, 2)]
        out = redactor.feed((before + "\n".join([line, *planted]) + "\n").encode()) + redactor.finish()
        shown = out.decode().split("\n")
        assert row.id == "no_buffer_speculative_refused" or "<line>" not in shown[1], row.sample
        assert [a for a, b in zip(planted, shown[2:], strict=False) if "hunter" in b.lower()] == []
        assert len(shown) == len(planted) + 3


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ('INFO:     10.1.2.3:40782 - "POST /v1/messages?beta=true HTTP/1.1" 200 OK',
         'INFO:     <host-1>:40782 - "POST /v1/messages?beta=true HTTP/1.1" 200 OK'),
        ('INFO:     10.1.2.3:40782 - "POST /acme/v1/chat/completions?key=zq HTTP/1.1" 200 OK',
         'INFO:     <host-1>:40782 - "POST <path-1>/v1/chat/completions HTTP/1.1" 200 OK'),
        ('INFO:     10.1.2.3:40782 - "GET /zq HTTP/1.1" 418 I am zq',
         'INFO:     <host-1>:40782 - "GET <path-1> HTTP/1.1" 418 <text-1>'),
        ("INFO:     Started server process of zq", "INFO: <line>"),
        ("(APIServer pid=1) INFO 11-20 23:53:21 [model.py:733] Resolved architecture: AcmeForCausalLM",
         "(APIServer pid=1) INFO 11-20 23:53:21 [model.py:733] Resolved architecture: OtherForCausalLM"),
        ("(zq pid=1) INFO 11-20 23:53:21 [/srv/zq/loggers.py:733] Using max model len 8192",
         "(Process pid=1) INFO 11-20 23:53:21 [loggers.py:733] Using max model len 8192"),
        ("acme(APIServer pid=1) INFO 11-20 23:53:21 [model.py:2152] Using max model len 8192",
         "<text-1> (APIServer pid=1) INFO 11-20 23:53:21 [model.py:2152] Using max model len 8192"),
        ("INFO 11-20 23:53:21 [x.py:1] Loaded new LoRA adapter: name 'zq', path '/models/zq'",
         "INFO 11-20 23:53:21 [x.py:1] Loaded new LoRA adapter: name '<model-2>', path '<path-1>'"),
        ("INFO 11-20 23:53:21 [x.py:1] non-default args: {'model': 'zq', 'block_size': 64, 'api_key': ['zq'],"
         " 'enable_prefix_caching': False, 'speculative_config': {'method': 'mtp', 'model': 'zq'}}",
         "INFO 11-20 23:53:21 [x.py:1] non-default args: {'enable_prefix_caching': False, 'block_size': 64,"
         " 'speculative_config': {'method': 'mtp'}}"),
    ],
)  # fmt: skip
def test_lines(line: str, safe: str) -> None:
    assert one(line) == safe


def test_an_unknown_architecture_keeps_what_it_says_of_the_memory() -> None:
    """A hybrid stays one."""
    assert architecture(b"Qwen3NextZqForCausalLM") == b"Qwen3NextForCausalLM"
    assert architecture(b"ZqForCausalLM") == b"OtherForCausalLM"
    assert architecture(b"Qwen3ForCausalLM") == b"Qwen3ForCausalLM"


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, 20_000), max_size=6))
@example([1, 2, 3])
def test_where_the_input_is_cut_does_not_matter(cuts: list[int]) -> None:
    log = (FIXTURES / "measured/vllm-logged-prompts-part-early.log").read_bytes()
    ends = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    redactor = Redactor()
    pieces = b"".join(redactor.feed(log[a:b]) for a, b in pairwise(ends)) + redactor.finish()
    assert pieces.decode() == redacted(log)


# ---- stand-ins for prompts


@given(st.lists(st.text(st.sampled_from("abc"), max_size=12), max_size=20))
def test_stand_ins_begin_alike_as_far_as_prompts_do(prompts: list[str]) -> None:
    given_in = StandIns()
    texts = [given_in.give(prompt) for prompt in prompts]
    assert [len(text) for text in texts] == [len(prompt) for prompt in prompts]
    for at, prompt in enumerate(prompts):
        for other in range(at):
            assert common_prefix(texts[at], texts[other]) == common_prefix(prompt, prompts[other])


def test_a_are_in_is_nothing_but_filler() -> None:
    assert StandIns().give("My password is hunter2") == "*" * 22


def test_prompts_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "_CHARACTERS", 100)
    given_in = StandIns()
    for _ in range(50):
        assert given_in.give("abc" * 20) == "*" * 60
    assert len(given_in._recent) == 1


@pytest.mark.parametrize(
    "line",
    [
        "[gpu=0] Prefill batch. #new-seq: 1, #new-token: 3, #cached-token: 3, cache hit rate: 23.08%, #running-req: 0, "
        "#queue-req: 0",
        "srv    send_error: task id = 12, error: input is too large to process, please increase the physical batch "
        "size",
    ],
)
def test_a_line_with_nothing_to_hide_stays(line: str) -> None:
    assert redacted(f"{line}\n") == f"{line}\n"
