"""The command: generates the data and measures one system after the other, never two at the same time.

1. strata is first. The other systems must return the same answers, and nginx serves the bytes of strata's answers.
2. Then every peer imports the same file, answers the first questions of each row for comparison, and is measured.
3. The table is printed. The exit code is 1 if an answer differs or a peer fails.
"""

import argparse
import hashlib
import inspect
import json
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import psycopg
import pyarrow

from peers import answers, entities
from peers.answers import Answer
from peers.load import Wrk
from peers.programs import Debian, Unavailable, built
from peers.questions import IMPORT, JSON, ROWS, Question, Row, Supply, questions
from peers.systems.clickhouse import ClickHouse
from peers.systems.duck import Duck
from peers.systems.nginx import Nginx
from peers.systems.postgres import Postgres
from peers.systems.sqlite import Sqlite
from peers.systems.strata import Strata
from peers.systems.system import System
from peers.table import Cell, rate, table

PEERS = ("duckdb", "clickhouse", "postgres", "datasette", "static")
UNCACHED = "uncached"
MAX_EXPORTS = 3

# Errors of one system that do not prevent the measurement of the others.
FAILURES = (
    answers.Different,
    RuntimeError,
    OSError,
    subprocess.SubprocessError,
    duckdb.Error,
    psycopg.Error,
    sqlite3.Error,
)


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="benches/peers/run", description="Compares strata with other systems.")
    parser.add_argument(
        "--entities", type=int, default=100_000, help="number of entities, such as 1000000; default: 100000"
    )
    parser.add_argument("--seconds", type=float, default=3, help="duration of each measurement; default: 3")
    parser.add_argument(
        "--connections", type=int, default=16, help="connections of the second measurement; default: 16"
    )
    keys = ", ".join(row.key for row in ROWS)
    parser.add_argument(
        "--only", action="append", metavar="ROW", help=f"measure only this row; repeatable; rows: {keys}"
    )
    every = ",".join((*PEERS, UNCACHED))
    parser.add_argument("--peers", default=every, help=f"systems to compare; default: {every}")
    parser.add_argument("--strata", type=Path, help="the binary; default: build a release with cargo")
    parser.add_argument(
        "--directory", type=Path, help="directory of all files; default: peers/ in the target directory"
    )
    parser.add_argument("--keep", action="store_true", help="keep the data of the systems for later runs")
    given = parser.parse_args()
    given.peers = [name for name in given.peers.split(",") if name]
    if unknown := set(given.peers) - {*PEERS, UNCACHED}:
        parser.error(f"unknown peers: {', '.join(sorted(unknown))}")
    if unknown := set(given.only or ()) - {row.key for row in ROWS}:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    if given.entities < 2_000:
        parser.error("fewer than 2,000 entities measure nothing")
    return given


def tell(text: str) -> None:
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)


