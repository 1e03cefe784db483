"""Runs trials by name, all of them without one. Exit status 1 when one fails."""

from __future__ import annotations

import argparse
import contextlib
import lzma
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from e2e.fleet.logs import ROOT, Started, WrongError, demand, digests, fleet, folder_of_logs, rows
from e2e.fleet.ray_cluster import RayCluster
from e2e.fleet.stores import STORES, Store

LOGS, SIZE = 16, "2M"
TITLES = {"local": "multiprocessing.spawn", "ray": "ray::run_log"}
"""What is in the command line of a process that reads."""


class Ground:
    """A folder of logs, and what one run of the local engine made of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder_of_logs(folder / "logs", LOGS, SIZE)
        self.local = folder / "local"
        run = fleet(self.logs, "-o", self.local, "-j", 2)
        demand(run.status == 0, f"local: {run.error}")
        self.expected = digests(self.local)
        demand(len(rows(self.local, "files")) > LOGS, "rotations are files of their own")
        demand(len({row["log"] for row in rows(self.local, "files")}) == LOGS, "and belong to one log")
        print(f"  {LOGS} logs of {SIZE}: {len(self.expected)} files, local, in {run.seconds:.1f} s", flush=True)


def same_tables(ground: Ground, engine: str) -> None:
    """An engine gives the bytes of the local one."""
    out = ground.folder / engine
    run = fleet(ground.logs, "-o", out, "-j", 2, "--engine", engine)
    demand(run.status == 0, f"{engine}: {run.error}")
    demand(digests(out) == ground.expected, f"{engine}: other tables than local")
    print(f"  the same bytes in {run.seconds:.1f} s", flush=True)


def killed(ground: Ground, engine: str) -> None:
    """A process that is killed costs its log's time and nothing else."""
    out = ground.folder / f"{engine}-killed"
    started = Started(ground.logs, "-o", out, "-j", 2, "--engine", engine)
    started.kill_one(TITLES[engine], out, 3)
    run = started.ended()
    demand(run.status == 0, f"{engine}: {run.error}")
    demand("given out again" in run.out, f"{engine}: nobody noticed: {run.out}")
    demand(digests(out) == ground.expected, f"{engine}: other tables than local")
    print(f"  {run.out.splitlines()[0]} in {run.seconds:.1f} s, the same bytes", flush=True)


def interrupted(ground: Ground, _: str) -> None:
    """A run that is killed as a whole continues where it ended."""
    out = ground.folder / "interrupted"
    started = Started(ground.logs, "-o", out, "-j", 2)
    while len(list((out / "files").glob("*.parquet"))) < 4:
        time.sleep(0.05)
    started.process.kill()
    started.ended()
    before = {path: path.stat().st_mtime_ns for path in (out / "files").iterdir()}
    run = fleet(ground.logs, "-o", out, "-j", 2)
    demand(run.status == 0, run.error)
    kept = [path for path, time_then in before.items() if path.stat().st_mtime_ns == time_then]
    demand(len(kept) == len(before), "what was done is not done again")
    demand(digests(out) == ground.expected, "other tables than at once")
    print(f"  {run.out.splitlines()[0]}", flush=True)


def gone(ground: Ground, engine: str) -> None:
    """A cluster that goes away blames no log, leaves a page of what is done, and another run continues."""
    out = ground.folder / f"{engine}-gone"
    with RayCluster() as cluster:
        started = Started(ground.logs, "-o", out, "--engine", engine, "--address", cluster.address, env=cluster.env)
        while len(list((out / "files").glob("*.parquet"))) < 3 and started.process.poll() is None:
            time.sleep(0.05)
        cluster.kill("/raylet/raylet")
        run = started.ended()
    done = rows(out, "files")
    demand(run.status == 2, f"status {run.status}: {run.error}")
    demand("Ray: the cluster is gone" in run.error, run.error)
    demand({row["status"] for row in done} == {"read"}, f"a log is blamed: {done}")
    demand("Not yet read: " in (out / "index.html").read_text(), "the page says what is done")
    print(f"  {run.error.strip().splitlines()[-1]}", flush=True)
    run = fleet(ground.logs, "-o", out, "-j", 2)
    demand(run.status == 0 and "already done in an earlier run" in run.out, f"{run.out} {run.error}")
    demand(digests(out) == ground.expected, "other tables than at once")


