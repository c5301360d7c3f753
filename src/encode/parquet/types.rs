//! The types of columns (docs/reference/formats.md, parquet), determined in a pass over the values of a response.
//!
//! A column has the first type that all of its values have: boolean, 64-bit integer, double. Other columns are text,
//! and so are columns without values. Each value excludes some types, so the parts of a response are processed
//! separately, and the excluded types are merged.

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
    Int64,
    Double,
}

impl ColumnType {
    /// The size of a value in a batch. `None` if each value follows its length.
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

    /// A value other than null in a canonical document.
    fn new(value: &[u8]) -> Seen {
        match value.first() {
            Some(b't' | b'f') => Seen(Seen::VALUE | Seen::NOT_INT64 | Seen::NOT_DOUBLE),
            Some(b'-' | b'0'..=b'9') => Seen(Seen::VALUE | Seen::NOT_BOOLEAN | Seen::new_number(value)),
            _ => Seen::TEXT,
        }
    }

    fn new_number(value: &[u8]) -> u8 {
        let Some(number) = std::str::from_utf8(value).ok().and_then(NumericValue::parse) else {
            return Seen::TEXT.0;
        };
        let is_integer = !value.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
        let is_int64 = is_integer && number.integer().is_some();
        // The double must equal an integer. Other numbers are doubles by definition.
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

/// Determines the types of a response's columns. Its parts share it.
#[derive(Clone, Debug)]
pub struct Typing {
    columns: Arc<Columns>,
    known: Arc<[Option<ColumnType>]>,
    rows: Arc<Pool<Row>>,
}

#[derive(Debug)]
pub struct TypesBuilder {
    typing: Typing,
    seen: Vec<Seen>,
}

impl Typing {
    /// `known` are the types of the columns, as far as they are known.
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
                    seen[column].0 |= Seen::new(value).0;
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
