//! Converts entities to the Arrow arrays of a version file's columns.
//!
//! One walk per entity folds the scalars, appends them to indexed columns, and collects the full text for the keyword
//! index: the folded scalars, each after a [`TEXT_SEPARATOR`], and a final separator. A second walk computes the
//! canonical hash, which requires sorted keys.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, BinaryArray, BinaryBuilder, FixedSizeBinaryBuilder, Float64Builder, Int64Builder,
    ListArray, RecordBatch, StringArray, UInt8Builder,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use strata_json::{CanonicalFormWriter, EntityHash, JsonScalar, NumericValue};
use strata_store::Result;

use super::keywords::field_set::{FieldTable, OTHER_PATHS};
use super::keywords::indexer::RowGroupText;
use super::layout::{FileLayout, ShreddedKind, TEXT_SEPARATOR};
use super::path_tree::{MissingPaths, NumberedPathTree, PathNode, UNKNOWN_NODE, VisitedValue};

/// Converts documents to record batches of [`FileLayout::schema`]. Each worker has one and reuses its buffers.
pub struct EntityShredder {
    schema: SchemaRef,
    tree: NumberedPathTree,
    /// Number of the indexed column of each node in the path tree; `usize::MAX` for inner nodes.
    column_of_node: Vec<usize>,
    shredded_columns: Vec<ShreddedColumnBuilders>,
    canonical_form: CanonicalFormWriter,
    /// The keyword index field of each node in the path tree. Further nodes have no field of their own.
    field_of_node: Vec<u8>,
    full_text: FullTextBuilder,
}

#[derive(Default)]
struct ShreddedColumnBuilders {
    fans_out: bool,
    needs_folding: bool,
    has_numbers: bool,
    omits_integer_texts: bool,
    text: BinaryBuilder,
    kind: UInt8Builder,
    number: Float64Builder,
    remainder: Int64Builder,
    /// For each row, the end of its elements in a column that fans out. In other columns, each row has one element.
    offsets: Vec<i32>,
}

impl EntityShredder {
    /// Without `fields`, the shredder collects no full text.
    pub fn new(layout: &FileLayout, fields: Option<&FieldTable>) -> EntityShredder {
        let mut tree = NumberedPathTree::new(usize::MAX, usize::MAX);
        let mut column_of_node = vec![usize::MAX];
        let active = layout.shredded_columns.iter().enumerate().filter(|(_, shredded)| !shredded.retired);
        for (number, shredded) in active {
            let node = tree.insert_path(&shredded.keys);
            column_of_node.resize(tree.node_count(), usize::MAX);
            column_of_node[node as usize] = number;
        }
        let mut field_of_node = Vec::new();
        for (keys, field) in fields.into_iter().flat_map(FieldTable::fields) {
            let node = tree.insert_path(keys) as usize;
            field_of_node.resize(tree.node_count(), OTHER_PATHS);
            field_of_node[node] = field;
        }
        column_of_node.resize(tree.node_count(), usize::MAX);
        let shredded_columns = layout.shredded_columns.iter().map(|shredded| ShreddedColumnBuilders {
            fans_out: shredded.fans_out,
            needs_folding: shredded.needs_folding,
            has_numbers: shredded.has_numbers,
            omits_integer_texts: shredded.omits_integer_texts(),
            ..ShreddedColumnBuilders::default()
        });
        EntityShredder {
            schema: layout.schema(),
            shredded_columns: shredded_columns.collect(),
            tree,
            column_of_node,
            canonical_form: CanonicalFormWriter::default(),
            field_of_node,
            full_text: FullTextBuilder { is_collecting: fields.is_some(), ..FullTextBuilder::default() },
        }
    }

