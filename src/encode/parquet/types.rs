//! The types of columns (docs/reference/formats.md, parquet), found in a pass over the values of an answer.
//!
//! A column is of the first type that all of its values are of: boolean, 64-bit integer, double. Any other is text, and
//! so is one without values. What a value rules out is a few bits, so the parts of an answer are looked at apart from
//! each other, and their bits are put together.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::Type;
use strata_json::{Columns, NumericValue};

use crate::pool::Pool;
use crate::row::Row;

pub(super) const LENGTH_BYTES: usize = size_of::<u32>();

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColumnType {
    #[default]
    Text,
    Boolean,
    /// INT64, signed.
    Int64,
    Double,
}

impl ColumnType {
    /// Bytes of every value in a batch; `None` where each stands after its length.
    pub(super) fn width(self) -> Option<usize> {
        match self {
            ColumnType::Text => None,
            ColumnType::Boolean => Some(1),
            ColumnType::Int64 | ColumnType::Double => Some(8),
        }
    }

    pub(super) fn prefix_bytes(self) -> usize {
        if self == ColumnType::Text { LENGTH_BYTES } else { 0 }
    }

    pub(super) fn field(self, name: &str) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            ColumnType::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            ColumnType::Boolean => (PhysicalType::BOOLEAN, None),
            ColumnType::Int64 => (PhysicalType::INT64, None),
            ColumnType::Double => (PhysicalType::DOUBLE, None),
        };
        let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        field.with_logical_type(logical).build()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen(u8);

impl Seen {
    const VALUE: u8 = 1;
    const NOT_BOOLEAN: u8 = 2;
    const NOT_INT64: u8 = 4;
    const NOT_DOUBLE: u8 = 8;
    const TEXT: Seen = Seen(15);

    /// Of a value other than null, as it stands in a canonical document.
    fn of(value: &[u8]) -> Seen {
        match value.first() {
            Some(b't' | b'f') => Seen(Seen::VALUE | Seen::NOT_INT64 | Seen::NOT_DOUBLE),
            Some(b'-' | b'0'..=b'9') => Seen(Seen::VALUE | Seen::NOT_BOOLEAN | Seen::of_number(value)),
            _ => Seen::TEXT,
        }
    }

    fn of_number(value: &[u8]) -> u8 {
        let Some(number) = std::str::from_utf8(value).ok().and_then(NumericValue::parse) else {
            return Seen::TEXT.0;
        };
        let is_integer = !value.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
        let is_int64 = is_integer && number.integer().is_some();
        // The double of an integer must be the integer; that of another number is its value.
        let is_double = number.double().is_finite() && number.remainder() == Some(0);
        (if is_int64 { 0 } else { Seen::NOT_INT64 }) | (if is_double { 0 } else { Seen::NOT_DOUBLE })
    }

    fn column_type(self) -> ColumnType {
        let rules_out = |bit: u8| self.0 & bit != 0;
        match self {
            Seen(0) => ColumnType::Text,
            _ if !rules_out(Seen::NOT_BOOLEAN) => ColumnType::Boolean,
            _ if !rules_out(Seen::NOT_INT64) => ColumnType::Int64,
            _ if !rules_out(Seen::NOT_DOUBLE) => ColumnType::Double,
            _ => ColumnType::Text,
        }
    }
}

/// The types of one answer's columns in the making. The parts of the answer share it.
#[derive(Clone, Debug)]
pub struct Typing {
    columns: Arc<Columns>,
    /// The columns whose type is known already.
    known: Arc<[Option<ColumnType>]>,
    rows: Arc<Pool<Row>>,
}

#[derive(Debug)]
pub struct TypesBuilder {
    typing: Typing,
    seen: Vec<Seen>,
}

impl Typing {
    /// The types of these columns, of which some may be known: one for each.
    pub fn new(columns: Arc<Columns>, known: Vec<Option<ColumnType>>) -> Typing {
        Typing { columns, known: known.into(), rows: Arc::default() }
    }

    pub fn is_known(&self) -> bool {
        self.known.iter().all(Option::is_some)
    }

    pub fn begin(&self) -> TypesBuilder {
        TypesBuilder { typing: self.clone(), seen: vec![Seen::default(); self.columns.len()] }
    }
}

impl TypesBuilder {
    pub fn push(&mut self, document: &[u8]) {
        let TypesBuilder { typing: Typing { columns, known, rows }, seen } = self;
        rows.with(|row| {
            let placed = row.place(document, columns);
            for &column in &placed.filled {
                let column = column as usize;
                // Text stays text.
                if known[column].is_some() || seen[column] == Seen::TEXT {
                    continue;
                }
                let value = &document[placed.by_column[column].clone()];
                // Only null begins so.
                if value.first() != Some(&b'n') {
                    seen[column].0 |= Seen::of(value).0;
                }
            }
        });
    }

    pub fn merge(&mut self, other: &TypesBuilder) {
        self.seen.iter_mut().zip(&other.seen).for_each(|(seen, other)| seen.0 |= other.0);
    }

    pub fn finish(&self) -> Arc<[ColumnType]> {
        let types = self.typing.known.iter().zip(&self.seen);
        types.map(|(known, seen)| known.unwrap_or_else(|| seen.column_type())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[&str], expected: ColumnType) {
        let typing = Typing::new(Arc::new(Columns::from(vec!["v".to_owned()])), vec![None]);
        // In one part, and each in its own.
        let (mut all, mut merged) = (typing.begin(), typing.begin());
        for value in values {
            let document = format!("{{\"v\":{value}}}");
            all.push(document.as_bytes());
            let mut one = typing.begin();
            one.push(document.as_bytes());
            merged.merge(&one);
        }
        assert_eq!((all.finish()[0], merged.finish()[0]), (expected, expected), "{values:?}");
    }

    #[test]
    fn a_column_is_of_the_first_type_that_all_its_values_are_of() {
        use ColumnType::{Boolean, Double, Int64, Text};
        check(&[], Text);
        check(&["null", "{}"], Text);
        check(&["true", "null", "false"], Boolean);
        check(&["true", "1"], Text);
        check(&["true", "\"true\""], Text);
        check(&["0", "-0", "null", "9223372036854775807", "-9223372036854775808"], Int64);
        check(&["1", "1.0"], Double);
        check(&["1e2"], Double);
        check(&["0.1", "-0.0", "5e-324", "1e-400"], Double);
        check(&["9223372036854775808"], Double);
        check(&["-9223372036854775809"], Text);
        check(&["9007199254740993"], Int64);
        check(&["9007199254740993", "0.5"], Text);
        check(&["9007199254740992", "0.5"], Double);
        check(&["100000000000000000000"], Double);
        check(&["100000000000000000001"], Text);
        check(&["1e400"], Text);
        check(&["1", "-1e400"], Text);
        check(&[&format!("1{}", "0".repeat(400))], Text);
        check(&["1", "\"\""], Text);
        check(&["1", "[]"], Text);
        check(&["[1]", "[2]"], Text);
    }
}
