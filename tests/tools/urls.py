"""Opens a Parquet export by its URL, as people do, and checks that every tool reads the rows of the file itself.

    urls.py URL FILE

FILE is the export, fetched before. DuckDB reads the URL in parts; so does Polars, by a scan and by a read; PyArrow
reads it in parts through a file object, and whole. Prints a line for each; the first difference ends it with an error.
"""

import io
import os
import pathlib
import re
import sys
import tempfile
import urllib.error
import urllib.request

import duckdb
import duckdb_extension_httpfs
import polars
import pyarrow
import pyarrow.parquet


class RemoteFile(io.RawIOBase):
    """A file behind a URL, of which only the parts that are read are fetched."""

    def __init__(self, url):
        self.url = url
        self.at = 0
        with self.fetch("bytes=-1") as response:
            self.length = int(re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers["Content-Range"])[1])
            self.etag = response.headers["ETag"]

    def fetch(self, range, **headers):
        return urllib.request.urlopen(urllib.request.Request(self.url, headers={"Range": range, **headers}))

    def seekable(self):
        return True

    def readable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.length}[whence]
        return self.at

    def readinto(self, buffer):
        end = min(self.at + len(buffer), self.length)
        if self.at >= end:
            return 0
        with self.fetch(f"bytes={self.at}-{end - 1}", **{"If-Range": self.etag}) as response:
            same("status of a part", response.status, 206)
            part = response.read()
        same("bytes of a part", len(part), end - self.at)
        buffer[: len(part)] = part
        self.at = end
        return len(part)


def main(url, path):
    expected = pyarrow.parquet.read_table(path)
    columns, rows = expected.column_names, list(zip(*(column.to_pylist() for column in expected.columns)))

    def check(what, found_columns, found_rows):
        same(f"columns in {what}", list(found_columns), columns)
        same(f"rows in {what}", len(found_rows), len(rows))
        for number, (found, expected) in enumerate(zip(found_rows, rows)):
            same(f"row {number} in {what}", found, expected)
        print(f"{what}: {len(found_rows)} rows, {len(columns)} columns")

    # The extension as its package brings it: nothing is fetched.
    package = pathlib.Path(duckdb_extension_httpfs.__file__).parent
    extension = package / "extensions" / f"v{duckdb.__version__}" / "httpfs.duckdb_extension"
    with tempfile.TemporaryDirectory() as home:
        database = duckdb.connect(config={"home_directory": home, "extension_directory": home})
        database.execute(f"LOAD '{extension}'")
        table = database.read_parquet(url)
        check("DuckDB", table.columns, table.fetchall())
        count = database.execute("SELECT count(*) FROM read_parquet(?)", [url]).fetchall()
        same("a count in DuckDB", count, [(len(rows),)])
        one = database.execute(f'SELECT "{columns[0]}" FROM read_parquet(?)', [url]).fetchall()
        same("a column in DuckDB", one, [row[:1] for row in rows])

    frame = polars.read_parquet(url)
    check("Polars, read", frame.columns, frame.rows())
    frame = polars.scan_parquet(url).collect()
    check("Polars, scanned", frame.columns, frame.rows())
    tail = polars.scan_parquet(url).select(columns[-2:]).tail(3).collect()
    same("the last rows in Polars", tail.rows(), [row[-2:] for row in rows[-3:]])

    def table_rows(table):
        return list(zip(*(column.to_pylist() for column in table.columns)))

    table = pyarrow.parquet.read_table(pyarrow.PythonFile(RemoteFile(url), mode="r"))
    check("PyArrow, in parts", table.column_names, table_rows(table))
    with urllib.request.urlopen(url) as response:
        body = response.read()
        same("Content-Length", response.headers["Content-Length"], str(len(body)))
    table = pyarrow.parquet.read_table(io.BytesIO(body))
    check("PyArrow, whole", table.column_names, table_rows(table))

    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"))
        sys.exit("HEAD is answered")
    except urllib.error.HTTPError as error:
        same("status of HEAD", error.code, 405)


def same(what, found, expected):
    if found != expected:
        sys.exit(f"{what}\n  found    {found!r:.300}\n  expected {expected!r:.300}")


if __name__ == "__main__":
    main(*sys.argv[1:])
    # All is checked; the libraries' own threads now and then abort a process that ends in the usual way.
    sys.stdout.flush()
    os._exit(0)
