"""The command: serves the data and measures each tool. See README.md.

1. A proxy counts the requests and the bytes of each tool. Each measurement is a separate client of the server, so that
   its count toward the rate limit starts at zero.
2. The same analyses run again without the proxy and are timed. All exports are cached by then.
3. The exit code is 1 if the rows of the tools and formats differ.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import fsspec
import pandas
import polars
import pyarrow
import pyarrow.parquet
from peers import entities
from peers.programs import built

from analyses import tools
from analyses.proxy import Counts, Proxy
from analyses.questions import MANY_DOWNLOADS, PACKAGES, PUBLISHERS, Analysis, Rows, analyses, same
from analyses.service import Strata
from analyses.tools import CSV, FORMATS, JSONL, PARQUET

COUNTRIES = ("BR", "CA", "DE", "EE", "FR", "IN", "JP", "KE", "NZ", "PL", "US", "VN")
QUERIES = {PARQUET: "format=parquet&typed=true", CSV: "format=csv", JSONL: "format=jsonl"}
TOOLS = ("DuckDB", "Polars", "pandas")

# The status of HEAD requests, which never count toward the rate limit.
REFUSED = 405


@dataclass(frozen=True)
class Cell:
    """The requests and the time that a tool needed."""

    counts: Counts
    counted: int
    seconds: float | None = None

    def text(self) -> str:
        """Formats the cells: requests, requests that counted or would count for each range, bytes, and seconds."""
        each = sum(request.status != REFUSED for request in self.counts.requests)
        counted = f"{self.counted}" if each == self.counted else f"{self.counted}, not {each}"
        shown = f"{len(self.counts.requests)} ({counted}), {self.counts.size / 1e6:.2f} MB"
        return shown if self.seconds is None else f"{shown}, {self.seconds:.2f} s"


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="benches/analyses/run", description="Counts the requests of analysis tools to strata."
    )
    parser.add_argument("--entities", type=int, default=100_000, help="number of entities; default: 100000")
    parser.add_argument(
        "--strata",
        type=Path,
        action="append",
        help="the binary; repeat it to compare binaries; default: build a release",
    )
    parser.add_argument(
        "--fields", action="store_true", help="request only the fields that an analysis needs (keep_field)"
    )
    parser.add_argument("--requests", action="store_true", help="list each request of the first table")
    parser.add_argument(
        "--directory", type=Path, help="directory of all generated files; default: analyses/ in the target directory"
    )
    given = parser.parse_args()
    if given.entities < 2_000:
        parser.error("fewer than 2,000 entities measure nothing")
    return given


def tell(text: str) -> None:
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)


class Session:
    """A server with the data, and the tools."""

    def __init__(self, given: argparse.Namespace, program: Path, directory: Path) -> None:
        self._given = given
        self._home = directory / "duckdb"
        self._strata = Strata(program, directory / "strata")
        self.version = self._strata.version()
        sources = {"Packages": directory / f"packages-{given.entities}.jsonl"}
        if not sources["Packages"].exists():
            tell(f"generating {given.entities:,} entities")
            entities.write(sources["Packages"], given.entities)
        sources["Publishers"] = directory / "publishers.csv"
        names = [entities.publisher(number) for number in range(entities.publishers(given.entities))]
        lines = [f"{name},{COUNTRIES[number % len(COUNTRIES)]}\n" for number, name in enumerate(names)]
        sources["Publishers"].write_text("publisher,country\n" + "".join(lines))
        tell(f"{self.version}: import")
        self._strata.load(sources)
        self._strata.start()
        self._proxy = Proxy(self._strata.port)
        self._analyses = analyses(names[1])
        self.different: list[str] = []

    def stop(self) -> None:
        """Stops the server."""
        self._proxy.stop()
        self._strata.stop()

    def _url(self, port: int, dataset: str, form: str, columns: list[str] | None = None) -> str:
        number = {PACKAGES: 1, PUBLISHERS: 2}[dataset]
        fields = f"&keep_field={','.join(columns)}" if columns and self._given.fields else ""
        return f"http://127.0.0.1:{port}/api/{number}/{dataset}/active/?{QUERIES[form]}{fields}"

    def _counted(self, ask: Callable[[int], object]) -> tuple[object, Counts, int]:
        """Makes requests through the proxy as a separate client."""
        before = self._strata.counted()
        self._proxy.begin()
        answer = ask(self._proxy.port)
        return answer, self._proxy.counts(), self._strata.counted() - before

    def reads(self) -> str:
        """Prints the first table: the requests of each way to read a Parquet export."""
        ways = ("schema", "count", "one column", "filter with a limit", "all")
        readers = {"DuckDB": self._duckdb, "Polars": self._polars, "pandas": self._pandas, "pyarrow": self._pyarrow}
        # The export is built first, so that the counted requests are not the very first ones.
        self._duckdb("all", self._url(self._strata.port, PACKAGES, PARQUET))
        lines = [["Parquet", *readers]]
        for way in ways:
            cells = []
            for name, reader in readers.items():
                tell(f"{name}: {way}")
                ask = partial(lambda reader, way, port: reader(way, self._url(port, PACKAGES, PARQUET)), reader, way)
                _, counts, counted = self._counted(ask)
                if self._given.requests:
                    for request in counts.requests:
                        tell(f"    {request.method} {request.range or '-'}: {request.status}, {request.size:,} bytes")
                cells.append(Cell(counts, counted).text())
            lines.append([way, *cells])
        return markdown(lines)

    def _duckdb(self, way: str, url: str) -> object:
        queries = {
            "schema": "DESCRIBE SELECT * FROM {}",
            "count": "SELECT count(*) FROM {}",
            "one column": "SELECT sum(downloads) FROM {}",
            "filter with a limit": f"SELECT name FROM {{}} WHERE downloads > {MANY_DOWNLOADS} LIMIT 20",
            "all": "SELECT * FROM {}",
        }
        with tools.database(self._home) as database:
            return database.sql(queries[way].format(tools.relation(url, PARQUET))).to_arrow_table()

    def _polars(self, way: str, url: str) -> object:
        export = polars.scan_parquet(url)
        queries: dict[str, Callable[[], object]] = {
            "schema": export.collect_schema,
            "count": lambda: export.select(polars.len()).collect(),
            "one column": lambda: export.select(polars.col("downloads").sum()).collect(),
            "filter with a limit": lambda: (
                export.filter(polars.col("downloads") > MANY_DOWNLOADS).select("name").head(20).collect()
            ),
            "all": export.collect,
        }
        return queries[way]()

    def _pandas(self, way: str, url: str) -> object:
        # pandas fetches the complete file from a URL.
        return pandas.read_parquet(url, columns=["downloads"] if way == "one column" else None)

    def _pyarrow(self, way: str, url: str) -> object:
        system = fsspec.filesystem("http", skip_instance_cache=True)
        with system.open(url) as opened, pyarrow.parquet.ParquetFile(opened) as file:
            queries: dict[str, Callable[[], object]] = {
                "schema": lambda: file.schema_arrow,
                "count": lambda: file.metadata.num_rows,
                "one column": lambda: file.read(["downloads"]),
                "filter with a limit": lambda: file.read_row_group(0, ["name", "downloads"]),
                "all": file.read,
            }
            return queries[way]()

    def analyses(self) -> str:
        """Prints the second table: ten analyses in each tool and format."""
        lines = [["Analysis", *(f"{tool} {form}" for form in FORMATS for tool in TOOLS)]]
        for analysis in self._analyses:
            expected: Rows | None = None
            cells = []
            for form in FORMATS:
                for tool in TOOLS:
                    tell(f"{tool} {form}: {analysis.title}")
                    ask = partial(self._rows, analysis, tool, form)
                    rows, counts, counted = self._counted(ask)
                    if expected is None:
                        expected = rows
                    elif not same(rows, expected):
                        self.different.append(f"{analysis.title}, {tool} {form}: {rows[:3]}, not {expected[:3]}")
                    began = time.perf_counter()
                    ask(self._strata.port)
                    cells.append(Cell(counts, counted, time.perf_counter() - began).text())
            lines.append([analysis.title, *cells])
        return markdown(lines)

    def _rows(self, analysis: Analysis, tool: str, form: str, port: int) -> Rows:
        urls = {dataset: self._url(port, dataset, form, columns) for dataset, columns in analysis.columns.items()}
        if tool == "DuckDB":
            relations = {dataset: tools.relation(url, form) for dataset, url in urls.items()}
            with tools.database(self._home) as database:
                return database.sql(analysis.sql.format(**relations)).fetchall()
        if tool == "Polars":
            return analysis.lazy(lambda dataset: tools.lazy(urls[dataset], form)).collect().rows()
        found = analysis.frames(lambda dataset: tools.frame(urls[dataset], form, analysis.columns[dataset]))
        return list(found.itertuples(index=False, name=None))


def markdown(lines: list[list[str]]) -> str:
    """Formats lines as a table."""
    head, *rows = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def main() -> None:
    """Measures one binary after the other."""
    given = options()
    directory = (given.directory or Path(os.environ["CARGO_TARGET_DIR"]) / "analyses").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    different: list[str] = []
    for program in given.strata or [built()]:
        session = Session(given, program.resolve(), directory)
        print(f"{program}: {session.version}; {given.entities:,} entities; {os.cpu_count()} cores")
        versions = (duckdb.__version__, polars.__version__, pandas.__version__, pyarrow.__version__)
        print("DuckDB {}, Polars {}, pandas {}, pyarrow {}".format(*versions))
        print("Each cell: requests (counted toward the rate limit, not the number if each range counted), bytes,")
        print("and seconds, with Parquet exports that already exist\n")
        try:
            print(f"{session.reads()}\n", flush=True)
            print(f"{session.analyses()}\n", flush=True)
        finally:
            session.stop()
        different += session.different
    if different:
        sys.exit("\n".join(f"DIFFERENT: {each}" for each in different))


if __name__ == "__main__":
    main()
