"""Opens typed and untyped Parquet answers with the tools that people use, and checks that they say the same.

    typed.py TYPED UNTYPED COLUMN=TYPE...

Each column must have its type in DuckDB, Polars and PyArrow, and each value must be that of the text in the untyped
file. With DuckDB, a condition on the first INT64 column must leave out row groups. Prints one line.
"""

import sys

import duckdb
import polars
import pyarrow.parquet

TYPES = {
    "BOOLEAN": ("BOOLEAN", polars.Boolean, "bool"),
    "INT64": ("BIGINT", polars.Int64, "int64"),
    "DOUBLE": ("DOUBLE", polars.Float64, "double"),
    "TEXT": ("VARCHAR", polars.String, "string"),
}

VALUE = {
    "BOOLEAN": lambda text: {"true": True, "false": False}[text],
    "INT64": int,
    "DOUBLE": float,
    "TEXT": str,
}


def main(typed, untyped, *expected):
    expected = dict(column.rsplit("=", 1) for column in expected)
    texts = pyarrow.parquet.read_table(untyped)
    assert texts.schema.names == list(expected), texts.schema.names
    values = {
        name: [None if text is None else VALUE[expected[name]](text) for text in texts[name].to_pylist()]
        for name in expected
    }

    table = pyarrow.parquet.read_table(typed)
    frame = polars.read_parquet(typed)
    relation = duckdb.from_parquet(typed)
    # DuckDB renames columns that differ only in case; there are none here.
    kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
    duck = dict(zip(relation.columns, zip(*relation.fetchall(), strict=True), strict=True))
    for name, kind in expected.items():
        in_duckdb, in_polars, in_pyarrow = TYPES[kind]
        assert kinds[name] == in_duckdb, (name, kinds[name])
        assert frame.schema[name] == in_polars, (name, frame.schema[name])
        # Newer versions read text as a string view, or a large string.
        assert str(table.schema.field(name).type).replace("large_", "").replace("_view", "") == in_pyarrow, name
        for tool, found in (
            ("pyarrow", table[name].to_pylist()),
            ("polars", frame[name].to_list()),
            ("duckdb", list(duck[name])),
        ):
            assert found == values[name], (tool, name)

    file = pyarrow.parquet.ParquetFile(typed)
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0], sizes
    for number in range(file.num_row_groups):
        for column in range(len(expected)):
            chunk = file.metadata.row_group(number).column(column)
            assert chunk.is_stats_set and chunk.has_column_index and chunk.has_offset_index, chunk
    by = next(name for name, kind in expected.items() if kind == "INT64")
    bounds = duckdb.execute(
        "SELECT stats_min_value::BIGINT, stats_max_value::BIGINT FROM parquet_metadata(?) WHERE path_in_schema = ?",
        [typed, by],
    ).fetchall()
    wanted = max(value for value in values[by] if value is not None)
    holding = sum(1 for low, high in bounds if low is not None and low <= wanted <= high)
    found = duckdb.execute(f'SELECT count(*) FROM read_parquet(?) WHERE "{by}" = ?', [typed, wanted]).fetchone()[0]
    assert found == values[by].count(wanted), found
    print(f"{len(texts)} rows, {len(expected)} columns, {len(sizes)} row groups, {holding} with the last {by}")


if __name__ == "__main__":
    main(*sys.argv[1:])
