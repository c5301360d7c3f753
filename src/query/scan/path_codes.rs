//! The codes of the values at a path in every entity of a version, in the cache ([`PathCodes`]). A path with more than
//! [`MAX_PATH_CODES`] distinct lists of values has no codes.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryReservation;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};
use strata_format::aux_index::{AuxIndex, AuxKey, AuxLookup, PathCodes};
use strata_format::layout::ShreddedPart;
use strata_format::reader::{PrefetchPlan, VersionReader};
use strata_json::CanonicalFormWriter;
use strata_store::StorageError;
use strata_types::field_path::FieldPath;
use tokio_util::task::AbortOnDropHandle;

use crate::coop::YieldBudget;
use crate::fetch::document_page_reader::DocumentPageReader;
use crate::scan::aux_index_build;
use crate::scan::dedup_key_column::{
    DedupKeyColumn, EMPTY_STRING_KEY_PART, NULL_KEY_PART, PathColumn, append_key_parts, kind,
};

const MAX_PATH_CODES: usize = 1 << 16;
const MAX_UNHASHED_KEY_BYTES: usize = 64;
const MAX_CONCURRENT_ROW_GROUPS: usize = 4;

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
    let plan = column.map(|column| PrefetchPlan {
        row_groups: 0..reader.row_groups().len(),
        columns: reader.column_indices(column.column_number, &ShreddedPart::ALL),
        row_groups_ahead: usize::MAX,
        ..PrefetchPlan::default()
    });
    let source = PathValues { reader: reader.with_readahead(plan.unwrap_or_default()), path: path.clone(), column };
    let codes = build_codes(Arc::new(source));
    Ok(aux_index_build::build_or_wait(reader, key, working_bytes, memory, codes).await?.into_hit())
}

/// Assigns codes in the order of the entities. Several row groups are read at the same time.
async fn build_codes(source: Arc<PathValues>) -> Result<Option<PathCodes>, StorageError> {
    let entities = source.reader.entity_count();
    let row_groups = (0..source.reader.row_groups().len()).map(|row_group| {
        let source = source.clone();
        let read = async move { source.read_row_group(row_group).await };
        AbortOnDropHandle::new(tokio::spawn(read)).map(|values| values.map_err(StorageError::from_join_error)?)
    });
    let mut row_groups = stream::iter(row_groups).buffered(MAX_CONCURRENT_ROW_GROUPS);
    let mut numbering = CodeNumbering::default();
    let mut codes = Vec::with_capacity(usize::try_from(entities).unwrap_or_default());
    while let Some(values) = row_groups.try_next().await? {
        let renumbered: Option<Vec<u16>> =
            values.distinct.key_parts.iter().map(|part| numbering.get_or_assign_code(part)).collect();
        let Some(renumbered) = renumbered else { return Ok(None) };
        codes.extend(values.codes.iter().map(|code| renumbered[usize::from(*code)]));
        tokio::task::consume_budget().await;
    }
    let code = |part: &[u8]| numbering.code_by_key_part.get(part).copied();
    Ok(Some(PathCodes {
        distinct_codes: numbering.key_parts.len(),
        codes,
        missing_code: code(b""),
        null_code: code(NULL_KEY_PART),
        empty_code: code(EMPTY_STRING_KEY_PART),
    }))
}

struct PathValues {
    reader: VersionReader,
    path: FieldPath,
    column: Option<PathColumn>,
}

/// The values of a row group: codes that are valid in the row group only.
struct RowGroupCodes {
    codes: Vec<u16>,
    distinct: CodeNumbering,
}

impl PathValues {
    async fn read_row_group(&self, row_group: usize) -> Result<RowGroupCodes, StorageError> {
        let reader = &self.reader;
        let rows = reader.row_groups()[row_group].rows;
        let column = match self.column {
            Some(column) => Some(DedupKeyColumn::open(reader, row_group, column).await?),
            None => None,
        };
        let document_rows = column.as_ref().map_or(rows, DedupKeyColumn::count_rows_needing_documents);
        let mut pages = DocumentPageReader::for_rows(reader, row_group, document_rows, rows);
        let mut canonical = CanonicalFormWriter::default();
        let mut budget = YieldBudget::default();
        let mut distinct = CodeNumbering::default();
        let mut codes = Vec::with_capacity(rows);
        let mut last_value = None;
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
                        let known = match last_value {
                            Some((last, code)) if last == found => Some(code),
                            _ => code_by_value_id.get(&found).copied(),
                        };
                        if let Some(code) = known {
                            last_value = Some((found, code));
                            codes.push(code);
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
                budget.yield_after(document.len()).await;
                append_key_parts(document, &self.path, &mut canonical, &mut key_part);
            }
            // A row group has fewer rows than there are codes.
            let too_many = || StorageError::InvalidFile("a row group has too many rows".to_owned());
            let code = distinct.get_or_assign_code(&key_part).ok_or_else(too_many)?;
            if let Some(value_id) = value_id {
                code_by_value_id.insert(value_id, code);
            }
            codes.push(code);
        }
        Ok(RowGroupCodes { codes, distinct })
    }
}

/// Numbers distinct key parts in the order of their first occurrence.
#[derive(Default)]
struct CodeNumbering {
    key_parts: Vec<Arc<[u8]>>,
    code_by_key_part: HashMap<Arc<[u8]>, u16, foldhash::fast::RandomState>,
}

impl CodeNumbering {
    /// Returns `None` if there are too many distinct key parts.
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
        if self.key_parts.len() == MAX_PATH_CODES {
            return None;
        }
        let code = self.key_parts.len() as u16;
        let key_part: Arc<[u8]> = key_part.into();
        self.code_by_key_part.insert(key_part.clone(), code);
        self.key_parts.push(key_part);
        Some(code)
    }
}
