"""CD903: no line of the input is a known server's log line."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def say(looks: str | None, give: str | None) -> kit.FindingText:
    """Describe the input and the useful logs of its program, or else a usable input."""
    claim = "no line of this input is a log line of llama-server, vLLM or SGLang that cachedoctor knows"
    head, _, rest = (looks or "").partition("; ")
    if give is not None:
        why = f"{rest[:1].upper()}{rest[1:]}. " if rest else ""
        why += "No line of this input shows how much of a prompt was reused, so nothing was checked."
        return kit.FindingText(
            f"nothing was checked: the input looks like {head}", why, [kit.Remedy(give, purpose="look")]
        )
    if head:
        claim += f"; the input looks like {head}"
    return kit.FindingText(
        claim,
        "Lines of llama-server look like: slot update_slots: id  0 | task 9 | new prompt, ... and go to standard error. Lines of vLLM: INFO 11-20 23:44:58 [loggers.py:335] Engine 000: Avg prompt throughput: ... "
        "Lines of SGLang: [2026-07-04 04:31:24] Prefill batch, #new-seq: 1, ...",
        [
            kit.Remedy(
                "Give the complete output of the server.",
                ["llama-server -m model.gguf 2>&1 | tee server.log", "cachedoctor analyze server.log"],
                purpose="look",
            ),
            kit.Remedy(
                "Save the output of vLLM (vllm serve) or SGLang (python -m sglang.launch_server) in the same way.",
                purpose="look",
            ),
        ],
    )


RULE = kit.input_rule(__name__, "Nothing in the input was recognised", say)
