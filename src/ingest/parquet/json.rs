//! Prints batches of rows as JSON: one object in each line, as arrow-json prints it with explicit nulls.
//!
//! arrow-json prints most types. Four kinds of values need more:
//!
//! - Dates and times beyond the range of chrono. arrow-json prints `"ERROR: Cast error …"` as the value; here the row
//!   cannot be printed.
//! - INT96 timestamps, which `schema` reads as 12 bytes. They are printed as arrow-json prints timestamps.
//! - Intervals, which `schema` reads as 12 bytes, too: `14 mons 3 days 4.000 secs`.
//! - Maps whose keys are no strings. The text of a key is the name: `{1: "a"}` becomes `{"1":"a"}`.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use arrow::array::timezone::Tz;
use arrow::array::{Array, AsArray, FixedSizeBinaryArray, IntervalDayTimeArray, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef, IntervalDayTime};
use arrow::error::ArrowError;
use arrow::json::writer::{LineDelimited, NullableEncoder, WriterBuilder, make_encoder};
use arrow::json::{Encoder, EncoderFactory, EncoderOptions};
use arrow::util::display::{ArrayFormatter, FormatOptions, array_value_to_string};
use chrono::{DateTime, NaiveDateTime, SecondsFormat, TimeZone, Utc};

use super::super::error::quoted_name;
use super::schema::{INT96_ZONE, INTERVAL, VALUE_BYTES};

#[derive(Debug)]
pub(super) enum PrintError {
    TooLong,
    /// A value has no JSON, for the reason here, which names the column if the batch has one row.
    NoJson(String),
}

/// Appends the rows of `batch` to `text`, at most until it has `limit_bytes`.
pub(super) fn print(batch: &RecordBatch, limit_bytes: usize, text: &mut Vec<u8>) -> Result<(), PrintError> {
    let reason = match print_columns(batch, limit_bytes, text) {
        Err(PrintError::NoJson(reason)) if batch.num_rows() == 1 => reason,
        printed => return printed,
    };
    let refuses = |index: &usize| {
        let column = batch.project(&[*index]).ok();
        let printed = column.map(|column| print_columns(&column, limit_bytes, &mut Vec::new()));
        matches!(printed, Some(Err(PrintError::NoJson(_))))
    };
    let column = (0..batch.num_columns()).find(refuses).map(|index| batch.schema_ref().field(index).name());
    let column = column.map_or("a column".to_owned(), |name| format!("column {}", quoted_name(name)));
    Err(PrintError::NoJson(format!("{column} contains {reason}")))
}

fn print_columns(batch: &RecordBatch, limit_bytes: usize, text: &mut Vec<u8>) -> Result<(), PrintError> {
    let problem = Problem::default();
    let sink = BoundedSink { text, limit_bytes, is_over: false };
    let builder = WriterBuilder::new().with_explicit_nulls(true);
    let builder = builder.with_encoder_factory(Arc::new(Encoders { problem: problem.clone() }));
    let mut lines = builder.build::<_, LineDelimited>(sink);
    let printed = lines.write(batch);
    if lines.get_ref().is_over {
        return Err(PrintError::TooLong);
    }
    match (problem.get(), printed) {
        (None, Ok(())) => Ok(()),
        (reason, _) => Err(PrintError::NoJson((*reason.unwrap_or(&"a value that JSON cannot represent")).to_owned())),
    }
}

/// Collects text up to a limit, so that an enormous batch is noticed while it is printed.
struct BoundedSink<'a> {
    text: &'a mut Vec<u8>,
    limit_bytes: usize,
    is_over: bool,
}

impl Write for BoundedSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.limit_bytes {
            self.is_over = true;
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why the first value of a batch has no JSON, if one has none. An encoder cannot fail, so it leaves the reason here.
type Problem = Arc<OnceLock<&'static str>>;

/// The encoders of the types that arrow-json does not print as this module describes.
#[derive(Debug)]
struct Encoders {
    problem: Problem,
}

impl EncoderFactory for Encoders {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::FixedSizeBinary(VALUE_BYTES) => {
                let metadata = element_field(field).metadata();
                let values = array.as_fixed_size_binary();
                match metadata.get(INT96_ZONE) {
                    Some(zone) => {
                        let zone = if zone.is_empty() { None } else { Some(zone.parse()?) };
                        Box::new(Int96Encoder { values, zone, problem: self.problem.clone() })
                    }
                    None if metadata.contains_key(INTERVAL) => Box::new(IntervalEncoder { values }),
                    None => return Ok(None),
                }
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) => Box::new(self.map_encoder(fields, array, options)?),
                _ => return Ok(None),
            },
            data_type if data_type.is_temporal() => Box::new(self.quoted_encoder(array)?),
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

impl Encoders {
    fn quoted_encoder<'a>(&self, array: &'a dyn Array) -> Result<QuotedEncoder<'a>, ArrowError> {
        let reason = match array.data_type() {
            DataType::Time32(_) | DataType::Time64(_) => "a time of day that is out of range",
            DataType::Duration(_) => "a duration that is too long",
            _ => BEYOND_YEARS,
        };
        let formatter = ArrayFormatter::try_new(array, &FormatOptions::new())?;
        Ok(QuotedEncoder { formatter, text: String::new(), reason, problem: self.problem.clone() })
    }

    fn map_encoder<'a>(
        &self,
        fields: &'a [FieldRef],
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<MapEncoder<'a>, ArrowError> {
        let [key_field, value_field] = fields else {
            return Err(ArrowError::JsonError("the entries of a map are not pairs".to_owned()));
        };
        let map = array.as_map();
        let keys: &dyn Array = map.keys();
        let keys = match keys.data_type() {
            key_type if key_type.is_numeric() || *key_type == DataType::Boolean => {
                NullableEncoder::new(Box::new(self.quoted_encoder(keys)?), keys.nulls().cloned())
            }
            // Printed in quotes.
            _ => make_encoder(key_field, keys, options)?,
        };
        let values = make_encoder(value_field, map.values(), options)?;
        Ok(MapEncoder { offsets: map.offsets().clone(), keys, values, problem: self.problem.clone() })
    }
}