def out_of_memory(ground: Ground, engine: str) -> None:
    """A log that needs more memory than a process may have is one row; all others are as they were."""
    small = ground.logs / "host-0001"
    peak = _memory(ground, small, engine)
    print(
        f"  a process that reads has taken {peak >> 20:,} MiB of addresses; {_MORE >> 20} more are allowed", flush=True
    )
    place = ground.folder / f"{engine}-limit"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_LIMIT.format(title=READERS[engine], limit=peak + _MORE))
    large = place / "server.log.xz"
    words = {"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 3 * _MORE}
    large.write_bytes(lzma.compress((small / "server.log").read_bytes(), filters=[words]))
    out = ground.folder / f"{engine}-memory"
    env = {"PYTHONPATH": f"{place}{os.pathsep}{ROOT}"}
    run = fleet(ground.logs, large, "-o", out, "-j", 2, "--engine", engine, env=env)
    found = {str(row["path"]): (row["status"], row["reason"]) for row in rows(out, "files")}
    print(f"  {found[str(large)]}; {run.out.splitlines()[:1]}", flush=True)
    demand(found.pop(str(large))[0] == "failed", "the large one has its row")
    demand({status for status, _ in found.values()} == {"read"}, f"the others are read: {found}")
    demand(run.error.count("\n") == 1, run.error)
    demand(digests(out) == ground.expected, "other tables than without it")


def _memory(ground: Ground, logs: Path, engine: str) -> int:
    """Bytes of addresses that a process takes which reads an ordinary log."""
    started, peak = Started(logs, "-o", ground.folder / f"{engine}-peak", "-j", 1, "--engine", engine), 0
    while started.process.poll() is None:
        for pid in started.workers(TITLES[engine]):
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                peak = max(peak, next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmPeak")))
        time.sleep(0.02)
    demand(started.ended().status == 0 and peak, "an ordinary log is read")
    return peak


_MORE = 32 << 20
"""Bytes that a process may take beyond those; a dictionary of three times as much does not fit."""
READERS = {"local": "multiprocessing.spawn", "ray": "default_worker.py"}
"""What is in the command line with which a process that reads is started."""
_LIMIT = """\
import resource, sys
if "{title}" in " ".join(sys.orig_argv):
    resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
"""


def in_objects(ground: Ground, scheme: str) -> None:
    """Logs in an object store give the tables of files, but for their names; the others there get a row each."""
    with STORES[scheme]() as store:
        for path in sorted(ground.logs.rglob("*.log*")):
            store.put(f"fleet/{path.relative_to(ground.logs)}", path.read_bytes())
        out, address = ground.folder / scheme, f"{scheme}://logs/fleet"
        run = fleet(address, "-o", out, "-j", 2, env=store.env)
        demand((run.status, run.error) == (0, ""), run.error)
        demand(_content(out, address) == _content(ground.local, str(ground.logs)), "other rows than of files")
        _again(ground, address, out, store)
        _amiss(ground, scheme, store)
        if scheme == "s3":
            _bare(ground, store)


def _content(folder: Path, prefix: str) -> list[dict[str, object]]:
    """The requests of all logs, by names that do not say where these lie; without what packing adds."""
    found = [row | {"path": str(row["path"]).removeprefix(prefix).strip("/")} for row in rows(folder, "requests")]
    return sorted(found, key=lambda row: (row["path"], row["index"]))


def _again(ground: Ground, address: str, out: Path, store: Store) -> None:
    run = fleet(address, "-o", out, env=store.env)
    demand(run.out.startswith(f"{LOGS} logs: {LOGS} already done in an earlier run"), run.out)
    store.put("fleet/host-0001/server.log", (ground.logs / "host-0001" / "server.log").read_bytes() + b"\n")
    run = fleet(address, "-o", out, env=store.env)
    demand(f"1 read, {LOGS - 1} known" in run.out, run.out)
    print("  a changed object alone is read again", flush=True)


def _amiss(ground: Ground, scheme: str, store: Store) -> None:
    packed = next(ground.logs.rglob("server.log.gz")).read_bytes()
    store.put("odd/broken/server.log.gz", packed[: len(packed) // 2])
    store.put("odd/picture.png", b"\x89PNG\r\n\x1a\n" + os.urandom(50_000))
    others = ["picture.png", "empty"]
    store.put("odd/empty", b"")
    store.put("odd/whole/server.log.gz", packed)
    out, odd, none = ground.folder / f"{scheme}-odd", f"{scheme}://logs/odd", f"{scheme}://none/x"
    run = fleet(odd, none, f"{scheme}://logs/none/*", "-o", out, env=store.env)
    found = {row["path"]: (row["status"], row["reason"]) for row in rows(out, "files")}
    print("\n".join(f"  {path}: {status}: {reason}" for path, (status, reason) in sorted(found.items())), flush=True)
    status = {path: said for path, (said, _) in found.items()}
    demand(run.status == 2, f"status {run.status}")
    demand(status[f"{odd}/whole/server.log.gz"] == "read", "the whole one is read")
    demand(status[f"{odd}/broken/server.log.gz"] == "cut", "the broken one is read as far as it goes")
    demand({status[f"{odd}/{name}"] for name in others} == {"no log"}, "the others are no logs")
    demand(status[none] == status[f"{scheme}://logs/none/*"] == "failed", "what leads nowhere has a row")
    demand(run.error.count("\n") == 3, run.error)


def _bare(ground: Ground, store: Store) -> None:
    """Without credentials an address is a row, and the rest continues."""
    bare = {key: value for key, value in store.env.items() if "KEY" not in key}
    out = ground.folder / "bare"
    run = fleet("s3://logs/fleet", ground.logs / "host-0001", "-o", out, env={"HOME": "/nonexistent", **bare})
    found = {row["path"]: (row["status"], row["reason"]) for row in rows(out, "files")}
    demand("no credentials" in str(found["s3://logs/fleet"][1]), f"credentials: {found}")
    demand(found[str(ground.logs / "host-0001" / "server.log")][0] == "read", "the rest goes on")
    demand(run.error.count("\n") == 1, run.error)
    print(f"  {run.error.strip()}", flush=True)


TRIALS: dict[str, tuple[Callable[[Ground, str], None], str]] = {
    "local-killed": (killed, "local"),
    "local-memory": (out_of_memory, "local"),
    "interrupted": (interrupted, "local"),
    "ray": (same_tables, "ray"),
    "ray-killed": (killed, "ray"),
    "ray-memory": (out_of_memory, "ray"),
    "ray-gone": (gone, "ray"),
    "s3": (in_objects, "s3"),
}


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="sh scripts/e2e fleet", description="fleet on real clusters.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(TRIALS)}")
    names = parser.parse_args().names or list(TRIALS)
    if unknown := [name for name in names if name not in TRIALS]:
        parser.error(f"no trial {', '.join(unknown)}; there are {', '.join(TRIALS)}")
    failed = []
    folder = Path(tempfile.mkdtemp(prefix="cachedoctor-e2e-fleet-"))
    try:
        ground = Ground(folder)
        for name in names:
            print(name, flush=True)
            trial, engine = TRIALS[name]
            try:
                trial(ground, engine)
            except WrongError as wrong:
                print(f"  FAILED: {wrong}", flush=True)
                failed.append(name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(names) - len(failed)} of {len(names)} trials as they have to be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
