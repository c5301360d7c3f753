"""The table of results, as Markdown."""

import statistics
from dataclasses import dataclass

from scale.server import Cost

# If the sizes differ by a factor of 10, a request must not take more than 12 times as long.
TOLERANCE = 1.2


@dataclass(frozen=True)
class Result:
    """The costs of a row: the first request of a process, and the median of the following ones."""

    first: Cost
    others: Cost

    @classmethod
    def from_costs(cls, costs: list[Cost]) -> "Result":
        """Creates a result from the costs of a process's requests, in order."""

        def median(values: list[int | None]) -> int | None:
            return None if None in values else statistics.median_low(values)  # type: ignore[type-var]

        others = costs[1:]
        return cls(
            costs[0],
            Cost(
                statistics.median(cost.milliseconds for cost in others),
                median([cost.store_bytes for cost in others]),
                median([cost.store_requests for cost in others]),
            ),
        )


def duration(milliseconds: float) -> str:
    """Formats milliseconds with about three digits."""
    digits = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2
    return f"{milliseconds:,.{digits}f} ms"


def cell(cost: Cost) -> str:
    """Formats the cost of a request."""
    if cost.store_bytes is None:
        return duration(cost.milliseconds)
    return f"{duration(cost.milliseconds)}, {cost.store_bytes / 1e6:.2f} MB in {cost.store_requests}"


def ratio(small: Cost, large: Cost, factor: float) -> str:
    """Formats the ratio of two durations, in bold if it exceeds `factor` by more than the tolerance."""
    value = large.milliseconds / small.milliseconds
    return f"**{value:.1f}**" if value > factor * TOLERANCE else f"{value:.1f}"


def table(
    titles: dict[str, str], sizes: list[int], measured: dict[tuple[str, int], Result], postgres: dict[str, Result]
) -> str:
    """Returns the table. The keys of the results are the row's key and the size; PostgreSQL has one size."""
    header = ["Request"] + [f"{size:,}: {which}" for size in sizes for which in ("first", "next")]
    header += ["ratio: first, next"] if len(sizes) > 1 else []
    header += [f"PostgreSQL, {sizes[0]:,}: first, next"] if postgres else []
    lines = [header]
    for key, title in titles.items():
        line = [title]
        results = [measured.get((key, size)) for size in sizes]
        for result in results:
            line += [cell(result.first), cell(result.others)] if result else ["–", "–"]
        if len(sizes) > 1:
            small, large, factor = results[0], results[-1], sizes[-1] / sizes[0]
            both = small and large
            line.append(
                f"{ratio(small.first, large.first, factor)}, {ratio(small.others, large.others, factor)}"
                if both
                else "–"
            )
        if postgres:
            peer = postgres.get(key)
            line.append(f"{cell(peer.first)}, {cell(peer.others)}" if peer else "–")
        lines.append(line)
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    texts = [f"| {' | '.join(text.ljust(width) for text, width in zip(line, widths))} |" for line in lines]
    texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(texts)
