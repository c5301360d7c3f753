"""Executes SQL from standard input with DuckDB and prints the rows of its last statement.

python snippet.py

The extension httpfs is installed before, as its package brings it: nothing is fetched.
"""

import os
import pathlib
import shutil
import sys
import tempfile

import duckdb
import duckdb_extension_httpfs


def main():
    package = pathlib.Path(duckdb_extension_httpfs.__file__).parent
    version = f"v{duckdb.__version__}"
    with tempfile.TemporaryDirectory() as home:
        database = duckdb.connect(config={"home_directory": home, "extension_directory": home})
        (platform,) = database.execute("PRAGMA platform").fetchone()
        installed = pathlib.Path(home) / version / platform
        installed.mkdir(parents=True)
        shutil.copy(package / "extensions" / version / "httpfs.duckdb_extension", installed)
        for row in database.execute(sys.stdin.read()).fetchall():
            print(row)


if __name__ == "__main__":
    main()
    # As in urls.py: the libraries' own threads now and then abort a process that ends in the usual way.
    sys.stdout.flush()
    os._exit(0)
