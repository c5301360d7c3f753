//! Encodes the values at a path as a part of `dedup` keys: bytes that are equal exactly if the values are equal,
//! whether they are read from an indexed column or from a document.
//!
//! A path leads to a list of values. The encoding of a value determines its own length:
//!
//! | Value | Bytes |
//! |---|---|
//! | null, `false`, `true` | a tag |
//! | string | a tag, the length, the text |
//! | number | a tag, the double, the remainder |
//! | integer beyond both | a tag, the length of the text, the text |
//! | object, array | a tag, the length of the canonical form, the canonical form |

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, UInt8Array};
use arrow::datatypes::{Float64Type, Int32Type, UInt8Type};
use strata_format::layout::ShreddedPart;
use strata_format::reader::VersionReader;
use strata_json::{CanonicalFormWriter, JsonScalar, NumericValue};
use strata_store::StorageError;
use strata_types::field_path::FieldPath;

use crate::fetch::entity_projection::NullTreatment;

pub(super) mod kind {
    use strata_format::layout::ShreddedKind;

    pub(crate) const NULL: u8 = ShreddedKind::Null as u8;
    pub(crate) const NOTHING: u8 = ShreddedKind::Missing as u8;
    pub(crate) const BOOLEAN: u8 = ShreddedKind::Boolean as u8;
    pub(crate) const STRING: u8 = ShreddedKind::String as u8;
    pub(crate) const NUMBER: u8 = ShreddedKind::Number as u8;
    pub(crate) const LONG_INTEGER: u8 = ShreddedKind::LongInteger as u8;
}

const NULL_TAG: u8 = 0;
const FALSE_TAG: u8 = 1;
const TRUE_TAG: u8 = 2;
const STRING_TAG: u8 = 3;
const NUMBER_TAG: u8 = 4;
const LONG_INTEGER_TAG: u8 = 5;
const CONTAINER_TAG: u8 = 6;
pub(super) const NULL_KEY_PART: &[u8] = &[NULL_TAG];
pub(super) const EMPTY_STRING_KEY_PART: &[u8] = &[STRING_TAG, 0, 0, 0, 0, 0, 0, 0, 0];

pub(super) fn append_key_parts(entity: &[u8], path: &FieldPath, writer: &mut CanonicalFormWriter, out: &mut Vec<u8>) {
    strata_json::visit_values_at(entity, path, |value| {
        append_key_part(value, writer, out);
        ControlFlow::Continue(())
    });
}

pub(super) fn append_key_part(value: &[u8], canonical: &mut CanonicalFormWriter, out: &mut Vec<u8>) {
    match JsonScalar::parse(value) {
        Some(JsonScalar::Null) => out.push(NULL_TAG),
        Some(JsonScalar::Bool(value)) => out.push(if value { TRUE_TAG } else { FALSE_TAG }),
        Some(JsonScalar::String(text)) => write_length_prefixed(STRING_TAG, out, |out| text.unescape_into(out)),
        Some(JsonScalar::Number(text)) => {
            let number = NumericValue::parse(text);
            match number.as_ref().and_then(|number| Some((number.nearest_double(), number.double_remainder()?))) {
                Some((double, remainder)) => append_number_key(double, remainder, out),
                None => write_length_prefixed(LONG_INTEGER_TAG, out, |out| out.extend_from_slice(text.as_bytes())),
            }
        }
        None => write_length_prefixed(CONTAINER_TAG, out, |out| canonical.write(value, out)),
    }
}

fn append_number_key(double: f64, remainder: i64, out: &mut Vec<u8>) {
    out.push(NUMBER_TAG);
    out.extend_from_slice(&strata_json::sortable_bits(double).to_be_bytes());
    out.extend_from_slice(&remainder.to_be_bytes());
}

