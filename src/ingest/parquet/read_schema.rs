//! Chooses the Arrow types of a file's columns. The choice differs from the library's in four ways, so that values are
//! neither lost nor multiplied:
//!
//! - Strings and binary values become views, which refer to the pages.
//! - ENUM columns become strings. The library reads them as binary.
//! - INT96 becomes 12 bytes, and `json_printer` prints the timestamp. The library converts it to 64-bit nanoseconds,
//!   which overflow outside the years 1677 to 2262, so that 9999-12-31 becomes 1816-03-29.
//! - INTERVAL becomes 12 bytes, too. The library drops the months.
//!
//! For example, `optional int96 at; optional binary kind (ENUM);` is read as `at: FixedSizeBinary(12)` with the
//! metadata [`INT96_ZONE_KEY`], and `kind: Utf8View`.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::datatypes::{DataType, Field, Fields, IntervalUnit, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::file::metadata::{FileMetaData, ParquetMetaData};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type};

use super::super::error::{SourceError, quote_name};

/// The metadata key of INT96 timestamp fields. The value is the time zone, or empty.
pub(super) const INT96_ZONE_KEY: &str = "strata.int96";
pub(super) const INTERVAL_KEY: &str = "strata.interval";
pub(super) const INT96_VALUE_BYTES: i32 = 12;

pub(super) struct ReadSchema {
    pub(super) fields: Fields,
    pub(super) levels: FieldLevels,
    /// Whether some columns copy strings into a batch instead of referring to the pages.
    pub(super) copies_strings: bool,
    parquet_schema: SchemaDescriptor,
}

impl ReadSchema {
    pub(super) fn try_new(metadata: &Arc<ParquetMetaData>) -> Result<Self, SourceError> {
        let original = metadata.file_metadata().schema_descr();
        let options = ArrowReaderOptions::new();
        // An invalid Arrow schema of the writer is ignored, because it only refines the types of the file's own schema.
        let arrow_metadata = ArrowReaderMetadata::try_new(Arc::clone(metadata), options.clone())
            .or_else(|_| {
                ArrowReaderMetadata::try_new(Arc::clone(metadata), options.clone().with_skip_arrow_metadata(true))
            })
            .map_err(|_| unsupported_schema_error(original))?;
        let mut adjuster = SchemaAdjuster { columns: original.columns().iter(), reads_as_bytes: Vec::new() };
        let fields = adjuster.adjust_fields(arrow_metadata.schema().fields());
        fields.iter().try_for_each(|field| check_printable_as_json(field, field.name()))?;
        let parquet = match replace_with_bytes(original.root_schema(), false, &mut adjuster.reads_as_bytes.into_iter())
        {
            Some(root) => SchemaDescriptor::new(Arc::new(root)),
            None => original.clone(),
        };
        let levels = parquet_to_arrow_field_levels(&parquet, ProjectionMask::all(), Some(&fields));
        let levels = levels.map_err(|_| unsupported_schema_error(original))?;
        // The types are checked against the file: memory is computed from them, and the library ignores mismatches.
        let without_rows = FileMetaData::new(1, 0, None, None, Arc::new(parquet.clone()), None);
        let without_rows = Arc::new(ParquetMetaData::new(without_rows, Vec::new()));
        let options = options.with_schema(Arc::new(Schema::new(fields.clone())));
        ArrowReaderMetadata::try_new(without_rows, options).map_err(|_| unsupported_schema_error(original))?;
        let copies_strings = fields.iter().any(|field| has_copied_strings(field.data_type()));
        Ok(Self { fields, levels, copies_strings, parquet_schema: parquet })
    }

    /// Returns the name of each top-level column, with the Arrow types and levels for reading only this column.
    pub(super) fn top_level_columns(&self) -> impl Iterator<Item = (&str, FieldLevels)> {
        self.parquet_schema.root_schema().get_fields().iter().enumerate().filter_map(move |(root, column)| {
            let mask = ProjectionMask::roots(&self.parquet_schema, [root]);
            let levels = parquet_to_arrow_field_levels(&self.parquet_schema, mask, Some(&self.fields)).ok()?;
            Some((column.name(), levels))
        })
    }
}

