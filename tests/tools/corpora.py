"""Writes small source files with the tools that people use, and checks what strata read of them.

    corpora.py write DIRECTORY
    corpora.py check DIRECTORY

`write` creates a file for each case. The test decodes each file with strata and stores the result as `NAME.found`: an
entity per line, then `W text` for each warning, or `! text` if strata refused the file. `check` compares the entities
with the values that PyArrow reads from a Parquet file, and that Python's csv module reads from a table. It prints a
line per file: its rows and warnings, or why strata refused it. It stops with an error at the first difference.
"""

import base64
import csv
import datetime
import decimal
import io
import json
import sys
import zoneinfo
from pathlib import Path

import duckdb
import fastparquet
import numpy
import pandas
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pyarrow.parquet.encryption

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EPOCH = datetime.datetime(1970, 1, 1)
FRAME = pandas.DataFrame(
    {
        "id": [1, 2, 3],
        "name": ["Zoë", "日本", None],
        "price": [1.5, None, -2.25],
        "ok": [True, False, True],
        "at": pandas.to_datetime(["2024-02-29T12:34:56.789", None, "1969-12-31T23:59:59.999999"], format="ISO8601"),
    }
)


def day(text):
    return datetime.datetime.fromisoformat(text)


def column(values, data_type, **more):
    table = pyarrow.table({"a": pyarrow.array(values, data_type)})
    return lambda path: pyarrow.parquet.write_table(table, path, **more)


def with_empty_groups(path):
    table = pyarrow.table({"a": [1, 2], "l": [["x"], []]})
    with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
        for rows in (table[:0], table, table[:0], table[:0], table, table[:0]):
            writer.write_table(rows)


def int96(texts, unit="us", zone=None, item=lambda value: value, data_type=lambda type: type):
    values = pyarrow.array([item(text and day(text)) for text in texts], data_type(pyarrow.timestamp(unit, zone)))
    table = pyarrow.table({"a": values})
    return lambda path: pyarrow.parquet.write_table(table, path, use_deprecated_int96_timestamps=True)


def int96_with_nanoseconds(path):
    values = pyarrow.array([1_709_210_096_123_456_789, -1, 0], pyarrow.timestamp("ns"))
    pyarrow.parquet.write_table(pyarrow.table({"a": values}), path, use_deprecated_int96_timestamps=True)


def encrypted(plaintext_footer):
    class Keys(pyarrow.parquet.encryption.KmsClient):
        def wrap_key(self, key_bytes, master_key_identifier):
            return base64.b64encode(key_bytes)

        def unwrap_key(self, wrapped_key, master_key_identifier):
            return base64.b64decode(wrapped_key)

    def write(path):
        encryption = pyarrow.parquet.encryption
        settings = encryption.EncryptionConfiguration(
            footer_key="f", column_keys={"c": ["price"]}, plaintext_footer=plaintext_footer
        )
        factory = encryption.CryptoFactory(lambda _: Keys())
        properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings)
        table = pyarrow.Table.from_pandas(FRAME)
        with pyarrow.parquet.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
            writer.write_table(table)

    return write


def fast(frame, **more):
    return lambda path: fastparquet.write(str(path), frame, **more)


def enums(path):
    duckdb.execute(f"COPY (SELECT unnest(['Zoë', 'x', NULL])::ENUM ('x', 'Zoë') AS a) TO '{path}'")


def compressed(codec):
    return lambda path: pyarrow.parquet.write_table(pyarrow.Table.from_pandas(MANY), path, compression=codec)


def strings(type):
    return column(["", "Zoë", None, 'a "b"\n\t\0'], type)


def maps(key_type, keys):
    data_type = pyarrow.map_(key_type, pyarrow.int32())
    return column([[(key, number) for number, key in enumerate(keys)], [], None], data_type)


MANY = pandas.DataFrame({"n": range(3000), "t": [f"text {row // 7}" for row in range(3000)]})
DATES = ["0001-01-01", "1582-10-15", "1970-01-01", "2024-02-29", "9999-12-31"]
INSTANTS = ["0001-01-01T00:00:00", None, "1969-12-31T23:59:59.999999", "2024-02-29T12:34:56.789", "9999-12-31T23:59:59"]
NUMBERS = [decimal.Decimal(text) for text in ("0.00", "-1.50", "99999999999999999999999999.99")]

