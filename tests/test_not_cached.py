"""A request that wants no cache, after the RAM cache had given its conversation back: CD109."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from conftest import FIXTURES, content_of, report_of

from cachedoctor.doctor.extras.prompt_matching import GivenPrompts

LOG = content_of(FIXTURES / "cases" / "ram-entry-consumed").decode()
"""Two conversations in turn on one slot; the third request, of 3,572 tokens, gets the 3,342 of its first turn back."""


def third(reused: int, more: str = "", log: str = LOG) -> list[dict[str, Any]]:
    """What is found where the third request reuses so much."""
    log = log[: log.index("slot      release: id  0 | task 15")] + "slot      release: id  0 | task 15 | "
    log += "stop processing: n_tokens = 3577, truncated = 0\n"
    log = log.replace(
        "n_tokens = 3342, memory_seq_rm [3342, end)", f"n_tokens = {reused}, memory_seq_rm [{reused}, end)"
    )
    log = log.replace("/   230 tokens (", f"/  {3572 - reused:4} tokens (")
    log = re.sub(r"(slot update_slots: id  0 \| task 15 \| new prompt[^\n]*\n)", rf"\1{more}", log)
    return report_of(log.encode())["findings"]


def test_a_request_that_continues_says_nothing() -> None:
    assert third(3342) == []


def test_nothing_is_reused_of_what_the_ram_cache_gave_back() -> None:
    """The entry is the first turn whole, the memory can go back anywhere, and no line forces anything."""
    (found,) = third(0)
    assert (found["code"], found["requests"], found["cost"]["tokens"]) == ("CD109", [2], 3342)
    assert found["confidence"] in ("high", "medium")
    assert "93.6 % of the prompt" in str(found["claim"])


def test_a_prompt_that_could_not_be_restored_is_another_cause() -> None:
    found = "found better prompt with f_keep = 1.000, sim = 0.936\n"
    log = LOG.replace(found, f"{found}srv          load: failed to restore state with size 895000\n")
    assert {one["code"] for one in third(0, log=log)} == {"CD305"}


def test_a_request_that_reuses_its_head_was_cached() -> None:
    assert "CD109" not in {one["code"] for one in third(9)}


def test_forced_processing_is_another_cause() -> None:
    more = "slot update_slots: id  0 | task 15 | forcing full prompt re-processing due to lack of cache data\n"
    assert "CD109" not in {one["code"] for one in third(0, more=more)}


# ---- with the bodies


def asked(folder: Path, **more: Any) -> list[dict[str, Any]]:
    """What is found in a log of b6301, which prints no similarity, beside bodies of about its lengths."""
    words = "Which of the boats came in today? " * 300
    said, rows = [{"role": "system", "content": words[:7300]}], []
    for number in range(4):
        said = [*said, {"role": "user", "content": f"Day {number}: {words[:260]}"}]
        rows.append(json.dumps({"messages": said, **more}))
        said = [*said, {"role": "assistant", "content": "271828"}]
    path = folder / "bodies.jsonl"
    path.write_text("\n".join(rows) + "\n", "utf-8")
    prompts = GivenPrompts([str(path)])
    found = report_of(content_of(FIXTURES / "cases" / "cache-prompt-off-b6301"), prompts)["findings"]
    assert prompts.matched == 4
    return found


def test_bodies_that_ask_for_no_cache_are_the_cause(tmp_path: Path) -> None:
    """1,843, 1,913 and 1,983 tokens of the turns before; without the bodies the log does not show."""
    (found,) = asked(tmp_path, cache_prompt=False)
    assert (found["code"], found["count"], found["confidence"], found["cost"]["tokens"]) == ("CD109", 3, "high", 5739)
    assert found["claim"].startswith('the request bodies switch the cache off ("cache_prompt": false): 5,739 tokens')
    assert "CD109" not in [one["code"] for one in asked(tmp_path)]
