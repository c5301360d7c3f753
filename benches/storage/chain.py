"""Versions of a large dataset, each with a few changes to the version before.

Only the lines of the first version are in a file. A later version is a list of references to these lines and of new
lines, so that the benchmark needs little memory.
"""

import hashlib
import mmap
from array import array
from pathlib import Path
from random import Random

from scale import entities

# The share of entities that each version changes, and the share that it removes and adds.
SHARE = 0.001
# The length of the block that each version moves.
MOVED = 1_000
SEED = 20_261_201


class Chain:
    """The versions of a dataset. `lines` refers to the entities of the current version, in their order."""

    def __init__(self, directory: Path, size: int) -> None:
        code = Path(entities.__file__).read_text()
        self._source = directory / f"chain-{size}-{hashlib.sha256(code.encode()).hexdigest()[:8]}.jsonl"
        if not self._source.exists():
            entities.write(self._source, size)
        with self._source.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._starts = array("q", [0])
        at = self._bytes.find(b"\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = self._bytes.find(b"\n", at + 1)
        # A number below 0 refers to `_new`, from the end.
        self.lines = array("q", range(len(self._starts) - 1))
        self._new: list[bytes] = []
        self._random = Random(SEED)
        self.version = 1

    def _line(self, number: int) -> bytes:
        if number < 0:
            return self._new[-number - 1]
        return self._bytes[self._starts[number] : self._starts[number + 1]]

    def _add(self, like: bytes, change: str) -> int:
        """Adds a line that differs from another one by its version."""
        before, mark, after = like.partition(b'"Version":"')
        self._new.append(before + mark + f"{self.version}:{change}:".encode() + after)
        return -len(self._new)

    def advance(self) -> None:
        """Creates the next version: changes, removes, and adds entities, and moves a block."""
        self.version += 1
        random, lines = self._random, self.lines
        share = int(len(lines) * SHARE)
        for position in random.sample(range(len(lines)), share):
            lines[position] = self._add(self._line(lines[position]), "changed")
        removed = sorted(random.sample(range(len(lines)), share), reverse=True)
        for position in removed:
            del lines[position]
        for _ in range(share):
            position = random.randrange(len(lines))
            lines.insert(position, self._add(self._line(lines[position]), "added"))
        begin = random.randrange(len(lines) - MOVED)
        block = lines[begin : begin + MOVED]
        del lines[begin : begin + MOVED]
        end = random.randrange(len(lines))
        lines[end:end] = block

    def write(self, path: Path) -> None:
        """Writes the current version as JSON lines."""
        with path.open("wb", buffering=1 << 20) as file:
            for number in self.lines:
                file.write(self._line(number))

    def remove(self) -> None:
        """Deletes the file of the first version."""
        self._source.unlink(missing_ok=True)
        entities.results(self._source).unlink(missing_ok=True)