    /// Converts documents to a record batch. Fails if a column exceeds 2 GiB. Callers use much smaller batches.
    pub fn shred(&mut self, documents: &StringArray) -> Result<RecordBatch> {
        let mut hashes = FixedSizeBinaryBuilder::with_capacity(documents.len(), size_of::<EntityHash>() as i32);
        for document in documents.iter().flatten() {
            let EntityShredder { tree, column_of_node, shredded_columns, field_of_node, full_text, .. } = self;
            tree.walk(document.as_bytes(), MissingPaths::VisitAsUnknown, |node, _, value| {
                let VisitedValue::Scalar(scalar) = value else { return };
                let field = field_of_node.get(node as usize).copied().unwrap_or(OTHER_PATHS);
                let folded = full_text.push_scalar(scalar, field);
                if node != UNKNOWN_NODE
                    && let Some(shredded) =
                        column_of_node.get(node as usize).and_then(|shredded| shredded_columns.get_mut(*shredded))
                {
                    shredded.append(scalar, folded);
                }
            });
            full_text.end_row()?;
            for shredded in shredded_columns {
                shredded.end_row()?;
            }
            hashes.append_value(self.canonical_form.hash_without_source_field(document.as_bytes()))?;
        }
        let mut columns: Vec<ArrayRef> = vec![Arc::new(documents.clone()), Arc::new(hashes.finish())];
        for shredded in &mut self.shredded_columns {
            shredded.finish(&self.schema, &mut columns)?;
        }
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    /// Returns the full texts of the documents since the last call. `None` if the shredder collects none. The next ones
    /// are written to `next`, which is empty.
    pub fn take_full_text(&mut self, mut next: Vec<u8>) -> Result<Option<RowGroupText>> {
        let full_text = &mut self.full_text;
        if !full_text.is_collecting {
            return Ok(None);
        }
        // The next row group has about as much text. Its buffer is allocated at once.
        next.reserve(full_text.bytes.len());
        let bytes = std::mem::replace(&mut full_text.bytes, next);
        let ends = std::mem::take(&mut full_text.row_ends);
        let offsets = OffsetBuffer::new(ScalarBuffer::from_iter(std::iter::once(0).chain(ends)));
        let texts = BinaryArray::try_new(offsets, bytes.into(), None)?;
        Ok(Some(RowGroupText { texts, fields: std::mem::take(&mut full_text.fields) }))
    }
}

/// The full texts of consecutive rows. If they are not collected, only the text of the current row is in memory.
#[derive(Default)]
struct FullTextBuilder {
    is_collecting: bool,
    bytes: Vec<u8>,
    row_ends: Vec<i32>,
    /// The keyword index field of each scalar.
    fields: Vec<u8>,
}

impl FullTextBuilder {
    /// Appends a scalar, and returns its folded text, which is empty for `null`.
    fn push_scalar(&mut self, scalar: JsonScalar<'_>, field: u8) -> &[u8] {
        self.bytes.push(TEXT_SEPARATOR);
        let start = self.bytes.len();
        if !strata_json::fold_scalar_into(scalar, &mut self.bytes) {
            self.bytes.pop();
        } else if self.is_collecting {
            self.fields.push(field);
        }
        self.bytes.get(start..).unwrap_or_default()
    }

