"""Ten typical analyses, each in SQL, Polars, and pandas. All three must return the same rows.

`packages` is the large dataset. One analysis joins it with `publishers`, the small one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pandas
import polars
from polars import col

Rows = list[tuple[object, ...]]
Lazy = Callable[[str], polars.LazyFrame]
Frames = Callable[[str], pandas.DataFrame]

PACKAGES, PUBLISHERS = "packages", "publishers"
MANY_DOWNLOADS = 9_000_000


@dataclass(frozen=True)
class Analysis:
    """An analysis. The SQL contains the names of datasets in braces."""

    title: str
    columns: dict[str, list[str]]
    sql: str
    lazy: Callable[[Lazy], polars.LazyFrame]
    frames: Callable[[Frames], pandas.DataFrame]


def packages(*columns: str) -> dict[str, list[str]]:
    """Returns columns of the large dataset only."""
    return {PACKAGES: list(columns)}


def averages(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Returns the mean rating by status of packages that are not yanked."""
    kept = frame[~frame["yanked"].astype(bool)]
    return kept.groupby("status")["rating"].mean().sort_index().reset_index()


def analyses(publisher: str) -> list[Analysis]:
    """Returns all analyses. The last one is about one publisher."""
    by_downloads = (["downloads", "name"], [False, True])
    return [
        Analysis(
            "rows",
            packages("name"),
            "SELECT count(*) FROM {packages}",
            lambda open: open(PACKAGES).select(polars.len()),
            lambda open: pandas.DataFrame([[len(open(PACKAGES))]]),
        ),
        Analysis(
            "first rows",
            packages("name", "downloads"),
            "SELECT name, downloads FROM {packages} LIMIT 10",
            lambda open: open(PACKAGES).select("name", "downloads").head(10),
            lambda open: open(PACKAGES)[["name", "downloads"]].head(10),
        ),
        Analysis(
            "group-by",
            packages("category", "downloads"),
            "SELECT category, count(*), sum(downloads) FROM {packages} GROUP BY category ORDER BY category",
            lambda open: (
                open(PACKAGES)
                .group_by("category")
                .agg(polars.len(), col("downloads").sum().alias("sum"))
                .sort("category")
            ),
            lambda open: (
                open(PACKAGES).groupby("category")["downloads"].agg(["size", "sum"]).sort_index().reset_index()
            ),
        ),
        Analysis(
            "top 10",
            packages("name", "downloads"),
            "SELECT name, downloads FROM {packages} ORDER BY downloads DESC, name LIMIT 10",
            lambda open: (
                open(PACKAGES)
                .select("name", "downloads")
                .sort(by_downloads[0], descending=[not ascending for ascending in by_downloads[1]])
                .head(10)
            ),
            lambda open: (
                open(PACKAGES).sort_values(by_downloads[0], ascending=by_downloads[1])[["name", "downloads"]].head(10)
            ),
        ),
        Analysis(
            "filter with a limit",
            packages("name", "downloads"),
            f"SELECT name, downloads FROM {{packages}} WHERE downloads > {MANY_DOWNLOADS} LIMIT 20",
            lambda open: open(PACKAGES).filter(col("downloads") > MANY_DOWNLOADS).select("name", "downloads").head(20),
            lambda open: open(PACKAGES).query(f"downloads > {MANY_DOWNLOADS}")[["name", "downloads"]].head(20),
        ),
        Analysis(
            "distinct pairs",
            packages("language", "licence"),
            "SELECT DISTINCT language, licence FROM {packages} ORDER BY language, licence",
            lambda open: open(PACKAGES).select("language", "licence").unique().sort("language", "licence"),
            lambda open: open(PACKAGES)[["language", "licence"]].drop_duplicates().sort_values(["language", "licence"]),
        ),
        Analysis(
            "average of some",
            packages("status", "rating", "yanked"),
            "SELECT status, avg(rating) FROM {packages} WHERE NOT yanked GROUP BY status ORDER BY status",
            lambda open: (
                open(PACKAGES).filter(~col("yanked")).group_by("status").agg(col("rating").mean()).sort("status")
            ),
            lambda open: averages(open(PACKAGES)),
        ),
        Analysis(
            "join of two datasets",
            {PACKAGES: ["publisher", "downloads"], PUBLISHERS: ["publisher", "country"]},
            "SELECT country, count(*), sum(downloads) FROM {packages} JOIN {publishers} USING (publisher)"
            " GROUP BY country ORDER BY country",
            lambda open: (
                open(PACKAGES)
                .select("publisher", "downloads")
                .join(open(PUBLISHERS).select("publisher", "country"), on="publisher")
                .group_by("country")
                .agg(polars.len(), col("downloads").sum().alias("sum"))
                .sort("country")
            ),
            lambda open: (
                open(PACKAGES)
                .merge(open(PUBLISHERS), on="publisher")
                .groupby("country")["downloads"]
                .agg(["size", "sum"])
                .sort_index()
                .reset_index()
            ),
        ),
        Analysis(
            "by month",
            packages("published"),
            "SELECT left(published::VARCHAR, 7) AS month, count(*) FROM {packages} GROUP BY month ORDER BY month",
            lambda open: (
                open(PACKAGES)
                .group_by(col("published").cast(polars.String).str.slice(0, 7).alias("month"))
                .agg(polars.len())
                .sort("month")
            ),
            lambda open: open(PACKAGES)["published"].astype(str).str[:7].value_counts().sort_index().reset_index(),
        ),
        Analysis(
            "one publisher",
            packages("publisher", "name"),
            f"SELECT name FROM {{packages}} WHERE publisher = '{publisher}' ORDER BY name",
            lambda open: open(PACKAGES).filter(col("publisher") == publisher).select("name").sort("name"),
            lambda open: (
                open(PACKAGES)
                .query("publisher == @publisher", local_dict={"publisher": publisher})[["name"]]
                .sort_values("name")
            ),
        ),
    ]


def same(rows: Rows, others: Rows) -> bool:
    """Returns whether two tools return the same rows. Sums may differ by rounding."""

    def equal(one: object, other: object) -> bool:
        if isinstance(one, str) or isinstance(other, str):
            return one == other
        return math.isclose(float(one), float(other), rel_tol=1e-9)

    return len(rows) == len(others) and all(
        len(row) == len(other) and all(map(equal, row, other)) for row, other in zip(rows, others)
    )