fn single_column_schema(schema: &SchemaDescriptor, index: usize) -> Option<SchemaDescriptor> {
    let root = schema.root_schema();
    let field = Arc::clone(root.get_fields().get(index)?);
    let root = Type::GroupType { basic_info: root.get_basic_info().clone(), fields: vec![field] };
    Some(SchemaDescriptor::new(Arc::new(root)))
}

fn unsupported_schema_error(schema: &SchemaDescriptor) -> SourceError {
    let fields = schema.root_schema().get_fields();
    let unsupported = fields.iter().enumerate().find(|(index, _)| {
        let schema = single_column_schema(schema, *index);
        schema.is_some_and(|schema| parquet_to_arrow_field_levels(&schema, ProjectionMask::all(), None).is_err())
    });
    let column =
        unsupported.map_or("its schema".to_owned(), |(_, field)| format!("column {}", quote_name(field.name())));
    SourceError::invalid_document(format!(
        "the Parquet file cannot be read: {column} has a type annotation that does not match its type, or a group that \
         is neither a list nor a map"
    ))
}

fn check_printable_as_json(field: &Field, column: &str) -> Result<(), SourceError> {
    let refuse = |reason: String| {
        Err(SourceError::invalid_document(format!(
            "the Parquet file cannot be read: column {} {reason}",
            quote_name(column)
        )))
    };
    if let Some(zone) = time_zone(field)
        && zone.parse::<Tz>().is_err()
    {
        return refuse(format!("has the unknown time zone {}", quote_name(zone)));
    }
    if let DataType::Map(entries, _) = field.data_type()
        && let DataType::Struct(entry) = entries.data_type()
        && let Some(key) = entry.first()
        && key.data_type().is_nested()
    {
        return refuse("has maps whose keys are lists, structs, or maps, which JSON does not support".to_owned());
    }
    child_fields(field.data_type()).iter().try_for_each(|child| check_printable_as_json(child, column))
}

fn time_zone(field: &Field) -> Option<&str> {
    let zone = match field.data_type() {
        DataType::Timestamp(_, zone) => zone.as_deref(),
        _ => field.metadata().get(INT96_ZONE_KEY).map(String::as_str),
    };
    zone.filter(|zone| !zone.is_empty())
}

fn child_fields(data_type: &DataType) -> &[Arc<Field>] {
    match data_type {
        DataType::Struct(fields) => fields,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => std::slice::from_ref(item),
        _ => &[],
    }
}

struct SchemaAdjuster<'a> {
    columns: std::slice::Iter<'a, ColumnDescPtr>,
    /// For each column so far, whether the column is read as 12 bytes.
    reads_as_bytes: Vec<bool>,
}

impl SchemaAdjuster<'_> {
    fn adjust_fields(&mut self, fields: &Fields) -> Fields {
        fields.iter().map(|field| self.adjust_field(field)).collect()
    }

    fn adjust_field(&mut self, field: &Field) -> Arc<Field> {
        let data_type = match field.data_type() {
            DataType::Struct(fields) => DataType::Struct(self.adjust_fields(fields)),
            DataType::List(item) => DataType::List(self.adjust_field(item)),
            DataType::LargeList(item) => DataType::LargeList(self.adjust_field(item)),
            DataType::ListView(item) => DataType::ListView(self.adjust_field(item)),
            DataType::LargeListView(item) => DataType::LargeListView(self.adjust_field(item)),
            DataType::FixedSizeList(item, length) => DataType::FixedSizeList(self.adjust_field(item), *length),
            DataType::Map(entries, sorted) => DataType::Map(self.adjust_field(entries), *sorted),
            leaf_type => {
                let column = self.columns.next();
                let field = adjust_leaf(field, leaf_type, column);
                self.reads_as_bytes
                    .push([INT96_ZONE_KEY, INTERVAL_KEY].iter().any(|key| field.metadata().contains_key(*key)));
                return Arc::new(field);
            }
        };
        Arc::new(field.clone().with_data_type(data_type))
    }
}

