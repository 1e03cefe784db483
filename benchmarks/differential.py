"""Measure what each kind of evidence is worth, and how often the ranked causes of a log have the true one first.

usage: differential.py DIR [DIR ...] [--workers 2] [--json FILE] [--docs FILE] [--counts] [--list]

DIR is a folder of days as ``sh scripts/e2e days --out DIR`` writes them, or of runs of one scenario each, as
benchmarks/diagnosis.py reads them. Only logs are read. Prints

counts       of every kind of evidence in how many situations of each true cause it was seen: the numbers of
             ``cachedoctor/diagnosis/differential/kinds.py``
calibration  each sixth of the situations is ranked with the counts of the others: true cause first, among the
             first two, and the expected calibration error (five bins of the first likelihood)
confusion    true cause by the one that is ranked first
wrong        the situations whose undecided days are ranked wrongly, and the evidence that did it

A day is undecided where its first finding is log-too-terse, reuse-undecided or of low confidence. A situation (clock,
six chats on four slots ...) is in one part with all its builds, memories and levels. Causes are ranked on undecided
days alone, so that a day which a rule decides counts a tenth.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import runs
from day_causes import nothing_to_mend
from diagnosis import healthy

from cachedoctor.diagnosis.differential.kinds import KINDS, RULE_OF, Candidate, Kind
from cachedoctor.diagnosis.differential.votes import Vote, excluded, rank, votes
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.doctor.analysis.run import feed_all
from cachedoctor.doctor.replaying.from_log import log_order, rotating
from cachedoctor.inputs.sources.unpack import MAX_BYTES
from cachedoctor.model import Finding, Judged, Request, Session

TRUE: dict[str, set[Candidate]] = {
    "slots_taken_ram_off": {"slots"}, "side_requests_ram_off": {"slots"}, "slots_taken_ram_small": {"slots"},
    "slot_taken_unsaved": {"slots"}, "kv_too_small": {"slots"}, "slot_pinned": {"slots"},
    "sibling_took_ram_entry": {"steal", "slots"}, "slot_shared_by_branches": {"steal"},
    "checkpoints_off": {"checkpoint"},
    "clock": {"head"}, "billing_header": {"head"}, "clock_and_tools": {"head"}, "tools_shuffled": {"head"},
    "tools_come_and_go": {"head"}, "rolling_window": {"body"}, "passages_shuffled": {"body"},
    "early_message_edited": {"body"}, "reasoning_dropped": {"body"}, "cache_prompt_false": {"nocache"},
    "status_in_system": {"head", "body"}, "reminder_moves": {"body"}, "memory_grows": {"head", "body"},
    "personas": {"head"}, "request_ids": {"head"}, "arguments_rewritten": {"body"}, "replies_shortened": {"body"},
    "tool_stamped": {"head", "body"}, "checkpoints_few": {"checkpoint"},
    "similarity_off": {"slots"}, "tools_added": {"head"}, "session_in_system": {"head", "body"},
    "examples_drawn": {"head", "body"}, "open_file_first": {"body"}, "summary_rolls": {"body"}, "note_moves": {"body"},
    "entries_in_system": {"head", "body"}, "passages_leave": {"body"}, "keys_shuffled": {"head"},
    "compacts_often": {"body"}, "answers_rewritten": {"body"}, "greeting_varies": {"head"},
    "first_message_stamped": {"head", "body"}, "newest_first": {"head", "body"},
    "log_in_system": {"head", "body"}, "ages_rewritten": {"head", "body"},
    "git_state_in_system": {"head", "body"}, "results_pruned": {"body"},
    "cache_off_by_option": {"nocache"}, "similarity_strict": {"slots"}, "images_dropped": {"body"},
    "image_packed_again": {"head", "body"}, "customer_first": {"head"},
    "slots_and_clock": {"slots", "head"}, "tools_and_slots": {"head", "slots"},
    "checkpoints_off_old_build": {"checkpoint"}, "ram_small_and_restore_failed": {"slots"},
    "slots_named_in_turn": {"slots"}, "slots_named_ram_off": {"slots"}, "documents_ram_off": {"slots", "steal"},
    "branches_ram_off": {"steal", "slots"}, "copy_taken_by_sibling": {"steal", "slots"},
    "kv_purged_uncopied": {"slots"}, "checkpoints_sparse": {"checkpoint"}, "overflow_each_turn": {"body"},
    "template_switched": {"body"}, "files_move": {"body"}, "results_reordered": {"body"}, "pastes_normalised": {"body"},
    "effort_in_head": {"head"}, "clock_and_uncached": {"head"}, "speaker_in_system": {"head", "slots"},
    "delimiter_changes": {"head", "body"},
    "none": {"none"},
    # runs of one scenario each (benchmarks/diagnosis.py)
    "client_prefix_mutation_billing_header_cch": {"head"}, "client_prefix_mutation_billing_header_cc_version": {"head"},
    "billing_header_cch_on_v1_messages": {"head"}, "client_prefix_mutation_timestamp": {"head"},
    "client_tool_list_reordered": {"head"}, "client_tool_added_mid_conversation": {"head"},
    "divergence_before_first_checkpoint": {"head"}, "mixed_billing_header_then_fixed_plus_subagent": {"head"},
    "client_strips_reasoning_from_history": {"body"}, "chat_template_strips_reasoning": {"body"},
    "client_drops_oldest_messages": {"body"}, "client_edits_earlier_user_message": {"body"},
    "swa_cache_miss": {"checkpoint"}, "checkpoints_disabled": {"checkpoint"},
    "slot_evicted_no_prompt_cache": {"slots"}, "utility_requests_take_the_slot": {"slots"},
    "more_conversations_than_slots": {"slots"}, "prompt_cache_ram_too_small": {"slots"},
    "prompt_cache_ram_too_small_evictions": {"slots"}, "id_slot_pinned_same_slot": {"slots"},
    "shared_system_prompt_slot_steal": {"steal"},
}  # fmt: skip
"""True causes by the slug of a day; the days of other slugs (a restart, a sleep, prompts at one time) are left out."""
UNDECIDED = {"log-too-terse", "reuse-undecided"}
BEGIN, END = "<!-- differential: begin -->", "<!-- differential: end -->"
_BINS, _PARTS = 5, 6
_DECIDED = 0.1
"""How much a day counts of which a rule names the cause: its causes are never ranked."""
_SEEN = 0.05
"""Situations below which a cell of the table stays empty."""
_MUCH = 1000
"""Tokens that the server lost beside the client, from which on that is a main cause as well."""


class Day(NamedTuple):
    """What the log of one day shows."""

    name: str
    situation: str
    true: set[Candidate]
    answer: str
    is_undecided: bool
    votes: list[tuple[str, int]]
    """(name of the kind, tokens) of every request that may have lost something."""
    excluded: frozenset[Candidate]


class _Hearing(Listener):
    """Keeps every request."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    def examined(self, judged: list[tuple[Judged, Session]], findings: list[Finding]) -> None:
        """Take requests, revised ones as well."""
        self.requests += [one.request for one, _ in judged]


