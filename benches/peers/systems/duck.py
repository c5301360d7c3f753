"""DuckDB in this process: documents as text, and columns for the queried fields."""

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb

from peers import answers, entities, load
from peers.answers import Answer
from peers.load import Load
from peers.questions import CSV, EXACT, JSON, LIMIT, MIDDLE, NESTED, PAGE, PAIRS, SUBSTRING, TOP, Question, Row, Supply
from peers.systems.system import System

SCHEMA = """{"_source":"VARCHAR","name":"VARCHAR","version":"VARCHAR","publisher":"VARCHAR","category":"VARCHAR",
"licence":"VARCHAR","language":"VARCHAR","status":"VARCHAR","summary":"VARCHAR","description":"VARCHAR",
"downloads":"BIGINT","rating":"DOUBLE","yanked":"BOOLEAN","published":"VARCHAR",
"repository":{"host":"VARCHAR","path":"VARCHAR","stars":"BIGINT"},"keywords":["VARCHAR"],
"maintainers":[{"name":"VARCHAR","email":"VARCHAR"}],
"dependencies":[{"name":"VARCHAR","range":"VARCHAR","kind":"VARCHAR"}]}"""

IMPORT = f"""
CREATE TABLE entities AS
SELECT position, document, entity.*, lower(entity.publisher) AS publisher_folded,
       lower(entity.description) AS description_folded, lower(document) AS document_folded,
       list_transform(entity.dependencies, lambda each: lower(each.name)) AS dependency_names
FROM (
    SELECT row_number() OVER () - 1 AS position, json::VARCHAR AS document, json_transform(json, '{SCHEMA}') AS entity
    FROM read_ndjson_objects($source)
)
"""


def column(name: str) -> str:
    """Returns the expression of a column of the flattened table."""
    if name == "dependencies":
        return "CASE WHEN len(dependencies) = 0 THEN '[]' END AS dependencies"
    array, _, rest = name.partition("_")
    if array in ("maintainers", "dependencies"):
        at, _, key = rest.partition("_")
        return f'{array}[{int(at) + 1}]."{key}" AS "{name}"'
    if name == "keywords":
        return 'to_json(keywords)::VARCHAR AS "keywords"'
    return f'{name} AS "{name}"'


class Duck(System):
    """The database file and its cursors."""

    name = "duckdb"

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> str:
        return duckdb.__version__

    def load(self, source: Path) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self._open()
        self._database.execute(IMPORT, {"source": str(source)})
        self._database.execute("CREATE INDEX by_publisher ON entities (publisher_folded)")
        self._database.execute("CHECKPOINT")
        self.stop()

    def start(self) -> None:
        self._open()

    def _open(self) -> None:
        self._database = duckdb.connect(self.directory / "database")

    def stop(self) -> None:
        self._database.close()

    def serves(self, row: Row) -> bool:
        return True

    def sql(self, question: Question) -> str:
        """Returns the statement of a question. It contains the values, so that the planner sees them."""
        row = question.row
        texts = ["'" + text.replace("'", "''") + "'" for text in question.texts]
        page = f"ORDER BY position LIMIT {LIMIT} OFFSET {question.offset}"
        if row in (PAGE, MIDDLE):
            begin = question.offset
            where = f"position >= {begin} AND position < {begin + LIMIT}"
            return f"SELECT document FROM entities WHERE {where} ORDER BY position"
        if row == EXACT:
            return f"SELECT document FROM entities WHERE publisher_folded = {texts[0]} {page}"
        if row == NESTED:
            return f"SELECT document FROM entities WHERE list_contains(dependency_names, {texts[0]}) {page}"
        if row == SUBSTRING:
            return f"SELECT count(*) FROM entities WHERE contains(description_folded, {texts[0]})"
        if row == TOP:
            order = f"downloads DESC, position LIMIT {LIMIT} OFFSET {question.offset}"
            return f"SELECT document FROM entities ORDER BY {order}"
        if row == PAIRS:
            return f"SELECT DISTINCT {', '.join(question.texts)} FROM entities"
        where = " AND ".join(f"contains(document_folded, {text})" for text in texts)
        if row.count:
            return f"SELECT count(*) FROM entities WHERE {where}"
        return f"SELECT document FROM entities WHERE {where} {page}"

    def answer(self, question: Question) -> Answer:
        return answers.from_rows(question, self._database.execute(self.sql(question)).fetchall())

    def measure(self, supply: Supply, connections: int, seconds: float) -> Load:
        def open_ask(_: Row) -> Callable[[Question], object]:
            cursor = self._database.cursor()
            return lambda question: cursor.execute(self.sql(question)).fetchall()

        median = load.one_at_a_time(open_ask(supply.row), supply, seconds)
        return Load(median, load.by_threads(open_ask, supply, connections, seconds))

    def export(self, row: Row, path: Path) -> None:
        if row == JSON:
            # The unchanged documents, one on each line.
            columns, options = "document", "FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER E'\\x01'"
        else:
            columns = ", ".join(column(name) for name in entities.COLUMNS)
            options = "FORMAT csv, HEADER true" if row == CSV else "FORMAT parquet"
        self._database.execute(f"COPY (SELECT {columns} FROM entities ORDER BY position) TO '{path}' ({options})")
