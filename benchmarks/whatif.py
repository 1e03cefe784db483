"""What-if against reality: days of real servers replayed under the settings of the same day without its fault.

usage: whatif.py [DIR] [--builds] [--models DIR] [--only TEXT] [--workers 2]

DIR is a folder of runs as ``sh scripts/e2e days --out DIR`` writes them. A pair is a day X and X_mended of the same
build and level, without cancelled requests, that differ in options of the server that the replay knows, and in nothing
else. The log and the bodies of X are replayed under X's options and under those of X_mended, as ``cachedoctor
simulate`` does; the reused tokens are compared with those that the server of X_mended reported. Where the log of X
hides the kind of memory, it is said with --set, as one who knows the model can. With --builds a pair is the same day,
with the same bodies and options, on an older build and on b11549; the older one is replayed as the newer.

within     they are within 2 % of each other, or less than 100 tokens apart
off        they are not
ORDER      the replay says wrongly which of both days reuses more, where they are not within 2 % of each other
refused    the command refuses: the replay does not explain the log of X

Exits 1 when fewer than 90 % of the pairs are within 2 %, or an order is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import runs
from days import HERE, models_in

from cachedoctor.doctor.replaying.server_names import FIELDS
from cachedoctor.doctor.whatif.evidence import Asking, gather
from cachedoctor.doctor.whatif.simulation import simulate
from cachedoctor.knowledge import cmdline, server_options
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.model import CacheDoctorError

WANTED, CLOSE, FEW = 0.90, 0.02, 100
"""Share of the pairs; share of the tokens; tokens."""


class Row(NamedTuple):
    """One pair."""

    name: str
    verdict: str
    real: tuple[int, int]
    """Tokens reused on both days."""
    replayed: tuple[int, int]
    order: bool
    detail: str = ""


def pairs(folder: Path, only: str) -> list[tuple[Path, Path]]:
    """Days that were fixed by other options."""
    found = []
    for run in runs.find(folder):
        if "_mended-" in run.name or only not in run.name:
            continue
        situation = runs.truth(run)["situation"]
        mended = run.with_name(run.name.replace(f"-{situation}-", f"-{situation}_mended-"))
        if not (mended / "truth.json").is_file() or fields(run) != fields(mended):
            continue
        names = [word.partition("=")[0] for word in changes(runs.truth(run)["options"], runs.truth(mended)["options"])]
        known = all(server_options.BY_NAME[f"--{name}"][0].key in FIELDS for name in names)
        if names and known and counted(run) and counted(mended):
            found.append((run, mended))
    return found


def built(folder: Path, only: str) -> list[tuple[Path, Path]]:
    """The same day on an older build and on the newest."""
    found = []
    for run in runs.find(folder):
        truth = runs.truth(run)
        newer = run.with_name(run.name.replace(f"-b{truth['build']}-", f"-b{NEWEST}-"))
        if truth["build"] == NEWEST or only not in run.name or not (newer / "truth.json").is_file():
            continue
        same = (run / "requests.jsonl").read_bytes() == (newer / "requests.jsonl").read_bytes()
        if same and runs.truth(newer)["options"] == truth["options"] and counted(run) and counted(newer):
            found.append((run, newer))
    return found


def counted(run: Path) -> bool:
    """Whether the server said of every request what it reused; of a cancelled one it does not."""
    return all(one["cached"] is not None for one in runs.truth(run)["requests"])


def fields(run: Path) -> list[list[str]]:
    """Keys of the bodies: a day may also be fixed by what its clients ask for, such as a slot."""
    lines = (run / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    return [sorted(json.loads(line)["body"] or {}) for line in lines]


def words(options: list[str]) -> dict[str, Any]:
    """Options by their keys."""
    given = cmdline.parse("llama-server " + " ".join(options))
    return {one.option: one.value for one in given if one.option not in (None, "verbosity")}


def changes(old: list[str], new: list[str]) -> list[str]:
    """What ``--set`` says to come from one command line to the other."""
    before, after = words(old), words(new)
    found = []
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            default = next((value for _, value in reversed(server_options.BY_KEY[key].defaults)), None)
            found.append(f"{server_options.BY_KEY[key].names[0].text.lstrip('-')}={after.get(key, default)}")
    return found


def judge(work: tuple[Path, Path, Path]) -> Row:
    """One pair, by the commands."""
    run, mended, models = work
    old, new = runs.truth(run), runs.truth(mended)
    real = (old["total"]["reused"], new["total"]["reused"])
    model = str(models / f"{old['memory']}.gguf")
    given = cmdline.parse("llama-server " + " ".join(old["options"]))
    asking = Asking([str(run / "server.log")], [str(run / "requests.jsonl")], model, None, old["build"], given)
    wanted = [f"build={new['build']}"] if new["build"] != old["build"] else []
    wanted += changes(old["options"], new["options"])
    try:
        evidence = gather(asking)
        if "memory" in evidence.assumed and old["memory"] != "dense":
            wanted += [f"memory={old['memory']}", *(["window=1024"] if old["memory"] == "swa" else [])]
        found = simulate(evidence, wanted, [run.name])
    except CacheDoctorError as error:
        return Row(run.name, "refused", real, (0, 0), False, f"{error.message} ({error.hint})")
    replayed = (found.replay.reused_tokens, found.changed.reused_tokens)
    apart = abs(replayed[1] - real[1])
    verdict = "within" if apart <= max(FEW, CLOSE * real[1]) else "off"
    alike = abs(real[1] - real[0]) <= max(FEW, CLOSE * real[0])
    order = alike or (real[1] > real[0]) == (replayed[1] > replayed[0])
    return Row(run.name, verdict, real, replayed, order)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path, nargs="?", default=HERE / "fixtures" / "days")
    parser.add_argument("--builds", action="store_true", help="another build instead of other options")
    parser.add_argument("--models", type=Path, help="folder with the days' models; made where it is not given")
    parser.add_argument("--only", default="", help="runs whose name holds this")
    parser.add_argument("--workers", type=int, default=runs.WORKERS)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    found = (built if a.builds else pairs)(a.dir, a.only)
    if not found:
        parser.error(f"no pairs below {a.dir}: sh scripts/e2e days --out {a.dir}")
    with tempfile.TemporaryDirectory() as scratch:
        models = a.models or models_in(Path(scratch))
        rows = list(runs.over(judge, [(*pair, models) for pair in found], a.workers))
    print(f"{'day':48} {'really':>9} {'mended':>9} {'replayed':>9} {'mended':>9}")
    for row in rows:
        numbers = " ".join(f"{number:9,}" for number in (*row.real, *row.replayed))
        print(f"{row.name:48} {numbers}  {row.verdict}{'' if row.order or row.detail else ', ORDER'} {row.detail}")
    if a.json:
        a.json.write_text(json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8")
    tally = Counter(row.verdict for row in rows)
    wrong = sum(not row.order for row in rows if row.verdict != "refused")
    words_of = ", ".join(f"{count} {verdict}" for verdict, count in tally.items())
    print(f"{len(rows)} pairs: {words_of}; order wrong in {wrong}")
    return 0 if tally["within"] >= WANTED * len(rows) and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
