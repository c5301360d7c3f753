//! What the keyword index of a version says of a scan's predicates: asked once for each segment, whose row groups share
//! the answer.

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

use crate::pace::Pace;
use crate::scan::access::{Condition, Exact};

/// Answers for so many segments are kept: row groups are worked on in order, so that few segments are in use. They are
/// more while row groups wait for the store,
const SEGMENTS: Range<usize> = 4..256;

/// and answers take so many bytes.
const ANSWER_BYTES: usize = 16 << 20;

/// What one needle counts as work: about the bytes that are looked through for it.
const NEEDLE_BYTES: usize = 256 << 10;

struct Question {
    plans: Vec<Plan>,
    /// Whether every plan has to hold, or one.
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

/// For each predicate the rows of a segment; `None` where the index does not tell.
type Answers = Arc<[Option<IndexedRows>]>;

pub(super) struct KeywordQuestions {
    /// For each predicate, where its search text is asked for.
    questions: Vec<Option<Question>>,
    segments: usize,
    answers: Mutex<BTreeMap<usize, Arc<OnceCell<Answers>>>>,
}

impl KeywordQuestions {
    /// What predicates ask the index for; `None` where there is none, or nothing to ask.
    pub(super) fn of(reader: &VersionReader, conditions: &[Condition]) -> Option<KeywordQuestions> {
        if reader.keyword_index().is_empty() {
            return None;
        }
        let questions: Vec<Option<Question>> = conditions.iter().map(Question::new).collect();
        let rows = reader.keyword_index().segments.iter().map(|segment| segment.header.rows()).max().unwrap_or(0);
        let bytes = questions.iter().flatten().count() * answer_bytes(rows);
        let segments = (ANSWER_BYTES / bytes.max(1)).clamp(SEGMENTS.start, SEGMENTS.end);
        let keywords = || KeywordQuestions { questions, segments, answers: Mutex::default() };
        (bytes > 0).then(keywords)
    }

    /// About the bytes that asking for a row group takes in memory.
    pub(super) fn row_group_bytes(&self, reader: &VersionReader, row_group: usize) -> u64 {
        let index = reader.keyword_index();
        let segment = index.place_of(row_group).and_then(|(segment, _)| index.segments.get(segment));
        let Some(segment) = segment else { return reader.search_bytes(row_group) };
        let ranges = Class::ALL.map(|class| segment.header.entries_range(class));
        let entries: u64 = ranges.into_iter().map(|range| range.end - range.start).sum();
        let answers = self.questions.iter().flatten().count() * answer_bytes(segment.header.rows());
        // Entries are compressed.
        (2 * entries + answers as u64) / segment.row_groups.len().max(1) as u64
    }

    pub(super) fn asks(&self, predicate: usize) -> bool {
        self.questions.get(predicate).is_some_and(Option::is_some)
    }

    /// For each predicate the rows of a row group. Empty where no segment holds it; a damaged one tells nothing.
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

    fn cell(&self, segment: usize) -> Arc<OnceCell<Answers>> {
        // Nothing panics between two changes that belong together.
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = answers.entry(segment).or_default().clone();
        while answers.len() > self.segments {
            answers.pop_first();
        }
        cell
    }

    async fn ask(&self, reader: &VersionReader, segment: usize) -> Result<Answers, StorageError> {
        let mut pace = Pace::default();
        let mut answers = Vec::with_capacity(self.questions.len());
        for question in &self.questions {
            answers.push(match question {
                Some(question) => match question.ask(reader, segment, &mut pace).await {
                    // It has been reported. The search text tells the same, and others are not asked of it again.
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

    /// The rows of a segment; `None` where the index does not tell.
    async fn ask(
        &self,
        reader: &VersionReader,
        segment: usize,
        pace: &mut Pace,
    ) -> Result<Option<IndexedRows>, StorageError> {
        // One that cannot be answered makes a search for any of them a scan, whatever the others say.
        if self.mode == KeywordsMode::Or && self.plans.contains(&Plan::Scan) {
            return Ok(None);
        }
        let mut candidates: Option<FixedBitSet> = None;
        let mut exact: Option<FixedBitSet> = None;
        let mut all_exact = true;
        for plan in &self.plans {
            pace.worked(NEEDLE_BYTES).await;
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
                match &mut exact {
                    Some(exact) => exact.union_with(&rows),
                    None => exact = Some(rows.clone()),
                }
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

/// Bytes of an answer for so many rows: candidates, and those that are sure.
fn answer_bytes(rows: usize) -> usize {
    2 * rows.div_ceil(8)
}

fn buffer(rows: &FixedBitSet) -> BooleanBuffer {
    // An Arrow bitmap is one of bytes, the lowest first.
    let blocks: Vec<_> = rows.as_slice().iter().map(|block| block.to_le_bytes()).collect();
    BooleanBuffer::new(Buffer::from_vec(blocks.into_flattened()), 0, rows.len())
}