fn adjust_leaf(field: &Field, data_type: &DataType, column: Option<&ColumnDescPtr>) -> Field {
    // A dictionary type is replaced by its value type, because it changes neither the JSON nor the counted memory.
    if let DataType::Dictionary(_, values) = data_type {
        return adjust_leaf(field, values, column);
    }
    let reads_as_bytes = |key: &str, value: &str| {
        let mut metadata = field.metadata().clone();
        metadata.insert(key.to_owned(), value.to_owned());
        field.clone().with_data_type(DataType::FixedSizeBinary(INT96_VALUE_BYTES)).with_metadata(metadata)
    };
    let is_int96 = column.is_some_and(|column| column.physical_type() == PhysicalType::INT96);
    let is_enum = column.is_some_and(|column| {
        column.converted_type() == ConvertedType::ENUM || column.logical_type_ref() == Some(&LogicalType::Enum)
    });
    match data_type {
        DataType::Timestamp(_, zone) if is_int96 => reads_as_bytes(INT96_ZONE_KEY, zone.as_deref().unwrap_or_default()),
        DataType::Interval(IntervalUnit::DayTime) => reads_as_bytes(INTERVAL_KEY, ""),
        DataType::Binary | DataType::LargeBinary if is_enum => field.clone().with_data_type(DataType::Utf8View),
        DataType::Utf8 | DataType::LargeUtf8 => field.clone().with_data_type(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => field.clone().with_data_type(DataType::BinaryView),
        other => field.clone().with_data_type(other.clone()),
    }
}

/// Replaces columns that `reads_as_bytes` selects by unannotated 12-byte columns. Returns `None` if nothing changed.
///
/// In a list, the library supports a repeated value only in a group, so `repeated int96 item` becomes
/// `repeated group list { required item }`, which has the same levels.
fn replace_with_bytes(element: &Type, in_list: bool, reads_as_bytes: &mut impl Iterator<Item = bool>) -> Option<Type> {
    match element {
        Type::PrimitiveType { basic_info, .. } => {
            if reads_as_bytes.next() != Some(true) {
                return None;
            }
            let bytes = |repetition| {
                let builder = Type::primitive_type_builder(basic_info.name(), PhysicalType::FIXED_LEN_BYTE_ARRAY);
                builder.with_length(INT96_VALUE_BYTES).with_repetition(repetition).build().ok()
            };
            let repetition = if basic_info.has_repetition() { basic_info.repetition() } else { Repetition::REQUIRED };
            if !in_list || repetition != Repetition::REPEATED {
                return bytes(repetition);
            }
            let item = Arc::new(bytes(Repetition::REQUIRED)?);
            Type::group_type_builder("list").with_repetition(repetition).with_fields(vec![item]).build().ok()
        }
        Type::GroupType { basic_info, fields } => {
            let is_list = basic_info.converted_type() == ConvertedType::LIST;
            let mut changed = false;
            let fields = fields.iter().map(|field| match replace_with_bytes(field, is_list, reads_as_bytes) {
                Some(field) => {
                    changed = true;
                    Arc::new(field)
                }
                None => Arc::clone(field),
            });
            let fields = fields.collect();
            changed.then(|| Type::GroupType { basic_info: basic_info.clone(), fields })
        }
    }
}

/// Returns whether an array of this type contains copies of strings.
fn has_copied_strings(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => true,
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) | DataType::Union(..) => true,
        nested => child_fields(nested).iter().any(|field| has_copied_strings(field.data_type())),
    }
}