def read(run: Path) -> Day | None:
    """Read the log of a day; None where its cause is not among those that are ranked."""
    truth = runs.truth(run)
    is_day = "cause" in truth
    cause = truth["cause"] if is_day else truth["expected_cause"]
    if nothing_to_mend(truth) if is_day else healthy(truth):
        cause = "none"
    if cause not in TRUE:
        return None
    hearing = _Hearing()
    analyzer = Analyzer(truth["build"] if is_day else None, listener=hearing)
    feed_all(analyzer, [str(run / "server.log")], MAX_BYTES)
    report = analyzer.finish()
    requests = log_order(hearing.requests).requests
    first = min(report.findings, key=lambda f: f.severity == "note", default=None)
    undecided = first is not None and (first.name in UNDECIDED or first.confidence == "low")
    turns = frozenset(rotating(requests))
    found = [(vote.kind.name, vote.tokens) for vote in votes(requests, turns)]
    answer = "silent" if first is None else first.name
    situation = truth["situation"] if is_day else truth["scenario"]
    return Day(run.name, situation, _true(truth, cause), answer, undecided, found, excluded(requests, turns))


def _true(truth: dict[str, Any], cause: str) -> set[Candidate]:
    """The true causes: where the memory cannot go back, a change of the client may have cost the server's part, too."""
    lost = truth["total"]["server"] if "total" in truth else truth["server_lost_tokens_total"]
    memory = truth.get("memory") or truth["model_kind"]
    return TRUE[cause] | (
        {"checkpoint"} if TRUE[cause] & {"head", "body"} and memory != "dense" and lost >= _MUCH else set()
    )


