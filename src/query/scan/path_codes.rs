//! The codes of what a path reaches in every entity of a version, made once and kept in the cache
//! ([`PathCodes`]). Codes are few: where a path has more distinct lists of values than [`CODES`], there are none.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryReservation;
use sha2::{Digest, Sha256};
use strata_format::aux_index::{AuxIndex, AuxKey, AuxLookup, PathCodes};
use strata_format::layout::ShreddedKind;
use strata_format::reader::VersionReader;
use strata_json::CanonicalForm;
use strata_store::StorageError;
use strata_types::path::Path;

use crate::fetch::pages::Pages;
use crate::pace::Pace;
use crate::scan::aux_index;
use crate::scan::key_column::{KeyColumn, ONE_EMPTY, ONE_NULL, PathColumn, write_reached};

/// Codes of a path at most: they fit 16 bits.
const CODES: usize = 1 << 16;

/// Key parts up to so many bytes are compared as they are, others by their SHA-256.
const SHORT_BYTES: usize = 64;

/// What may be read to make codes that the cache does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MayRead {
    Nothing,
    Columns,
    Documents,
}

/// The codes of a path; `None` if there are too many, if more would have to be read than may be, or if there is no
/// memory to build them.
pub(super) async fn path_codes(
    reader: &VersionReader,
    path: &Path,
    column: Option<PathColumn>,
    may_read: MayRead,
    memory: &MemoryReservation,
) -> Result<Option<Arc<PathCodes>>, StorageError> {
    let key = AuxKey::codes(&path.to_string());
    let found = reader.aux_index(key.clone()).await;
    let needed = if column.is_some_and(|column| column.is_complete) { MayRead::Columns } else { MayRead::Documents };
    if may_read < needed || !matches!(found, AuxLookup::Miss) {
        return Ok(found.hit());
    }
    let working_bytes = reader.entity_count().saturating_mul(PathCodes::ENTITY_BYTES);
    let codes = CodesBuilder::new(reader, path, column).codes();
    Ok(aux_index::build(reader, key, working_bytes, memory, codes).await?.hit())
}

struct CodesBuilder<'a> {
    reader: &'a VersionReader,
    path: &'a Path,
    column: Option<PathColumn>,
    known: HashMap<Box<[u8]>, u16, foldhash::fast::RandomState>,
    canonical: CanonicalForm,
    pace: Pace,
}

impl<'a> CodesBuilder<'a> {
    fn new(reader: &'a VersionReader, path: &'a Path, column: Option<PathColumn>) -> CodesBuilder<'a> {
        let (known, canonical) = (HashMap::default(), CanonicalForm::default());
        CodesBuilder { reader, path, column, known, canonical, pace: Pace::default() }
    }

    async fn codes(mut self) -> Result<Option<PathCodes>, StorageError> {
        let mut codes = Vec::with_capacity(usize::try_from(self.reader.entity_count()).unwrap_or_default());
        for row_group in 0..self.reader.row_groups().len() {
            tokio::task::yield_now().await;
            if !self.row_group(row_group, &mut codes).await? {
                return Ok(None);
            }
        }
        let code = |part: &[u8]| self.known.get(part).copied();
        let (nothing, null, empty) = (code(b""), code(ONE_NULL), code(ONE_EMPTY));
        Ok(Some(PathCodes { distinct: self.known.len(), codes, nothing, null, empty }))
    }

    /// Appends the codes of a row group; false once there are too many.
    async fn row_group(&mut self, row_group: usize, codes: &mut Vec<u16>) -> Result<bool, StorageError> {
        const NOTHING: u8 = ShreddedKind::Nothing as u8;
        let reader = self.reader;
        let rows = reader.row_groups()[row_group].rows;
        let column = match self.column {
            Some(column) => Some(KeyColumn::open(reader, row_group, column).await?),
            None => None,
        };
        let from_documents = column.as_ref().map_or(rows, KeyColumn::rows_without);
        let mut pages = Pages::of(reader, row_group, from_documents, rows);
        // By what tells the value of an element of this row group.
        let mut memos: HashMap<u64, u16, foldhash::fast::RandomState> = HashMap::default();
        let mut part = Vec::new();
        for row in 0..rows {
            part.clear();
            let mut memo = None;
            let is_known = match &column {
                Some(column) => {
                    let mut elements = column.elements(row);
                    if column.scalars.kinds().get(elements.start) == Some(&NOTHING) {
                        column.holds_all(row)
                    } else if elements.len() == 1
                        && let Some(found) = column.memo(elements.start)
                    {
                        if let Some(code) = memos.get(&found) {
                            codes.push(*code);
                            continue;
                        }
                        memo = Some(found);
                        column.write(elements.start, &mut part)
                    } else {
                        elements.all(|element| column.write(element, &mut part))
                    }
                }
                None => false,
            };
            if !is_known {
                part.clear();
                memo = None;
                let document = pages.document(row).await?;
                self.pace.worked(document.len()).await;
                write_reached(document, self.path, &mut self.canonical, &mut part);
            }
            let Some(code) = self.code(&part) else { return Ok(false) };
            if let Some(memo) = memo {
                memos.insert(memo, code);
            }
            codes.push(code);
        }
        Ok(true)
    }

    /// The code of a key part; `None` when there is no further one.
    fn code(&mut self, part: &[u8]) -> Option<u16> {
        let hashed: [u8; 33];
        let part = if part.len() > SHORT_BYTES {
            let mut bytes = [0xFF; 33];
            bytes[1..].copy_from_slice(&Sha256::digest(part));
            hashed = bytes;
            &hashed
        } else {
            part
        };
        if let Some(code) = self.known.get(part) {
            return Some(*code);
        }
        if self.known.len() == CODES {
            return None;
        }
        let code = self.known.len() as u16;
        self.known.insert(part.into(), code);
        Some(code)
    }
}
