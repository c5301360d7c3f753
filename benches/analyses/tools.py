"""The tools: how the users of each tool open a dataset by URL in a format."""

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
    """Fetches a whole response, for tools that cannot read from a URL."""
    with urllib.request.urlopen(url) as answer:
        return io.BytesIO(answer.read())


def database(home: Path) -> duckdb.DuckDBPyConnection:
    """Returns a new database that can read from URLs."""
    home.mkdir(parents=True, exist_ok=True)
    opened = duckdb.connect(config={"home_directory": str(home), "allow_unsigned_extensions": True})
    opened.execute(f"LOAD '{HTTPFS}'")
    return opened


def relation(url: str, form: str) -> str:
    """Returns the source that DuckDB selects from."""
    return READERS[form].format(url)


def lazy(url: str, form: str) -> polars.LazyFrame:
    """Returns the frame that Polars selects from. From a URL, Polars reads only Parquet."""
    readers: dict[str, Callable[[], polars.LazyFrame]] = {
        PARQUET: lambda: polars.scan_parquet(url),
        CSV: lambda: polars.read_csv(fetched(url), infer_schema_length=None).lazy(),
        JSONL: lambda: polars.read_ndjson(fetched(url), infer_schema_length=None).lazy(),
    }
    return readers[form]()


def frame(url: str, form: str, columns: list[str]) -> pandas.DataFrame:
    """Returns the frame that pandas selects from."""
    readers: dict[str, Callable[[], pandas.DataFrame]] = {
        PARQUET: lambda: pandas.read_parquet(url, columns=columns),
        CSV: lambda: pandas.read_csv(url, usecols=columns),
        JSONL: lambda: pandas.read_json(url, lines=True)[columns],
    }
    return readers[form]()