    fn end_row(&mut self) -> Result<()> {
        if !self.is_collecting {
            self.bytes.clear();
            return Ok(());
        }
        self.bytes.push(TEXT_SEPARATOR);
        self.row_ends.push(to_offset(self.bytes.len())?);
        Ok(())
    }
}

/// Returns the active indexed columns that cannot represent an entity's values.
pub fn conflicting_columns(layout: &FileLayout, document: &[u8]) -> Vec<usize> {
    let mut tree = NumberedPathTree::new(usize::MAX, usize::MAX);
    let nodes: Vec<PathNode> =
        layout.shredded_columns.iter().map(|shredded| tree.insert_path(&shredded.keys)).collect();
    let mut conflicts = Vec::new();
    tree.walk(document, MissingPaths::VisitAsUnknown, |node, is_in_array, value| {
        let VisitedValue::Scalar(scalar) = value else { return };
        let Some(number) = nodes.iter().position(|column_node| *column_node == node) else { return };
        let shredded = &layout.shredded_columns[number];
        // The profile uses the same condition.
        let needs_folding = |text: &[u8]| text.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        let fits = match scalar {
            JsonScalar::Null | JsonScalar::Bool(_) => true,
            JsonScalar::Number(text) => {
                shredded.has_numbers && (shredded.needs_folding || !needs_folding(text.as_bytes()))
            }
            JsonScalar::String(text) => shredded.needs_folding || !needs_folding(text.raw()),
        };
        if !shredded.retired && (!fits || (is_in_array && !shredded.fans_out)) && !conflicts.contains(&number) {
            conflicts.push(number);
        }
    });
    conflicts
}

fn to_offset(length: usize) -> Result<i32> {
    i32::try_from(length).map_err(|_| arrow::error::ArrowError::OffsetOverflowError(length).into())
}

impl ShreddedColumnBuilders {
    fn append(&mut self, scalar: JsonScalar<'_>, folded: &[u8]) {
        let unescaped;
        let mut text = Some(folded);
        let mut number = None;
        let kind = match scalar {
            JsonScalar::Null => {
                text = None;
                ShreddedKind::Null
            }
            JsonScalar::Bool(_) => ShreddedKind::Boolean,
            JsonScalar::String(string) => {
                if self.needs_folding && string.raw() != folded {
                    unescaped = string.unescape();
                    text = Some(unescaped.as_bytes());
                }
                ShreddedKind::String
            }
            JsonScalar::Number(digits) => {
                let is_omitted = self.omits_integer_texts && digits != "-0" && digits.parse::<i64>().is_ok();
                text = (!is_omitted).then_some(digits.as_bytes());
                number = NumericValue::parse(digits)
                    .and_then(|value| Some((value.nearest_double(), value.double_remainder()?)));
                // A long integer gets no double, because it equals only numbers with the same text.
                if number.is_some() { ShreddedKind::Number } else { ShreddedKind::LongInteger }
            }
        };
        self.push(kind, text, number);
    }

    #[inline]
    fn push(&mut self, kind: ShreddedKind, text: Option<&[u8]>, number: Option<(f64, i64)>) {
        self.kind.append_value(kind as u8);
        self.text.append_option(text);
        if self.has_numbers {
            self.number.append_option(number.map(|(double, _)| double));
            self.remainder.append_option(number.map(|(_, remainder)| remainder).filter(|remainder| *remainder != 0));
        }
    }

    /// Ends a row of an indexed column. In a column that does not fan out, a row without a value gets
    /// [`ShreddedKind::Missing`].
    fn end_row(&mut self) -> Result<()> {
        if self.fans_out {
            self.offsets.push(to_offset(self.kind.len())?);
            return Ok(());
        }
        let rows = self.offsets.len() + 1;
        if self.kind.len() < rows {
            self.push(ShreddedKind::Missing, None, None);
        }
        self.offsets.push(to_offset(rows)?);
        Ok(())
    }

    fn finish(&mut self, schema: &Schema, columns: &mut Vec<ArrayRef>) -> Result<()> {
        let mut offsets = vec![0];
        offsets.append(&mut self.offsets);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let mut push = |values: ArrayRef| -> Result<()> {
            columns.push(match schema.field(columns.len()).data_type() {
                DataType::List(element) => {
                    Arc::new(ListArray::try_new(element.clone(), offsets.clone(), values, None)?)
                }
                _ => values,
            });
            Ok(())
        };
        push(Arc::new(self.text.finish()))?;
        push(Arc::new(self.kind.finish()))?;
        if self.has_numbers {
            push(Arc::new(self.number.finish()))?;
            push(Arc::new(self.remainder.finish()))?;
        }
        Ok(())
    }
}
