"""SQLite with full-text indexes of trigrams, served by datasette as named queries."""

import json
import shutil
import sqlite3
import sys
from itertools import combinations
from pathlib import Path
from urllib.parse import urlencode

import datasette

from peers import answers, entities
from peers.answers import Answer
from peers.load import Wrk
from peers.programs import Command, Server, Unavailable, free_port, listens
from peers.questions import (
    EXACT,
    JSON,
    LIMIT,
    MIDDLE,
    NESTED,
    PAGE,
    PAIRS,
    SUBSTRING,
    TOP,
    WORDS,
    WORDS_COUNT,
    Question,
    Row,
)
from peers.systems.http import HttpSystem

# The description has a second index, because a column filter in an index of all texts would read longer posting lists.
IMPORT = """
CREATE TABLE entities (
    position INTEGER PRIMARY KEY, publisher TEXT, category TEXT, licence TEXT, language TEXT, status TEXT,
    downloads INTEGER, document TEXT
);
CREATE TABLE dependencies (name TEXT, position INTEGER, PRIMARY KEY (name, position)) WITHOUT ROWID;
CREATE VIRTUAL TABLE descriptions USING fts5(description, content='', columnsize=0, tokenize='trigram');
CREATE VIRTUAL TABLE documents USING fts5(document, content='', columnsize=0, tokenize='trigram');
"""

FILL = [
    """INSERT INTO entities
    SELECT position, lower(document ->> 'publisher'), document ->> 'category', document ->> 'licence',
        document ->> 'language', document ->> 'status', document ->> 'downloads', document
    FROM raw ORDER BY position""",
    """INSERT INTO dependencies
    SELECT DISTINCT lower(each.value ->> 'name') AS name, position
    FROM raw, json_each(document, '$.dependencies') AS each ORDER BY name, position""",
    """INSERT INTO descriptions (rowid, description)
    SELECT position, document ->> 'description' FROM raw ORDER BY position""",
    "INSERT INTO documents (rowid, document) SELECT position, document FROM raw ORDER BY position",
    "INSERT INTO descriptions (descriptions) VALUES ('optimize')",
    "INSERT INTO documents (documents) VALUES ('optimize')",
    "CREATE INDEX by_publisher ON entities (publisher, position)",
    "CREATE INDEX by_downloads ON entities (downloads DESC, position)",
    *(
        f"CREATE INDEX by_{'_'.join(fields)} ON entities ({', '.join(fields)})"
        for fields in combinations(entities.LOW_CARDINALITY_FIELDS, 2)
    ),
    "ANALYZE",
]

PAGE_SQL = "SELECT document FROM entities WHERE position >= :offset ORDER BY position LIMIT {limit}"
MATCHING = "FROM documents WHERE documents MATCH :match"
QUERIES = {
    PAGE: PAGE_SQL.format(limit=LIMIT),
    MIDDLE: PAGE_SQL.format(limit=LIMIT),
    EXACT: f"SELECT document FROM entities WHERE publisher = :text ORDER BY position LIMIT {LIMIT} OFFSET :offset",
    NESTED: "SELECT document FROM dependencies JOIN entities USING (position) WHERE name = :text"
    f" ORDER BY dependencies.position LIMIT {LIMIT} OFFSET :offset",
    SUBSTRING: "SELECT count(*) FROM descriptions WHERE descriptions MATCH :match",
    WORDS: f"SELECT document FROM (SELECT rowid AS position {MATCHING} ORDER BY rowid LIMIT {LIMIT})"
    " JOIN entities USING (position) ORDER BY position",
    WORDS_COUNT: f"SELECT count(*) {MATCHING}",
    TOP: f"SELECT document FROM entities ORDER BY downloads DESC, position LIMIT {LIMIT} OFFSET :offset",
}

