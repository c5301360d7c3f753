"""The rows of the table, and the requests of each row with their expected results.

The first request of a row is the first one of a new process. The others follow in the same process and have other
values of the same kind, so that response caches have no effect.
"""

import json
from dataclasses import dataclass

from scale import entities
from scale.entities import Expected

LIMIT = 100


class Different(Exception):
    """A response differs from the expected result."""


@dataclass(frozen=True)
class Request:
    """A request with its expected result: a number, or the entities at some positions."""

    query: str
    count: int | None = None
    positions: tuple[int, ...] = ()
    # The same question for PostgreSQL, if it has an index for it.
    sql: str = ""

    def check(self, body: bytes) -> None:
        """Raises an error if the body of strata's response differs from the expected result."""
        value = json.loads(body)
        if self.count is None:
            self._check_hashes([entity["SHA256"] for entity in value])
        else:
            self._check_count(value["count"])

    def check_rows(self, text: str) -> None:
        """Raises an error if the lines that PostgreSQL returned differ from the expected result."""
        if self.count is None:
            self._check_hashes([json.loads(line)["SHA256"] for line in text.splitlines()])
        else:
            self._check_count(int(text))

    def _check_count(self, found: int) -> None:
        if found != self.count:
            raise Different(f"{self.query}: {found} instead of {self.count}")

    def _check_hashes(self, found: list[str]) -> None:
        expected = [entities.sha256(position) for position in self.positions]
        if found != expected:
            at = next((at for at, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]), len(found))
            raise Different(f"{self.query}: {len(found)} entities; the first difference is at {at}")


@dataclass(frozen=True)
class Row:
    """A row of the table: the first request of a process, and the following ones."""

    key: str
    title: str
    first: Request
    others: tuple[Request, ...]

    @classmethod
    def from_requests(cls, key: str, title: str, requests: list[Request]) -> "Row":
        """Creates a row; the first of the requests is the first of a process."""
        return cls(key, title, requests[0], tuple(requests[1:]))


KEYS = (
    *("contains", "contains-frequent", "contains-rare", "keywords", "keywords-rare"),
    *("sort", "sort-pages", "sort-other", "pairs", "unique", "page"),
)


def rows(expected: Expected) -> list[Row]:
    """Returns all rows for a file with these expected results."""
    count = expected.entities

    def contains(*needles: str) -> list[Request]:
        return [
            Request(
                f"filter_contains=Description:{needle}&count=true",
                count=expected.contained[needle],
                sql=f"SELECT count(*) FROM texts WHERE description LIKE '%{needle}%'",
            )
            for needle in needles
        ]

    def keywords(*needles: str) -> list[Request]:
        return [Request(f"keywords={needle}&count=true", count=expected.keywords[needle]) for needle in needles]

    def sort(order: str, offset: int = 0, limit: int = LIMIT) -> Request:
        column, direction = order.replace("-", "_").lower().split(":")
        values = expected.orders[order][offset : offset + limit]
        return Request(
            f"sort={order}&limit={limit}&offset={offset}",
            positions=tuple(position for _, position in values),
            sql=f"SELECT document FROM entities ORDER BY {column} {direction}, position LIMIT {limit} OFFSET {offset}",
        )

    def pairs(names: str) -> Request:
        return Request(f"keep_field={names}&dedup=true&count=true", count=len(expected.pairs[names]))

    def unique(position: int) -> Request:
        value = entities.sha256(position)
        return Request(
            f"filter=SHA256:{value}",
            positions=(position,),
            sql=f"SELECT document FROM entities WHERE sha256 = '{value}'",
        )

    def page(offset: int) -> Request:
        positions = range(offset, min(offset + LIMIT, count))
        return Request(
            f"limit={LIMIT}&offset={offset}",
            positions=tuple(positions),
            sql="SELECT document FROM entities"
            f" WHERE position >= {positions.start} AND position < {positions.stop} ORDER BY position",
        )

    return [
        Row.from_requests("contains", "a substring in 0.3 %", contains("astro", "astronom", "galax", "chemi")),
        Row.from_requests("contains-frequent", "a substring in 3 %", contains("graph", "python", "server", "network")),
        Row.from_requests("contains-rare", "a substring in 0.03 %", contains("telesc", "chess", "seism", "cryptanal")),
        Row.from_requests("keywords", "a keyword in 0.9 %", keywords("astro", "galax", "chemi", "geolog")),
        Row.from_requests(
            "keywords-rare", "a keyword in 0.05 %", keywords("telescope", "chess", "seismic", "cryptanalysis")
        ),
        Row.from_requests(
            "sort",
            "top 100 by a number, then the top 99 to 97",
            [sort("Installed-Size:desc", limit=limit) for limit in (100, 99, 98, 97)],
        ),
        Row.from_requests(
            "sort-pages",
            "top 100 by a number, then other pages",
            [sort("Installed-Size:desc", at) for at in (0, 100, 200, 300)],
        ),
        Row.from_requests(
            "sort-other",
            "top 100 by a number, then other orders",
            [sort(order) for order in ("Installed-Size:desc", "Size:desc", "Installed-Size:asc", "Size:asc")],
        ),
        Row.from_requests("pairs", "distinct pairs of two fields", [pairs(",".join(pair)) for pair in entities.PAIRS]),
        Row.from_requests("unique", "filter by a unique value", [unique(count * part // 8) for part in (5, 1, 7, 3)]),
        Row.from_requests("page", "page of 100", [page(count * part // 8) for part in (0, 5, 1, 7)]),
    ]