def counted(days: Sequence[Day]) -> dict[str, dict[Candidate, float]]:
    """Of every kind, in how many situations of each true cause it was seen, by the share of the tokens.

    However many builds and memories a situation was played on, it counts once at most.
    """
    found: dict[str, dict[Candidate, float]] = defaultdict(lambda: defaultdict(float))
    played: dict[str, float] = defaultdict(float)
    for day in days:
        played[day.situation] += _weight(day)
    for day in days:
        whole = sum(tokens for _, tokens in day.votes)
        share = _weight(day) / max(1.0, played[day.situation])
        for name, tokens in day.votes:
            for candidate in day.true:
                found[name][candidate] += share * tokens / whole / len(day.true)
    return found


def _weight(day: Day) -> float:
    return (1.0 if day.is_undecided else _DECIDED) if day.votes else 0.0


def ranked(day: Day, kinds: Mapping[str, Kind]) -> list[tuple[Candidate, float]]:
    """The causes of a day with their likelihoods, by a table of kinds."""
    return [
        (one.candidate, one.likelihood) for one in rank((Vote(kinds[name], n) for name, n in day.votes), day.excluded)
    ]


class Score(NamedTuple):
    """How well days were ranked."""

    days: int
    first: float
    two: float
    error: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[Day, list[tuple[Candidate, float]]]]) -> Score:
        """Score days and their rankings."""
        bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
        first = two = 0
        for day, ranking in pairs:
            is_first = ranking[0][0] in day.true
            first += is_first
            two += any(candidate in day.true for candidate, _ in ranking[:2])
            bins[min(_BINS - 1, int(ranking[0][1] * _BINS))].append((ranking[0][1], is_first))
        whole = max(1, len(pairs))
        error = sum(abs(sum(p for p, _ in one) - sum(right for _, right in one)) for one in bins.values()) / whole
        return cls(len(pairs), first / whole, two / whole, error)


def part(day: Day) -> int:
    """In which part the situation of a day is."""
    return zlib.crc32(day.situation.encode()) % _PARTS


