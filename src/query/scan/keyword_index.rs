//! The rows that the keyword index lists for predicates. Each segment is searched once for all row groups.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::buffer::{BooleanBuffer, Buffer};
use fixedbitset::FixedBitSet;
use strata_format::keywords::cut::{Class, Plan};
use strata_format::keywords::segment::Candidates;
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use strata_types::request::KeywordsMode;
use tokio::sync::OnceCell;

use crate::coop::YieldBudget;
use crate::scan::access::{Condition, Exact};

/// The number of segments with cached results, within the limit of `MAX_RESULT_BYTES`. Row groups are processed in
/// order, so that few segments are in use, but more while row groups wait for the store.
const SEGMENTS: Range<usize> = 4..256;
const MAX_RESULT_BYTES: usize = 16 << 20;

/// The work of searching for a needle, in bytes.
const NEEDLE_BYTES: usize = 256 << 10;

struct Question {
    plans: Vec<Plan>,
    /// Whether all plans must match, or one.
    mode: KeywordsMode,
}

/// The rows that the index lists for a predicate. In no other row the full-text column contains the words.
#[derive(Clone)]
pub(super) struct IndexedRows {
    pub(super) candidates: BooleanBuffer,
    /// The candidates whose full-text column contains the words for certain.
    pub(super) exact: Exact,
}

impl IndexedRows {
    fn slice(&self, start: usize, rows: usize) -> IndexedRows {
        let exact = match &self.exact {
            Exact::Rows(exact) => Exact::Rows(exact.slice(start, rows)),
            other => other.clone(),
        };
        IndexedRows { candidates: self.candidates.slice(start, rows), exact }
    }
}

/// The rows of a segment for each predicate. `None` if the index cannot help.
type SegmentRows = Arc<[Option<IndexedRows>]>;

pub(super) struct KeywordQuestions {
    /// For each predicate. `None` if it does not use the full-text column.
    questions: Vec<Option<Question>>,
    segments: usize,
    answers: Mutex<BTreeMap<usize, Arc<OnceCell<SegmentRows>>>>,
}

impl KeywordQuestions {
    /// `None` if the version has no keyword index, or if no predicate can use it.
    pub(super) fn new(reader: &VersionReader, conditions: &[Condition]) -> Option<KeywordQuestions> {
        if reader.keyword_index().is_empty() {
            return None;
        }
        let questions: Vec<Option<Question>> = conditions.iter().map(Question::new).collect();
        let rows = reader.keyword_index().segments.iter().map(|segment| segment.header.rows()).max().unwrap_or(0);
        let bytes = questions.iter().flatten().count() * result_bytes(rows);
        let segments = (MAX_RESULT_BYTES / bytes.max(1)).clamp(SEGMENTS.start, SEGMENTS.end);
        let keywords = || KeywordQuestions { questions, segments, answers: Mutex::default() };
        (bytes > 0).then(keywords)
    }

    /// The estimated memory for a row group, in bytes.
    pub(super) fn row_group_bytes(&self, reader: &VersionReader, row_group: usize) -> u64 {
        let index = reader.keyword_index();
        let segment = index.place_of(row_group).and_then(|(segment, _)| index.segments.get(segment));
        let Some(segment) = segment else { return reader.search_bytes(row_group) };
        let ranges = Class::ALL.map(|class| segment.header.entries_range(class));
        let entries: u64 = ranges.into_iter().map(|range| range.end - range.start).sum();
        let answers = self.questions.iter().flatten().count() * result_bytes(segment.header.rows());
        // Entries are compressed.
        (2 * entries + answers as u64) / segment.row_groups.len().max(1) as u64
    }

    pub(super) fn asks(&self, predicate: usize) -> bool {
        self.questions.get(predicate).is_some_and(Option::is_some)
    }

