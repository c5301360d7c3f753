//! Chooses the Arrow types as which the columns of a file are read.
//!
//! The library's choice is adjusted in four ways, so that values are neither lost nor multiplied:
//!
//! - Strings and binary values are read as views, which refer to the pages.
//! - A column that is annotated ENUM is a string. For the library it is binary.
//! - INT96 is read as 12 bytes, and `json` prints the timestamp. The library converts it to 64 bits, in which
//!   nanoseconds overflow outside of the years 1677 to 2262: 9999-12-31 becomes 1816-03-29.
//! - INTERVAL is read as 12 bytes, too. The library leaves out the months.
//!
//! For example, `optional int96 at; optional binary kind (ENUM);` is read as `at: FixedSizeBinary(12)` with the
//! metadata [`INT96_ZONE`], and `kind: Utf8View`.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::datatypes::{DataType, Field, Fields, IntervalUnit, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::file::metadata::{FileMetaData, ParquetMetaData};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type};

use super::super::error::{SourceError, quoted_name};

/// The key in the metadata of a field that holds INT96 timestamps. The value is their time zone, empty for none.
pub(super) const INT96_ZONE: &str = "strata.int96";

pub(super) const INTERVAL: &str = "strata.interval";

/// Bytes of an INT96 value, and of an interval.
pub(super) const VALUE_BYTES: i32 = 12;

pub(super) struct ReadSchema {
    pub(super) fields: Fields,
    pub(super) levels: FieldLevels,
    /// Whether a batch copies strings; otherwise it refers to them.
    pub(super) copies_strings: bool,
    parquet: SchemaDescriptor,
}

impl ReadSchema {
    pub(super) fn try_new(metadata: &Arc<ParquetMetaData>) -> Result<Self, SourceError> {
        let original = metadata.file_metadata().schema_descr();
        let options = ArrowReaderOptions::new();
        // The writer's Arrow schema only refines the types: the file's own schema has precedence.
        let found = ArrowReaderMetadata::try_new(Arc::clone(metadata), options.clone())
            .or_else(|_| {
                ArrowReaderMetadata::try_new(Arc::clone(metadata), options.clone().with_skip_arrow_metadata(true))
            })
            .map_err(|_| unsupported(original))?;
        let mut adjuster = Adjuster { columns: original.columns().iter(), as_bytes: Vec::new() };
        let fields = adjuster.fields(found.schema().fields());
        fields.iter().try_for_each(|field| check_printable(field, field.name()))?;
        let parquet = match with_bytes(original.root_schema(), false, &mut adjuster.as_bytes.into_iter()) {
            Some(root) => SchemaDescriptor::new(Arc::new(root)),
            None => original.clone(),
        };
        let levels = parquet_to_arrow_field_levels(&parquet, ProjectionMask::all(), Some(&fields));
        let levels = levels.map_err(|_| unsupported(original))?;
        // The library ignores a type that does not fit, but memory is counted by the types.
        let without_rows = FileMetaData::new(1, 0, None, None, Arc::new(parquet.clone()), None);
        let without_rows = Arc::new(ParquetMetaData::new(without_rows, Vec::new()));
        let options = options.with_schema(Arc::new(Schema::new(fields.clone())));
        ArrowReaderMetadata::try_new(without_rows, options).map_err(|_| unsupported(original))?;
        let copies_strings = fields.iter().any(|field| copies_strings(field.data_type()));
        Ok(Self { fields, levels, copies_strings, parquet })
    }

    /// The names of the top-level columns, each with its levels as if it were the only one that is read.
    pub(super) fn top_level_columns(&self) -> impl Iterator<Item = (&str, FieldLevels)> {
        self.parquet.root_schema().get_fields().iter().enumerate().filter_map(move |(root, column)| {
            let mask = ProjectionMask::roots(&self.parquet, [root]);
            let levels = parquet_to_arrow_field_levels(&self.parquet, mask, Some(&self.fields)).ok()?;
            Some((column.name(), levels))
        })
    }
}

fn top_level_schema(schema: &SchemaDescriptor, index: usize) -> Option<SchemaDescriptor> {
    let root = schema.root_schema();
    let field = Arc::clone(root.get_fields().get(index)?);
    let root = Type::GroupType { basic_info: root.get_basic_info().clone(), fields: vec![field] };
    Some(SchemaDescriptor::new(Arc::new(root)))
}

fn unsupported(schema: &SchemaDescriptor) -> SourceError {
    let fields = schema.root_schema().get_fields();
    let refused = fields.iter().enumerate().find(|(index, _)| {
        let schema = top_level_schema(schema, *index);
        schema.is_some_and(|schema| parquet_to_arrow_field_levels(&schema, ProjectionMask::all(), None).is_err())
    });
    let column = refused.map_or("its schema".to_owned(), |(_, field)| format!("column {}", quoted_name(field.name())));
    SourceError::document(format!(
        "the Parquet file cannot be read: {column} has a type annotation that does not match its type, or a group that \
         is neither a list nor a map"
    ))
}

