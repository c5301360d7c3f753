//! The parts of `dedup` keys: bytes that are equal exactly if the values at a path are equal, whether they come from an
//! indexed column or from a document.
//!
//! A path reaches a list of values. The encoding of a value determines its own length:
//!
//! | Value | Bytes |
//! |---|---|
//! | null, `false`, `true` | a tag |
//! | string | a tag, the length, the text |
//! | number | a tag, the double, the remainder |
//! | integer beyond both | a tag, the length of the text, the text |
//! | object, array | a tag, the length of the canonical form, the canonical form |

use std::ops::{ControlFlow, Range};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{Float64Type, Int32Type, UInt8Type};
use strata_format::layout::ShreddedPart;
use strata_format::reader::VersionReader;
use strata_json::{CanonicalForm, NumericValue, Scalar};
use strata_store::StorageError;
use strata_types::path::Path;

/// `ShreddedKind` as stored.
pub(super) mod kind {
    use strata_format::layout::ShreddedKind;

    pub(crate) const NULL: u8 = ShreddedKind::Null as u8;
    pub(crate) const NOTHING: u8 = ShreddedKind::Nothing as u8;
    pub(crate) const BOOLEAN: u8 = ShreddedKind::Boolean as u8;
    pub(crate) const STRING: u8 = ShreddedKind::String as u8;
    pub(crate) const NUMBER: u8 = ShreddedKind::Number as u8;
    pub(crate) const LONG_INTEGER: u8 = ShreddedKind::LongInteger as u8;
}

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const STRING: u8 = 3;
const NUMBER: u8 = 4;
const LONG_INTEGER: u8 = 5;
const CONTAINER: u8 = 6;

pub(super) const ONE_NULL: &[u8] = &[NULL];
pub(super) const ONE_EMPTY: &[u8] = &[STRING, 0, 0, 0, 0, 0, 0, 0, 0];

pub(super) fn write_reached(entity: &[u8], path: &Path, canonical: &mut CanonicalForm, out: &mut Vec<u8>) {
    strata_json::reach_values(entity, path, |value| {
        write_value(value, canonical, out);
        ControlFlow::Continue(())
    });
}

pub(super) fn write_value(value: &[u8], canonical: &mut CanonicalForm, out: &mut Vec<u8>) {
    match Scalar::read(value) {
        Some(Scalar::Null) => out.push(NULL),
        Some(Scalar::Bool(value)) => out.push(if value { TRUE } else { FALSE }),
        Some(Scalar::String(text)) => write_sized(STRING, out, |out| text.unescape_into(out)),
        Some(Scalar::Number(text)) => {
            let number = NumericValue::parse(text);
            match number.as_ref().and_then(|number| Some((number.double(), number.remainder()?))) {
                Some((double, remainder)) => write_number(double, remainder, out),
                None => write_sized(LONG_INTEGER, out, |out| out.extend_from_slice(text.as_bytes())),
            }
        }
        None => write_sized(CONTAINER, out, |out| canonical.write(value, out)),
    }
}

fn write_number(double: f64, remainder: i64, out: &mut Vec<u8>) {
    out.push(NUMBER);
    out.extend_from_slice(&strata_json::ordered_bits(double).to_be_bytes());
    out.extend_from_slice(&remainder.to_be_bytes());
}

