"""The command: imports chains of versions, measures what they cost, and prints one table.

1. A generated dataset gets further versions, each with a few changes. The last version is also imported as a new
   dataset, whose file is complete.
2. Reads of the last version are compared with the same reads of the complete file.
3. Changes and synchronization are measured.
4. The releases of a public package become the versions of another dataset.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from peers.programs import Unavailable, built

from storage.chain import Chain
from storage.releases import PACKAGE, Releases
from storage.server import Strata

REPEATS = 15

# Requests of the last version, by the title of their row. Each is sent with three different values.
READS = {
    "page": [f"limit=100&offset={offset}" for offset in (0, 1_000, 5_000)],
    "filter": [f"filter=Section:{section}&limit=100" for section in ("net", "utils", "doc")],
    "keyword, count": [f"keywords={word}&count=true" for word in ("astro", "galax", "chemi")],
    "top 100": [f"sort={order}&limit=100" for order in ("Size:desc", "Installed-Size:desc", "Size:asc")],
}
FAILURES = (LookupError, OSError, RuntimeError, ValueError, subprocess.SubprocessError)


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="benches/storage/run", description="Measures what further versions of a dataset cost."
    )
    parser.add_argument("--entities", type=int, default=1_000_000, help="entities of a version; default: 1,000,000")
    parser.add_argument("--versions", type=int, default=30, help="number of versions; default: 30")
    parser.add_argument("--strata", type=Path, help="the binary; default: build a release with cargo")
    parser.add_argument(
        "--directory", type=Path, help="directory of all files; default: storage/ in the target directory"
    )
    parser.add_argument("--keep", action="store_true", help="keep the generated and downloaded data for later runs")
    given = parser.parse_args()
    if given.entities < 10_000 or given.versions < 2:
        parser.error("at least 10,000 entities and 2 versions are required")
    return given


def tell(text: str) -> None:
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)


class Measurement:
    """A run of the benchmark: the rows of the table, and the failures."""

    def __init__(self, given: argparse.Namespace, directory: Path, program: Path) -> None:
        self._given = given
        self._directory = directory
        self._program = program
        self.rows: list[tuple[str, str]] = []
        self.failures: list[str] = []

    def row(self, title: str, measure: Callable[[], str]) -> None:
        """Adds a row. A failure is recorded, and the run continues."""
        tell(title)
        try:
            value = measure()
        except FAILURES as error:
            self.failures.append(f"{title}: {error}")
            value = "–"
        tell(f"    {value}")
        self.rows.append((title, value))

    def chain(self) -> None:
        """Measures the generated dataset."""
        versions = self._given.versions
        tell(f"generating {self._given.entities:,} entities")
        chain = Chain(self._directory, self._given.entities)
        source = self._directory / "version.jsonl"
        strata = Strata(self._program, self._directory / "chain")
        copy = self._directory / "copy.jsonl"
        try:
            chain.write(source)
            chain.write(copy)
            copy.with_name(f"{copy.name}.version").write_text("v1\n")
            first = strata.import_version(source, "Chain")
            one_file = strata.stored_bytes()
            further = []
            for _ in range(1, versions):
                chain.advance()
                chain.write(source)
                further.append(strata.import_version(source, "Chain"))
                tell(f"version {chain.version}: {further[-1]:.1f} s, {strata.stored_bytes() / one_file:.3f} files")
            stored = strata.stored_bytes()
            strata.import_version(source, "Complete")
            self.row(f"store after {versions} versions, in files", lambda: f"{stored / one_file:.2f}")
            self.row(
                "processor time of a refresh, against the first import",
                lambda: f"{statistics.median(further) / first:.2f}",
            )
            strata.start()
            self._read(strata, source, copy)
        finally:
            strata.stop()
            for path in (source, copy, copy.with_name(f"{copy.name}.version")):
                path.unlink(missing_ok=True)
            shutil.rmtree(strata.directory, ignore_errors=True)
            if not self._given.keep:
                chain.remove()

    def _read(self, strata: Strata, source: Path, copy: Path) -> None:
        last = self._given.versions
        for title, queries in READS.items():
            targets = [
                (f"/api/1/chain/v{last}/?{query}&pretty=false", f"/api/2/complete/v1/?{query}&pretty=false")
                for query in queries
            ]
            self.row(f"{title}, against a complete file", partial(strata.compare, targets, REPEATS))
        target = f"/changes/1/chain/v{last}/?since=v{last - 1}"

        def changes() -> str:
            found = [strata.changes(target) for _ in range(3)]
            first = statistics.median(each.first_byte for each in found) * 1e3
            complete = statistics.median(each.complete for each in found) * 1e3
            return f"{first:.0f} ms; {complete:.0f} ms; {found[0].size:,} bytes"

        self.row(f"changes from v{last - 1} to v{last}: first byte; complete", changes)

        def sync() -> str:
            sent = strata.sync(f"/files/1/chain/v{last}.jsonl", copy)
            if copy.read_bytes() != source.read_bytes():
                raise RuntimeError("the synchronized file is not the version")
            return f"{sent / source.stat().st_size:.3f}"

        self.row(f"bytes of a synchronization from v1 to v{last}, against the file", sync)

    def releases(self) -> None:
        """Measures the dataset of a public package."""

        def measure() -> str:
            releases = Releases(self._directory, self._given.versions)
            strata = Strata(self._program, self._directory / "package")
            try:
                strata.import_version(releases.path(releases.numbers[0]), "Releases")
                one_file = strata.stored_bytes()
                for number in releases.numbers[1:]:
                    strata.import_version(releases.path(number), "Releases")
                return f"{strata.stored_bytes() / one_file:.2f}"
            finally:
                shutil.rmtree(strata.directory, ignore_errors=True)

        self.row(f"store after {self._given.versions} releases of {PACKAGE}, in files", measure)


def main() -> None:
    """Runs the benchmark."""
    given = options()
    directory = (given.directory or Path(os.environ["CARGO_TARGET_DIR"]) / "storage").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    program = given.strata.resolve() if given.strata else built()
    measurement = Measurement(given, directory, program)
    try:
        measurement.chain()
        measurement.releases()
    except KeyboardInterrupt:
        # Prints the results so far.
        measurement.failures.append("the run was interrupted")
    except Unavailable as error:
        measurement.failures.append(str(error))
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{version}; {given.entities:,} entities; {os.cpu_count()} cores, {platform.machine()}\n")
    width = max(len(title) for title, _ in measurement.rows)
    print(f"| {'Measurement'.ljust(width)} | Result |\n|{'-' * (width + 2)}|---|")
    for title, value in measurement.rows:
        print(f"| {title.ljust(width)} | {value} |")
    if measurement.failures:
        sys.exit("\n" + "\n".join(f"FAILED: {failure}" for failure in measurement.failures))


if __name__ == "__main__":
    main()
