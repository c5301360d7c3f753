"""Opens the six formats of the same request with the tools that people use, and checks that all say the same.

    formats.py DIRECTORY...

Each directory holds one request's answers, response.json to response.parquet. What response.json says, read by
Python's own json module, is the reference: the values of every other file are compared with it one by one.

    json, jsonl   jq; DuckDB
    csv, tsv      DuckDB, Polars
    xml           xml.etree
    parquet       DuckDB, Polars, PyArrow

Prints a line for each directory; the first difference ends it with an error.
"""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from os.path import commonprefix
from pathlib import Path

import duckdb
import polars
import pyarrow.parquet


class Number(str):
    """A number, as the text that stands in the answer."""


def check(directory):
    """Checks one request's answers, and returns how many entities and columns they have."""
    formats = ("json", "jsonl", "csv", "tsv", "xml", "parquet")
    path = {format: str(directory / f"response.{format}") for format in formats}
    entities = parse(Path(path["json"]).read_text("utf-8"))
    lines = Path(path["jsonl"]).read_text("utf-8").split("\n")
    same("the end of jsonl", lines.pop(), "")
    same_entities("jsonl", [parse(line) for line in lines], entities)
    check_jq(path, entities)
    check_xml(path["xml"], entities)

    rows = [flatten(entity) for entity in entities]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if not columns:
        # No entity or no key in any: the columns are those of the version, or the one column `_source`.
        columns = pyarrow.parquet.read_schema(path["parquet"]).names
    cells = [tuple(text(row.get(column)) for column in columns) for row in rows]
    check_parquet(path["parquet"], columns, cells)
    # A table as text does not tell an empty string from none at all.
    cells = [tuple(cell or None for cell in row) for row in cells]
    check_delimited("csv", path["csv"], ",", columns, cells)
    check_delimited("tsv", path["tsv"], "\t", columns, cells)
    return len(entities), len(columns)


def check_jq(path, entities):
    def jq(filter, format):
        # Numbers are read as doubles, for jq's are.
        output = subprocess.run(["jq", "-c", filter, path[format]], check=True, capture_output=True, encoding="utf-8")
        return [json.loads(line, parse_int=float) for line in output.stdout.split("\n")[:-1]]

    expected = json.loads(Path(path["json"]).read_text("utf-8"), parse_int=float)
    same_entities("json in jq", jq(".[]", "json"), expected)
    same_entities("jsonl in jq", jq(".", "jsonl"), expected)
    for format in ("json", "jsonl"):
        count = duckdb.execute("SELECT count(*) FROM read_json(?, records=false)", [path[format]]).fetchall()[0][0]
        same(f"entities of {format} in DuckDB", count, len(entities))


def check_delimited(format, path, delimiter, columns, cells):
    # The options say no more than the request did: quotes, escapes and line ends are found by DuckDB itself.
    table = duckdb.read_csv(path, header=True, sep=delimiter, all_varchar=True)
    same_table(f"{format} in DuckDB", columns, cells, table.columns, table.fetchall())
    frame = polars.read_csv(path, separator=delimiter, infer_schema=False)
    rows = [tuple(cell or None for cell in row) for row in frame.rows()]
    same_table(f"{format} in Polars", columns, cells, frame.columns, rows)


def check_parquet(path, columns, cells):
    table = duckdb.read_parquet(path)
    same_table("parquet in DuckDB", columns, cells, table.columns, table.fetchall())
    same("types of parquet in DuckDB", {str(type) for type in table.types}, {"VARCHAR"})
    frame = polars.read_parquet(path)
    same_table("parquet in Polars", columns, cells, frame.columns, frame.rows())
    same("types of parquet in Polars", set(frame.dtypes), {polars.String})
    table = pyarrow.parquet.read_table(path)
    rows = list(zip(*(column.to_pylist() for column in table.columns)))
    same_table("parquet in PyArrow", columns, cells, table.column_names, rows)
    same("types of parquet in PyArrow", {str(type) for type in table.schema.types}, {"string"})


def check_xml(path, entities):
    root = ElementTree.parse(path).getroot()
    same("the root of xml", root.tag, "dataset")
    same("the tags of xml", {element.tag for element in root} - {"entity"}, set())
    same("entities of xml", len(root), len(entities))
    for number, (element, entity) in enumerate(zip(root, entities)):
        check_element(element, entity, f"xml, entity {number}")


def check_element(element, value, where):
    """Checks that an element says what a value of the JSON says."""
    if isinstance(value, (dict, list)):
        values = list(value.values() if isinstance(value, dict) else value)
        same(f"elements in {where}", len(element), len(values))
        between = [element.text, *(child.tail for child in element)]
        same(f"text between elements in {where}", between, [None] * (len(values) + 1))
        for child, inner in zip(element, values):
            check_element(child, inner, f"{where}, {child.tag}")
        if isinstance(value, list):
            same(f"different tags in {where}", len({child.tag for child in element}), min(len(values), 1))
        for child, (name, inner) in zip(element, value.items() if isinstance(value, dict) else ()):
            # An array's tag is a plural, and other letters have rules of their own.
            if not isinstance(inner, list) and re.fullmatch("[A-Za-z][ -~]*", name):
                same(f"a tag in {where}", child.tag, re.sub("[^A-Za-z0-9]", "_", name))
    else:
        same(f"elements in {where}", len(element), 0)
        same(where, element.text or "", re.sub("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text(value) or ""))


def parse(document):
    return json.loads(document, parse_int=Number, parse_float=Number)


def flatten(entity):
    """The flattened fields of an entity."""
    flat = {}

    def put(key, value):
        if isinstance(value, dict):
            for name, inner in value.items():
                put(f"{key}.{name}", inner)
        elif isinstance(value, list) and value and all(isinstance(element, dict) for element in value):
            for index, element in enumerate(value):
                for name, inner in element.items():
                    put(f"{key}_{index}_{name}", inner)
        else:
            flat[key] = value

    for name, value in entity.items():
        put(name, value)
    return flat


def text(value):
    """The text of a cell."""
    return value if value is None or type(value) is str else compact(value)


def compact(value):
    """Compact JSON, numbers as they were."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(compact, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{compact(key)}:{compact(inner)}' for key, inner in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def same_table(what, columns, cells, found_columns, found_cells):
    same(f"columns of {what}", list(found_columns), columns)
    same(f"rows of {what}", len(found_cells), len(cells))
    for number, (found, expected) in enumerate(zip(found_cells, cells)):
        if found != expected:
            for column, found_cell, expected_cell in zip(columns, found, expected):
                same(f"{what}, row {number}, {column}", found_cell, expected_cell)


def same_entities(what, found, expected):
    same(f"entities of {what}", len(found), len(expected))
    for number, (found_entity, expected_entity) in enumerate(zip(found, expected)):
        same(f"{what}, entity {number}", found_entity, expected_entity)


def same(what, found, expected):
    if found != expected:
        found, expected = repr(found), repr(expected)
        start = max(len(commonprefix([found, expected])) - 100, 0)
        found, expected = found[start : start + 300], expected[start : start + 300]
        sys.exit(f"{what}, from character {start}\n  found    {found}\n  expected {expected}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        directory = Path(argument)
        print(directory.name, end=": ", flush=True)
        print("{} entities, {} columns".format(*check(directory)))
