"""The data: records of a package registry, 1.2 KB of JSON each, the same on every run.

The entity at a position depends only on the seed and the block of the position, so several processes generate blocks.
Only ASCII letters can be in upper case, and no text contains a line end. So a system may search the JSON text with
ASCII case folding instead of the scalars, if the needles consist of letters and occur in no key.
"""

import json
import multiprocessing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

SEED = 20_260_601
BLOCK = 10_000

WORDS = 20_000
SLOTS = 1 << 20

CATEGORIES = (
    "parsing",
    "testing",
    "web",
    "database",
    "graphics",
    "audio",
    "science",
    "network",
    "security",
    "build",
    "text",
    "command line",
    "async",
    "embedded",
    "finance",
    "games",
    "geography",
    "hardware",
    "images",
    "logging",
    "machine learning",
    "mathematics",
    "operating system",
    "compression",
)
LICENCES = ("MIT", "Apache-2.0", "BSD-3-Clause", "GPL-3.0", "MPL-2.0", "ISC", "LGPL-2.1", "Zlib", "AGPL-3.0")
LANGUAGES = ("Rust", "Python", "TypeScript", "Go", "C", "C++", "Java", "Kotlin", "Swift", "Ruby", "Haskell", "OCaml")
STATUSES = ("planning", "alpha", "beta", "stable", "mature", "inactive")
KINDS = ("normal", "dev", "build")

LOW_CARDINALITY_FIELDS = ("category", "licence", "language", "status")
MAX_DEPENDENCIES = 5
MAX_MAINTAINERS = 2

# The columns of a table of these entities, flattened as in docs/reference/query-semantics.md.
COLUMNS = (
    "_source",
    "name",
    "version",
    "publisher",
    "category",
    "licence",
    "language",
    "status",
    "summary",
    "description",
    "downloads",
    "rating",
    "yanked",
    "published",
    "repository.host",
    "repository.path",
    "repository.stars",
    "keywords",
    *(f"maintainers_{at}_{key}" for at in range(MAX_MAINTAINERS) for key in ("name", "email")),
    *(f"dependencies_{at}_{key}" for at in range(MAX_DEPENDENCIES) for key in ("name", "range", "kind")),
    # The single cell of an empty array.
    "dependencies",
)

KEYS = frozenset(part for column in COLUMNS for part in column.replace(".", "_").split("_") if part.isalpha())

Entity = dict[str, object]


@cache
def vocabulary() -> list[str]:
    """Returns distinct words by rank; some contain a non-ASCII letter."""
    random = Random(SEED)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "ei", "ou")]
    syllables += ["né", "zü", "ñu"]
    words: dict[str, None] = {}
    while len(words) < WORDS:
        words["".join(random.choices(syllables, k=random.choice((2, 3, 3, 4))))] = None
    return list(words)


@cache
def slots() -> list[str]:
    """Returns a table that maps random slots to words, according to Zipf's law with exponent 1."""
    total = sum(1 / rank for rank in range(1, WORDS + 1))
    table: list[str] = []
    reached = 0.0
    for rank, word in enumerate(vocabulary(), start=1):
        reached += 1 / rank / total
        table.extend([word] * (max(round(reached * SLOTS), len(table) + 1) - len(table)))
    return table


def publishers(entities: int) -> int:
    """Returns the number of publishers: each has about 125 entities."""
    return max(entities // 125, 4)


def publisher(number: int) -> str:
    """Returns the name of a publisher."""
    words = vocabulary()
    return f"{words[number * 7 % WORDS].capitalize()} {words[(number * 13 + number // WORDS) % WORDS]} {number}"


def packages(entities: int) -> int:
    """Returns the number of packages that others depend on: each is a dependency of about 150 entities."""
    return max(entities * 5 // 2 // 150, 4)


def package(number: int) -> str:
    """Returns the name of a package that others depend on."""
    words = vocabulary()
    return f"{words[number * 11 % WORDS]}-{words[(number * 17 + number // WORDS) % WORDS]}-{number}"


def block(number: int, entities: int) -> Iterator[Entity]:
    """Yields the entities of a block, in order."""
    random = Random(SEED * 1_000_003 + number)
    uniform, table, size = random.random, slots(), len(slots())

    def below(end: int) -> int:
        return int(uniform() * end)

    def words(count: int) -> list[str]:
        return [table[int(uniform() * size)] for _ in range(count)]

    def prose(count: int) -> str:
        text = words(count)
        at = 0
        while at < count:
            end = min(at + 6 + below(10), count)
            text[at] = text[at].capitalize()
            if below(12) == 0:
                text[end - 1] = f'"{text[end - 1]}"'
            text[end - 1] += "."
            at = end
        return " ".join(text)

    for position in range(number * BLOCK, min((number + 1) * BLOCK, entities)):
        name = f"{'-'.join(words(2))}-{position:x}"
        entity: Entity = {
            "_source": f"https://packages.example/{name}",
            "name": name,
            "version": f"{below(5)}.{below(30)}.{below(20)}-r",
            "publisher": publisher(below(publishers(entities))),
            "category": CATEGORIES[below(len(CATEGORIES))],
            "licence": LICENCES[int(len(LICENCES) * uniform() ** 2)],
            "language": LANGUAGES[int(len(LANGUAGES) * uniform() ** 2)],
            "status": STATUSES[below(len(STATUSES))],
            "summary": prose(8 + below(6)),
            "description": prose(30 + below(32)),
            "downloads": int(10 ** (uniform() * 7)),
        }
        if below(20):
            entity["rating"] = (10 + below(41)) / 10
        entity["yanked"] = below(50) == 0
        day = f"20{15 + below(11)}-{1 + below(12):02}-{1 + below(28):02}"
        entity["published"] = f"{day}T{below(24):02}:{below(60):02}:00Z"
        entity["repository"] = {"host": f"git.{table[below(40)]}.example", "path": name, "stars": below(5_000)}
        entity["keywords"] = words(1 + below(4))
        entity["maintainers"] = [
            {"name": " ".join(words(2)), "email": f"{words(1)[0]}@{table[below(400)]}.example"}
            for _ in range(1 + below(MAX_MAINTAINERS))
        ]
        # The packages differ, because a second range of the same package would be a second match.
        wanted = {below(packages(entities)): None for _ in range(below(MAX_DEPENDENCIES + 1))}
        entity["dependencies"] = [
            {"name": package(each), "range": f"^{below(4)}.{below(10)}", "kind": KINDS[below(3)]} for each in wanted
        ]
        yield entity


def lines(number_and_entities: tuple[int, int]) -> bytes:
    """Returns the entities of a block as JSON lines."""
    number, entities = number_and_entities
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return "".join(encode(entity) + "\n" for entity in block(number, entities)).encode()


def write(path: Path, entities: int) -> None:
    """Writes the data as JSON lines."""
    blocks = [(number, entities) for number in range(-(-entities // BLOCK))]
    # Built before the processes start, so that they share it.
    slots()
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file, multiprocessing.Pool() as pool:
        for text in pool.imap(lines, blocks):
            file.write(text)
    unfinished.rename(path)