/// The field of the elements of a list, also of nested lists: arrow-json names the outermost one for them.
fn element_field(field: &FieldRef) -> &FieldRef {
    match field.data_type() {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => element_field(item),
        _ => field,
    }
}

const BEYOND_YEARS: &str = "a date outside the years -262143 to 262142";

/// What chrono prints for durations beyond its range.
const INVALID: &str = "<invalid>";

/// Prints the text of a value in quotes. It contains nothing that JSON escapes.
struct QuotedEncoder<'a> {
    formatter: ArrayFormatter<'a>,
    text: String,
    reason: &'static str,
    problem: Problem,
}

impl Encoder for QuotedEncoder<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        self.text.clear();
        if self.formatter.value(index).write(&mut self.text).is_err() || self.text == INVALID {
            let _ = self.problem.set(self.reason);
        }
        push_quoted(&self.text, out);
    }
}

/// Prints INT96 timestamps: 8 bytes with the nanoseconds of the day, and 4 with the Julian day.
struct Int96Encoder<'a> {
    values: &'a FixedSizeBinaryArray,
    zone: Option<Tz>,
    problem: Problem,
}

impl Encoder for Int96Encoder<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        match (int96_time(self.values.value(index)), self.zone) {
            (Some(time), Some(zone)) => {
                let time = Utc.from_utc_datetime(&time).with_timezone(&zone);
                push_quoted(time.to_rfc3339_opts(SecondsFormat::AutoSi, true), out);
            }
            (Some(time), None) => push_quoted(format_args!("{time:?}"), out),
            (None, _) => _ = self.problem.set(BEYOND_YEARS),
        }
    }
}

const JULIAN_DAY_OF_EPOCH: i64 = 2_440_588;
const SECONDS_IN_DAY: i64 = 86_400;
const NANOS_IN_SECOND: i64 = 1_000_000_000;

fn int96_time(value: &[u8]) -> Option<NaiveDateTime> {
    let (nanos, day) = value.split_first_chunk()?;
    let nanos = i64::from_le_bytes(*nanos);
    let day = i32::from_le_bytes(day.try_into().ok()?);
    let seconds = (i64::from(day) - JULIAN_DAY_OF_EPOCH) * SECONDS_IN_DAY + nanos.div_euclid(NANOS_IN_SECOND);
    let time = DateTime::from_timestamp(seconds, nanos.rem_euclid(NANOS_IN_SECOND) as u32)?;
    Some(time.naive_utc())
}

/// Prints intervals: 4 bytes each with months, days and milliseconds.
struct IntervalEncoder<'a> {
    values: &'a FixedSizeBinaryArray,
}

impl Encoder for IntervalEncoder<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        let part = |number: usize| {
            let bytes = self.values.value(index).get(4 * number..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| i32::from_le_bytes(*bytes))
        };
        let months = part(0);
        let days = part(1);
        let milliseconds = part(2);
        let rest = IntervalDayTimeArray::from(vec![IntervalDayTime::new(days, milliseconds)]);
        let rest = array_value_to_string(&rest, 0).unwrap_or_default();
        match (months, days, milliseconds) {
            (0, ..) => push_quoted(rest, out),
            (_, 0, 0) => push_quoted(format_args!("{months} mons"), out),
            _ => push_quoted(format_args!("{months} mons {rest}"), out),
        }
    }
}

fn push_quoted(text: impl fmt::Display, out: &mut Vec<u8>) {
    let _ = write!(out, "\"{text}\"");
}

struct MapEncoder<'a> {
    offsets: OffsetBuffer<i32>,
    keys: NullableEncoder<'a>,
    values: NullableEncoder<'a>,
    problem: Problem,
}

impl Encoder for MapEncoder<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        let start = self.offsets[index] as usize;
        let end = self.offsets[index + 1] as usize;
        out.push(b'{');
        for entry in start..end {
            if entry > start {
                out.push(b',');
            }
            if self.keys.is_null(entry) {
                let _ = self.problem.set("a map with a null key");
                return;
            }
            self.keys.encode(entry, out);
            out.push(b':');
            if self.values.is_null(entry) { out.extend_from_slice(b"null") } else { self.values.encode(entry, out) }
        }
        out.push(b'}');
    }
}
