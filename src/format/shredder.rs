//! Converts entities to the Arrow arrays of a version file's columns.
//!
//! One walk per entity folds the scalars into the full-text column, appends them to indexed columns, and adds their
//! paths to the path index. A second walk computes the canonical hash, which requires sorted keys.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, AsArray, BinaryArray, BinaryBuilder, FixedSizeBinaryBuilder, Float64Builder,
    Int64Builder, ListArray, RecordBatch, StringArray, UInt8Builder,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use strata_json::{CanonicalFormWriter, JsonScalar, NumericValue};
use strata_store::Result;

use super::keywords::field_set::{FieldTable, OTHER_PATHS};
use super::layout::{FULL_TEXT_COLUMN_INDEX, FileLayout, ShreddedKind, TEXT_SEPARATOR};
use super::path_index::ScalarKind;
use super::path_index::builder::{PathIndexBuilder, PathIndexLimits};
use super::path_tree::{MissingPaths, NumberedPathTree, PathNode, UNKNOWN_NODE, VisitedValue};

/// Converts documents to record batches of [`FileLayout::schema`]. Each worker has one and reuses its buffers.
pub struct EntityShredder {
    schema: SchemaRef,
    tree: NumberedPathTree,
    /// Number of the indexed column of each node in the path tree; `usize::MAX` for inner nodes.
    column_of_node: Vec<usize>,
    shredded_columns: Vec<ShreddedColumnBuilders>,
    path_index: Option<PathIndexBuilder>,
    document_bytes: u64,
    canonical_form: CanonicalFormWriter,
    /// The keyword index field of each node in the path tree. Further nodes have no field of their own.
    field_of_node: Vec<u8>,
    scalar_fields: Vec<u8>,
    /// A buffer that is reused, because writing to new pages of memory is slow.
    full_text_buffer: Vec<u8>,
}

#[derive(Default)]
struct ShreddedColumnBuilders {
    fans_out: bool,
    has_exact: bool,
    has_numbers: bool,
    text: BinaryBuilder,
    exact: BinaryBuilder,
    kind: UInt8Builder,
    number: Float64Builder,
    remainder: Int64Builder,
    /// For each row, the end of its elements in a column that fans out. In other columns, each row has one element.
    offsets: Vec<i32>,
}

impl EntityShredder {
    pub fn new(layout: &FileLayout, fields: &FieldTable, path_index: Option<PathIndexLimits>) -> EntityShredder {
        let mut tree = NumberedPathTree::new(usize::MAX, usize::MAX);
        let mut column_of_node = vec![usize::MAX];
        let active = layout.shredded_columns.iter().enumerate().filter(|(_, shredded)| !shredded.retired);
        for (number, shredded) in active {
            let node = tree.insert_path(&shredded.keys);
            column_of_node.resize(tree.node_count(), usize::MAX);
            column_of_node[node as usize] = number;
        }
        let mut field_of_node = Vec::new();
        for (keys, field) in fields.fields() {
            let node = tree.insert_path(keys) as usize;
            field_of_node.resize(tree.node_count(), OTHER_PATHS);
            field_of_node[node] = field;
        }
        column_of_node.resize(tree.node_count(), usize::MAX);
        tree.set_max_nodes(path_index.map_or(usize::MAX, |limits| limits.max_paths));
        let shredded_columns = layout.shredded_columns.iter().map(|shredded| ShreddedColumnBuilders {
            fans_out: shredded.fans_out,
            has_exact: shredded.has_exact,
            has_numbers: shredded.has_numbers,
            ..ShreddedColumnBuilders::default()
        });
        EntityShredder {
            schema: layout.schema(),
            shredded_columns: shredded_columns.collect(),
            path_index: path_index.map(PathIndexBuilder::new),
            document_bytes: 0,
            tree,
            column_of_node,
            canonical_form: CanonicalFormWriter::default(),
            field_of_node,
            scalar_fields: Vec::new(),
            full_text_buffer: Vec::new(),
        }
    }

