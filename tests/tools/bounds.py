"""Filters a typed Parquet answer around zero with the tools that people use: with the help of the bounds of row groups
and pages, each must find what it finds in the values.

    bounds.py TYPED

Prints one line.
"""

import operator
import sys

import duckdb
import polars
import pyarrow.parquet

OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

ZEROS = [0.0, -0.0, 0]


def main(typed):
    table = pyarrow.parquet.read_table(typed)
    scan = polars.scan_parquet(typed)
    conditions = 0
    for name in table.schema.names:
        values = [value for value in table[name].to_pylist() if value is not None]
        for symbol, compare in OPERATORS.items():
            for zero in ZEROS:
                # A number that is not a double is no limit of pyarrow's for a column of doubles.
                limit = float(zero) if "double" in str(table.schema.field(name).type) else int(zero)
                written = f"{limit!r}::DOUBLE" if isinstance(limit, float) else str(limit)
                expected = sum(1 for value in values if compare(value, zero))
                found = {
                    "duckdb": duckdb.execute(
                        f'SELECT count(*) FROM read_parquet(?) WHERE "{name}" {symbol} {written}', [typed]
                    ).fetchone()[0],
                    "pyarrow": pyarrow.parquet.read_table(
                        typed, columns=[name], filters=[(name, "==" if symbol == "=" else symbol, limit)]
                    ).num_rows,
                    "polars": scan.filter(compare(polars.col(name), limit)).select(polars.len()).collect().item(),
                }
                for tool, count in found.items():
                    assert count == expected, (tool, name, symbol, zero, count, expected)
                conditions += 1
    print(f"{len(table)} rows, {len(table.schema.names)} columns, {conditions} conditions")


if __name__ == "__main__":
    main(*sys.argv[1:])
