"""Thresholds of the rules: a loss on either side of one, in the words of a server."""

from __future__ import annotations

import io
import re

import pytest
from conftest import FIXTURES, content_of, report_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import AnalysisOptions
from cachedoctor.redaction import sanitize
from cachedoctor.report.text.text_report import render

FORCED = (
    "forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory, "
    "see https://github.com/ggml-org/llama.cpp/pull/13194#issuecomment-2868343055)"
)


def request(task: int, prompt: int, *texts: str) -> str:
    """A request of slot 0 that computes its whole prompt."""
    said = [
        f"new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {prompt}",
        *texts,
        "n_tokens = 0, memory_seq_rm [0, end)",
    ]
    return (
        f"slot launch_slot_: id  0 | task {task} | processing task, is_child = 0\n"
        + "".join(f"slot update_slots: id  0 | task {task} | {text}\n" for text in said)
        + f"slot print_timing: id  0 | task {task} | \n"
        f"prompt eval time =     400.00 ms /  {prompt} tokens (    0.10 ms per token,  9999.00 tokens per second)\n"
        "       eval time =      11.00 ms /     6 tokens (    1.80 ms per token,   541.00 tokens per second)\n"
        f"      total time =     411.00 ms /  {prompt + 6} tokens\n"
        f"slot      release: id  0 | task {task} | stop processing: n_tokens = {prompt + 5}, truncated = 0\n"
    )


def parted_at(common: int) -> set[str]:
    """Codes for a prompt of 4,100 tokens that shares ``common`` with a slot of 4,005, on memory that cannot go back."""
    chosen = (
        "slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, "
        f"sim_best = {common / 4100:.3f} (> 0.100 thold), f_keep = {common / 4005:.3f}\n"
    )
    held = f"n_past = {common}, slot.prompt.tokens.size() = 4005, seq_id = 0, pos_min = 4004, n_swa = 0"
    report = report_of(request(0, 4000) + chosen + request(9, 4100, held, FORCED))
    return {finding["code"] for finding in report["findings"]}


def test_a_common_prefix_is_long_from_a_thousand_tokens_on() -> None:
    """Below that, and below half of the prompt, the server lost little: the client changed the prompt."""
    assert "CD202" not in parted_at(999)
    assert "CD202" in parted_at(1000)


def test_a_common_prefix_of_less_than_half_ends_early() -> None:
    """Half of the slot's 4,005 tokens, which are fewer than the prompt's."""
    assert "CD108" in parted_at(2002)
    assert "CD108" not in parted_at(2003)


def test_the_advised_ram_cache_holds_what_the_conversations_take() -> None:
    """A bundled log of a small model, with states 300 times as large: in whole steps of 256 MiB, and never too few."""
    log = content_of(FIXTURES / "cases" / "cache-ram-evicts-b9294").decode()
    larger = re.sub(r"([\d.]+) MiB", lambda size: f"{300 * float(size[1]):.{3 if '.' in size[1] else 0}f} MiB", log)
    fixes = [remedy for finding in report_of(larger)["findings"] for remedy in finding["remedies"]]
    (told,) = (fix for fix in fixes if fix["commands"] and "--cache-ram" in fix["commands"][0])
    advised = int(told["commands"][0].rpartition(" ")[2])
    (limit,) = set(re.findall(r"size limit: ([\d.]+) MiB", larger))
    (largest,) = re.findall(r"the largest takes ([\d,.]+) MiB", told["text"])
    (taken,) = re.findall(r"conversations here take about ([\d,]+) MiB", told["text"])
    assert advised % 256 == 0
    assert advised >= int(taken.replace(",", ""))
    assert advised >= float(limit) + float(largest.replace(",", "")), "it was full, and one more has to fit in"


def test_a_slot_that_is_chosen_for_its_age_shares_little() -> None:
    """The default threshold of similarity is 0.1, so a prompt with more in common would have chosen it for that."""
    chosen = "slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 2007448456\n"
    kept = "srv    load_model: prompt cache is enabled, size limit: 8192 MiB\n"  # else lengths alone would speak
    report = report_of(kept + chosen.join(request(9 * turn, 1900 + 70 * turn) for turn in range(4)))
    assert "CD108" in {finding["code"] for finding in report["findings"]}


@pytest.mark.parametrize(("tokens", "code"), [(8192, "CD403"), (8193, "CD401")])
def test_a_prompt_that_fits_no_context_is_not_one_of_a_divided_context(tokens: int, code: str) -> None:
    """Four slots of 2,048 tokens: what is longer than 8,192 would not fit into all of them together."""
    log = content_of(FIXTURES / "cases" / "slot-context-too-small-b11549").decode()
    refused = log.replace("request (2807 tokens)", f"request ({tokens} tokens)")
    assert refused != log
    assert [finding["code"] for finding in report_of(refused)["findings"]] == [code]


def _again(task: int, prompt: int, held: int) -> str:
    """A request that begins like the one before, of which the slot held so many tokens, and reuses nothing."""
    common = min(prompt, held) - 20
    chosen = (
        "slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, "
        f"sim_best = {common / prompt:.3f} (> 0.100 thold), f_keep = {common / held:.3f}\n"
    )
    kept = f"n_past = {common}, slot.prompt.tokens.size() = {held}, seq_id = 0, pos_min = {held - 1}, n_swa = 0"
    return chosen + request(task, prompt, kept, FORCED)


@pytest.mark.parametrize(
    ("least", "said"),
    [(1000, "1 request below 1,000 tokens was"), (4050, "2 requests below 4,050 tokens were"), (0, "")],
)
def test_requests_that_a_threshold_passes_over_are_told(least: int, said: str) -> None:
    """Those that lost what they shared with the request before them: 900 tokens and 4,000; the first lost nothing."""
    log = request(0, 940) + _again(5, 950, 945) + _again(7, 4000, 955) + _again(9, 4100, 4005)
    analyzer = Analyzer(options=AnalysisOptions(min_prompt_tokens=least))
    analyzer.open("server.log")
    analyzer.feed(log.encode())
    report = analyzer.finish()
    out = io.StringIO()
    render(sanitize.report(report), out, 120)
    told = [row for row in out.getvalue().split("\n") if "min-prompt-tokens" in row]
    assert told == ([f"{said} not checked (--min-prompt-tokens 0 checks all)."] if said else [])
    assert report.totals.short_below == least
