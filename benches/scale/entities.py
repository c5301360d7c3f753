"""The data: records like those of the package index of a Linux distribution, 1.05 KB of JSON each.

The entity at a position depends only on the seed and the block of the position, so several processes generate blocks.
To be fast, a description is composed of prepared phrases of six words. A word follows Zipf's law, and `SPECIAL` words
have a fixed share of the descriptions. For example, about 0.03 % of all descriptions contain `telescope`.

The generator also records the expected results (`Expected`): it counts the lines of the final text that contain a
needle, so these counts do not depend on how the text was composed. All needles are lowercase ASCII letters that occur
in no key.
"""

import hashlib
import heapq
import json
import math
import multiprocessing
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random

SEED = 20_261_130
BLOCK = 10_000

# The average size of an entity's JSON text is at most this, for the check of the free disk space.
ENTITY_BYTES = 1_100

WORDS = 30_000
PHRASES = 1 << 18
PHRASE_WORDS = 6
# A description has a summary of one phrase and two to four lines of text.
DESCRIPTION_PHRASES = 9
NAMES = 1 << 17

# Words with their shares: of the descriptions that contain the word, and of the package names.
SPECIAL = {
    "astronomy": (0.0013, 0.0003),
    "astronomical": (0.0007, 0.0001),
    "astrophysics": (0.0005, 0.0001),
    "gastronomy": (0.0004, 0.0001),
    "galaxy": (0.0013, 0.0016),
    "galaxies": (0.0006, 0.0),
    "chemistry": (0.0015, 0.0010),
    "chemical": (0.0012, 0.0001),
    "geology": (0.0015, 0.0013),
    "graphics": (0.0120, 0.0020),
    "graphical": (0.0110, 0.0),
    "graph": (0.0055, 0.0015),
    "photography": (0.0035, 0.0003),
    "python": (0.0300, 0.0060),
    "server": (0.0280, 0.0040),
    "network": (0.0260, 0.0020),
    "telescope": (0.00024, 0.00006),
    "telescopes": (0.00006, 0.0),
    "chess": (0.00026, 0.00005),
    "seismic": (0.00024, 0.00004),
    "cryptanalysis": (0.0002, 0.00003),
}

# Needles that the benchmark counts, in descriptions and in any value.
CONTAINED = (
    *("astro", "astronom", "galax", "chemi"),
    *("graph", "python", "server", "network"),
    *("telesc", "chess", "seism", "cryptanal"),
)
KEYWORDS = ("astro", "galax", "chemi", "geolog", "telescope", "chess", "seismic", "cryptanalysis")
PAIRS = (("Section", "Priority"), ("Section", "Architecture"), ("Architecture", "Priority"), ("Priority", "Section"))
ORDERS = ("Installed-Size:desc", "Installed-Size:asc", "Size:desc", "Size:asc")

# The number of positions that are recorded for each order.
ORDERED = 400

SECTIONS = (
    *("admin", "cli-mono", "comm", "database", "debug", "devel", "doc", "editors", "education", "electronics"),
    *("embedded", "fonts", "games", "gnome", "golang", "graphics", "haskell", "httpd", "interpreters", "introspection"),
    *("java", "javascript", "kde", "kernel", "libdevel", "libs", "lisp", "localization", "mail", "math", "misc"),
    *("net", "news", "ocaml", "otherosfs", "perl", "php", "python", "ruby", "rust", "science", "shells", "sound"),
    *("tex", "text", "utils", "vcs", "video", "web", "x11", "zope"),
)
PRIORITIES = ("optional", "extra", "standard", "important", "required")
ARCHITECTURES = ("all", "amd64", "arm64", "armhf", "i386", "ppc64el", "riscv64", "s390x")
SUFFIXES = ("", "", "", "-dev", "-doc", "-data", "-common", "-bin", "-utils", "-tools", "-dbgsym", "-perl", "1", "2")
LANGUAGES = ("c", "c++", "perl", "java", "ocaml", "rust", "shell")
INTERFACES = ("commandline", "daemon", "shell", "text-mode", "web", "x11", "graphical", "3d")
TEAMS = ("Science", "Games", "Perl", "Java", "Multimedia", "Go Packaging", "Ruby", "Haskell", "QA", "Med", "Rust")


