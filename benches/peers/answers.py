"""Answers in one form for comparison between systems; numbers are compared by value."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from peers.questions import PAIRS, Question

# A count, or the results of a question in order.
Answer = int | list[Any]


class Different(Exception):
    """Two systems answer the same question differently."""


def from_rows(question: Question, rows: Sequence[Sequence[Any]]) -> Answer:
    """Returns the answer in the rows of a table: a count, pairs, or JSON texts of entities."""
    if question.row.count:
        return int(rows[0][0])
    if question.row == PAIRS:
        return from_pairs([dict(zip(question.texts, row, strict=True)) for row in rows])
    return [json.loads(document) for (document,) in rows]


def from_pairs(pairs: list[dict[str, str]]) -> Answer:
    """Returns pairs of two fields in sorted order, because SQL does not order them."""
    return sorted(sorted(pair.items()) for pair in pairs)


def same(what: str, found: Answer, expected: Answer) -> None:
    """Raises an error with the first difference."""
    if found == expected:
        return
    if isinstance(found, int) or isinstance(expected, int):
        raise Different(f"{what}: {found} instead of {expected}")
    for at, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            key = next(key for key in other | one if one.get(key) != other.get(key))
            raise Different(f"{what}: {key} of entity {at} is {one.get(key)!r} instead of {other.get(key)!r}")
        raise Different(f"{what}: at {at} {one!r} instead of {other!r}")
    raise Different(f"{what}: {len(found)} instead of {len(expected)}")


def same_json(path: Path, source: Path) -> None:
    """Compares an export (an array or lines) with the source: by bytes, and by values if the bytes differ."""
    with path.open("rb") as file, source.open("rb") as lines:
        array = file.read(1) == b"["
        if not array:
            file.seek(0)
        expected = lines.read()
        found = file.read()
    if array:
        found = found.rstrip().removesuffix(b"]").replace(b"},{", b"}\n{") + b"\n"
        expected = expected.replace(b"},{", b"}\n{")
    if found == expected:
        return
    as_array = json.loads(path.read_bytes()) if array else [json.loads(line) for line in found.splitlines()]
    same("the export", as_array, [json.loads(line) for line in source.read_bytes().splitlines()])


def table(path: Path) -> pyarrow.Table:
    """Reads an exported table; an empty cell is null."""
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    names = pyarrow.csv.open_csv(path).schema.names
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=True, null_values=[""]
    )
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert)


def same_table(found: pyarrow.Table, expected: pyarrow.Table) -> None:
    """Compares two tables in any column order; cells as text, or else by numeric value."""
    if sorted(found.column_names) != sorted(expected.column_names):
        raise Different(f"the columns {found.column_names} instead of {expected.column_names}")
    if found.num_rows != expected.num_rows:
        raise Different(f"{found.num_rows} rows instead of {expected.num_rows}")
    for name in expected.column_names:
        one, other = (table[name].cast(pyarrow.string()) for table in (found, expected))
        if one.equals(other):
            continue
        try:
            equal = one.cast(pyarrow.float64()).equals(other.cast(pyarrow.float64()))
        except pyarrow.ArrowInvalid:
            equal = False
        if not equal:
            pairs = enumerate(zip(one, other, strict=True))
            at, (cell, right) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
            raise Different(f"{name} of row {at} is {cell} instead of {right}")
