//! Infers the types of columns (docs/reference/formats.md, parquet) in a pass over the values of a response.
//!
//! A column has the first type that all of its values have: boolean, 64-bit integer, double. Other columns are text,
//! and so are columns without values. Each value excludes some types, so the parts of a response can be processed
//! separately, and the excluded types are merged.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::Type;
use strata_json::{NumericValue, TableColumnNames};

use crate::buffer_pool::BufferPool;
use crate::row_buffer::RowBuffer;

pub(super) const LENGTH_PREFIX_BYTES: usize = size_of::<u32>();

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColumnType {
    #[default]
    Text,
    Boolean,
    Int64,
    Double,
}

impl ColumnType {
    /// The size in bytes of an encoded value in a batch. `None` for text, because each text follows its length.
    pub(crate) fn value_width(self) -> Option<usize> {
        match self {
            ColumnType::Text => None,
            ColumnType::Boolean => Some(1),
            ColumnType::Int64 | ColumnType::Double => Some(8),
        }
    }

    pub(super) fn length_prefix_bytes(self) -> usize {
        if self == ColumnType::Text { LENGTH_PREFIX_BYTES } else { 0 }
    }

    pub(super) fn to_parquet_field(self, name: &str) -> Result<Type, ParquetError> {
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
struct ExcludedColumnTypes(u8);

impl ExcludedColumnTypes {
    const HAS_VALUE: u8 = 1;
    const NOT_BOOLEAN: u8 = 2;
    const NOT_INT64: u8 = 4;
    const NOT_DOUBLE: u8 = 8;
    const TEXT: ExcludedColumnTypes = ExcludedColumnTypes(15);

    fn for_cell_value(value: &[u8]) -> ExcludedColumnTypes {
        match value.first() {
            Some(b't' | b'f') => ExcludedColumnTypes(
                ExcludedColumnTypes::HAS_VALUE | ExcludedColumnTypes::NOT_INT64 | ExcludedColumnTypes::NOT_DOUBLE,
            ),
            Some(b'-' | b'0'..=b'9') => ExcludedColumnTypes(
                ExcludedColumnTypes::HAS_VALUE
                    | ExcludedColumnTypes::NOT_BOOLEAN
                    | ExcludedColumnTypes::excluded_by_number(value),
            ),
            _ => ExcludedColumnTypes::TEXT,
        }
    }

    fn excluded_by_number(value: &[u8]) -> u8 {
        let Some(number) = std::str::from_utf8(value).ok().and_then(NumericValue::parse) else {
            return ExcludedColumnTypes::TEXT.0;
        };
        let is_integer = !value.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
        let is_int64 = is_integer && number.as_i64().is_some();
        // A double must equal an integer exactly. Numbers with a fraction or an exponent are doubles by definition.
        let is_double = number.nearest_double().is_finite() && number.double_remainder() == Some(0);
        (if is_int64 { 0 } else { ExcludedColumnTypes::NOT_INT64 })
            | (if is_double { 0 } else { ExcludedColumnTypes::NOT_DOUBLE })
    }

    fn column_type(self) -> ColumnType {
        let rules_out = |bit: u8| self.0 & bit != 0;
        match self {
            ExcludedColumnTypes(0) => ColumnType::Text,
            _ if !rules_out(ExcludedColumnTypes::NOT_BOOLEAN) => ColumnType::Boolean,
            _ if !rules_out(ExcludedColumnTypes::NOT_INT64) => ColumnType::Int64,
            _ if !rules_out(ExcludedColumnTypes::NOT_DOUBLE) => ColumnType::Double,
            _ => ColumnType::Text,
        }
    }
}

/// Infers the types of a response's columns. The parts of the response share the inference.
#[derive(Clone, Debug)]
pub struct ColumnTypeInference {
    columns: Arc<TableColumnNames>,
    known_types: Arc<[Option<ColumnType>]>,
    row_buffers: Arc<BufferPool<RowBuffer>>,
}

#[derive(Debug)]
pub struct ColumnTypesBuilder {
    inference: ColumnTypeInference,
    excluded_types: Vec<ExcludedColumnTypes>,
}

impl ColumnTypeInference {
    /// Creates the inference, which skips the columns whose types are already in `known_types`.
    pub fn new(columns: Arc<TableColumnNames>, known_types: Vec<Option<ColumnType>>) -> ColumnTypeInference {
        ColumnTypeInference { columns, known_types: known_types.into(), row_buffers: Arc::default() }
    }

    pub fn has_all_types(&self) -> bool {
        self.known_types.iter().all(Option::is_some)
    }

    pub fn new_builder(&self) -> ColumnTypesBuilder {
        ColumnTypesBuilder { inference: self.clone(), excluded_types: vec![ExcludedColumnTypes(0); self.columns.len()] }
    }
}

impl ColumnTypesBuilder {
    pub fn add_entity(&mut self, document: &[u8]) {
        let ColumnTypesBuilder { inference, excluded_types } = self;
        let ColumnTypeInference { columns, known_types, row_buffers } = inference;
        row_buffers.with_buffer(|row| {
            let placed = row.flatten_to_cells(document, columns);
            for &column in &placed.filled_columns {
                let column = column as usize;
                // The type of a column cannot change if it is known or if only text can represent the values.
                if known_types[column].is_some() || excluded_types[column] == ExcludedColumnTypes::TEXT {
                    continue;
                }
                let value = &document[placed.ranges_by_column[column].clone()];
                // Among JSON values, only null begins with `n`.
                if value.first() != Some(&b'n') {
                    excluded_types[column].0 |= ExcludedColumnTypes::for_cell_value(value).0;
                }
            }
        });
    }

    pub fn merge(&mut self, other: &ColumnTypesBuilder) {
        self.excluded_types.iter_mut().zip(&other.excluded_types).for_each(|(seen, other)| seen.0 |= other.0);
    }

    pub fn finish(&self) -> Arc<[ColumnType]> {
        let types = self.inference.known_types.iter().zip(&self.excluded_types);
        types.map(|(known, seen)| known.unwrap_or_else(|| seen.column_type())).collect()
    }
}
