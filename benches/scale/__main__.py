"""The command: measures one size after the other, from the smallest.

1. The data of a size is generated and imported.
2. For each row, a new server process answers the first request and then the other ones. The responses are checked.
3. At the smallest size, PostgreSQL answers the same questions after a restart for each row.
4. The table is printed. The exit code is 1 if a response is wrong or a request fails.
"""

import argparse
import hashlib
import http.client
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from peers.programs import Debian, Unavailable, built

from scale import entities
from scale import postgres as postgres_module
from scale.postgres import Postgres
from scale.rows import KEYS, Different, Row, rows
from scale.server import Cost, ImportCost, Strata
from scale.table import TOLERANCE, Result, table

# Errors of one step that do not prevent the others.
FAILURES = (
    Different,
    http.client.HTTPException,
    LookupError,
    OSError,
    RuntimeError,
    ValueError,
    subprocess.SubprocessError,
)

# The required disk space in bytes, for each byte of JSON: the JSON itself and the data of strata.
SPACE = 2


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="benches/scale/run", description="Measures how the cost of searches and sorts grows."
    )
    parser.add_argument(
        "--entities",
        default="1000000,10000000",
        metavar="N,N",
        help="numbers of entities; default: 1000000,10000000",
    )
    parser.add_argument("--strata", type=Path, help="the binary; default: build a release with cargo")
    parser.add_argument(
        "--directory", type=Path, help="directory of all files; default: scale/ in the target directory"
    )
    parser.add_argument("--keep", action="store_true", help="keep the generated and imported data for later runs")
    parser.add_argument(
        "--only", action="append", metavar="ROW", help=f"measure only this row; repeatable; rows: {', '.join(KEYS)}"
    )
    parser.add_argument(
        "--postgres",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare with PostgreSQL at the smallest size; default: yes",
    )
    given = parser.parse_args()
    try:
        given.entities = sorted({int(number) for number in given.entities.split(",")})
    except ValueError:
        parser.error(f"--entities {given.entities}: expected numbers, such as 1000000,10000000")
    if given.entities[0] < 10_000:
        parser.error("fewer than 10,000 entities measure nothing")
    if unknown := set(given.only or ()) - set(KEYS):
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    return given


def tell(text: str) -> None:
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def check_free(directory: Path, required: int) -> None:
    """Exits if the disk of a directory has too little free space, in bytes."""
    free = shutil.disk_usage(directory).free
    if free < required:
        sys.exit(f"{directory}: {required / 1e9:.1f} GB of disk space are required, {free / 1e9:.1f} GB are free")


def digest(*parts: str) -> str:
    """Returns a short digest of texts and of the code that generates the data, to name the data."""
    code = Path(entities.__file__).read_text()
    return hashlib.sha256("\0".join((code, *parts)).encode()).hexdigest()[:8]


