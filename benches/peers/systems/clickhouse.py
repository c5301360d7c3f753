"""ClickHouse in this process, as chDB: documents in each order in which they are read, and columns for the fields."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import chdb
from chdb.session import Session

from peers import answers, entities, load
from peers.answers import Answer
from peers.load import Load
from peers.questions import CSV, EXACT, JSON, LIMIT, MIDDLE, NESTED, PAGE, PAIRS, SUBSTRING, TOP, Question, Row, Supply
from peers.systems.system import System

COLUMNS = """_source String, name String, version String, publisher LowCardinality(String),
category LowCardinality(String), licence LowCardinality(String), language LowCardinality(String),
status LowCardinality(String), summary String, description String, downloads Int64, rating Nullable(Float64),
yanked Bool, published String,
repository Tuple(host LowCardinality(String), path String, stars Int64), keywords Array(String),
maintainers Array(Tuple(name String, email String)),
dependencies Array(Tuple(name LowCardinality(String), range LowCardinality(String), kind LowCardinality(String)))"""

PAIR_PROJECTIONS = ", ".join(
    f"PROJECTION {'_'.join(fields)} (SELECT {', '.join(fields)} GROUP BY {', '.join(fields)})"
    for fields in combinations(entities.LOW_CARDINALITY_FIELDS, 2)
)

DOCUMENT = "document String CODEC(ZSTD)"

# ClickHouse scans the words of such an index for a part of a word. That is faster than n-grams, also to import.
WORD_INDEX = "TYPE text(tokenizer = splitByNonAlpha)"


@dataclass(frozen=True)
class Table:
    """A table, and the query that fills it."""

    name: str
    columns: str
    order: str
    contents: str
    # ClickHouse reads and decompresses whole granules of this many rows.
    granularity: int = 8192


# `lower` folds ASCII letters only.
TABLES = (
    Table(
        "entities",
        f"position UInt64, {DOCUMENT}, {COLUMNS}, {PAIR_PROJECTIONS}",
        "position",
        f"""SELECT assumeNotNull(_row_number), line, untuple(JSONExtract(line, 'Tuple({COLUMNS})'))
        FROM file('{{source}}', LineAsString)""",
    ),
    # For documents at many positions, such as the matches of a text search.
    Table(
        "documents",
        f"position UInt64, {DOCUMENT}",
        "position",
        "SELECT position, document FROM entities",
        granularity=16,
    ),
    Table(
        "by_publisher",
        f"publisher LowCardinality(String), position UInt64, {DOCUMENT}",
        "publisher, position",
        "SELECT lower(publisher), position, document FROM entities",
        granularity=64,
    ),
    Table(
        "by_dependency",
        f"dependency LowCardinality(String), position UInt64, {DOCUMENT}",
        "dependency, position",
        "SELECT lower(arrayJoin(dependencies.name)), position, document FROM entities",
        granularity=64,
    ),
    Table(
        "by_downloads",
        f"downloads Int64, position UInt64, {DOCUMENT}",
        "-downloads, position",
        "SELECT downloads, position, document FROM entities",
        granularity=64,
    ),
    Table(
        "texts",
        f"position UInt64, description String CODEC(ZSTD), {DOCUMENT},"
        f" INDEX words_of_description description {WORD_INDEX}, INDEX words_of_document document {WORD_INDEX}",
        "position",
        # Only the merge builds the indexes.
        "SELECT position, lower(description), lower(document) FROM entities"
        " SETTINGS materialize_skip_indexes_on_insert = 0",
    ),
)

# Granules of 16 documents are compressed separately.
TABLE_SETTINGS = "min_compress_block_size = 16384"

# By default, ClickHouse reads the whole column if a part of a word occurs in more than 50 frequent words.
QUERY_SETTINGS = "text_index_like_max_postings_to_read=100000"

# The cheapest format: values without escapes, separated by tabs. The data contains no tabs and no line ends.
FORMAT = "TSVRaw"


def column(name: str) -> str:
    """Returns the expression of a column of the flattened table."""
    if name == "dependencies":
        return "if(empty(dependencies), '[]', NULL) AS dependencies"
    array, _, rest = name.partition("_")
    if array in ("maintainers", "dependencies"):
        at, _, key = rest.partition("_")
        return f'arrayElementOrNull({array}.{key}, {int(at) + 1}) AS "{name}"'
    if name == "keywords":
        return 'toJSONString(keywords) AS "keywords"'
    return f'{name} AS "{name}"'


class ClickHouse(System):
    """The engine, which runs as long as it has a connection."""

    name = "clickhouse"

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> str:
        return f"{chdb.engine_version} in chDB {chdb.__version__}"

    def load(self, source: Path) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.start()
        for table in TABLES:
            settings = f"index_granularity = {table.granularity}, {TABLE_SETTINGS}"
            self._database.query(
                f"CREATE TABLE {table.name} ({table.columns}) ENGINE = MergeTree ORDER BY ({table.order})"
                f" SETTINGS {settings}"
            )
            self._database.query(f"INSERT INTO {table.name} {table.contents.format(source=source)}")
            self._database.query(f"OPTIMIZE TABLE {table.name} FINAL")
        self.stop()

    def start(self) -> None:
        self._database = self._connect()

    def _connect(self) -> Session:
        return Session(f"{self.directory}?{QUERY_SETTINGS}")

    def stop(self) -> None:
        self._database.close()

    def serves(self, row: Row) -> bool:
        return True

    def sql(self, question: Question) -> str:
        """Returns the statement of a question, which contains the values."""
        row = question.row
        texts = ["'" + text.replace("'", "''") + "'" for text in question.texts]
        page = f"position LIMIT {LIMIT} OFFSET {question.offset}"
        if row in (PAGE, MIDDLE):
            begin = question.offset
            where = f"position >= {begin} AND position < {begin + LIMIT}"
            return f"SELECT document FROM documents WHERE {where} ORDER BY position"
        if row == EXACT:
            return f"SELECT document FROM by_publisher WHERE publisher = {texts[0]} ORDER BY {page}"
        if row == NESTED:
            return f"SELECT document FROM by_dependency WHERE dependency = {texts[0]} ORDER BY {page}"
        if row == SUBSTRING:
            return f"SELECT count() FROM texts WHERE description LIKE '%{question.texts[0]}%'"
        if row == TOP:
            return f"SELECT document FROM by_downloads ORDER BY -downloads, {page}"
        if row == PAIRS:
            fields = ", ".join(question.texts)
            return f"SELECT {fields} FROM entities GROUP BY {fields}"
        where = " AND ".join(f"document LIKE '%{text}%'" for text in question.texts)
        if row.count:
            return f"SELECT count() FROM texts WHERE {where}"
        positions = f"SELECT position FROM texts WHERE {where} ORDER BY {page}"
        return f"SELECT document FROM documents WHERE position IN ({positions}) ORDER BY position"

    def answer(self, question: Question) -> Answer:
        lines = self._database.query(self.sql(question), FORMAT).bytes().decode().split("\n")
        return answers.from_rows(question, [line.split("\t") for line in lines[:-1]])

    def measure(self, supply: Supply, connections: int, seconds: float) -> Load:
        def open_ask(_: Row) -> Callable[[Question], object]:
            connection = self._connect()
            return lambda question: connection.query(self.sql(question), FORMAT).bytes()

        median = load.one_at_a_time(open_ask(supply.row), supply, seconds)
        return Load(median, load.by_threads(open_ask, supply, connections, seconds))

    def export(self, row: Row, path: Path) -> None:
        if row == JSON:
            # The unchanged documents, one on each line.
            columns, file_format = "document", FORMAT
        else:
            columns = ", ".join(column(name) for name in entities.COLUMNS)
            file_format = "CSVWithNames" if row == CSV else "Parquet"
        settings = "SETTINGS prefer_column_name_to_alias = 1, format_csv_null_representation = ''"
        self._database.query(
            f"SELECT {columns} FROM entities ORDER BY position INTO OUTFILE '{path}' FORMAT {file_format} {settings}"
        )
