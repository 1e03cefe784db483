"""What is to be measured: sizes, eras, rounds, and the logs it needs. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Plan(NamedTuple):
    """The arguments of a run."""

    size: int
    """Bytes of a log of the throughput part; the other parts use shares and multiples of it."""
    eras: list[str]
    rounds: int
    is_quick: bool
    folder: Path
    """Where logs are written."""
    is_kept: bool = False
    """Whether they stay, and are used again."""
    against: Path | None = None
    """A checkout of another commit, whose start-up is measured as well."""

    def log(self, name: str, blocks: Iterable[str]) -> Path:
        """The log called ``name``, written now from ``blocks`` unless it exists."""
        path = self.folder / f"{name}.log"
        if not path.exists():
            part = path.with_suffix(".part")  # whatever was interrupted is not taken for a log
            with part.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(blocks)
            part.rename(path)
        return path

    def discard(self, *logs: Path) -> None:
        """Remove logs that are no longer needed."""
        for log in logs:
            if not self.is_kept:
                log.unlink()


def megabytes(*logs: Path) -> float:
    """MB of 1,000,000 bytes of all logs together."""
    return sum(log.stat().st_size for log in logs) / 1e6


def count_requests(log: Path) -> int:
    """Requests in the log; reading it also brings it into the page cache."""
    wanted, total, rest = b"| processing task", 0, b""
    with log.open("rb") as file:
        while block := file.read(1 << 20):
            block = rest + block
            total += block.count(wanted)
            rest = block[-(len(wanted) - 1) :]
    return total