class Comparison:
    """A run of the comparison: questions, answers, results, and failures."""

    def __init__(self, given: argparse.Namespace, directory: Path) -> None:
        self._given = given
        self.rows = [row for row in ROWS if not given.only or row.key in given.only]
        self.failures: list[str] = []
        self._directory = directory
        self.source = directory / f"packages-{given.entities}.jsonl"
        self._exports = directory / "exports"
        self._exports.mkdir(exist_ok=True)
        self.measured: dict[tuple[str, str], Cell] = {}
        self._questions = {row: questions(row, given.entities) for row in self.rows if row.kind == "question"}
        self._answers: dict[Question, Answer] = {}
        self._tables: dict[Row, pyarrow.Table] = {}

    def load(self, system: System, version: str) -> None:
        """Imports the source and measures the import, or reuses the data of an earlier run."""
        code = Path(inspect.getfile(type(system))).read_bytes() + Path(entities.__file__).read_bytes()
        identity = {"entities": self._given.entities, "version": version, "code": hashlib.sha256(code).hexdigest()}
        record = self._directory / f"{system.directory.name}.json"
        before = json.loads(record.read_text()) if record.exists() else {}
        if self._given.keep and system.directory.exists() and before == identity | {"seconds": before.get("seconds")}:
            seconds = before["seconds"]
        else:
            record.unlink(missing_ok=True)
            began = time.perf_counter()
            system.load(self.source)
            seconds = time.perf_counter() - began
            if self._given.keep:
                record.write_text(json.dumps(identity | {"seconds": seconds}))
        if IMPORT in self.rows:
            self._measured(system, IMPORT, Cell(seconds))

    def peer(self, system: System, version: str) -> None:
        """Imports the data into a peer and measures it."""
        try:
            if isinstance(system, Nginx) or self._succeeds(system, "import", lambda: self.load(system, version)):
                self.run(system)
        finally:
            system.stop()
            if not self._given.keep:
                shutil.rmtree(system.directory, ignore_errors=True)

    def run(self, system: System, nginx: Nginx | None = None) -> None:
        """Compares and measures a system with imported data. For strata, also writes the static files for nginx."""
        try:
            if not self._succeeds(system, "start", system.start):
                return
            for row in self.rows:
                if row.kind == "import" or not system.serves(row):
                    continue
                measure = self._export if row.kind == "export" else self._ask
                self._succeeds(system, row.title, partial(measure, system, row, nginx))
        finally:
            system.stop()

    def _succeeds(self, system: System, what: str, work: Callable[[], object]) -> bool:
        """Runs `work`. Records a failure and returns false, so that the comparison continues."""
        tell(f"{system.name}: {what}")
        try:
            work()
        except FAILURES as error:
            self.failures.append(f"{system.name}: {what}: {error}")
            tell(f"FAILED: {error}")
            return False
        return True

    def _measured(self, system: System, row: Row, cell: Cell) -> None:
        tell(f"    {cell.text()}")
        self.measured[row.key, system.name] = cell

    def _ask(self, system: System, row: Row, nginx: Nginx | None) -> None:
        supply = Supply(row, self._questions[row])
        if nginx and isinstance(system, Strata):
            nginx.put(row.key).write_bytes(system.get(system.target(supply.compared[0])))
        if not isinstance(system, Nginx):
            for question in supply.compared:
                answer = system.answer(question)
                what = f"{', '.join(question.texts) or 'all'}, from {question.offset}"
                answers.same(what, answer, self._answers.setdefault(question, answer))
        load = system.measure(supply, self._given.connections, self._given.seconds)
        self._measured(system, row, Cell(load.median_ms / 1e3, load.per_second))

    def _export(self, system: System, row: Row, nginx: Nginx | None) -> None:
        path = self._exports / f"{system.name.replace(' ', '-')}.{row.key}"
        durations: list[float] = []
        deadline = time.perf_counter() + 2 * self._given.seconds
        while not durations or (
            system.exports_again and len(durations) < MAX_EXPORTS and time.perf_counter() < deadline
        ):
            path.unlink(missing_ok=True)
            began = time.perf_counter()
            system.export(row, path)
            durations.append(time.perf_counter() - began)
        if not isinstance(system, Nginx):
            if row == JSON:
                answers.same_json(path, self.source)
            else:
                found = answers.table(path)
                answers.same_table(found, self._tables.setdefault(row, found))
        self._measured(system, row, Cell(statistics.median(durations)))
        if nginx and isinstance(system, Strata):
            shutil.move(path, nginx.put(row.key))
        path.unlink(missing_ok=True)


def main() -> None:
    """Runs the comparison."""
    given = options()
    directory = (given.directory or Path(os.environ["CARGO_TARGET_DIR"]) / "peers").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    program = given.strata.resolve() if given.strata else built()
    debian = Debian(directory / "debian")
    wrk = Wrk(debian.program("wrk", "wrk"), debian.environment())
    nginx = Nginx(wrk, debian, directory / "nginx")
    strata = Strata(wrk, program, directory / "strata")
    strata_uncached = Strata(wrk, program, directory / "strata", caches_responses=False)
    every: dict[str, System] = {
        "duckdb": Duck(directory / "duckdb"),
        "clickhouse": ClickHouse(directory / "clickhouse"),
        "postgres": Postgres(debian),
        "datasette": Sqlite(wrk, directory / "datasette"),
        "static": nginx,
    }
    peers = [every[name] for name in PEERS if name in given.peers]
    versions = {system.name: system.prepare() for system in (strata, *peers)}

    comparison = Comparison(given, directory)
    if not comparison.source.exists():
        tell(f"generating {given.entities:,} entities")
        entities.write(comparison.source, given.entities)
    ceiling = None
    if nginx in peers:
        nginx.start()
        ceiling = nginx.ceiling(given.connections, given.seconds)
        nginx.stop()
    try:
        tell(f"{strata.name}: import")
        comparison.load(strata, versions[strata.name] + str(program.stat().st_mtime))
        comparison.run(strata, nginx if nginx in peers else None)
        if UNCACHED in given.peers:
            comparison.run(strata_uncached)
        for system in peers:
            comparison.peer(system, versions[system.name])
    except KeyboardInterrupt:
        # Prints the results so far.
        comparison.failures.append("the run was interrupted")
    if not given.keep:
        shutil.rmtree(strata.directory, ignore_errors=True)

    size = comparison.source.stat().st_size
    print(f"{given.entities:,} entities, {size:,} bytes of JSON; {os.cpu_count()} cores, {platform.machine()}")
    print("; ".join(f"{name.removesuffix(' default')} {version}" for name, version in versions.items()))
    print(f"milliseconds at one connection, requests per second at {given.connections}; * repeats the same questions")
    if ceiling:
        print(f"wrk reaches {rate(ceiling)} for a static file of two bytes at {given.connections} connections")
    uncached = [strata_uncached.name] if UNCACHED in given.peers else []
    names = [strata.name, *uncached, *(system.name for system in peers)]
    print(f"\n{table(comparison.rows, names, comparison.measured)}")
    if comparison.failures:
        sys.exit("\n" + "\n".join(f"FAILED: {failure}" for failure in comparison.failures))


if __name__ == "__main__":
    try:
        main()
    except (Unavailable, answers.Different) as error:
        sys.exit(str(error))
