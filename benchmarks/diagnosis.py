"""Compare the first finding of every run with the cause that the run was built to have.

usage: diagnosis.py DIR [--json FILE] [--workers 2]

DIR is a folder of runs: DIR/**/<run>/{server.log,truth.json}. ``truth.json`` holds ``expected_cause`` (a slug),
``loss_side`` (none, client, server, both: who lost tokens, by measurement) and ``expected_cause_shows`` (false where
the cause cost nothing in this build).

The answer of a run is the name of its first finding above note; else of its first note; else "silent".

ok         the answer is one of the slug's names in ANSWERS; for a healthy run: no finding above note
fallback   log-too-terse or prefix-diverges-early: right where the log does not hold the evidence
not named  silent, or a note that names no cause of a loss
WRONG      another cause; for a healthy run: any finding above note; a crash
unjudged   the slug has no row in ANSWERS

Healthy: loss_side none, or expected_cause_shows false, or the slug is one that costs nothing by design. Prints the
confusion matrix (slug x answer) and lists the WRONG ones. Exits 1 when a WRONG answer was given with high confidence.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import runs

SILENT = "silent"

_BILLING = {"billing-header", "volatile-prefix", "prefix-diverges-early"}
_RAM_SMALL = {"cache-ram-too-small"}

ANSWERS: dict[str, set[str]] = {
    "client_prefix_mutation_billing_header_cch": _BILLING,
    "client_prefix_mutation_billing_header_cc_version": _BILLING,
    "billing_header_cch_on_v1_messages": _BILLING,
    "mixed_billing_header_then_fixed_plus_subagent": _BILLING,
    "client_prefix_mutation_timestamp": {"volatile-prefix", "prefix-diverges-early"},
    "client_tool_list_reordered": {"tools-changed", "prefix-diverges-early", "history-rewritten"},
    "client_tool_added_mid_conversation": {"tools-changed", "prefix-diverges-early", "history-rewritten"},
    "client_strips_reasoning_from_history": {"reasoning-stripped", "history-rewritten", "no-usable-checkpoint"},
    "client_drops_oldest_messages": {"history-truncated", "history-rewritten", "no-usable-checkpoint"},
    "client_edits_earlier_user_message": {"history-rewritten", "no-usable-checkpoint"},
    "checkpoints_disabled": {"checkpoints-disabled"},
    "divergence_before_first_checkpoint": {"prefix-diverges-early", "history-rewritten"},
    "swa_cache_miss": {"swa-window-lost", "no-usable-checkpoint", "checkpoints-disabled"},
    "slot_evicted_no_prompt_cache": {"cache-ram-disabled", "slot-held-other-prompt"},
    "utility_requests_take_the_slot": {"side-request", "cache-ram-disabled"},
    "shared_system_prompt_slot_steal": {"shared-prefix-steal"},
    "id_slot_pinned_same_slot": {"id-slot-pinned", "slot-held-other-prompt"},
    "chat_template_strips_reasoning": {"reasoning-stripped"},
    # an image changes, and an edit after one; a chat in between costs where the RAM cache does not work with images
    "multimodal_image_requests": {
        "history-rewritten",
        "image-changed",
        "mmproj-truncation",
        "cache-ram-disabled",
        "no-usable-checkpoint",
    },
    "more_conversations_than_slots": {"slot-contention"},
    "prompt_cache_ram_too_small": _RAM_SMALL,
    "prompt_cache_ram_too_small_evictions": _RAM_SMALL,
    "cache_prompt_false": {"cache-prompt-off"},
    "context_overflow": {"context-overflow"},
    "context_shift": {"context-shift", "context-overflow"},  # these runs also send a prompt that cannot fit
    "cache_reuse_chunks": {"history-rewritten", SILENT},
    "slot_save_restore": {SILENT, "slot-erased"},  # these runs erase the slot as well, and ask once before the restore
    "server_restarted_cold": {"server-restarted", SILENT},
}
"""Right first answers by slug."""

ANSWERS_CHECKPOINTED: dict[str, set[str]] = {
    "cache_reuse_chunks": {"cache-reuse-unsupported"},
    "slot_save_restore": {"slot-restored-without-checkpoints"},
}
"""Further right answers where the model is hybrid or recurrent."""

BEFORE_CHECKPOINTS = {
    "checkpoints_disabled", "restored_from_checkpoint", "cache_reuse_chunks", "identical_prompt_resent",
}  # fmt: skip
"""Slugs that a hybrid or recurrent model answers with no-usable-checkpoint on a build that has none for it (b6628 and
older), whatever else was meant to happen."""
BEFORE_RAM_CACHE = {"none_prompt_cache_restored"}
"""Slugs whose slot is taken for good on a build without RAM prompt cache (b6628 and older)."""
SERVER_LOST_LITTLE = 100
"""Tokens: where the server lost no more in all, and the client edited its history, that is what is left to say."""

HEALTHY = {
    "identical_prompt_resent", "restored_from_checkpoint", "swa_full_enabled", "client_cancelled",
    "parallel_choices_n2",
}  # fmt: skip
"""Slugs that give no finding above note; those that begin with ``none_`` too."""

FALLBACK = {"log-too-terse", "prefix-diverges-early"}

NO_CAUSE = {
    "server-restarted", "context-shift", "cache-reuse-unsupported", "log-too-terse", "log-cut", "unknown-format",
    "reuse-undecided",
}  # fmt: skip
"""Notes that name no cause of a loss."""

VERDICTS = ("ok", "fallback", "not named", "WRONG", "unjudged")


def healthy(truth: dict[str, Any]) -> bool:
    """Whether a run must give no finding above note."""
    slug = truth["expected_cause"]
    by_design = slug in HEALTHY or slug.startswith("none_")
    return by_design or truth["loss_side"] == "none" or truth["expected_cause_shows"] is False


def _old(truth: dict[str, Any]) -> bool:
    """Whether the build came before checkpoints of hybrid models and before the RAM prompt cache."""
    return str(truth["version"]) == "0.2.0"


def _also(truth: dict[str, Any]) -> set[str]:
    """Further right answers that follow from the build, or from what the server is measured to have lost."""
    slug, out = truth["expected_cause"], set()
    if _old(truth) and slug in BEFORE_CHECKPOINTS and truth["model_kind"] in ("hybrid", "mamba"):
        out.add("no-usable-checkpoint")
    if _old(truth) and slug in BEFORE_RAM_CACHE:
        out.add("slot-held-other-prompt")
    if truth["server_lost_tokens_total"] <= SERVER_LOST_LITTLE and truth["loss_side"] in ("client", "both"):
        out.add("history-rewritten")
    return out


def verdict(truth: dict[str, Any], answer: str, severity: str | None) -> str:
    """Judge the answer to one run."""
    slug = truth["expected_cause"]
    if healthy(truth):
        return "WRONG" if severity in ("warning", "error") and answer not in _also(truth) else "ok"
    if slug not in ANSWERS:
        return "unjudged"
    allowed = ANSWERS[slug] | _also(truth)
    if truth["model_kind"] in ("hybrid", "mamba"):
        allowed = allowed | ANSWERS_CHECKPOINTED.get(slug, set())
    if answer in allowed:
        return "ok"
    if SILENT in allowed and severity == "note":
        return "ok"
    if answer in FALLBACK:
        return "fallback"
    if answer == SILENT or (severity == "note" and answer in NO_CAUSE):
        return "not named"
    return "WRONG"


def examine(run: Path) -> dict[str, Any]:
    """One run: its truth, the answer, the verdict."""
    truth = runs.truth(run)
    report = runs.analyse(run / "server.log")
    row: dict[str, Any] = {
        "run": f"{run.parent.name}/{run.name}", "slug": truth["expected_cause"], "loss_side": truth["loss_side"],
        "shows": truth["expected_cause_shows"], "healthy": healthy(truth),
    }  # fmt: skip
    if isinstance(report, str):
        row |= {"answer": "crash", "verdict": "WRONG", "confidence": None, "severity": None, "claim": report}
        return row | {"findings": [], "not_evaluated": []}
    ordered = sorted(report.findings, key=lambda f: f.severity == "note")  # keeps the order of each half
    first = ordered[0] if ordered else None
    answer, severity = (first.name, first.severity) if first else (SILENT, None)
    return row | {
        "answer": answer, "severity": severity, "confidence": first.confidence if first else None,
        "verdict": verdict(truth, answer, severity), "claim": first.claim if first else "",
        "findings": [
            {"name": f.name, "severity": f.severity, "confidence": f.confidence, "tokens": f.cost.tokens}
            for f in report.findings
        ],
        "not_evaluated": [n.name for n in report.not_evaluated],
    }  # fmt: skip


def matrix(rows: list[dict[str, Any]]) -> None:
    """Print slug x answer: one line a slug, its answers with counts; the wrong ones marked."""
    by_slug: dict[tuple[bool, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_slug[(row["healthy"], row["slug"])].append(row)
    for is_healthy in (False, True):
        print("\nhealthy runs: no finding above note is right" if is_healthy else "runs with a loss")
        for (group, slug), members in sorted(by_slug.items()):
            if group is not is_healthy:
                continue
            print(f"  {slug} ({len(members)})")
            cells = Counter((r["answer"], r["verdict"], r["severity"]) for r in members)
            for (answer, judged, severity), count in sorted(cells.items(), key=lambda c: (-c[1], c[0][0])):
                mark = "" if judged in ("ok", "unjudged") else f"  {judged}"
                print(f"  {count:6}  {answer}{' (note)' if severity == 'note' else ''}{mark}")


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print the tallies and the wrong runs; returns those with high confidence."""
    print(f"\n{'':10}{'runs':>8}" + "".join(f"{v:>11}" for v in VERDICTS))
    sound = [r for r in rows if r["healthy"]]
    for name, members in (("loss", [r for r in rows if not r["healthy"]]), ("healthy", sound), ("all", rows)):
        counts = Counter(r["verdict"] for r in members)
        print(f"{name:10}{len(members):8,}" + "".join(f"{counts[v]:11,}" for v in VERDICTS))
    wrong = [r for r in rows if r["verdict"] == "WRONG"]
    sure = [r for r in wrong if r["confidence"] == "high" or r["answer"] == "crash"]
    for title, members in (("WRONG with high confidence", sure), ("WRONG", [r for r in wrong if r not in sure])):
        print(f"\n{title}: {len(members)}")
        for r in members:
            print(f"  {r['run']}: {r['slug']} -> {r['answer']} ({r['severity']}, {r['confidence']})")
    return sure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one object per run (-: only that, to stdout)")
    parser.add_argument("--workers", type=int, default=runs.WORKERS)
    a = parser.parse_args()
    found = runs.find(a.dir)
    if not found:
        parser.error(f"no run below {a.dir}: a run is a folder with server.log and truth.json")
    rows = list(runs.over(examine, found, a.workers))
    if a.json is not None:
        text = json.dumps(rows, indent=1) + "\n"
        if str(a.json) == "-":
            sys.stdout.write(text)
            return 0
        a.json.write_text(text, encoding="utf-8")
    matrix(rows)
    return 1 if summary(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
