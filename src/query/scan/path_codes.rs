//! The codes of the values at a path in every entity of a version, in the cache ([`PathCodes`]). A path with more than
//! [`MAX_CODES`] distinct lists of values has no codes.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryReservation;
use sha2::{Digest, Sha256};
use strata_format::aux_index::{AuxIndex, AuxKey, AuxLookup, PathCodes};
use strata_format::reader::VersionReader;
use strata_json::CanonicalForm;
use strata_store::StorageError;
use strata_types::path::Path;

use crate::coop::YieldBudget;
use crate::fetch::pages::Pages;
use crate::scan::aux_index;
use crate::scan::key_column::{KeyColumn, ONE_EMPTY, ONE_NULL, PathColumn, kind, write_reached};

/// Codes have 16 bits.
const MAX_CODES: usize = 1 << 16;

/// Longer key parts are compared by their SHA-256.
const MAX_KEY_BYTES: usize = 64;

/// What can be read to build codes that the cache does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MayRead {
    Nothing,
    Columns,
    Documents,
}

/// The codes of a path. `None` if there are too many, or if building them would read or need too much.
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
    let codes = CodesBuilder {
        reader,
        path,
        column,
        known: HashMap::default(),
        canonical: CanonicalForm::default(),
        budget: YieldBudget::default(),
    };
    let codes = codes.build();
    Ok(aux_index::build(reader, key, working_bytes, memory, codes).await?.hit())
}

struct CodesBuilder<'a> {
    reader: &'a VersionReader,
    path: &'a Path,
    column: Option<PathColumn>,
    known: HashMap<Box<[u8]>, u16, foldhash::fast::RandomState>,
    canonical: CanonicalForm,
    budget: YieldBudget,
}

impl CodesBuilder<'_> {
    async fn build(mut self) -> Result<Option<PathCodes>, StorageError> {
        let mut codes = Vec::with_capacity(usize::try_from(self.reader.entity_count()).unwrap_or_default());
        for row_group in 0..self.reader.row_groups().len() {
            tokio::task::yield_now().await;
            if !self.row_group(row_group, &mut codes).await? {
                return Ok(None);
            }
        }
        let code = |part: &[u8]| self.known.get(part).copied();
        Ok(Some(PathCodes {
            distinct: self.known.len(),
            codes,
            nothing: code(b""),
            null: code(ONE_NULL),
            empty: code(ONE_EMPTY),
        }))
    }

    /// Appends the codes of a row group. Returns false if there are too many.
    async fn row_group(&mut self, row_group: usize, codes: &mut Vec<u16>) -> Result<bool, StorageError> {
        let reader = self.reader;
        let rows = reader.row_groups()[row_group].rows;
        let column = match self.column {
            Some(column) => Some(KeyColumn::open(reader, row_group, column).await?),
            None => None,
        };
        let from_documents = column.as_ref().map_or(rows, KeyColumn::rows_without);
        let mut pages = Pages::of(reader, row_group, from_documents, rows);
        // By [`KeyColumn::memo`].
        let mut memos: HashMap<u64, u16, foldhash::fast::RandomState> = HashMap::default();
        let mut part = Vec::new();
        for row in 0..rows {
            part.clear();
            let mut memo = None;
            let is_known = match &column {
                Some(column) => {
                    let mut elements = column.elements(row);
                    if column.scalars.kinds().get(elements.start) == Some(&kind::NOTHING) {
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
                self.budget.consume(document.len()).await;
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

    /// The code of a key part. `None` if there are too many.
    fn code(&mut self, part: &[u8]) -> Option<u16> {
        let hashed: [u8; 33];
        let part = if part.len() > MAX_KEY_BYTES {
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
        if self.known.len() == MAX_CODES {
            return None;
        }
        let code = self.known.len() as u16;
        self.known.insert(part.into(), code);
        Some(code)
    }
}
