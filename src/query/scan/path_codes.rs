//! The codes of the values at a path in every entity of a version, in the cache ([`PathCodes`]). A path with more than
//! [`MAX_PATH_CODES`] distinct lists of values has no codes.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryReservation;
use sha2::{Digest, Sha256};
use strata_format::aux_index::{AuxIndex, AuxKey, AuxLookup, PathCodes};
use strata_format::reader::VersionReader;
use strata_json::CanonicalFormWriter;
use strata_store::StorageError;
use strata_types::field_path::FieldPath;

use crate::coop::YieldBudget;
use crate::fetch::document_page_reader::DocumentPageReader;
use crate::scan::aux_index_build;
use crate::scan::dedup_key_column::{
    DedupKeyColumn, EMPTY_STRING_KEY_PART, NULL_KEY_PART, PathColumn, append_key_parts, kind,
};

const MAX_PATH_CODES: usize = 1 << 16;
const MAX_UNHASHED_KEY_BYTES: usize = 64;

/// The parts of a version that can be read to build path codes that the cache does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AllowedReads {
    Nothing,
    Columns,
    Documents,
}

/// Returns the path codes (numbers of distinct values) of a path. `None` if there are too many, or if building them
/// would read too much or need too much memory.
pub(super) async fn get_or_build_codes(
    reader: &VersionReader,
    path: &FieldPath,
    column: Option<PathColumn>,
    allowed_reads: AllowedReads,
    memory: &MemoryReservation,
) -> Result<Option<Arc<PathCodes>>, StorageError> {
    let key = AuxKey::for_path_codes(&path.to_string());
    let cached = reader.cached_aux_index(key.clone()).await;
    let needed = if column.is_some_and(|c| c.is_complete) { AllowedReads::Columns } else { AllowedReads::Documents };
    if allowed_reads < needed || !matches!(cached, AuxLookup::Miss) {
        return Ok(cached.into_hit());
    }
    let working_bytes = reader.entity_count().saturating_mul(PathCodes::MAX_BYTES_PER_ENTITY);
    let codes = PathCodesBuilder {
        reader,
        path,
        column,
        code_by_key_part: HashMap::default(),
        canonical: CanonicalFormWriter::default(),
        budget: YieldBudget::default(),
    };
    let codes = codes.build();
    Ok(aux_index_build::build_or_wait(reader, key, working_bytes, memory, codes).await?.into_hit())
}

struct PathCodesBuilder<'a> {
    reader: &'a VersionReader,
    path: &'a FieldPath,
    column: Option<PathColumn>,
    code_by_key_part: HashMap<Box<[u8]>, u16, foldhash::fast::RandomState>,
    canonical: CanonicalFormWriter,
    budget: YieldBudget,
}

impl PathCodesBuilder<'_> {
    async fn build(mut self) -> Result<Option<PathCodes>, StorageError> {
        let mut codes = Vec::with_capacity(usize::try_from(self.reader.entity_count()).unwrap_or_default());
        for row_group in 0..self.reader.row_groups().len() {
            tokio::task::yield_now().await;
            if !self.try_append_row_group(row_group, &mut codes).await? {
                return Ok(None);
            }
        }
        let code = |part: &[u8]| self.code_by_key_part.get(part).copied();
        Ok(Some(PathCodes {
            distinct_codes: self.code_by_key_part.len(),
            codes,
            missing_code: code(b""),
            null_code: code(NULL_KEY_PART),
            empty_code: code(EMPTY_STRING_KEY_PART),
        }))
    }

    /// Appends the path codes of a row group. Returns false if there are too many different codes.
    async fn try_append_row_group(&mut self, row_group: usize, codes: &mut Vec<u16>) -> Result<bool, StorageError> {
        let reader = self.reader;
        let rows = reader.row_groups()[row_group].rows;
        let column = match self.column {
            Some(column) => Some(DedupKeyColumn::open(reader, row_group, column).await?),
            None => None,
        };
        let document_rows = column.as_ref().map_or(rows, DedupKeyColumn::count_rows_needing_documents);
        let mut pages = DocumentPageReader::for_rows(reader, row_group, document_rows, rows);
        let mut code_by_value_id: HashMap<u64, u16, foldhash::fast::RandomState> = HashMap::default();
        let mut key_part = Vec::new();
        for row in 0..rows {
            key_part.clear();
            let mut value_id = None;
            let is_known = match &column {
                Some(column) => {
                    let mut elements = column.elements_in_row(row);
                    if column.scalars.kinds().get(elements.start) == Some(&kind::NOTHING) {
                        column.is_row_complete(row)
                    } else if elements.len() == 1
                        && let Some(found) = column.dictionary_value_id(elements.start)
                    {
                        if let Some(code) = code_by_value_id.get(&found) {
                            codes.push(*code);
                            continue;
                        }
                        value_id = Some(found);
                        column.try_append_element_key(elements.start, &mut key_part)
                    } else {
                        elements.all(|element| column.try_append_element_key(element, &mut key_part))
                    }
                }
                None => false,
            };
            if !is_known {
                key_part.clear();
                value_id = None;
                let document = pages.document(row).await?;
                self.budget.yield_after(document.len()).await;
                append_key_parts(document, self.path, &mut self.canonical, &mut key_part);
            }
            let Some(code) = self.get_or_assign_code(&key_part) else { return Ok(false) };
            if let Some(value_id) = value_id {
                code_by_value_id.insert(value_id, code);
            }
            codes.push(code);
        }
        Ok(true)
    }

    fn get_or_assign_code(&mut self, key_part: &[u8]) -> Option<u16> {
        let mut hashed = [0xFF; 33];
        let key_part = if key_part.len() > MAX_UNHASHED_KEY_BYTES {
            hashed[1..].copy_from_slice(&Sha256::digest(key_part));
            &hashed[..]
        } else {
            key_part
        };
        if let Some(code) = self.code_by_key_part.get(key_part) {
            return Some(*code);
        }
        if self.code_by_key_part.len() == MAX_PATH_CODES {
            return None;
        }
        let code = self.code_by_key_part.len() as u16;
        self.code_by_key_part.insert(key_part.into(), code);
        Some(code)
    }
}