def crossed(days: Sequence[Day]) -> list[tuple[Day, list[tuple[Candidate, float]]]]:
    """Days with votes, each ranked with the counts of the other parts."""
    found = []
    for one in range(_PARTS):
        counts = counted([day for day in days if part(day) != one])
        kinds = {kind.name: Kind(kind.name, kind.words, counts.get(kind.name, {})) for kind in KINDS}
        found += [(day, ranked(day, kinds)) for day in days if part(day) == one and day.votes]
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a Markdown table."""
    cells = [list(head), ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return ["| " + " | ".join(row) + " |" for row in cells]


def tables(days: Sequence[Day]) -> list[str]:
    """All that is printed."""
    counts = counted(days)
    names: list[Candidate] = list(RULE_OF)
    rows = [[kind.words, *(_share(counts[kind.name][name]) for name in names)] for kind in KINDS]
    pairs = crossed(days)
    undecided = [pair for pair in pairs if pair[0].is_undecided]
    scores = [("undecided days", Score.of(undecided)), ("all days with a possible loss", Score.of(pairs))]
    shown = [[what, s.days, f"{s.first:.2f}", f"{s.two:.2f}", f"{s.error:.2f}"] for what, s in scores]
    cells: Counter[tuple[str, str]] = Counter()
    for day, ranking in undecided:
        cells[_named(day), ranking[0][0]] += 1
    true = sorted({row for row, _ in cells})
    whole = f"{len({day.situation for day in days})} situations, {len(days)} logs."
    return [
        f"{whole} In how many situations each kind of evidence was seen:",
        "", *table(["evidence", *names], rows), "",
        "Each sixth of the situations, ranked with the counts of the others:",
        "", *table(["days", "n", "true cause first", "in the first two", "calibration error"], shown), "",
        "Likelihood of the first one by how often it was right, undecided days:",
        "", *_bins(undecided), "",
        "Undecided days, true cause (rows) by the one ranked first:",
        "", *table(["true cause", *names], [[row, *(cells[row, name] for name in names)] for row in true]), "",
        "Situations whose undecided days are ranked wrongly, and what speaks for the wrong one:",
        "", *_wrong(undecided),
    ]  # fmt: skip


def _share(count: float) -> str:
    return f"{count:.1f}" if count >= _SEEN else ""


def _named(day: Day) -> str:
    return " or ".join(sorted(day.true))


def _bins(pairs: Sequence[tuple[Day, list[tuple[Candidate, float]]]]) -> list[str]:
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for day, ranking in pairs:
        bins[min(_BINS - 1, int(ranking[0][1] * _BINS))].append((ranking[0][1], ranking[0][0] in day.true))
    rows = [
        [f"{at / _BINS:.1f} to {(at + 1) / _BINS:.1f}", len(one), f"{sum(p for p, _ in one) / len(one):.2f}",
         f"{sum(right for _, right in one) / len(one):.2f}"]
        for at, one in sorted(bins.items())
    ]  # fmt: skip
    return table(["likelihood", "days", "said", "right"], rows)


def _wrong(pairs: Sequence[tuple[Day, list[tuple[Candidate, float]]]]) -> list[str]:
    found: Counter[tuple[str, str, str, str]] = Counter()
    for day, ranking in pairs:
        if ranking[0][0] not in day.true:
            tokens: Counter[str] = Counter()
            for name, count in day.votes:
                tokens[name] += count
            words = next(kind.words for kind in KINDS if kind.name == tokens.most_common(1)[0][0])
            found[day.situation, _named(day), ranking[0][0], words] += 1
    rows = [[*key, count] for key, count in sorted(found.items())]
    return table(["situation", "true cause", "ranked first", "because", "days"], rows)


def written(docs: Path, lines: Sequence[str]) -> None:
    """Put the tables between the two marks of a page."""
    before, _, rest = docs.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    docs.write_text("\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"]), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dirs", type=Path, nargs="+")
    parser.add_argument("--workers", type=int, default=runs.WORKERS)
    parser.add_argument("--list", action="store_true", help="also the undecided days that are ranked wrongly")
    parser.add_argument("--counts", action="store_true", help="also the counts of all of them as kinds.py has them")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="write the tables between the marks of this page")
    a = parser.parse_args()
    found = [run for folder in a.dirs for run in runs.find(folder)]
    days = [day for day in runs.over(read, found, a.workers) if day is not None]
    lines = tables(days)
    print(*lines, sep="\n")
    if a.list:
        for day, ranking in crossed(days):
            if day.is_undecided and ranking[0][0] not in day.true:
                tokens: Counter[str] = Counter()
                for name, count in day.votes:
                    tokens[name] += count
                words = ", ".join(f"{name} {likelihood:.2f}" for name, likelihood in ranking[:3])
                print(f"{day.name}: true {'/'.join(sorted(day.true))}; ranked {words}; {dict(tokens)}")
    if a.counts:
        for kind, counts in counted(days).items():
            shown = ", ".join(f'"{name}": {counts[name]:.1f}' for name in RULE_OF if counts[name] >= 0.05)
            print(f"{kind}: {{{shown}}}")
    if a.json:
        rows = [{**day._asdict(), "true": sorted(day.true), "excluded": sorted(day.excluded)} for day in days]
        a.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if a.docs:
        written(a.docs, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