@cache
def vocabulary() -> list[str]:
    """Returns distinct words by rank, none of which contains a needle."""
    random = Random(SEED)
    syllables = [a + b for a in "bcdfgklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "or", "est")]
    needles = {*CONTAINED, *KEYWORDS}
    words: dict[str, None] = dict.fromkeys(("a", "the", "of", "and", "for", "to", "with", "is", "in", "this"))
    while len(words) < WORDS:
        word = "".join(random.choices(syllables, k=random.choice((1, 2, 2, 3, 3, 4))))
        if not any(needle in word for needle in needles):
            words[word] = None
    return list(words)


def zipf(random: Random, count: int) -> list[str]:
    """Returns random words according to Zipf's law with exponent 1."""
    words = vocabulary()
    return random.choices(words, cum_weights=list(accumulate(1 / rank for rank in range(1, len(words) + 1))), k=count)


def place(random: Random, table: list[list[str]], shares: Iterable[tuple[str, float]]) -> None:
    """Replaces words of random rows, so that each word is in its share of the rows and no row is changed twice."""
    rows = iter(random.sample(range(len(table)), len(table)))
    for word, share in shares:
        for _ in range(round(share * len(table))):
            row = table[next(rows)]
            row[random.randrange(len(row))] = word


@dataclass(frozen=True)
class Pools:
    """Prepared parts of entities, as JSON text without quotation marks."""

    # The beginnings of sentences and of summaries, and their continuations.
    starts: list[str]
    phrases: list[str]
    names: list[str]
    dependencies: list[str]
    maintainers: list[str]
    tags: list[str]
    versions: list[str]
    sections: list[str]


@cache
def pools() -> Pools:
    """Returns the pools, the same on every run."""
    random = Random(SEED + 1)
    words = iter(zipf(random, PHRASES * PHRASE_WORDS))
    phrases = [[next(words) for _ in range(PHRASE_WORDS)] for _ in range(PHRASES)]
    per_phrase = ((word, 1 - (1 - share) ** (1 / DESCRIPTION_PHRASES)) for word, (share, _) in SPECIAL.items())
    place(random, phrases, per_phrase)
    texts = [" ".join(phrase) for phrase in phrases]

    ranked = vocabulary()[200:]
    names = [[random.choice(ranked) for _ in range(random.choice((1, 2, 2)))] for _ in range(NAMES)]
    place(random, names, ((word, share) for word, (_, share) in SPECIAL.items()))
    stems = [random.choice(("", "", "", "lib", "r-cran-", "golang-", "ruby-")) + "-".join(name) for name in names]

    versions = [
        f"{random.randrange(9)}.{random.randrange(40)}.{random.randrange(20)}{random.choice(('', '+dfsg', '~rc1'))}"
        for _ in range(1 << 12)
    ]
    dependencies = [
        f'"{stem}{random.choice(SUFFIXES)}' + (f' (>= {random.choice(versions)})"' if random.random() < 0.6 else '"')
        for stem in stems
    ]
    people = [" ".join(random.choice(ranked).capitalize() for _ in range(2)) for _ in range(3_000)]
    maintainers = [f"{name} <{name.lower().replace(' ', '.')}@example.org>" for name in people]
    maintainers[:200] = [f"{team} Team <{team.lower().split()[0]}@lists.example.org>" for team in TEAMS * 19][:200]
    maintainers[200:203] = ["Astronomy Maintainers <sky@lists.example.org>"] * 3
    fields = ["biology", "medicine", "physics", "statistics", "linguistics", "finance"]
    tags = [
        ", ".join(
            (
                f"implemented-in::{random.choice(LANGUAGES)}",
                f"interface::{random.choice(INTERFACES)}",
                f"role::{random.choice(('program', 'shared-lib', 'devel-lib', 'documentation', 'app-data'))}",
                *([f"field::{random.choice(fields)}"] if random.random() < 0.2 else []),
            )
        )
        for _ in range(4_000)
    ]
    for at, text in enumerate(("field::astronomy", "field::chemistry", "field::geology") * 6):
        tags[at * 200] += f", {text}"
    weights = [1 / (rank + 1) for rank in range(len(SECTIONS))]
    return Pools(
        starts=[text[0].upper() + text[1:] for text in texts],
        phrases=texts,
        names=stems,
        dependencies=dependencies,
        maintainers=maintainers,
        tags=tags,
        versions=versions,
        sections=random.choices(SECTIONS, weights, k=4_096),
    )


def sha256(position: int) -> str:
    """Returns the field SHA256 of the entity at a position, which no other entity has."""
    return hashlib.sha256(b"package %d" % position).hexdigest()


@dataclass
class Expected:
    """The expected results of the benchmark's questions about a file."""

    entities: int = 0
    json_bytes: int = 0
    # The number of entities by needle.
    contained: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CONTAINED, 0))
    keywords: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYWORDS, 0))
    # The distinct pairs of values by the names of both fields, such as `Section,Priority`.
    pairs: dict[str, list[list[str]]] = field(default_factory=lambda: {",".join(pair): [] for pair in PAIRS})
    # The first values and positions by order. Equal values are ordered by position.
    orders: dict[str, list[list[int]]] = field(default_factory=lambda: {order: [] for order in ORDERS})

    def add(self, other: "Expected") -> None:
        """Adds the results of the following block."""
        self.entities += other.entities
        self.json_bytes += other.json_bytes
        for mine, theirs in ((self.contained, other.contained), (self.keywords, other.keywords)):
            for needle, count in theirs.items():
                mine[needle] += count
        for names, pairs in other.pairs.items():
            self.pairs[names] = sorted({*map(tuple, self.pairs[names]), *map(tuple, pairs)})
        for order, firsts in other.orders.items():
            self.orders[order] = first(order, [*self.orders[order], *firsts])


