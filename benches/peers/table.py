"""The table of results, as Markdown."""

from dataclasses import dataclass

from peers.questions import Row

OURS = "strata default"
STATIC = "static file"


@dataclass(frozen=True)
class Cell:
    """The result of a system for a row. Rows with one connection have no requests per second."""

    seconds: float
    per_second: float | None = None

    def text(self) -> str:
        """Formats the cell."""
        if self.per_second is None:
            return f"{self.seconds:.2f} s"
        return f"{self.seconds * 1e3:.2f} ms, {rate(self.per_second)}"


def rate(per_second: float) -> str:
    """Formats a rate."""
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"


def best(cells: dict[str, Cell]) -> tuple[str, Cell | None, Cell | None]:
    """Returns the peers with the lowest latency and with the highest rate: their names and their cells."""
    if not cells:
        return "–", None, None
    fastest = min(cells, key=lambda name: cells[name].seconds)
    cell = cells[fastest]
    if cell.per_second is None:
        return f"{cell.text()} ({fastest})", cell, None
    busiest = max(cells, key=lambda name: cells[name].per_second or 0)
    if busiest == fastest:
        return f"{cell.text()} ({fastest})", cell, cell
    text = f"{cell.seconds * 1e3:.2f} ms ({fastest}), {rate(cells[busiest].per_second or 0)} ({busiest})"
    return text, cell, cells[busiest]


def table(rows: list[Row], systems: list[str], measured: dict[tuple[str, str], Cell]) -> str:
    """Returns the rows of the table. The keys of `measured` are the row's key and the system's name."""
    peers = [name for name in systems if name not in (STATIC, OURS) and not name.startswith("strata")]
    own = [name for name in systems if name.startswith("strata")]
    lines = [["Workload", STATIC, "best peer", *peers, *own, "ratio"]]
    for row in rows:
        cells = {name: measured[row.key, name] for name in systems if (row.key, name) in measured}
        text, fastest, busiest = best({name: cells[name] for name in peers if name in cells})
        ours = cells.get(OURS)
        ratios = []
        if ours and fastest:
            ratios.append(f"{fastest.seconds / ours.seconds:.2f}")
        if ours and busiest and ours.per_second and busiest.per_second:
            ratios.append(f"{ours.per_second / busiest.per_second:.2f}")
        shown = [cells[name].text() if name in cells else "–" for name in (STATIC, *peers, *own)]
        title = f"{row.title} *" if row.repeats else row.title
        lines.append([title, shown[0], text, *shown[1:], ", ".join(ratios) or "–"])
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    texts = [f"| {' | '.join(line)} |" for line in padded]
    texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(texts)