fn write_sized(tag: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    write(out);
    let length = (out.len() - start - 8) as u64;
    out[start..start + 8].copy_from_slice(&length.to_be_bytes());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathColumn {
    pub(super) shredded: usize,
    /// Whether the column contains all values at the path: no entity has an object or an array there.
    pub(super) is_complete: bool,
}

/// The scalars of an indexed column in a row group.
pub(super) struct Scalars {
    pub(super) kinds: ArrayRef,
    pub(super) texts: Option<ArrayRef>,
    pub(super) exacts: Option<ArrayRef>,
    pub(super) numbers: Option<(ArrayRef, ArrayRef)>,
}

impl Scalars {
    pub(super) fn kinds(&self) -> &[u8] {
        self.kinds.as_primitive::<UInt8Type>().values()
    }

    pub(super) fn text(&self, element: usize) -> Option<&[u8]> {
        bytes_at(self.texts.as_ref()?, element)
    }

    pub(super) fn string(&self, element: usize) -> Option<&[u8]> {
        self.exacts.as_ref().and_then(|exacts| bytes_at(exacts, element)).or_else(|| self.text(element))
    }

    pub(super) fn is_true(&self, element: usize) -> bool {
        self.text(element) == Some(b"true")
    }

    #[inline]
    pub(super) fn number(&self, element: usize) -> Option<(f64, i64)> {
        let (doubles, remainders) = self.numbers.as_ref()?;
        let remainder = remainder_at(remainders.as_primitive(), element);
        Some((doubles.as_primitive::<Float64Type>().value(element), remainder))
    }
}

/// An indexed column in a row group: a list of scalars for each row.
pub(super) struct KeyColumn {
    pub(super) scalars: Scalars,
    is_complete: bool,
    /// Where the elements of each row begin, and the end of the last row. `None` if each row has one element.
    offsets: Option<Vec<i32>>,
}

impl KeyColumn {
    pub(super) async fn open(
        reader: &VersionReader,
        row_group: usize,
        column: PathColumn,
    ) -> Result<KeyColumn, StorageError> {
        let PathColumn { shredded, is_complete } = column;
        let damaged = || misfit(shredded);
        let mut offsets = None;
        let mut part = async |part: ShreddedPart| -> Result<Option<ArrayRef>, StorageError> {
            let Some(column) = reader.shredded(row_group, shredded, part).await? else { return Ok(None) };
            let Some(list) = column.as_list_opt::<i32>() else { return Ok(Some(column)) };
            match &offsets {
                None => offsets = Some(list.value_offsets().to_vec()),
                Some(offsets) if offsets.as_slice() != list.value_offsets() => return Err(damaged()),
                Some(_) => {}
            }
            Ok(Some(list.values().clone()))
        };
        let kinds = part(ShreddedPart::Kind).await?.ok_or_else(damaged)?;
        let texts = part(ShreddedPart::Text).await?.ok_or_else(damaged)?;
        let exacts = part(ShreddedPart::Exact).await?;
        let numbers = part(ShreddedPart::Number).await?.zip(part(ShreddedPart::Remainder).await?);
        let fits = |other: &ArrayRef| other.len() == kinds.len();
        let numbers_fit = numbers.as_ref().is_none_or(|(numbers, remainders)| fits(numbers) && fits(remainders));
        if !fits(&texts) || !exacts.as_ref().is_none_or(fits) || !numbers_fit {
            return Err(damaged());
        }
        Ok(KeyColumn { scalars: Scalars { kinds, texts: Some(texts), exacts, numbers }, is_complete, offsets })
    }

    #[inline]
    pub(super) fn elements(&self, row: usize) -> Range<usize> {
        match &self.offsets {
            Some(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
            None => row..row + 1,
        }
    }

    /// A number that identifies the value of an element in this row group. `None` if the column has no dictionary.
    #[inline]
    pub(super) fn memo(&self, element: usize) -> Option<u64> {
        let code = |array: &ArrayRef| {
            let dictionary = array.as_dictionary_opt::<Int32Type>()?;
            Some(if dictionary.is_valid(element) { dictionary.keys().value(element) as u32 } else { u32::MAX })
        };
        let text = code(self.scalars.texts.as_ref()?)?;
        let exact = match &self.scalars.exacts {
            Some(exacts) => code(exacts)?,
            None => u32::MAX,
        };
        // The dictionary of a row group has fewer entries.
        let bits = |code: u32| u64::from(code) & ((1 << 29) - 1);
        Some(u64::from(self.scalars.kinds()[element]) << 58 | bits(text) << 29 | bits(exact))
    }

    /// Whether the column contains all values of a row. Incomplete columns have one element in each row.
    #[inline]
    pub(super) fn holds_all(&self, row: usize) -> bool {
        self.is_complete || self.scalars.kinds().get(row).is_some_and(|kind| *kind != kind::NOTHING)
    }

    /// The number of rows whose documents must be read.
    pub(super) fn rows_without(&self) -> usize {
        let is_nothing = |kind: &&u8| **kind == kind::NOTHING;
        if self.is_complete { 0 } else { self.scalars.kinds().iter().filter(is_nothing).count() }
    }

    /// Appends the elements of a row, or those that `denull` leaves. Returns false if the document must be read.
    pub(super) fn write_row(&self, row: usize, denull: bool, out: &mut Vec<u8>) -> bool {
        let kinds = self.scalars.kinds();
        self.elements(row).all(|element| {
            let is_left_out = kinds[element] == kind::NOTHING || (denull && self.is_denulled(element));
            is_left_out || self.write(element, out)
        })
    }

    /// Appends an element that has a value. Returns false if the document must be read.
    pub(super) fn write(&self, element: usize, out: &mut Vec<u8>) -> bool {
        let scalars = &self.scalars;
        match scalars.kinds()[element] {
            kind::NULL => out.push(NULL),
            kind::BOOLEAN => out.push(if scalars.is_true(element) { TRUE } else { FALSE }),
            kind::STRING => match scalars.string(element) {
                Some(text) => write_sized(STRING, out, |out| out.extend_from_slice(text)),
                None => return false,
            },
            kind::NUMBER => match scalars.number(element) {
                Some((double, remainder)) => write_number(double, remainder, out),
                None => return false,
            },
            kind::LONG_INTEGER => match scalars.text(element) {
                Some(text) => write_sized(LONG_INTEGER, out, |out| out.extend_from_slice(text)),
                None => return false,
            },
            _ => return false,
        }
        true
    }

    fn is_denulled(&self, element: usize) -> bool {
        match self.scalars.kinds()[element] {
            kind::NULL => true,
            kind::STRING => self.scalars.string(element).is_some_and(<[u8]>::is_empty),
            _ => false,
        }
    }
}

pub(super) fn misfit(shredded: usize) -> StorageError {
    StorageError::Layout(format!("the parts of indexed column {shredded} are inconsistent"))
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
