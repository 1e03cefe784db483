"""Writes numbered lines to a log and rotates it in every way, as fast as it can: ``rotating_writer.py LOG LINES SEED``.

Nothing is ever deleted or cut without a copy, so a reader that is slow loses nothing. An odd seed numbers the rotated
files (``server.log.1`` is the newest), an even one dates them. Imported by nobody.
"""

import os
import random
import shutil
import sys
import time
from pathlib import Path


class Writer:
    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.chance = random.Random(seed)
        self.dated = seed % 2 == 0
        self.rotations = 0
        self.number = 0
        self.file = path.open("ab", buffering=0)

    def line(self) -> None:
        line = b"line %d\n" % self.number
        self.number += 1
        cut = self.chance.randrange(len(line))  # it may be written in two goes
        self.file.write(line[:cut])
        self.file.write(line[cut:])
        if self.chance.random() < 0.01:
            time.sleep(self.chance.random() * 0.004)

    def retired(self) -> Path:
        """A free name for the present file, after all others have been renamed where that is the custom."""
        self.rotations += 1
        if self.dated:
            return Path(f"{self.path}-{20260101 + self.rotations}")
        for number in range(self.rotations, 1, -1):
            os.rename(f"{self.path}.{number - 1}", f"{self.path}.{number}")
        return Path(f"{self.path}.1")

    def rename(self) -> None:
        self.path.rename(self.retired())
        self.file.close()
        self.file = self.path.open("ab", buffering=0)

    def rename_late(self) -> None:
        self.path.rename(self.retired())
        self.path.touch()
        self.line()  # the server has not reopened its log yet
        self.file.close()
        self.file = self.path.open("ab", buffering=0)

    def copy_and_cut(self) -> None:
        shutil.copyfile(self.path, self.retired())
        os.truncate(self.path, 0)


def main() -> None:
    path, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    writer = Writer(path, seed)
    while writer.number < count:
        for _ in range(writer.chance.choice((1, 1, 2, 10, 100))):
            writer.line()
        writer.chance.choice((writer.rename, writer.rename_late, writer.copy_and_cut))()


main()
