"""The data: records like those of a package registry, 1.2 KB of JSON each, the same on every run.

The entity of a position depends on the seed and the position's block alone, so blocks are made by several processes.
Texts are lower case but for ASCII letters, and no text holds a line end: so a system may search
the JSON text, folded by ASCII rules, in place of the scalars, as long as needles are letters and occur in no key.
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

FEW_VALUED = ("category", "licence", "language", "status")
MOST_DEPENDENCIES = 5
MOST_MAINTAINERS = 2

# The columns of a table of these entities, flattened as docs/reference/query-semantics.md says.
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
    *(f"maintainers_{at}_{key}" for at in range(MOST_MAINTAINERS) for key in ("name", "email")),
    *(f"dependencies_{at}_{key}" for at in range(MOST_DEPENDENCIES) for key in ("name", "range", "kind")),
    # Of an array without elements, which is one cell.
    "dependencies",
)

KEYS = frozenset(part for column in COLUMNS for part in column.replace(".", "_").split("_") if part.isalpha())

Entity = dict[str, object]


@cache
def vocabulary() -> list[str]:
    """Words by rank, all different; some have a letter beyond ASCII."""
    random = Random(SEED)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "ei", "ou")]
    syllables += ["né", "zü", "ñu"]
    words: dict[str, None] = {}
    while len(words) < WORDS:
        words["".join(random.choices(syllables, k=random.choice((2, 3, 3, 4))))] = None
    return list(words)


@cache
def slots() -> list[str]:
    """A table that turns a random place into a word, by Zipf's law with exponent 1."""
    total = sum(1 / rank for rank in range(1, WORDS + 1))
    table: list[str] = []
    reached = 0.0
    for rank, word in enumerate(vocabulary(), start=1):
        reached += 1 / rank / total
        table.extend([word] * (max(round(reached * SLOTS), len(table) + 1) - len(table)))
    return table


def publishers(entities: int) -> int:
    """How many publishers there are: each has about 125 entities."""
    return max(entities // 125, 4)


def publisher(number: int) -> str:
    """The name of a publisher."""
    words = vocabulary()
    return f"{words[number * 7 % WORDS].capitalize()} {words[(number * 13 + number // WORDS) % WORDS]} {number}"


def packages(entities: int) -> int:
    """How many packages others depend on: each is a dependency of about 150 entities."""
    return max(entities * 5 // 2 // 150, 4)


def package(number: int) -> str:
    """The name of a package that others depend on."""
    words = vocabulary()
    return f"{words[number * 11 % WORDS]}-{words[(number * 17 + number // WORDS) % WORDS]}-{number}"


def block(number: int, entities: int) -> Iterator[Entity]:
    """The entities of a block, in order."""
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
            for _ in range(1 + below(MOST_MAINTAINERS))
        ]
        # Different packages: a second range of the same one would be a second match.
        wanted = {below(packages(entities)): None for _ in range(below(MOST_DEPENDENCIES + 1))}
        entity["dependencies"] = [
            {"name": package(each), "range": f"^{below(4)}.{below(10)}", "kind": KINDS[below(3)]} for each in wanted
        ]
        yield entity


def lines(number_and_entities: tuple[int, int]) -> bytes:
    """The entities of a block as JSON, a line each."""
    number, entities = number_and_entities
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return "".join(encode(entity) + "\n" for entity in block(number, entities)).encode()


def write(path: Path, entities: int) -> None:
    """Writes the data as JSON lines."""
    blocks = [(number, entities) for number in range(-(-entities // BLOCK))]
    # Made before the processes are, so that they share it.
    slots()
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file, multiprocessing.Pool() as pool:
        for text in pool.imap(lines, blocks):
            file.write(text)
    unfinished.rename(path)
