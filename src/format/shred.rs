//! Entities to the Arrow arrays of a version file's columns.
//!
//! Steps, in one walk per entity: fold each scalar's text into the search text; where its path has a shredded column,
//! append the folded text, the exact text where it differs, the kind and the number to that shredded column's builders;
//! add its path to the entity's shape. The canonical hash is a second walk, since it orders keys.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, AsArray, BinaryArray, BinaryBuilder, FixedSizeBinaryBuilder, Float64Builder,
    Int64Builder, ListArray, RecordBatch, StringArray, UInt8Builder,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use strata_json::{CanonicalForm, NumericValue, Scalar};
use strata_store::Result;

use super::layout::{Layout, SEARCH_COLUMN, SEPARATOR, ShreddedKind};
use super::shapes::ScalarKind;
use super::shapes::builder::{ShapeBuilder, ShapeLimits};
use super::tree::{Found, Node, PathTree, UNKNOWN};

/// Turns documents into record batches of [`Layout::schema`]. One per worker; it keeps its buffers.
pub struct Shredder {
    schema: SchemaRef,
    tree: PathTree,
    /// ShreddedColumn number by tree node; `usize::MAX` where the node is only on the way to one.
    shredded_of_node: Vec<usize>,
    shredded_columns: Vec<ShreddedBuilders>,
    shapes: Option<ShapeBuilder>,
    document_bytes: u64,
    canonical: CanonicalForm,
    /// Memory for the next search texts: fresh pages cost more than what is written to them.
    search: Vec<u8>,
}

#[derive(Default)]
struct ShreddedBuilders {
    fans_out: bool,
    has_exact: bool,
    has_numbers: bool,
    text: BinaryBuilder,
    exact: BinaryBuilder,
    kind: UInt8Builder,
    number: Float64Builder,
    remainder: Int64Builder,
    /// Where each row's elements end so far, where the shredded column fans out; otherwise its rows.
    offsets: Vec<i32>,
}

impl Shredder {
    pub fn new(layout: &Layout, shapes: Option<ShapeLimits>) -> Shredder {
        let mut tree = PathTree::new(usize::MAX, usize::MAX);
        let mut shredded_of_node = vec![usize::MAX];
        // Those that are retired hold nothing.
        let asked = layout.shredded_columns.iter().enumerate().filter(|(_, shredded)| !shredded.retired);
        for (number, shredded) in asked {
            let node = tree.insert_path(&shredded.keys);
            shredded_of_node.resize(tree.node_count(), usize::MAX);
            shredded_of_node[node as usize] = number;
        }
        tree.bound(shapes.map_or(usize::MAX, |limits| limits.paths));
        let shredded_columns = layout.shredded_columns.iter().map(|shredded| ShreddedBuilders {
            fans_out: shredded.fans_out,
            has_exact: shredded.has_exact,
            has_numbers: shredded.has_numbers,
            ..ShreddedBuilders::default()
        });
        Shredder {
            schema: layout.schema(),
            shredded_columns: shredded_columns.collect(),
            shapes: shapes.map(ShapeBuilder::new),
            document_bytes: 0,
            tree,
            shredded_of_node,
            canonical: CanonicalForm::default(),
            search: Vec::new(),
        }
    }

    /// The columns of these entities.
    ///
    /// # Errors
    /// [`strata_store::StorageError::Arrow`] when a column passes 2 GiB; callers keep batches far below.
    pub fn shred(&mut self, documents: &StringArray) -> Result<RecordBatch> {
        let mut search = std::mem::take(&mut self.search);
        search.clear();
        let mut search_offsets: Vec<i32> = Vec::with_capacity(documents.len() + 1);
        search_offsets.push(0);
        let mut hashes = FixedSizeBinaryBuilder::with_capacity(documents.len(), 32);
        for text in documents.iter().flatten() {
            self.document_bytes += text.len() as u64;
            let Shredder { tree, shredded_of_node, shredded_columns, shapes, .. } = self;
            let grow = shapes.as_ref().is_some_and(ShapeBuilder::is_open);
            tree.walk(text.as_bytes(), grow, |node, _, found| {
                let Found::Scalar(scalar) = found else { return };
                if let Some(shapes) = shapes {
                    shapes.add(node, kind(scalar));
                }
                search.push(SEPARATOR);
                let start = search.len();
                if !strata_json::fold_scalar_into(scalar, &mut search) {
                    search.pop();
                }
                if node != UNKNOWN
                    && let Some(shredded) =
                        shredded_of_node.get(node as usize).and_then(|shredded| shredded_columns.get_mut(*shredded))
                {
                    shredded.append(scalar, search.get(start..).unwrap_or_default());
                }
            });
            if let Some(shapes) = shapes {
                shapes.end_row(tree);
            }
            search.push(SEPARATOR);
            search_offsets.push(offset(search.len())?);
            for shredded in shredded_columns {
                shredded.end_row()?;
            }
            hashes.append_value(self.canonical.hash(text.as_bytes()))?;
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(search_offsets));
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(documents.clone()),
            Arc::new(BinaryArray::try_new(offsets, search.into(), None)?),
            Arc::new(hashes.finish()),
        ];
        for shredded in &mut self.shredded_columns {
            shredded.finish(&self.schema, &mut columns)?;
        }
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    /// The shapes of the documents since the last call, which are a row group, as they are stored; `None` where none
    /// are collected, or where they are left out.
    pub fn take_shapes(&mut self) -> Option<Vec<u8>> {
        let bytes = std::mem::take(&mut self.document_bytes);
        let shapes = self.shapes.as_mut()?.finish(&self.tree, bytes);
        // What is written of a row group depends on nothing before it.
        self.tree.truncate(self.shredded_of_node.len());
        shapes
    }