PARQUET = {
    # Frames without rows, and row groups without rows.
    "empty-pandas": FRAME[:0].to_parquet,
    "empty-fastparquet": fast(FRAME[:0]),
    "empty-pyarrow": lambda path: pyarrow.parquet.write_table(pyarrow.Table.from_pandas(FRAME[:0]), path),
    "empty-v2": lambda path: pyarrow.parquet.write_table(
        pyarrow.Table.from_pandas(FRAME[:0]), path, data_page_version="2.0", use_dictionary=False
    ),
    "empty-row-groups": with_empty_groups,
    "empty-columns": pandas.DataFrame().to_parquet,
    # Frames as pandas and fastparquet write them.
    "frame-pandas": FRAME.to_parquet,
    "frame-fastparquet": fast(FRAME),
    "frame-index": FRAME.set_index("name").to_parquet,
    "frame-categories": FRAME.astype({"name": "category", "id": "category"}).to_parquet,
    "frame-categories-fastparquet": fast(FRAME.astype({"name": "category"})),
    "frame-nullable": FRAME.convert_dtypes().to_parquet,
    "frame-intervals": pandas.DataFrame({"a": pandas.interval_range(0, 2)}).to_parquet,
    "frame-periods": pandas.DataFrame({"a": pandas.period_range("2024-01", periods=2, freq="M")}).to_parquet,
    "frame-durations": pandas.DataFrame({"a": pandas.to_timedelta([1, None], unit="s")}).to_parquet,
    "frame-objects-fastparquet": fast(
        pandas.DataFrame({"j": [{"a": 1}, [1]], "b": [b"\x01", b""]}), object_encoding={"j": "json", "b": "bytes"}
    ),
    "frame-groups-fastparquet": fast(MANY, row_group_offsets=1000),
    # Compression.
    **{f"compression-{codec}": compressed(codec) for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")},
    **{
        f"compression-{codec.lower()}-fastparquet": fast(MANY, compression=codec)
        for codec in ("SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4", "LZ4_RAW")
    },
    # Timestamps as INT96.
    "int96": int96(INSTANTS),
    "int96-zone-utc": int96(INSTANTS, zone="UTC"),
    "int96-zone": int96(INSTANTS[2:4], zone="Europe/Berlin"),
    "int96-milliseconds": int96(INSTANTS, unit="ms"),
    "int96-nanoseconds": int96_with_nanoseconds,
    "int96-in-lists": int96(INSTANTS, item=lambda value: [value, None], data_type=pyarrow.list_),
    "int96-in-structs": int96(
        INSTANTS, item=lambda value: {"b": value}, data_type=lambda type: pyarrow.struct([("b", type)])
    ),
    "int96-in-maps": int96(
        INSTANTS[2:], item=lambda value: [(value, value)], data_type=lambda type: pyarrow.map_(type, type)
    ),
    "int96-beyond-all-years": column([2**62], pyarrow.timestamp("s"), use_deprecated_int96_timestamps=True),
    "int96-fastparquet": fast(FRAME, times="int96"),
    # Dates and times.
    "dates": column([datetime.date.fromisoformat(text) for text in DATES], pyarrow.date32()),
    "dates-beyond-all-years": column([0, 2**31 - 1], pyarrow.date32()),
    "timestamps-s": column([text and day(text) for text in INSTANTS], pyarrow.timestamp("s")),
    "timestamps-ms": column([text and day(text) for text in INSTANTS], pyarrow.timestamp("ms")),
    "timestamps-us": column([text and day(text) for text in INSTANTS], pyarrow.timestamp("us", "UTC")),
    "timestamps-ns": column([-(2**63) + 1, 2**63 - 1, 1, None], pyarrow.timestamp("ns")),
    "timestamps-zone": column([text and day(text) for text in INSTANTS[2:4]], pyarrow.timestamp("us", "Asia/Kolkata")),
    "timestamps-unknown-zone": column([0], pyarrow.timestamp("us", "Mars/Base")),
    "timestamps-beyond-all-years": column([0, 2**63 - 1], pyarrow.timestamp("ms")),
    "timestamps-in-lists-beyond-all-years": column([[0], [0, 2**63 - 1]], pyarrow.list_(pyarrow.timestamp("ms"))),
    "times-ms": column([0, 86_399_999, None], pyarrow.time32("ms")),
    "times-us": column([0, 86_399_999_999], pyarrow.time64("us")),
    "times-ns": column([1, 86_399_999_999_999], pyarrow.time64("ns")),
    "times-beyond-the-day": column([0, 86_400_000_000], pyarrow.time64("us")),
    # Maps.
    "maps-of-strings": maps(pyarrow.string(), ["a", "", 'é"']),
    "maps-of-integers": maps(pyarrow.int64(), [-1, 0, 2**63 - 1]),
    "maps-of-unsigned": maps(pyarrow.uint8(), [0, 255]),
    "maps-of-booleans": maps(pyarrow.bool_(), [True, False]),
    "maps-of-doubles": maps(pyarrow.float64(), [1.5, -0.0, 1e300]),
    "maps-of-decimals": maps(pyarrow.decimal128(28, 2), NUMBERS),
    "maps-of-dates": maps(pyarrow.date32(), [datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)]),
    "maps-of-timestamps": maps(pyarrow.timestamp("ms", "UTC"), [day("2024-02-29T12:34:56.789")]),
    "maps-of-binary": maps(pyarrow.binary(), [b"\x00\xff", b""]),
    "maps-of-maps": column(
        [[(1, [(2, "x")])], []], pyarrow.map_(pyarrow.int32(), pyarrow.map_(pyarrow.int32(), pyarrow.string()))
    ),
    "maps-in-lists": column([[[(1, 2)], []], None], pyarrow.list_(pyarrow.map_(pyarrow.int32(), pyarrow.int32()))),
    "maps-of-structs": column(
        [[({"k": 1}, 1)]], pyarrow.map_(pyarrow.struct([("k", pyarrow.int32())]), pyarrow.int32())
    ),
    "maps-of-lists-in-structs": column(
        [{"m": [([1], 1)]}], pyarrow.struct([("m", pyarrow.map_(pyarrow.list_(pyarrow.int32()), pyarrow.int32()))])
    ),
    # Other types.
    "integers": column([-128, 127, None], pyarrow.int8()),
    "integers-unsigned": column([0, 2**64 - 1], pyarrow.uint64()),
    "floats": column([1.5, None, float("nan"), float("inf"), -0.0, 1e-7], pyarrow.float32()),
    "floats-16": column([numpy.float16(1.5), None], pyarrow.float16()),
    "decimals-32": column([decimal.Decimal("1.25")], pyarrow.decimal32(9, 2)),
    "decimals": column([*NUMBERS, None], pyarrow.decimal128(28, 2), store_decimal_as_integer=True),
    "decimals-256": column(NUMBERS, pyarrow.decimal256(60, 2)),
    "strings": strings(pyarrow.string()),
    "strings-large": strings(pyarrow.large_string()),
    "strings-view": strings(pyarrow.string_view()),
    "strings-dictionary": strings(pyarrow.dictionary(pyarrow.int32(), pyarrow.string())),
    "strings-enum": enums,
    "strings-not-utf-8": lambda path: pyarrow.parquet.write_table(
        pyarrow.table({"fine": ["a"], "b": pyarrow.array([b"\xff"]).view(pyarrow.string())}), path
    ),
    "binary": column([b"", b"\x00\xff", None], pyarrow.binary()),
    "binary-fixed": column([b"abcdefghijkl", None], pyarrow.binary(12)),
    "uuids": column([b"abcdefghijklmnop", None], pyarrow.uuid()),
    "nulls": column([None, None], pyarrow.null()),
    "lists": column([[1, None], [], None], pyarrow.list_(pyarrow.int64())),
    "lists-large": column([["a"], None], pyarrow.large_list(pyarrow.string())),
    "lists-view": column([["a"], None], pyarrow.list_view(pyarrow.string())),
    "lists-fixed": column([[1, 2], None], pyarrow.list_(pyarrow.int32(), 2)),
    "lists-of-lists": column([[[1], []], None], pyarrow.list_(pyarrow.list_(pyarrow.int32()))),
    "structs": column(
        [{"b": 1, "c": {"d": "x"}}, None],
        pyarrow.struct([("b", pyarrow.int32()), ("c", pyarrow.struct([("d", pyarrow.string())]))]),
    ),
    "durations": column([0, 1_500, -1, 86_400_000], pyarrow.duration("ms")),
    # Encryption.
    "encrypted": encrypted(plaintext_footer=False),
    "encrypted-columns": encrypted(plaintext_footer=True),
}


