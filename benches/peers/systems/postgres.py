"""PostgreSQL: statements that libpq prepares, and a manually created index for every queried field."""

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from peers import answers, entities, load
from peers.answers import Answer
from peers.load import Load
from peers.postgres_server import PostgresServer
from peers.programs import Debian
from peers.questions import (
    CSV,
    EXACT,
    JSON,
    LIMIT,
    MIDDLE,
    NESTED,
    PAGE,
    PAIRS,
    PARQUET,
    SUBSTRING,
    TOP,
    WORDS,
    WORDS_COUNT,
    Question,
    Row,
    Supply,
)
from peers.systems.system import System

# Texts are in a separate table, so that both texts and documents are small enough to be stored in their rows.
TABLES = """
CREATE UNLOGGED TABLE raw (position bigint GENERATED ALWAYS AS IDENTITY (START 0 MINVALUE 0), document text);
CREATE UNLOGGED TABLE entities (
    position bigint, publisher text, category text, licence text, language text, status text, downloads bigint,
    dependencies jsonb, document text
) WITH (toast_tuple_target = 8160);
CREATE UNLOGGED TABLE texts (position bigint, description text, document text) WITH (toast_tuple_target = 8160);
"""

FILL = """
INSERT INTO entities
    SELECT position, lower(data ->> 'publisher'), data ->> 'category', data ->> 'licence', data ->> 'language',
        data ->> 'status', (data ->> 'downloads')::bigint, data -> 'dependencies', document
    FROM (SELECT position, document, document::jsonb AS data FROM raw OFFSET 0) AS parsed ORDER BY position;
INSERT INTO texts
    SELECT position, lower(document::json ->> 'description'), lower(document) FROM raw ORDER BY position;
DROP TABLE raw;
"""

INDEXES = [
    "ALTER TABLE entities ADD PRIMARY KEY (position)",
    "ALTER TABLE texts ADD PRIMARY KEY (position)",
    "CREATE INDEX ON entities (publisher, position)",
    "CREATE INDEX ON entities (downloads DESC, position)",
    "CREATE INDEX ON entities USING gin (dependencies jsonb_path_ops) WITH (fastupdate = off)",
    "CREATE INDEX ON texts USING gin (description gin_trgm_ops) WITH (fastupdate = off)",
    "CREATE INDEX ON texts USING gin (document gin_trgm_ops) WITH (fastupdate = off)",
    *(f"CREATE INDEX ON entities ({', '.join(fields)})" for fields in combinations(entities.LOW_CARDINALITY_FIELDS, 2)),
]

PAGE_SQL = f"SELECT document FROM entities WHERE position >= $1::bigint AND position < $1::bigint + {LIMIT} ORDER BY 1"
STATEMENTS = {
    PAGE: PAGE_SQL.replace("ORDER BY 1", "ORDER BY position"),
    MIDDLE: PAGE_SQL.replace("ORDER BY 1", "ORDER BY position"),
    EXACT: f"SELECT document FROM entities WHERE publisher = $2 ORDER BY position LIMIT {LIMIT} OFFSET $1::bigint",
    NESTED: "SELECT document FROM entities WHERE dependencies @> $2::jsonb"
    f" ORDER BY position LIMIT {LIMIT} OFFSET $1::bigint",
    SUBSTRING: "SELECT count(*) FROM texts WHERE description LIKE $2 AND $1::bigint = 0",
    WORDS: "SELECT entities.document FROM texts JOIN entities USING (position)"
    " WHERE texts.document LIKE $2 AND texts.document LIKE $3 AND $1::bigint = 0"
    f" ORDER BY texts.position LIMIT {LIMIT}",
    WORDS_COUNT: "SELECT count(*) FROM texts WHERE document LIKE $2 AND document LIKE $3 AND $1::bigint = 0",
    TOP: f"SELECT document FROM entities ORDER BY downloads DESC, position LIMIT {LIMIT} OFFSET $1::bigint",
}

# A loose index scan: each step looks up the next pair in the index.
PAIRS_SQL = """
WITH RECURSIVE pairs AS (
    (SELECT {one}, {other} FROM entities ORDER BY {one}, {other} LIMIT 1)
    UNION ALL
    SELECT following.* FROM pairs, LATERAL (
        SELECT {one}, {other} FROM entities WHERE ({one}, {other}) > (pairs.{one}, pairs.{other})
        ORDER BY {one}, {other} LIMIT 1
    ) AS following
) SELECT {first}, {second} FROM pairs WHERE $1::bigint = 0
"""

# The planner cannot estimate an unknown pattern, so these statements are planned for each needle.
PATTERNS = (SUBSTRING, WORDS, WORDS_COUNT)