    /// The rows of a row group for each predicate. Empty if no segment contains the row group.
    pub(super) async fn rows(
        &self,
        reader: &VersionReader,
        row_group: usize,
    ) -> Result<Vec<Option<IndexedRows>>, StorageError> {
        let index = reader.keyword_index();
        let Some((number, start)) = index.place_of(row_group) else { return Ok(Vec::new()) };
        let cell = self.cell(number);
        let answers = cell.get_or_try_init(|| self.ask(reader, number)).await?;
        let group = reader.row_groups()[row_group];
        Ok(answers.iter().map(|rows| rows.as_ref().map(|rows| rows.slice(start, group.rows))).collect())
    }

    fn cell(&self, segment: usize) -> Arc<OnceCell<SegmentRows>> {
        // Nothing panics between two changes that belong together.
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = answers.entry(segment).or_default().clone();
        while answers.len() > self.segments {
            answers.pop_first();
        }
        cell
    }

    async fn ask(&self, reader: &VersionReader, segment: usize) -> Result<SegmentRows, StorageError> {
        let mut budget = YieldBudget::default();
        let mut answers = Vec::with_capacity(self.questions.len());
        for question in &self.questions {
            answers.push(match question {
                Some(question) => match question.ask(reader, segment, &mut budget).await {
                    // The damage has been reported. The full-text column decides for all predicates.
                    Err(error) if error.is_damage() => return Ok(self.questions.iter().map(|_| None).collect()),
                    asked => asked?,
                },
                None => None,
            });
        }
        Ok(answers.into())
    }
}

impl Question {
    fn new(condition: &Condition) -> Option<Question> {
        let (texts, mode) = condition.predicate.searched().filter(|_| condition.reads_full_text())?;
        Some(Question { plans: texts.iter().map(|text| Plan::of(text)).collect(), mode })
    }

    /// The rows of a segment. `None` if the index cannot help.
    async fn ask(
        &self,
        reader: &VersionReader,
        segment: usize,
        budget: &mut YieldBudget,
    ) -> Result<Option<IndexedRows>, StorageError> {
        // If one of several alternatives requires a scan, the others do not matter.
        if self.mode == KeywordsMode::Or && self.plans.contains(&Plan::Scan) {
            return Ok(None);
        }
        let mut candidates: Option<FixedBitSet> = None;
        let mut exact: Option<FixedBitSet> = None;
        let mut all_exact = true;
        for plan in &self.plans {
            budget.consume(NEEDLE_BYTES).await;
            let (rows, is_exact) = match reader.keyword_candidates(segment, plan).await? {
                Candidates::Exact(rows) => (rows, true),
                Candidates::Candidates(rows) => (rows, false),
                Candidates::Scan if self.mode == KeywordsMode::Or => return Ok(None),
                Candidates::Scan => {
                    all_exact = false;
                    continue;
                }
            };
            all_exact &= is_exact;
            if self.mode == KeywordsMode::Or && is_exact {
                exact.get_or_insert_with(|| FixedBitSet::with_capacity(rows.len())).union_with(&rows);
            }
            match (&mut candidates, self.mode) {
                (None, _) => candidates = Some(rows),
                (Some(candidates), KeywordsMode::And) => candidates.intersect_with(&rows),
                (Some(candidates), KeywordsMode::Or) => candidates.union_with(&rows),
            }
            let decided = match self.mode {
                KeywordsMode::And => candidates.as_ref().is_some_and(FixedBitSet::is_clear),
                KeywordsMode::Or => exact.as_ref().is_some_and(FixedBitSet::is_full),
            };
            if decided {
                all_exact = true;
                break;
            }
        }
        Ok(candidates.map(|candidates| IndexedRows {
            candidates: buffer(&candidates),
            exact: match exact {
                _ if all_exact => Exact::All,
                Some(exact) => Exact::Rows(buffer(&exact)),
                None => Exact::None,
            },
        }))
    }
}

/// The size of a result: candidates, and exact rows.
fn result_bytes(rows: usize) -> usize {
    2 * rows.div_ceil(8)
}

fn buffer(rows: &FixedBitSet) -> BooleanBuffer {
    // An Arrow bitmap consists of bytes, with the lowest first.
    let blocks: Vec<_> = rows.as_slice().iter().map(|block| block.to_le_bytes()).collect();
    BooleanBuffer::new(Buffer::from_vec(blocks.into_flattened()), 0, rows.len())
}