def to_csv(**more):
    return FRAME.to_csv(**more).encode("utf-8")


def pyarrow_csv(**more):
    out = io.BytesIO()
    pyarrow.csv.write_csv(pyarrow.Table.from_pandas(FRAME), out, pyarrow.csv.WriteOptions(**more))
    return out.getvalue()


CSV = {
    "pandas": to_csv(index=False),
    "pandas-index": to_csv(),
    "pandas-quoted": to_csv(index=False, quoting=csv.QUOTE_ALL),
    "pandas-semicolons": to_csv(index=False, sep=";"),
    "pandas-semicolons-quoted": to_csv(index=False, sep=";", quoting=csv.QUOTE_ALL),
    "pandas-bars-quoted": to_csv(index=False, sep="|", quoting=csv.QUOTE_ALL),
    "pandas-crlf": to_csv(index=False, lineterminator="\r\n"),
    "pandas-cr": to_csv(index=False, lineterminator="\r"),
    "pandas-bom": b"\xef\xbb\xbf" + to_csv(index=False),
    "pandas-escaped": pandas.DataFrame({"a": ['x "y" z'], "b": ["1,2"]})
    .to_csv(index=False, doublequote=False, escapechar="\\")
    .encode(),
    "pandas-latin-1": FRAME[:1].to_csv(index=False).encode("latin-1"),
    "pandas-utf-16": FRAME.to_csv(index=False).encode("utf-16"),
    "pandas-empty": FRAME[:0].to_csv(index=False).encode(),
    "pyarrow": pyarrow_csv(),
    "pyarrow-quoted": pyarrow_csv(quoting_style="all_valid"),
    "pyarrow-semicolons": pyarrow_csv(delimiter=";"),
    # Files as Pollock pollutes them.
    "quote-after-space": b'id,name\n1, "x"\n2, "y"\n',
    "quote-after-space-moves-cells": b'id,name,more\n1, "x, y"\n',
    "quote-after-space-adds-cells": b'id,name\n0,a\n1, "x, y"\n',
    "quote-after-space-in-header": b'id, "name"\n1,x\n',
    "quote-of-inches": b'a,b\n6" pipe,1\n7" pipe,2\n',
    "quote-in-quotes": b'a,b\n"6"" pipe",1\n',
    "quote-in-quotes-single": b'a,b\n"6" pipe",1\n',
    "quote-never-closed": b'a,b\n"x,1\n2,3\n',
    "quotes-single": b"a,b\n'x, y',1\n",
    "semicolons": b"a;b\n1;2\n",
    "semicolons-quoted-header": b'"a";"b"\n"1";"2"\n',
    "semicolons-quoted-rows": b'a;b\n"1";"2"\n',
    "bars-quoted-header": b'"a"|"b"\n"1"|"2"\n',
    "tabs-quoted-header": b'"a"\t"b"\n"1"\t"2"\n',
    "spaces": b"a b\n1 2\n",
    "ragged-short": b"a,b\n1,2\n3\n",
    "ragged-long": b"a,b\n1,2\n3,4,5\n",
    "trailing-delimiters": b"a,b,\n1,2,\n",
    "title-line": b"The title\na,b\n1,2\n",
    "blank-lines": b"\n\na,b\n\n1,2\n\n",
    "no-final-line-end": b"a,b\n1,2",
    "mixed-line-ends": b"a,b\r\n1,2\n3,4\r5,6",
    "line-end-in-cell": b'a,b\n"x\r\ny",1\n',
    "names-twice": b"a,b,a\n1,2,3\n",
    "names-empty": b"a,,b\n1,2,3\n",
    "names-multibyte": "größe,名前,🦀\n1,2,3\n".encode(),
    "nul": b"a,b\n\0,1\n",
    "header-only": b"a,b\n",
    "empty": b"",
}