fn check_printable(field: &Field, column: &str) -> Result<(), SourceError> {
    let refuse = |reason: String| {
        Err(SourceError::document(format!("the Parquet file cannot be read: column {} {reason}", quoted_name(column))))
    };
    if let Some(zone) = time_zone(field)
        && zone.parse::<Tz>().is_err()
    {
        return refuse(format!("has the unknown time zone {}", quoted_name(zone)));
    }
    if let DataType::Map(entries, _) = field.data_type()
        && let DataType::Struct(entry) = entries.data_type()
        && let Some(key) = entry.first()
        && key.data_type().is_nested()
    {
        return refuse("has maps whose keys are lists, structs, or maps, which JSON does not support".to_owned());
    }
    children(field.data_type()).iter().try_for_each(|child| check_printable(child, column))
}

fn time_zone(field: &Field) -> Option<&str> {
    let zone = match field.data_type() {
        DataType::Timestamp(_, zone) => zone.as_deref(),
        _ => field.metadata().get(INT96_ZONE).map(String::as_str),
    };
    zone.filter(|zone| !zone.is_empty())
}

/// The fields of a struct, list or map, which may be nested themselves; none of any other type.
fn children(data_type: &DataType) -> &[Arc<Field>] {
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

struct Adjuster<'a> {
    columns: std::slice::Iter<'a, ColumnDescPtr>,
    /// For each column so far, whether it is read as 12 bytes.
    as_bytes: Vec<bool>,
}

impl Adjuster<'_> {
    fn fields(&mut self, fields: &Fields) -> Fields {
        fields.iter().map(|field| self.field(field)).collect()
    }

    fn field(&mut self, field: &Field) -> Arc<Field> {
        let data_type = match field.data_type() {
            DataType::Struct(fields) => DataType::Struct(self.fields(fields)),
            DataType::List(item) => DataType::List(self.field(item)),
            DataType::LargeList(item) => DataType::LargeList(self.field(item)),
            DataType::ListView(item) => DataType::ListView(self.field(item)),
            DataType::LargeListView(item) => DataType::LargeListView(self.field(item)),
            DataType::FixedSizeList(item, length) => DataType::FixedSizeList(self.field(item), *length),
            DataType::Map(entries, sorted) => DataType::Map(self.field(entries), *sorted),
            leaf_type => {
                let column = self.columns.next();
                let field = adjust_leaf(field, leaf_type, column);
                self.as_bytes.push([INT96_ZONE, INTERVAL].iter().any(|key| field.metadata().contains_key(*key)));
                return Arc::new(field);
            }
        };
        Arc::new(field.clone().with_data_type(data_type))
    }
}

fn adjust_leaf(field: &Field, data_type: &DataType, column: Option<&ColumnDescPtr>) -> Field {
    // Printed alike, and each value is there once either way.
    if let DataType::Dictionary(_, values) = data_type {
        return adjust_leaf(field, values, column);
    }
    let as_bytes = |key: &str, value: &str| {
        let mut metadata = field.metadata().clone();
        metadata.insert(key.to_owned(), value.to_owned());
        field.clone().with_data_type(DataType::FixedSizeBinary(VALUE_BYTES)).with_metadata(metadata)
    };
    let is_int96 = column.is_some_and(|column| column.physical_type() == PhysicalType::INT96);
    let is_enum = column.is_some_and(|column| {
        column.converted_type() == ConvertedType::ENUM || column.logical_type_ref() == Some(&LogicalType::Enum)
    });
    match data_type {
        DataType::Timestamp(_, zone) if is_int96 => as_bytes(INT96_ZONE, zone.as_deref().unwrap_or_default()),
        DataType::Interval(IntervalUnit::DayTime) => as_bytes(INTERVAL, ""),
        DataType::Binary | DataType::LargeBinary if is_enum => field.clone().with_data_type(DataType::Utf8View),
        DataType::Utf8 | DataType::LargeUtf8 => field.clone().with_data_type(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => field.clone().with_data_type(DataType::BinaryView),
        other => field.clone().with_data_type(other.clone()),
    }
}

/// Replaces columns by 12 bytes without an annotation: `as_bytes` says for each column whether to replace it. Returns
/// `None` if there is nothing to replace.
///
/// The library knows the fields of a repeated value in a list only if a group is between them:
/// `repeated int96 item` becomes `repeated group list { required item }`, which has the same levels.
fn with_bytes(element: &Type, is_in_list: bool, as_bytes: &mut impl Iterator<Item = bool>) -> Option<Type> {
    match element {
        Type::PrimitiveType { basic_info, .. } => {
            if as_bytes.next() != Some(true) {
                return None;
            }
            let bytes = |repetition| {
                let builder = Type::primitive_type_builder(basic_info.name(), PhysicalType::FIXED_LEN_BYTE_ARRAY);
                builder.with_length(VALUE_BYTES).with_repetition(repetition).build().ok()
            };
            let repetition = if basic_info.has_repetition() { basic_info.repetition() } else { Repetition::REQUIRED };
            if !is_in_list || repetition != Repetition::REPEATED {
                return bytes(repetition);
            }
            let item = Arc::new(bytes(Repetition::REQUIRED)?);
            Type::group_type_builder("list").with_repetition(repetition).with_fields(vec![item]).build().ok()
        }
        Type::GroupType { basic_info, fields } => {
            let is_list = basic_info.converted_type() == ConvertedType::LIST;
            let mut changed = false;
            let fields = fields.iter().map(|field| match with_bytes(field, is_list, as_bytes) {
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

/// Whether an array holds values of a type itself, which are strings.
fn copies_strings(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => true,
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) | DataType::Union(..) => true,
        nested => children(nested).iter().any(|field| copies_strings(field.data_type())),
    }
}