    /// Takes back the largest buffer of a batch that has been written.
    pub fn recycle(&mut self, batch: RecordBatch) {
        let bytes = batch.column(SEARCH_COLUMN).as_binary::<i32>().values().clone();
        drop(batch);
        if let Ok(bytes) = bytes.into_vec() {
            self.search = bytes;
        }
    }
}

/// The shredded columns that cannot hold what an entity has at their paths, and are not retired.
pub fn conflicts(layout: &Layout, document: &[u8]) -> Vec<usize> {
    let mut tree = PathTree::new(usize::MAX, usize::MAX);
    let nodes: Vec<Node> = layout.shredded_columns.iter().map(|shredded| tree.insert_path(&shredded.keys)).collect();
    let mut found = Vec::new();
    tree.walk(document, false, |node, fanned, value| {
        let Found::Scalar(scalar) = value else { return };
        let Some(number) = nodes.iter().position(|of_column| *of_column == node) else { return };
        let shredded = &layout.shredded_columns[number];
        // As the profile tells (`storage/profile`): a text that folding may change needs an exact one.
        let folds = |text: &[u8]| text.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        let fits = match scalar {
            Scalar::Null | Scalar::Bool(_) => true,
            Scalar::Number(text) => shredded.has_numbers && (shredded.has_exact || !folds(text.as_bytes())),
            Scalar::String(text) => shredded.has_exact || !folds(text.raw()),
        };
        if !shredded.retired && (!fits || (fanned && !shredded.fans_out)) && !found.contains(&number) {
            found.push(number);
        }
    });
    found
}

fn kind(scalar: Scalar<'_>) -> ScalarKind {
    match scalar {
        Scalar::Null => ScalarKind::Null,
        Scalar::Number(_) => ScalarKind::Number,
        Scalar::Bool(_) | Scalar::String(_) => ScalarKind::Text,
    }
}

fn offset(length: usize) -> Result<i32> {
    i32::try_from(length).map_err(|_| arrow::error::ArrowError::OffsetOverflowError(length).into())
}

impl ShreddedBuilders {
    fn append(&mut self, scalar: Scalar<'_>, folded: &[u8]) {
        let unescaped;
        let mut exact = None;
        let mut number = None;
        let kind = match scalar {
            Scalar::Null => ShreddedKind::Null,
            Scalar::Bool(_) => ShreddedKind::Boolean,
            Scalar::String(text) => {
                if self.has_exact && text.raw() != folded {
                    unescaped = text.unescape();
                    // Raw texts also differ if they only contain an escape.
                    exact = Some(unescaped.as_bytes()).filter(|exact| *exact != folded);
                }
                ShreddedKind::String
            }
            Scalar::Number(text) => {
                exact = Some(text.as_bytes()).filter(|exact| *exact != folded);
                number = NumericValue::parse(text).and_then(|value| Some((value.double(), value.remainder()?)));
                // A long integer has no double here, because it equals only numbers with the same text.
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

    /// Ends a row: a row of a scalar shredded column that got no value gets `Nothing`.
    fn end_row(&mut self) -> Result<()> {
        if self.fans_out {
            self.offsets.push(offset(self.kind.len())?);
            return Ok(());
        }
        let rows = self.offsets.len() + 1;
        if self.kind.len() < rows {
            self.push(ShreddedKind::Nothing, None, None, None);
        }
        self.offsets.push(offset(rows)?);
        Ok(())
    }

    /// Appends the columns, whose fields come next in the schema.
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