fn write_length_prefixed(tag: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    write(out);
    let length = (out.len() - start - 8) as u64;
    out[start..start + 8].copy_from_slice(&length.to_be_bytes());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathColumn {
    pub(super) column_number: usize,
    /// Whether the indexed column contains all values at the path: no entity has an object or an array there.
    pub(super) is_complete: bool,
}

pub(super) struct ColumnScalars {
    pub(super) kinds: ArrayRef,
    pub(super) texts: Option<ArrayRef>,
    pub(super) numbers: Option<(ArrayRef, ArrayRef)>,
}

impl ColumnScalars {
    pub(super) fn kinds(&self) -> &[u8] {
        self.kinds.as_primitive::<UInt8Type>().values()
    }

    pub(super) fn text_at(&self, element: usize) -> Option<&[u8]> {
        bytes_at(self.texts.as_ref()?, element)
    }

    pub(super) fn is_true(&self, element: usize) -> bool {
        self.text_at(element) == Some(b"true")
    }

    #[inline]
    pub(super) fn number_at(&self, element: usize) -> Option<(f64, i64)> {
        let (doubles, remainders) = self.numbers.as_ref()?;
        let remainder = remainder_at(remainders.as_primitive(), element);
        Some((doubles.as_primitive::<Float64Type>().value(element), remainder))
    }
}

pub(super) struct DedupKeyColumn {
    pub(super) scalars: ColumnScalars,
    is_complete: bool,
    /// The offsets of the elements of each row. `None` if each row has one element.
    offsets: Option<Vec<i32>>,
}

impl DedupKeyColumn {
    pub(super) async fn open(
        reader: &VersionReader,
        row_group: usize,
        column: PathColumn,
    ) -> Result<DedupKeyColumn, StorageError> {
        let PathColumn { column_number: shredded, is_complete } = column;
        let damaged = || inconsistent_parts_error(shredded);
        let mut offsets = None;
        let mut part = async |part: ShreddedPart| -> Result<Option<ArrayRef>, StorageError> {
            let Some(column) = reader.read_shredded(row_group, shredded, part).await? else { return Ok(None) };
            let Some(list) = column.as_list_opt::<i32>() else { return Ok(Some(column)) };
            match &offsets {
                None => offsets = Some(list.value_offsets().to_vec()),
                Some(offsets) if offsets.as_slice() != list.value_offsets() => return Err(damaged()),
                Some(_) => {}
            }
            Ok(Some(list.values().clone()))
        };
        let texts = part(ShreddedPart::Text).await?.ok_or_else(damaged)?;
        // Statistics can show that all elements have one kind.
        let kinds: ArrayRef = match reader.kind_range(row_group, shredded) {
            Some((min, max)) if min == max => Arc::new(UInt8Array::from_value(min as u8, texts.len())),
            _ => part(ShreddedPart::Kind).await?.ok_or_else(damaged)?,
        };
        let numbers = part(ShreddedPart::Number).await?.zip(part(ShreddedPart::Remainder).await?);
        let fits = |other: &ArrayRef| other.len() == kinds.len();
        let numbers_fit = numbers.as_ref().is_none_or(|(numbers, remainders)| fits(numbers) && fits(remainders));
        if !fits(&texts) || !numbers_fit {
            return Err(damaged());
        }
        let scalars = ColumnScalars { kinds, texts: Some(texts), numbers };
        Ok(DedupKeyColumn { scalars, is_complete, offsets })
    }

    #[inline]
    pub(super) fn elements_in_row(&self, row: usize) -> Range<usize> {
        match &self.offsets {
            Some(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
            None => row..row + 1,
        }
    }

    /// Returns a number for the value of an element, unique in its row group. `None` if the column has no dictionary.
    #[inline]
    pub(super) fn dictionary_value_id(&self, element: usize) -> Option<u64> {
        let dictionary = self.scalars.texts.as_ref()?.as_dictionary_opt::<Int32Type>()?;
        let text = if dictionary.is_valid(element) { dictionary.keys().value(element) as u32 } else { u32::MAX };
        Some(u64::from(self.scalars.kinds()[element]) << 32 | u64::from(text))
    }

    /// Whether the indexed column contains all values of a row. Columns without all values have one element per row.
    #[inline]
    pub(super) fn is_row_complete(&self, row: usize) -> bool {
        self.is_complete || self.scalars.kinds().get(row).is_some_and(|kind| *kind != kind::NOTHING)
    }

    pub(super) fn count_rows_needing_documents(&self) -> usize {
        let is_nothing = |kind: &&u8| **kind == kind::NOTHING;
        if self.is_complete { 0 } else { self.scalars.kinds().iter().filter(is_nothing).count() }
    }

    /// Appends the elements of a row. Returns false if the document must be read.
    pub(super) fn try_append_row_key(&self, row: usize, nulls: NullTreatment, out: &mut Vec<u8>) -> bool {
        let kinds = self.scalars.kinds();
        let is_denulled = |element: usize| match kinds[element] {
            kind::NULL => true,
            kind::STRING => self.scalars.text_at(element).is_some_and(<[u8]>::is_empty),
            _ => false,
        };
        self.elements_in_row(row).all(|element| {
            let is_removed = nulls == NullTreatment::Remove && is_denulled(element);
            kinds[element] == kind::NOTHING || is_removed || self.try_append_element_key(element, out)
        })
    }

    /// Appends the key of an element that has a value. Returns false if the document must be read.
    pub(super) fn try_append_element_key(&self, element: usize, out: &mut Vec<u8>) -> bool {
        let scalars = &self.scalars;
        match scalars.kinds()[element] {
            kind::NULL => out.push(NULL_TAG),
            kind::BOOLEAN => out.push(if scalars.is_true(element) { TRUE_TAG } else { FALSE_TAG }),
            kind::STRING => match scalars.text_at(element) {
                Some(text) => write_length_prefixed(STRING_TAG, out, |out| out.extend_from_slice(text)),
                None => return false,
            },
            kind::NUMBER => match scalars.number_at(element) {
                Some((double, remainder)) => append_number_key(double, remainder, out),
                None => return false,
            },
            kind::LONG_INTEGER => match scalars.text_at(element) {
                Some(text) => write_length_prefixed(LONG_INTEGER_TAG, out, |out| out.extend_from_slice(text)),
                None => return false,
            },
            _ => return false,
        }
        true
    }
}

pub(super) fn inconsistent_parts_error(column_number: usize) -> StorageError {
    StorageError::InvalidFile(format!("the parts of indexed column {column_number} are inconsistent"))
}

#[inline]
pub(super) fn remainder_at(remainders: &Int64Array, element: usize) -> i64 {
    if remainders.is_null(element) { 0 } else { remainders.value(element) }
}

#[inline]
pub(super) fn bytes_at(array: &ArrayRef, element: usize) -> Option<&[u8]> {
    match array.as_dictionary_opt::<Int32Type>() {
        Some(dictionary) => {
            let values = dictionary.values().as_binary::<i32>();
            let key = usize::try_from(dictionary.keys().value(element)).ok()?;
            (dictionary.is_valid(element) && key < values.len()).then(|| values.value(key))
        }
        None => {
            let values = array.as_binary::<i32>();
            values.is_valid(element).then(|| values.value(element))
        }
    }
}
