//! Prints batches of rows as JSON: one object per line, in the format of arrow-json with explicit nulls. Four kinds of
//! values differ from arrow-json:
//!
//! - Dates and times outside the range of chrono are an error. arrow-json prints `"ERROR: Cast error …"` as the value.
//! - INT96 timestamps, which `read_schema` reads as 12 bytes, are printed like other timestamps.
//! - Intervals, which `read_schema` reads as 12 bytes, too, are printed as `14 mons 3 days 4.000 secs`.
//! - Map keys that are not strings are printed as strings: `{1: "a"}` becomes `{"1":"a"}`.

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

use super::super::error::quote_name;
use super::read_schema::{INT96_VALUE_BYTES, INT96_ZONE_KEY, INTERVAL_KEY};

#[derive(Debug)]
pub(super) enum JsonPrintError {
    TooLong,
    /// JSON cannot represent a value of the batch. The reason names the column if the batch has one row.
    Unrepresentable(String),
}

/// Appends the rows of `batch` as JSON to `text`, whose total size must not exceed `limit_bytes`.
pub(super) fn print_batch(batch: &RecordBatch, limit_bytes: usize, text: &mut Vec<u8>) -> Result<(), JsonPrintError> {
    let reason = match print_columns(batch, limit_bytes, text) {
        Err(JsonPrintError::Unrepresentable(reason)) if batch.num_rows() == 1 => reason,
        printed => return printed,
    };
    let refuses = |index: &usize| {
        let column = batch.project(&[*index]).ok();
        let printed = column.map(|column| print_columns(&column, limit_bytes, &mut Vec::new()));
        matches!(printed, Some(Err(JsonPrintError::Unrepresentable(_))))
    };
    let column = (0..batch.num_columns()).find(refuses).map(|index| batch.schema_ref().field(index).name());
    let column = column.map_or("a column".to_owned(), |name| format!("column {}", quote_name(name)));
    Err(JsonPrintError::Unrepresentable(format!("{column} contains {reason}")))
}

fn print_columns(batch: &RecordBatch, limit_bytes: usize, text: &mut Vec<u8>) -> Result<(), JsonPrintError> {
    let problem = FirstEncodingProblem::default();
    let sink = BoundedSink { text, max_bytes: limit_bytes, is_over: false };
    let builder = WriterBuilder::new().with_explicit_nulls(true);
    let builder = builder.with_encoder_factory(Arc::new(JsonEncoderFactory { problem: problem.clone() }));
    let mut lines = builder.build::<_, LineDelimited>(sink);
    let printed = lines.write(batch);
    if lines.get_ref().is_over {
        return Err(JsonPrintError::TooLong);
    }
    match (problem.get(), printed) {
        (None, Ok(())) => Ok(()),
        (reason, _) => {
            Err(JsonPrintError::Unrepresentable((*reason.unwrap_or(&"a value that JSON cannot represent")).to_owned()))
        }
    }
}

/// A writer with a size limit, so that an enormous batch is detected while it is printed.
struct BoundedSink<'a> {
    text: &'a mut Vec<u8>,
    max_bytes: usize,
    is_over: bool,
}

impl Write for BoundedSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.max_bytes {
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

/// The reason why JSON cannot represent a value of the batch, set by an encoder, because encoders cannot fail.
type FirstEncodingProblem = Arc<OnceLock<&'static str>>;

#[derive(Debug)]
struct JsonEncoderFactory {
    problem: FirstEncodingProblem,
}

impl EncoderFactory for JsonEncoderFactory {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::FixedSizeBinary(INT96_VALUE_BYTES) => {
                let metadata = innermost_element_field(field).metadata();
                let values = array.as_fixed_size_binary();
                match metadata.get(INT96_ZONE_KEY) {
                    Some(zone) => {
                        let zone = if zone.is_empty() { None } else { Some(zone.parse()?) };
                        Box::new(Int96Encoder { values, zone, problem: self.problem.clone() })
                    }
                    None if metadata.contains_key(INTERVAL_KEY) => Box::new(IntervalEncoder { values }),
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

impl JsonEncoderFactory {
    fn quoted_encoder<'a>(&self, array: &'a dyn Array) -> Result<QuotedEncoder<'a>, ArrowError> {
        let reason = match array.data_type() {
            DataType::Time32(_) | DataType::Time64(_) => "a time of day that is out of range",
            DataType::Duration(_) => "a duration that is too long",
            _ => DATE_OUT_OF_RANGE_REASON,
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
            // arrow-json prints all other types of map keys in quotes.
            _ => make_encoder(key_field, keys, options)?,
        };
        let values = make_encoder(value_field, map.values(), options)?;
        Ok(MapEncoder { offsets: map.offsets().clone(), keys, values, problem: self.problem.clone() })
    }
}

/// Returns the innermost element field of nested lists, because arrow-json passes the outermost one.
fn innermost_element_field(field: &FieldRef) -> &FieldRef {
    match field.data_type() {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => innermost_element_field(item),
        _ => field,
    }
}

const DATE_OUT_OF_RANGE_REASON: &str = "a date outside the years -262143 to 262142";

/// The text that chrono prints for durations outside its range.
const INVALID_DURATION_TEXT: &str = "<invalid>";

/// An encoder that prints the text of a value in quotes. The text contains no characters that need escaping.
struct QuotedEncoder<'a> {
    formatter: ArrayFormatter<'a>,
    text: String,
    reason: &'static str,
    problem: FirstEncodingProblem,
}

impl Encoder for QuotedEncoder<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        self.text.clear();
        if self.formatter.value(index).write(&mut self.text).is_err() || self.text == INVALID_DURATION_TEXT {
            let _ = self.problem.set(self.reason);
        }
        push_quoted(&self.text, out);
    }
}

/// Prints INT96 timestamps: 8 bytes of nanoseconds within the day, and 4 bytes of the Julian day.
struct Int96Encoder<'a> {
    values: &'a FixedSizeBinaryArray,
    zone: Option<Tz>,
    problem: FirstEncodingProblem,
}

impl Encoder for Int96Encoder<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        match (int96_to_datetime(self.values.value(index)), self.zone) {
            (Some(time), Some(zone)) => {
                let time = Utc.from_utc_datetime(&time).with_timezone(&zone);
                push_quoted(time.to_rfc3339_opts(SecondsFormat::AutoSi, true), out);
            }
            (Some(time), None) => push_quoted(format_args!("{time:?}"), out),
            (None, _) => _ = self.problem.set(DATE_OUT_OF_RANGE_REASON),
        }
    }
}

const JULIAN_DAY_OF_EPOCH: i64 = 2_440_588;
const SECONDS_IN_DAY: i64 = 86_400;
const NANOS_IN_SECOND: i64 = 1_000_000_000;

fn int96_to_datetime(value: &[u8]) -> Option<NaiveDateTime> {
    let (nanos, day) = value.split_first_chunk()?;
    let nanos = i64::from_le_bytes(*nanos);
    let day = i32::from_le_bytes(day.try_into().ok()?);
    let seconds = (i64::from(day) - JULIAN_DAY_OF_EPOCH) * SECONDS_IN_DAY + nanos.div_euclid(NANOS_IN_SECOND);
    let time = DateTime::from_timestamp(seconds, nanos.rem_euclid(NANOS_IN_SECOND) as u32)?;
    Some(time.naive_utc())
}

/// Prints intervals: 4 bytes each of months, days, and milliseconds.
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
    problem: FirstEncodingProblem,
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
