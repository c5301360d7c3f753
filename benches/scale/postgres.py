"""PostgreSQL with trigrams of the descriptions, B-trees for both numbers, and one for the unique value."""

import re
import shutil
import tempfile
from pathlib import Path

from peers.postgres_server import PostgresServer
from peers.programs import Debian

from scale.rows import Row
from scale.server import Cost, drop_cached_pages

# The required disk space in bytes, for each byte of JSON.
SPACE = 4

TABLES = """
CREATE EXTENSION pg_trgm;
CREATE UNLOGGED TABLE raw (position bigint GENERATED ALWAYS AS IDENTITY (START 0 MINVALUE 0), document text);
CREATE UNLOGGED TABLE entities (position bigint, installed_size bigint, size bigint, sha256 text, document text)
    WITH (toast_tuple_target = 8160);
CREATE UNLOGGED TABLE texts (position bigint, description text) WITH (toast_tuple_target = 8160);
"""
COPY = r"COPY raw (document) FROM STDIN (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')"
FILL = """
INSERT INTO entities
    SELECT position, (data ->> 'Installed-Size')::bigint, (data ->> 'Size')::bigint, data ->> 'SHA256', document
    FROM (SELECT position, document, document::jsonb AS data FROM raw OFFSET 0) AS parsed ORDER BY position;
INSERT INTO texts SELECT position, lower(document::json ->> 'Description') FROM raw ORDER BY position;
DROP TABLE raw;
ALTER TABLE entities ADD PRIMARY KEY (position);
CREATE INDEX ON entities (installed_size DESC, position);
CREATE INDEX ON entities (installed_size, position);
CREATE INDEX ON entities (size DESC, position);
CREATE INDEX ON entities (size, position);
CREATE INDEX ON entities (sha256);
CREATE INDEX ON texts USING gin (description gin_trgm_ops) WITH (fastupdate = off);
VACUUM ANALYZE;
"""
TIME = re.compile(r"^Time: ([0-9.]+) ms.*\n", re.MULTILINE)


class Postgres:
    """The server and its client `psql`, which measures the time of each statement."""

    def __init__(self, debian: Debian, name: str) -> None:
        self._server = PostgresServer(name, debian)
        self.directory = self._server.directory
        # Written when the import is complete.
        self._record = self.directory / "loaded"

    def prepare(self) -> str:
        """Returns the version. Raises `Unavailable` if PostgreSQL is missing and cannot be unpacked."""
        return self._server.prepare()

    def is_loaded(self) -> bool:
        """Returns whether the directory contains the data of an earlier run."""
        return self._record.exists()

    def load(self, source: Path) -> None:
        """Imports a file, unless a kept directory contains it."""
        if self.is_loaded():
            return
        self._server.create()
        self._server.start()
        try:
            self._run(TABLES)
            self._server.run("psql", *self._options(), "--command", COPY, source=source)
            self._run(FILL)
        finally:
            self._server.stop()
        self._record.touch()

    def measure(self, row: Row) -> list[Cost]:
        """Returns the cost of the first statement after a restart, and of the other statements of a row."""
        requests = (row.first, *row.others)
        drop_cached_pages(self.directory)
        self._server.start()
        try:
            output = self._run("\\timing on\n" + "".join(f"{request.sql};\n" for request in requests))
        finally:
            self._server.stop()
        # The rows of a statement, and then its time.
        parts = TIME.split(output)
        for request, found in zip(requests, parts[::2]):
            request.check_rows(found)
        return [Cost(float(milliseconds)) for milliseconds in parts[1::2]]

    def stop(self, keep: bool) -> None:
        """Stops the server, and deletes the data if it is not kept."""
        self._server.stop()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _options(self) -> list[str]:
        return [self._server.url(), "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "-vON_ERROR_STOP=1"]

    def _run(self, script: str) -> str:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(script)
            file.flush()
            return self._server.run("psql", *self._options(), source=Path(file.name))