class Growth:
    """A run of the benchmark: the results, and the failures."""

    def __init__(self, given: argparse.Namespace, directory: Path, program: Path) -> None:
        self._given = given
        self._directory = directory
        self._program = program
        self.failures: list[str] = []
        self.titles: dict[str, str] = {}
        self.summaries: list[str] = []
        self.measured: dict[tuple[str, int], Result] = {}
        self.postgres: dict[str, Result] = {}

    def source(self, size: int) -> Path:
        """Returns the path of the data of a size."""
        return self._directory / f"packages-{size}-{digest()}.jsonl"

    def strata(self, size: int) -> Strata:
        """Returns the server with the data of a size."""
        name = digest(str(self._program), str(self._program.stat().st_mtime_ns))
        return Strata(self._program, self._directory / f"strata-{size}-{name}")

    def check_space(self, postgres: Postgres | None) -> None:
        """Exits if a disk has too little space for the data that must be generated and imported."""
        needed = [
            0 if self.source(size).exists() and self.strata(size).is_loaded() else size * entities.ENTITY_BYTES * SPACE
            for size in self._given.entities
        ]
        if postgres and not postgres.is_loaded():
            peer_bytes = self._given.entities[0] * entities.ENTITY_BYTES * postgres_module.SPACE
            folder = postgres.directory.parent
            if folder.stat().st_dev == self._directory.stat().st_dev:
                needed[0] += peer_bytes
            else:
                check_free(folder, peer_bytes)
        # Without `--keep`, the data of a size is deleted before that of the next size is generated.
        check_free(self._directory, sum(needed) if self._given.keep else max(needed))

    def measure(self, size: int, postgres: Postgres | None) -> None:
        """Generates and imports the data of a size, and measures all rows."""
        source, strata = self.source(size), self.strata(size)
        try:
            self._succeeds(f"{size:,} entities", partial(self._measure, size, strata, postgres))
        finally:
            if postgres:
                postgres.stop(self._given.keep)
            if not self._given.keep:
                shutil.rmtree(strata.directory, ignore_errors=True)
                source.unlink(missing_ok=True)
                entities.results(source).unlink(missing_ok=True)

    def _measure(self, size: int, strata: Strata, postgres: Postgres | None) -> None:
        source = self.source(size)
        if not source.exists():
            tell(f"generating {size:,} entities")
            entities.write(source, size)
        expected = entities.read_expected(source)
        tell(f"{size:,} entities: import")
        self.summaries.append(summary(size, expected.json_bytes, strata.load(source)))
        tell(self.summaries[-1])
        measured = [row for row in rows(expected) if not self._given.only or row.key in self._given.only]
        self.titles = {row.key: row.title for row in measured}
        for row in measured:
            self._succeeds(f"{size:,} entities: {row.title}", partial(self._ask, strata, row, size))
        if postgres and self._succeeds("PostgreSQL: import", partial(postgres.load, source)):
            for row in measured:
                if row.first.sql:
                    self._succeeds(f"PostgreSQL: {row.title}", partial(self._ask_postgres, postgres, row))

    def _succeeds(self, what: str, work: Callable[[], object]) -> bool:
        """Runs `work`. Records a failure and returns false, so that the run continues."""
        tell(what)
        try:
            work()
        except FAILURES as error:
            self.failures.append(f"{what}: {error}")
            tell(f"FAILED: {error}")
            return False
        return True

    def _ask(self, strata: Strata, row: Row, size: int) -> None:
        try:
            strata.start()
            costs = [strata.ask(request) for request in (row.first, *row.others)]
        finally:
            strata.stop()
        self.measured[row.key, size] = self._result(costs)

    def _ask_postgres(self, postgres: Postgres, row: Row) -> None:
        self.postgres[row.key] = self._result(postgres.measure(row))

    def _result(self, costs: list[Cost]) -> Result:
        tell("    " + ", ".join(f"{cost.milliseconds:.2f} ms" for cost in costs))
        return Result.from_costs(costs)


def summary(size: int, json_bytes: int, cost: ImportCost) -> str:
    """Returns the line about the import of a size."""
    return (
        f"{size:,} entities, {json_bytes:,} bytes of JSON: import in {cost.seconds:.1f} s, "
        f"{cost.processor_seconds:.1f} s of processor time, a peak of {cost.peak_bytes / 2**20:,.0f} MiB; "
        f"the version file has {cost.file_bytes / json_bytes:.3f} bytes per byte of JSON"
    )


def main() -> None:
    """Runs the benchmark."""
    given = options()
    directory = (given.directory or Path(os.environ["CARGO_TARGET_DIR"]) / "scale").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    program = given.strata.resolve() if given.strata else built()
    growth = Growth(given, directory, program)
    postgres, peer = None, "no PostgreSQL"
    if given.postgres:
        postgres = Postgres(Debian(directory / "debian"), f"scale-{given.entities[0]}-{digest()}")
        try:
            peer = f"PostgreSQL {postgres.prepare()}"
        except Unavailable as error:
            postgres = None
            tell(str(error))
    growth.check_space(postgres)
    try:
        for size in given.entities:
            growth.measure(size, postgres if size == given.entities[0] else None)
    except KeyboardInterrupt:
        # Prints the results so far.
        growth.failures.append("the run was interrupted")

    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{version}; {peer}; {os.cpu_count()} cores, {platform.machine()}")
    print("\n".join(growth.summaries))
    print("milliseconds, bytes and requests of the store: of a new process's first request, and the median of the next")
    if len(given.entities) > 1:
        print(f"a bold ratio exceeds {given.entities[-1] / given.entities[0] * TOLERANCE:.1f}")
    print(f"\n{table(growth.titles, given.entities, growth.measured, growth.postgres)}")
    if growth.failures:
        sys.exit("\n" + "\n".join(f"FAILED: {failure}" for failure in growth.failures))


if __name__ == "__main__":
    main()
