"""The rows of the table, and the questions that each row asks.

Each row has a list of different questions, which is the same for all systems. Each question is asked once, so that
response caches have no effect. A few rows have only a few questions, which are repeated (`Row.repeats`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random

from peers import entities

LIMIT = 100
MAX_QUESTIONS = 60_000

# The answers to the first questions of a list are compared with strata's. These questions are not measured.
COMPARED = 8


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    key: str
    title: str
    # The kind of the measurement: questions, an export, or the import.
    kind: str = "question"
    # Whether an answer is a number and not a list of entities.
    count: bool = False
    # Whether the same questions are repeated.
    repeats: bool = False


@dataclass(frozen=True)
class Question:
    """A request, independent of any system's query language."""

    row: Row
    # The values of the request, depending on the row: a value, a needle, two words, or two fields.
    texts: tuple[str, ...] = ()
    offset: int = 0


PAGE = Row("page", "page of 100", repeats=True)
MIDDLE = Row("middle", "page at n/2")
EXACT = Row("exact", "exact filter, 100")
NESTED = Row("nested", "filter into array of objects, 100")
SUBSTRING = Row("substring", "substring in a long text field, count", count=True)
WORDS = Row("words", "two keywords anywhere, first 100")
WORDS_COUNT = Row("words-count", "two keywords anywhere, count", count=True)
TOP = Row("top", "top 100 by number", repeats=True)
PAIRS = Row("pairs", "distinct pairs of two fields", repeats=True)
JSON = Row("json", "export JSON", kind="export")
CSV = Row("csv", "export CSV", kind="export")
PARQUET = Row("parquet", "export Parquet", kind="export")
IMPORT = Row("import", "import to queryable", kind="import")

ROWS = (
    PAGE,
    MIDDLE,
    EXACT,
    NESTED,
    SUBSTRING,
    WORDS,
    WORDS_COUNT,
    TOP,
    PAIRS,
    JSON,
    CSV,
    PARQUET,
    IMPORT,
)


def questions(row: Row, count: int) -> list[Question]:
    """Returns the questions of a row for `count` entities, in the order in which they are asked."""
    random = Random(f"{row.key} {count}")
    words = [word for word in entities.vocabulary() if word.isascii() and not any(word in key for key in entities.KEYS)]

    def pages(values: list[str]) -> list[Question]:
        every = [Question(row, (value.lower(),), offset) for value in values for offset in range(20)]
        random.shuffle(every)
        return every

    if row == PAGE:
        return [Question(row)]
    if row == MIDDLE:
        places = range(count // 2, count - LIMIT)
        return [Question(row, offset=place) for place in random.sample(places, min(len(places), MAX_QUESTIONS))]
    if row == EXACT:
        return pages([entities.publisher(number) for number in range(entities.publishers(count))])[:MAX_QUESTIONS]
    if row == NESTED:
        return pages([entities.package(number) for number in range(entities.packages(count))])[:MAX_QUESTIONS]
    if row == SUBSTRING:
        return list(islice((Question(row, (needle,)) for needle in needles(words, random)), MAX_QUESTIONS))
    if row in (WORDS, WORDS_COUNT):
        # A frequent word and a rarer one: about 0.01 to 0.5 % of the entities contain both.
        every = {(random.choice(words[20:400]), random.choice(words[200:6_000])): None for _ in range(MAX_QUESTIONS)}
        return [Question(row, pair) for pair in every if pair[0] != pair[1]]
    if row == TOP:
        return [Question(row, offset=offset) for offset in range(LIMIT)]
    if row == PAIRS:
        fields = entities.LOW_CARDINALITY_FIELDS
        return [Question(row, (one, other)) for one in fields for other in fields if one != other]
    raise ValueError(f"{row.title} asks nothing")


def needles(words: list[str], random: Random) -> Iterator[str]:
    """Yields different parts of words, each with at least five letters, until none are left."""
    seen = set()
    candidates = [word for word in words[50:] if len(word) >= 5]
    for _ in range(8 * MAX_QUESTIONS):
        word = random.choice(candidates)
        begin = random.randrange(len(word) - 4)
        needle = word[begin : random.randrange(begin + 5, len(word) + 1)]
        if needle not in seen:
            seen.add(needle)
            yield needle


class Supply:
    """The questions of a row that a system has not answered yet."""

    def __init__(self, row: Row, every: list[Question]) -> None:
        self.row = row
        self.compared = every[:COMPARED]
        self._left = every if row.repeats else every[COMPARED:]

    def part(self, share: float) -> list[Question]:
        """Returns the next questions: this share of the remaining ones, or all if the row repeats its questions."""
        return self._left if self.row.repeats else self._left[: max(int(len(self._left) * share), 1)]

    def asked(self, number: int) -> None:
        """Removes the first `number` questions of the last part."""
        if not self.row.repeats:
            # A tiny dataset has few questions, so the last one is repeated if necessary.
            self._left = self._left[number:] or self._left[-1:]


def endless(row: Row, part: list[Question]) -> Iterator[Question]:
    """Yields the questions of a part, repeatedly if the row repeats them."""
    return cycle(part) if row.repeats else iter(part)
