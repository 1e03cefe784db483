"""Runs trials by name, all of them without one. Exit status 1 when one fails."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.fleet.logs import Started, WrongError, demand, digests, fleet, folder_of_logs, rows

LOGS, SIZE = 16, "2M"
TITLES = {"local": "multiprocessing.spawn", "ray": "ray::run_log", "dask": "multiprocessing.spawn"}
"""What stands in the command line of a process that reads."""


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
    """A run that is killed as a whole goes on where it ended."""
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


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Start an object store that speaks S3; gives what a client must have in its environment."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it tells of every request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    try:
        yield {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_EC2_METADATA_DISABLED": "true", **keys}
    finally:
        server.stop()


def in_objects(ground: Ground, _: str) -> None:
    """Logs in an object store give the tables of files, but for their names; the others there get a row each."""
    import boto3

    with object_store() as env:
        client = boto3.client("s3", endpoint_url=env["AWS_ENDPOINT_URL"], region_name="us-east-1",
                              aws_access_key_id="testing", aws_secret_access_key="testing")  # fmt: skip
        client.create_bucket(Bucket="logs")
        for path in sorted(ground.logs.rglob("*.log*")):
            client.upload_file(str(path), "logs", f"fleet/{path.relative_to(ground.logs)}")
        out = ground.folder / "s3"
        run = fleet("s3://logs/fleet", "-o", out, "-j", 2, env=env)
        demand(run.status == 0, run.error)
        demand(_content(out, "s3://logs/fleet") == _content(ground.local, str(ground.logs)), "other rows than of files")
        _again(out, client, env)
        _amiss(ground, client, env)


def _content(folder: Path, prefix: str) -> list[dict[str, object]]:
    """The requests of all logs, by names that do not say where these lie; without what packing adds."""
    found = [row | {"path": str(row["path"]).removeprefix(prefix).strip("/")} for row in rows(folder, "requests")]
    return sorted(found, key=lambda row: (row["path"], row["index"]))


def _again(out: Path, client: object, env: dict[str, str]) -> None:
    run = fleet("s3://logs/fleet", "-o", out, env=env)
    demand(run.out.startswith(f"{LOGS} logs: {LOGS} known from an earlier run"), run.out)
    key = "fleet/host-0001/server.log"
    data = client.get_object(Bucket="logs", Key=key)["Body"].read()  # type: ignore[attr-defined]
    client.put_object(Bucket="logs", Key=key, Body=data + b"\n")  # type: ignore[attr-defined]
    run = fleet("s3://logs/fleet", "-o", out, env=env)
    demand(f"1 read, {LOGS - 1} known" in run.out, run.out)
    print("  a changed object alone is read again", flush=True)


def _amiss(ground: Ground, client: object, env: dict[str, str]) -> None:
    put = client.put_object  # type: ignore[attr-defined]
    packed = next(ground.logs.rglob("server.log.gz")).read_bytes()
    put(Bucket="logs", Key="odd/broken/server.log.gz", Body=packed[: len(packed) // 2])
    put(Bucket="logs", Key="odd/picture.png", Body=b"\x89PNG\r\n\x1a\n" + os.urandom(50_000))
    put(Bucket="logs", Key="odd/empty", Body=b"")
    put(Bucket="logs", Key="odd/whole/server.log.gz", Body=packed)
    out = ground.folder / "odd"
    run = fleet("s3://logs/odd", "s3://none/x", "gs://logs/x", "-o", out, env=env)
    found = {row["path"]: (row["status"], row["reason"]) for row in rows(out, "files")}
    print("\n".join(f"  {path}: {status}: {reason}" for path, (status, reason) in sorted(found.items())), flush=True)
    status = {path: said for path, (said, _) in found.items()}
    demand(run.status == 2, f"status {run.status}")
    demand(status["s3://logs/odd/whole/server.log.gz"] == "read", "the whole one is read")
    demand(status["s3://logs/odd/broken/server.log.gz"] == "cut", "the broken one is read as far as it goes")
    demand(status["s3://logs/odd/picture.png"] == status["s3://logs/odd/empty"] == "no log", "the others are no logs")
    demand(status["s3://none/x"] == status["gs://logs/x"] == "failed", "what leads nowhere has a row")
    bare = {key: value for key, value in env.items() if "KEY" not in key}
    out = ground.folder / "bare"
    run = fleet("s3://logs/fleet", ground.logs / "host-0001", "-o", out, env={"HOME": "/nonexistent", **bare})
    found = {row["path"]: (row["status"], row["reason"]) for row in rows(out, "files")}
    demand("no credentials" in str(found["s3://logs/fleet"][1]), f"credentials: {found}")
    demand(found[str(ground.logs / "host-0001" / "server.log")][0] == "read", "the rest goes on")
    demand(run.error.count("\n") == 1, run.error)
    print(f"  {run.error.strip()}", flush=True)


TRIALS: dict[str, tuple[Callable[[Ground, str], None], str]] = {
    "local-killed": (killed, "local"),
    "interrupted": (interrupted, "local"),
    "ray": (same_tables, "ray"),
    "ray-killed": (killed, "ray"),
    "dask": (same_tables, "dask"),
    "dask-killed": (killed, "dask"),
    "s3": (in_objects, "local"),
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