def column(name: str) -> sql.Composable:
    """Returns the expression of a column of the flattened table."""
    if name == "dependencies":
        return sql.SQL("CASE WHEN data -> 'dependencies' = '[]' THEN '[]' END AS dependencies")
    path = name.split(".")
    array, _, rest = name.partition("_")
    if array in ("maintainers", "dependencies"):
        at, _, key = rest.partition("_")
        path = [array, at, key]
    text = sql.SQL("data #>> {}").format(sql.Literal(path))
    if name == "keywords":
        # As in the document, because jsonb is printed with spaces.
        text = sql.SQL("""replace({}, '", "', '","')""").format(text)
    return sql.SQL("{} AS {}").format(text, sql.Identifier(name))


class Postgres(System):
    """A PostgreSQL server for the comparison, which is deleted afterwards."""

    name = "postgres"

    def __init__(self, debian: Debian) -> None:
        self._server = PostgresServer("peers", debian)
        self.directory = self._server.directory

    def prepare(self) -> str:
        return self._server.prepare()

    def load(self, source: Path) -> None:
        self._server.create()
        self.start()
        with self._connect() as connection:
            connection.execute("CREATE EXTENSION pg_trgm")
            connection.execute(TABLES)
            plain = "FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02'"
            copy = connection.cursor().copy(f"COPY raw (document) FROM STDIN ({plain})")
            with source.open("rb") as file, copy as raw:
                while data := file.read(1 << 20):
                    raw.write(data)
            connection.execute(FILL)
            for statement in INDEXES:
                connection.execute(statement)
            connection.execute("VACUUM ANALYZE")
        self.stop()

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def serves(self, row: Row) -> bool:
        return row != PARQUET

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._server.url(), autocommit=True)

    def _open_ask(self, row: Row) -> Callable[[Question], PGresult]:
        """Returns a function that asks questions of a row on a new connection; answers remain in libpq's format."""
        connection = self._connect()
        if row in PATTERNS:
            connection.execute("SET plan_cache_mode = force_custom_plan")
        raw = connection.pgconn
        prepared: dict[tuple[str, ...], bytes] = {}

        def statement(question: Question) -> bytes:
            fields = question.texts if row == PAIRS else ()
            if fields not in prepared:
                text = STATEMENTS.get(row, PAIRS_SQL)
                if row == PAIRS:
                    one, other = sorted(fields, key=entities.LOW_CARDINALITY_FIELDS.index)
                    text = text.format(one=one, other=other, first=fields[0], second=fields[1])
                name = f"statement{len(prepared)}".encode()
                checked(raw.prepare(name, text.encode()))
                prepared[fields] = name
            return prepared[fields]

        def checked(result: PGresult) -> PGresult:
            if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
                raise RuntimeError(result.error_message.decode())
            return result

        def ask(question: Question) -> PGresult:
            values = [str(question.offset), *parameters(question)]
            return checked(raw.exec_prepared(statement(question), [value.encode() for value in values]))

        # The connection must live as long as the function.
        ask.connection = connection  # type: ignore[attr-defined]
        return ask

    def answer(self, question: Question) -> Answer:
        result = self._open_ask(question.row)(question)
        columns = range(result.nfields)
        rows = [[(result.get_value(row, at) or b"").decode() for at in columns] for row in range(result.ntuples)]
        return answers.from_rows(question, rows)

    def measure(self, supply: Supply, connections: int, seconds: float) -> Load:
        median = load.one_at_a_time(self._open_ask(supply.row), supply, seconds)
        return Load(median, load.by_processes(self._open_ask, supply, connections, seconds))

    def export(self, row: Row, path: Path) -> None:
        with path.open("wb") as file:
            for data in self._exported(row):
                file.write(data)

    def _exported(self, row: Row) -> Iterator[bytes]:
        if row == JSON:
            statement = sql.SQL("COPY (SELECT document FROM entities ORDER BY position) TO STDOUT").format()
        else:
            columns = sql.SQL(", ").join(map(column, entities.COLUMNS))
            rows = sql.SQL("(SELECT document::jsonb AS data FROM entities ORDER BY position OFFSET 0) AS parsed")
            statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv, HEADER)").format(columns, rows)
        with self._connect() as connection, connection.cursor().copy(statement) as copy:
            for data in copy:
                # In text format, COPY doubles backslashes. Documents contain no other characters that COPY escapes.
                yield bytes(data) if row == CSV else bytes(data).replace(b"\\\\", b"\\")


def parameters(question: Question) -> list[str]:
    """Returns the parameters of a question's statement, after the offset."""
    if question.row in PATTERNS:
        return [f"%{text}%" for text in question.texts]
    if question.row == NESTED:
        return [f'[{{"name":"{question.texts[0]}"}}]']
    return [] if question.row == PAIRS else list(question.texts)