# A loose index scan, as for PostgreSQL.
PAIRS_SQL = """
WITH RECURSIVE pairs (one, other) AS (
    SELECT * FROM (SELECT {one}, {other} FROM entities ORDER BY {one}, {other} LIMIT 1)
    UNION ALL
    SELECT following.{one}, following.{other} FROM pairs JOIN entities AS following ON following.position = (
        SELECT position FROM entities WHERE ({one}, {other}) > (pairs.one, pairs.other) ORDER BY {one}, {other} LIMIT 1
    )
) SELECT {columns} FROM pairs
"""


class Sqlite(HttpSystem):
    """The database file, and datasette serving it."""

    name = "datasette"

    def __init__(self, wrk: Wrk, directory: Path) -> None:
        super().__init__(wrk)
        self.directory = directory
        self._file = directory / "peers.db"
        self._server: Server | None = None

    def prepare(self) -> str:
        if sqlite3.sqlite_version_info < (3, 38):
            raise Unavailable(f"datasette: SQLite {sqlite3.sqlite_version} has no trigrams, or no JSON operators")
        return f"{datasette.__version__} on SQLite {sqlite3.sqlite_version}"

    def load(self, source: Path) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        connection = sqlite3.connect(self._file, isolation_level=None)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -1000000", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {setting}")
        connection.executescript(IMPORT)
        connection.execute("CREATE TEMP TABLE raw (position INTEGER PRIMARY KEY, document TEXT)")
        connection.execute("BEGIN")
        with source.open(encoding="utf-8", newline="\n") as lines:
            rows = ((position, line[:-1]) for position, line in enumerate(lines))
            connection.executemany("INSERT INTO raw VALUES (?, ?)", rows)
        for statement in FILL:
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.close()

    def start(self) -> None:
        queries = {row.key: {"sql": text} for row, text in QUERIES.items()}
        for one, other in combinations(entities.LOW_CARDINALITY_FIELDS, 2):
            for columns, key in (("one, other", f"{one}-{other}"), ("other, one", f"{other}-{one}")):
                queries[f"pairs-{key}"] = {"sql": PAIRS_SQL.format(one=one, other=other, columns=columns)}
        metadata = self.directory / "metadata.json"
        metadata.write_text(json.dumps({"databases": {"peers": {"queries": queries}}}))
        self.port = free_port()
        command: Command = [
            sys.executable,
            "-m",
            "datasette",
            "serve",
            "--immutable",
            self._file,
            "--metadata",
            metadata,
        ]
        settings = {"sql_time_limit_ms": "60000", "cache_size_kb": "200000"}
        command += ["--port", str(self.port)]
        command += [word for name, value in settings.items() for word in ("--setting", name, value)]
        self._server = Server(command, self.directory / "log", listens(self.port))

    def stop(self) -> None:
        if self._server:
            self._server.stop()

    def serves(self, row: Row) -> bool:
        return row in QUERIES or row in (PAIRS, JSON)

    def target(self, question: Question) -> str:
        row, texts = question.row, question.texts
        key, arguments = row.key, {"offset": str(question.offset)}
        if row == PAIRS:
            key, arguments = f"pairs-{texts[0]}-{texts[1]}", {}
        elif row in (SUBSTRING, WORDS, WORDS_COUNT):
            arguments = {"match": " AND ".join(f'"{text}"' for text in texts)}
        elif texts:
            arguments["text"] = texts[0]
        return f"/peers/{key}.json?{urlencode(arguments | {'_shape': 'arrays'})}"

    def parse(self, question: Question, body: bytes) -> Answer:
        return answers.from_rows(question, json.loads(body)["rows"])

    def export(self, row: Row, path: Path) -> None:
        """Exports without datasette, which would page through the table."""
        connection = sqlite3.connect(self._file)
        with path.open("w", encoding="utf-8", newline="\n") as file:
            rows = connection.execute("SELECT document FROM entities ORDER BY position")
            file.writelines(f"{document}\n" for (document,) in rows)
        connection.close()