def first(order: str, values: list[list[int]]) -> list[list[int]]:
    """Returns the first values and positions of an order."""
    sign = -1 if order.endswith(":desc") else 1
    return heapq.nsmallest(ORDERED, values, key=lambda each: (sign * each[0], each[1]))


def lines_with(text: str, needle: str) -> int:
    """Returns the number of lines that contain a needle."""
    count, at = 0, text.find(needle)
    while at >= 0:
        count += 1
        end = text.find("\n", at)
        at = text.find(needle, end)
    return count


def block(number_and_entities: tuple[int, int]) -> tuple[bytes, Expected]:
    """Returns the entities of a block as JSON lines, and the expected results for the block."""
    number, entities = number_and_entities
    random = Random(SEED * 1_000_003 + number)
    uniform, exp, md5 = random.random, math.exp, hashlib.md5
    pool = pools()
    phrases, starts, names, dependencies = pool.phrases, pool.starts, pool.names, pool.dependencies
    begin = number * BLOCK
    positions = range(begin, min(begin + BLOCK, entities))

    lines, descriptions = [], []
    triples: set[tuple[str, str, str]] = set()
    installed_sizes, sizes = array("q"), array("q")
    for position in positions:
        stem = names[int(uniform() * NAMES)]
        package = stem + SUFFIXES[int(uniform() * len(SUFFIXES))]
        version = f"{pool.versions[int(uniform() * 4096)]}-{int(uniform() * 30)}"
        installed = int(exp(uniform() * 15))
        size = int(installed * (200 + 500 * uniform())) + 700
        section = pool.sections[int(uniform() * 4096)]
        priority = PRIORITIES[int(uniform() ** 5 * 5)]
        architecture = ARCHITECTURES[int(uniform() ** 2 * 8)]
        at = int(uniform() * NAMES)
        depends = ",".join(dependencies[at : at + int(uniform() * 7)])
        summary, p, q, r, s, t, u, v, w = [int(uniform() * PHRASES) for _ in range(DESCRIPTION_PHRASES)]
        description = (
            f"{phrases[summary]}\\n{starts[p]} {phrases[q]}.\\n{starts[r]} {phrases[s]}, {phrases[t]}."
            f"\\n{starts[u]} {phrases[v]} {phrases[w]}."
        )
        hashed = md5(b"%d" % position).hexdigest()
        descriptions.append(description)
        triples.add((section, priority, architecture))
        installed_sizes.append(installed)
        sizes.append(size)
        lines.append(
            f'{{"Package":"{package}","Source":"{stem}","Version":"{version}","Installed-Size":{installed},'
            f'"Maintainer":"{pool.maintainers[int(uniform() ** 2 * 3000)]}","Architecture":"{architecture}",'
            f'"Depends":[{depends}],"Description":"{description}","Homepage":"https://{stem}.example.org/",'
            f'"Tag":"{pool.tags[int(uniform() * 4000)]}","Section":"{section}","Priority":"{priority}",'
            f'"Filename":"pool/main/{stem[0]}/{stem}/{package}_{version}_{architecture}.deb","Size":{size},'
            f'"MD5sum":"{hashed}","SHA256":"{sha256(position)}"}}\n'
        )

    text = "".join(lines)
    lowered, lowered_descriptions = text.lower(), "\n".join(descriptions).lower() + "\n"
    expected = Expected(entities=len(positions), json_bytes=len(text))
    expected.contained = {needle: lines_with(lowered_descriptions, needle) for needle in CONTAINED}
    expected.keywords = {needle: lines_with(lowered, needle) for needle in KEYWORDS}
    for pair in PAIRS:
        one, other = (("Section", "Priority", "Architecture").index(name) for name in pair)
        expected.pairs[",".join(pair)] = [list(each) for each in {(triple[one], triple[other]) for triple in triples}]
    for order in ORDERS:
        column = sizes if order.startswith("Size") else installed_sizes
        expected.orders[order] = first(order, [list(each) for each in zip(column, positions, strict=True)])
    return text.encode("ascii"), expected


def write(path: Path, entities: int) -> None:
    """Writes the data as JSON lines, and the expected results to a second file."""
    blocks = [(number, entities) for number in range(-(-entities // BLOCK))]
    # Built before the processes start, so that they share it.
    pools()
    expected = Expected()
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file, multiprocessing.Pool() as pool:
        for text, part in pool.imap(block, blocks):
            file.write(text)
            expected.add(part)
    results(path).write_text(json.dumps(vars(expected)))
    unfinished.rename(path)


def results(path: Path) -> Path:
    """Returns the path of the expected results for the data of a file."""
    return path.with_suffix(".expected.json")


def read_expected(path: Path) -> Expected:
    """Returns the stored results of a file."""
    return Expected(**json.loads(results(path).read_text()))