def write(directory):
    for name, maker in PARQUET.items():
        maker(directory / f"{name}.parquet")
    for name, text in CSV.items():
        (directory / f"{name}.csv").write_bytes(text)


def check(directory):
    for path in [*(directory / f"{name}.parquet" for name in PARQUET), *(directory / f"{name}.csv" for name in CSV)]:
        lines = Path(f"{path}.found").read_text("utf-8").splitlines()
        notes = [line for line in lines if not line.startswith("{")]
        entities = [json.loads(line, parse_float=decimal.Decimal) for line in lines if line.startswith("{")]
        if not any(note.startswith("!") for note in notes):
            expected = parquet_rows(path) if path.suffix == ".parquet" else csv_rows(path)
            assert entities == expected, f"{path.name}: {entities} differ from {expected}"
            notes.insert(0, f"{len(entities)} rows")
        print(f"{path.name}: {'; '.join(notes)}")


def parquet_rows(path):
    # In PyArrow, nanoseconds in INT96 wrap around outside of the years 1677 to 2262, too.
    unit = "ns" if path.stem in ("int96-nanoseconds", "int96-fastparquet") else "us"
    file = pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit=unit)
    table = file.read()
    if path.name.startswith("int96") and "zone" in path.name:
        # PyArrow does not apply the time zone that it has stored.
        stored = pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(file.metadata.metadata[b"ARROW:schema"])))
        table = table.cast(stored)
    columns = [[shown(value) for value in column] for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def shown(scalar):
    """The JSON value of an Arrow value, as docs/reference/management.md describes it."""
    types = pyarrow.types
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return shown(scalar.value)
    if types.is_dictionary(kind):
        return shown(scalar.value)
    if types.is_map(kind):
        return {key_text(entry["key"]): shown(entry["value"]) for entry in scalar.values}
    if types.is_struct(kind):
        return {name: shown(value) for name, value in scalar.items()}
    if types.is_nested(kind):
        return [shown(value) for value in scalar]
    if types.is_timestamp(kind):
        return timestamp(scalar.value, kind.unit, kind.tz)
    if types.is_date64(kind):
        return timestamp(scalar.value, "ms", None)
    if types.is_time(kind):
        return timestamp(scalar.value, kind.unit, None).partition("T")[2]
    if types.is_duration(kind):
        return duration(scalar.value, kind.unit)
    value = scalar.as_py()
    if types.is_floating(kind):
        # A JSON number has the digits that the type needs.
        text = str(numpy.float32(value)) if types.is_float32(kind) else repr(float(value))
        return decimal.Decimal(text) if numpy.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime.date) else value


