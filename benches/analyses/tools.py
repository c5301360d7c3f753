"""The tools: how each opens a dataset by URL in a format, as its users do."""

import io
import urllib.request
from collections.abc import Callable
from pathlib import Path

import duckdb
import duckdb_extension_httpfs
import pandas
import polars

PARQUET, CSV, JSONL = "parquet", "csv", "jsonl"
FORMATS = (PARQUET, CSV, JSONL)

HTTPFS = (
    Path(duckdb_extension_httpfs.__file__).parent / "extensions" / f"v{duckdb.__version__}" / "httpfs.duckdb_extension"
)
READERS = {PARQUET: "read_parquet('{}')", CSV: "read_csv('{}')", JSONL: "read_json('{}', format='newline_delimited')"}


def fetched(url: str) -> io.BytesIO:
    """A whole answer, for what cannot read by URL."""
    with urllib.request.urlopen(url) as answer:
        return io.BytesIO(answer.read())


def database(home: Path) -> duckdb.DuckDBPyConnection:
    """A database that knows nothing yet, and reads URLs."""
    home.mkdir(parents=True, exist_ok=True)
    opened = duckdb.connect(config={"home_directory": str(home), "allow_unsigned_extensions": True})
    opened.execute(f"LOAD '{HTTPFS}'")
    return opened


def relation(url: str, form: str) -> str:
    """What DuckDB selects from."""
    return READERS[form].format(url)


def lazy(url: str, form: str) -> polars.LazyFrame:
    """What Polars selects from. By URL it reads Parquet alone."""
    readers: dict[str, Callable[[], polars.LazyFrame]] = {
        PARQUET: lambda: polars.scan_parquet(url),
        CSV: lambda: polars.read_csv(fetched(url), infer_schema_length=None).lazy(),
        JSONL: lambda: polars.read_ndjson(fetched(url), infer_schema_length=None).lazy(),
    }
    return readers[form]()


def frame(url: str, form: str, columns: list[str]) -> pandas.DataFrame:
    """What pandas selects from."""
    readers: dict[str, Callable[[], pandas.DataFrame]] = {
        PARQUET: lambda: pandas.read_parquet(url, columns=columns),
        CSV: lambda: pandas.read_csv(url, usecols=columns),
        JSONL: lambda: pandas.read_json(url, lines=True)[columns],
    }
    return readers[form]()