    /// Converts documents to a record batch. Fails if a column exceeds 2 GiB. Callers use much smaller batches.
    pub fn shred(&mut self, documents: &StringArray) -> Result<RecordBatch> {
        let mut full_text = std::mem::take(&mut self.full_text_buffer);
        full_text.clear();
        let mut full_text_offsets: Vec<i32> = Vec::with_capacity(documents.len() + 1);
        full_text_offsets.push(0);
        let mut hashes = FixedSizeBinaryBuilder::with_capacity(documents.len(), 32);
        for text in documents.iter().flatten() {
            self.document_bytes += text.len() as u64;
            let EntityShredder {
                tree, column_of_node, shredded_columns, path_index, field_of_node, scalar_fields, ..
            } = self;
            let is_collecting = path_index.as_ref().is_some_and(PathIndexBuilder::is_collecting);
            let missing_paths = if is_collecting { MissingPaths::Insert } else { MissingPaths::VisitAsUnknown };
            tree.walk(text.as_bytes(), missing_paths, |node, _, value| {
                let VisitedValue::Scalar(scalar) = value else { return };
                if let Some(path_index) = path_index {
                    path_index.add_scalar(node, scalar_kind(scalar));
                }
                full_text.push(TEXT_SEPARATOR);
                let start = full_text.len();
                if strata_json::fold_scalar_into(scalar, &mut full_text) {
                    scalar_fields.push(field_of_node.get(node as usize).copied().unwrap_or(OTHER_PATHS));
                } else {
                    full_text.pop();
                }
                if node != UNKNOWN_NODE
                    && let Some(shredded) =
                        column_of_node.get(node as usize).and_then(|shredded| shredded_columns.get_mut(*shredded))
                {
                    shredded.append(scalar, full_text.get(start..).unwrap_or_default());
                }
            });
            if let Some(path_index) = path_index {
                path_index.end_row(tree);
            }
            full_text.push(TEXT_SEPARATOR);
            full_text_offsets.push(to_offset(full_text.len())?);
            for shredded in shredded_columns {
                shredded.end_row()?;
            }
            hashes.append_value(self.canonical_form.hash_without_source_field(text.as_bytes()))?;
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(full_text_offsets));
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(documents.clone()),
            Arc::new(BinaryArray::try_new(offsets, full_text.into(), None)?),
            Arc::new(hashes.finish()),
        ];
        for shredded in &mut self.shredded_columns {
            shredded.finish(&self.schema, &mut columns)?;
        }
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    /// Returns the keyword index fields of the scalars in the full texts since the last call, in their order.
    pub fn take_scalar_fields(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scalar_fields)
    }

    /// Returns the path index of the documents since the last call, or `None` if a limit was exceeded.
    pub fn take_path_index(&mut self) -> Option<Vec<u8>> {
        let bytes = std::mem::take(&mut self.document_bytes);
        let path_index = self.path_index.as_mut()?.finish(&self.tree, bytes);
        // The paths of this row group are removed, because path indexes must not depend on previous row groups.
        self.tree.truncate(self.column_of_node.len());
        path_index
    }

    pub fn reclaim_buffer(&mut self, batch: RecordBatch) {
        let bytes = batch.column(FULL_TEXT_COLUMN_INDEX).as_binary::<i32>().values().clone();
        drop(batch);
        if let Ok(bytes) = bytes.into_vec() {
            self.full_text_buffer = bytes;
        }
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
        // The profile uses the same condition to decide whether a column needs exact texts.
        let needs_exact_text = |text: &[u8]| text.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        let fits = match scalar {
            JsonScalar::Null | JsonScalar::Bool(_) => true,
            JsonScalar::Number(text) => {
                shredded.has_numbers && (shredded.has_exact || !needs_exact_text(text.as_bytes()))
            }
            JsonScalar::String(text) => shredded.has_exact || !needs_exact_text(text.raw()),
        };
        if !shredded.retired && (!fits || (is_in_array && !shredded.fans_out)) && !conflicts.contains(&number) {
            conflicts.push(number);
        }
    });
    conflicts
}

fn scalar_kind(scalar: JsonScalar<'_>) -> ScalarKind {
    match scalar {
        JsonScalar::Null => ScalarKind::Null,
        JsonScalar::Number(_) => ScalarKind::Number,
        JsonScalar::Bool(_) | JsonScalar::String(_) => ScalarKind::Text,
    }
}

fn to_offset(length: usize) -> Result<i32> {
    i32::try_from(length).map_err(|_| arrow::error::ArrowError::OffsetOverflowError(length).into())
}

impl ShreddedColumnBuilders {
    fn append(&mut self, scalar: JsonScalar<'_>, folded: &[u8]) {
        let unescaped;
        let mut exact = None;
        let mut number = None;
        let kind = match scalar {
            JsonScalar::Null => ShreddedKind::Null,
            JsonScalar::Bool(_) => ShreddedKind::Boolean,
            JsonScalar::String(text) => {
                if self.has_exact && text.raw() != folded {
                    unescaped = text.unescape();
                    // If the raw text differs from the folded text only because of an escape, no exact text is needed.
                    exact = Some(unescaped.as_bytes()).filter(|exact| *exact != folded);
                }
                ShreddedKind::String
            }
            JsonScalar::Number(text) => {
                exact = Some(text.as_bytes()).filter(|exact| *exact != folded);
                number = NumericValue::parse(text)
                    .and_then(|value| Some((value.nearest_double(), value.double_remainder()?)));
                // A long integer gets no double, because it equals only numbers with the same text.
                if number.is_some() { ShreddedKind::Number } else { ShreddedKind::LongInteger }
            }
        };
        self.push(kind, (kind != ShreddedKind::Null).then_some(folded), exact, number);
    }

    #[inline]
    fn push(&mut self, kind: ShreddedKind, text: Option<&[u8]>, exact: Option<&[u8]>, number: Option<(f64, i64)>) {
        self.kind.append_value(kind as u8);
        self.text.append_option(text);
        if self.has_exact {
            self.exact.append_option(exact);
        }
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
            self.push(ShreddedKind::Missing, None, None, None);
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
        if self.has_exact {
            push(Arc::new(self.exact.finish()))?;
        }
        push(Arc::new(self.kind.finish()))?;
        if self.has_numbers {
            push(Arc::new(self.number.finish()))?;
            push(Arc::new(self.remainder.finish()))?;
        }
        Ok(())
    }
}