def key_text(key):
    value = shown(key)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, decimal.Decimal) and pyarrow.types.is_floating(key.type):
        return repr(float(value)).replace("e+", "e")
    return str(value)


def timestamp(value, unit, zone):
    seconds, fraction = divmod(value, PER_SECOND[unit])
    nanoseconds = fraction * (10**9 // PER_SECOND[unit])
    time = EPOCH + datetime.timedelta(seconds=seconds)
    digits = next(digits for digits in (0, 3, 6, 9) if nanoseconds % 10 ** (9 - digits) == 0)
    fraction = f".{nanoseconds:09}"[: digits + 1] if digits else ""
    if zone is None:
        return time.isoformat() + fraction
    local = time.replace(tzinfo=datetime.UTC).astimezone(zoneinfo.ZoneInfo(zone)).isoformat()
    offset = "Z" if zone == "UTC" else local[-6:]
    return local[:-6] + fraction + offset


def duration(value, unit):
    seconds = decimal.Decimal(value) / PER_SECOND[unit]
    if seconds == 0:
        return "P0D"
    return f"{'-' if seconds < 0 else ''}PT{abs(seconds)}S"


def csv_rows(path):
    text = path.read_bytes().decode("utf-8-sig")
    if '"' not in text:
        # Python does not know rows that end in different ways.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]))
