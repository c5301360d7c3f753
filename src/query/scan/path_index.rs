//! Evaluates predicates on paths with the full-text column and the path index of a row group, without documents.
//!
//! The structure of a row contains the path of each scalar in the full-text column. The number of separators before a
//! hit is the number of its scalar, so the hit counts if the predicate tests the path of this scalar. Predicates
//! without a text to search for (a number in any spelling, null, any string) are tested scalar by scalar.
//!
//! Candidates come from the keyword index or from a search of the full-text column. If reading the full-text column
//! costs more than reading the documents of few candidates, documents decide.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryArray, BooleanBufferBuilder};
use memchr::{memchr, memchr_iter, memmem};
use strata_format::layout::TEXT_SEPARATOR;
use strata_format::path_index::ScalarKind;
use strata_format::path_index::structure_dictionary::{ScalarRun, ScalarRunIter, StructureDictionary};
use strata_json::{NumericValue, ValueProjection};
use strata_store::StorageError;
use strata_types::read_request::KeywordsMode;

use crate::coop::YieldBudget;
use crate::scan::access_path::{CandidateRows, ExactRows};
use crate::scan::arrow_kernels;
use crate::scan::predicate::{ComparisonOperator, PathComparison, Predicate};
use crate::scan::row_group_evaluator::PredicateProbe;
use crate::scan::row_selection::RowSelection;
use crate::scan::scan_report::AccessPath;
use crate::scan::scan_spec::ScanSpec;

/// Rows of the full-text column that are searched at a time. The search ends after a block with enough matches.
const SEARCH_BLOCK_ROWS: usize = 2_048;
/// If there are at least this many rows per structure (sequence of paths), all structures are evaluated before any row.
const MIN_ROWS_PER_STRUCTURE: usize = 4;
/// At most this many predicates are tested scalar by scalar. Documents decide about other predicates, in one walk.
const MAX_SCALAR_CONDITIONS: usize = 8;

impl ScanSpec {
    pub(super) async fn probe_path_index(&self, probe: PredicateProbe<'_>) -> Result<CandidateRows, StorageError> {
        let PredicateProbe { predicate_number: number, condition, .. } = probe;
        let predicate = &condition.predicate;
        let candidates = match (predicate, predicate.full_text_needles()) {
            // `denull` removes empty strings, so none can match.
            (Predicate::Comparison(compare), Some(_)) if compare.folded.is_empty() && compare.denull => {
                CandidateRows { rows: RowSelection::Range(0..0), exact: ExactRows::All }
            }
            (_, Some((needles, mode))) => {
                let whole = matches!(predicate, Predicate::Comparison(compare) if compare.operator == ComparisonOperator::Equal);
                self.find_words_at_paths(probe, PathWordSearch { needles, mode, is_whole_scalar: whole }).await?
            }
            (Predicate::Comparison(compare), None) => self.find_scalars_at_path(probe, compare).await?,
            (Predicate::Keywords(_), None) => CandidateRows { rows: probe.selected, exact: ExactRows::None },
        };
        self.metrics.count_path_index_use(number, &candidates.exact);
        Ok(candidates)
    }

    async fn find_words_at_paths(
        &self,
        probe: PredicateProbe<'_>,
        words: PathWordSearch<'_>,
    ) -> Result<CandidateRows, StorageError> {
        let PredicateProbe { row_group, condition, keyword_rows, max_matches: limit, .. } = probe;
        let selected = match keyword_rows {
            Some(keyword_rows) => probe.selected.intersect(keyword_rows.candidates.clone()),
            None => probe.selected,
        };
        let certain = keyword_rows.map_or(&ExactRows::None, |keyword_rows| &keyword_rows.exact);
        let rows: Vec<usize> = selected.iter().collect();
        let open: Vec<usize> = rows.iter().copied().filter(|row| !certain.contains(*row)).collect();
        if open.is_empty() {
            return Ok(CandidateRows { rows: selected, exact: ExactRows::All });
        }
        // Without the keyword index, it is unknown how many candidates must be tested, so the cost of all counts.
        let fetch = self.fetch.filter(|_| keyword_rows.is_some());
        if !self.is_full_text_cheaper(row_group, &open, fetch) {
            return Ok(CandidateRows { rows: selected, exact: certain.clone() });
        }
        let texts = self.reader.read_full_text(row_group).await?;
        let texts: &BinaryArray = texts.as_binary();
        let finders: Vec<memmem::Finder<'_>> = words.needles.iter().map(memmem::Finder::new).collect();
        let mut structures: Option<(Arc<StructureDictionary>, Vec<bool>)> = None;
        let mut matching = Vec::new();
        let mut budget = YieldBudget::default();
        for block in rows.chunk_by(|one, other| one / SEARCH_BLOCK_ROWS == other / SEARCH_BLOCK_ROWS) {
            if limit.is_some_and(|limit| matching.len() >= limit) {
                break;
            }
            let first = block.first().map_or(0, |row| row / SEARCH_BLOCK_ROWS * SEARCH_BLOCK_ROWS);
            let texts = texts.slice(first.min(texts.len()), texts.len().saturating_sub(first).min(SEARCH_BLOCK_ROWS));
            // Searching a single row's text costs more than searching the same number of bytes in all rows at once.
            let block_matches = (block.len() > texts.len() / 4).then(|| {
                let bytes = texts.value_offsets();
                (arrow_kernels::rows_containing_words(&texts, words.needles, words.mode), bytes[texts.len()] - bytes[0])
            });
            budget.yield_after(block_matches.as_ref().map_or(0, |(_, bytes)| *bytes as usize)).await;
            for row in block.iter().map(|row| row - first) {
                if certain.contains(first + row) {
                    matching.push(first + row);
                    continue;
                }
                if block_matches.as_ref().is_some_and(|(rows, _)| !rows.value(row)) {
                    continue;
                }
                if structures.is_none() {
                    let Some(read) = self.try_read_structures(row_group).await? else {
                        return self.probe_full_text(PredicateProbe { selected, ..probe }).await;
                    };
                    let tested_paths = mark_tested_paths(&read, &condition.predicate);
                    structures = Some((read, tested_paths));
                }
                let Some((structures, tested_paths)) = &structures else { continue };
                let text = text_or_empty_at(&texts, row);
                budget.yield_after(text.len()).await;
                let runs = || structures.scalar_runs(structures.structure_of_row(first + row));
                let matches = words.matches_any_or_all(&finders, |finder| {
                    contains_needle_at_paths(text, runs(), tested_paths, finder, words.is_whole_scalar)
                });
                match matches {
                    Some(true) => matching.push(first + row),
                    Some(false) => {}
                    None => {
                        self.reader.report_path_index_mismatch(row_group);
                        return self.probe_full_text(PredicateProbe { selected, ..probe }).await;
                    }
                }
            }
        }
        Ok(CandidateRows { rows: RowSelection::List(matching), exact: ExactRows::All })
    }

    /// Reads the structures (sequences of paths) of a row group. `None` if there are none, or if they are damaged.
    async fn try_read_structures(&self, row_group: usize) -> Result<Option<Arc<StructureDictionary>>, StorageError> {
        match self.reader.read_structures(row_group).await {
            Err(error) if error.is_file_damage() => Ok(None),
            read => read,
        }
    }

    async fn find_scalars_at_path(
        &self,
        probe: PredicateProbe<'_>,
        compare: &PathComparison,
    ) -> Result<CandidateRows, StorageError> {
        let PredicateProbe { row_group, predicate_number: number, selected, max_matches: limit, .. } = probe;
        let Some(structures) = self.try_read_structures(row_group).await? else {
            return Ok(CandidateRows { rows: selected, exact: ExactRows::None });
        };
        let mut budget = YieldBudget::default();
        let tested = structures.match_typed_paths(compare.path.keys());
        if !tested.contains(&true) {
            return Ok(CandidateRows { rows: RowSelection::Range(0..0), exact: ExactRows::All });
        }
        let mut verdicts: Vec<Option<StructureMatch>> = vec![None; structures.structure_count()];
        // If every entity has a string at the compared path, documents decide about all entities.
        if compare.needs_exact_text() && structures.structure_count() <= selected.len() / MIN_ROWS_PER_STRUCTURE {
            for (structure, verdict) in verdicts.iter_mut().enumerate() {
                *verdict = Some(StructureMatch::from_structure(structures.scalar_runs(structure), &tested, compare));
                budget.yield_after(structures.structure_bytes(structure)).await;
            }
            if verdicts.iter().all(|verdict| matches!(verdict, Some(StructureMatch::NeedsTexts(_)))) {
                return Ok(CandidateRows { rows: selected, exact: ExactRows::None });
            }
        }
        // `rows` match, except `open` ones: the full text decides about them, and each has its number of runs to test.
        let mut rows = Vec::new();
        let mut open = Vec::new();
        for row in selected.iter().collect::<Vec<_>>() {
            let structure = structures.structure_of_row(row);
            let verdict = match verdicts.get(structure).copied().flatten() {
                Some(verdict) => verdict,
                None => {
                    let verdict = StructureMatch::from_structure(structures.scalar_runs(structure), &tested, compare);
                    if let Some(found) = verdicts.get_mut(structure) {
                        *found = Some(verdict);
                    }
                    budget.yield_after(structures.structure_bytes(structure)).await;
                    verdict
                }
            };
            match verdict {
                StructureMatch::Matches => rows.push((row, None)),
                StructureMatch::NoMatch => {}
                StructureMatch::NeedsTexts(runs) => {
                    rows.push((row, Some(runs)));
                    open.push(row);
                }
            }
        }
        let mut texts = None;
        if !open.is_empty() {
            let before = self.predicates[..number].iter().filter(|p| p.access_path == AccessPath::SearchTextAndShapes);
            if before.take(MAX_SCALAR_CONDITIONS).count() == MAX_SCALAR_CONDITIONS
                || compare.needs_exact_text()
                || !self.is_full_text_cheaper(row_group, &open, None)
            {
                let exact = if open.len() < rows.len() {
                    let mut exact = BooleanBufferBuilder::new(0);
                    exact.append_n(self.reader.row_groups()[row_group].rows, false);
                    rows.iter().filter(|(_, open)| open.is_none()).for_each(|(row, _)| exact.set_bit(*row, true));
                    ExactRows::Rows(exact.finish())
                } else {
                    ExactRows::None
                };
                let rows = RowSelection::List(rows.into_iter().map(|(row, _)| row).collect());
                return Ok(CandidateRows { rows, exact });
            }
            texts = Some(self.reader.read_full_text(row_group).await?);
        }
        let texts: Option<&BinaryArray> = texts.as_ref().map(|texts| texts.as_binary());
        let mut matching = Vec::new();
        for (row, runs) in rows {
            if limit.is_some_and(|limit| matching.len() >= limit) {
                break;
            }
            if let (Some(runs), Some(texts)) = (runs, texts) {
                let text = text_or_empty_at(texts, row);
                budget.yield_after(text.len()).await;
                let runs = structures.scalar_runs(structures.structure_of_row(row)).take(runs as usize);
                let found = has_matching_scalar(text, runs, &tested, |kind, text| scalar_matches(compare, kind, text));
                match found {
                    Some(true) => {}
                    Some(false) => continue,
                    None => {
                        self.reader.report_path_index_mismatch(row_group);
                        return Ok(CandidateRows { rows: selected, exact: ExactRows::None });
                    }
                }
            }
            matching.push(row);
        }
        Ok(CandidateRows { rows: RowSelection::List(matching), exact: ExactRows::All })
    }
}

fn text_or_empty_at(texts: &BinaryArray, row: usize) -> &[u8] {
    if row < texts.len() { texts.value(row) } else { &[] }
}

struct PathWordSearch<'p> {
    /// There is at least one needle, and no needle is empty.
    needles: &'p [Vec<u8>],
    mode: KeywordsMode,
    /// Whether the needles are whole scalars, with a separator on both sides.
    is_whole_scalar: bool,
}

impl PathWordSearch<'_> {
    /// Whether any needle or all needles are found, depending on the mode. `None` if `finds` returns `None`.
    fn matches_any_or_all(
        &self,
        finders: &[memmem::Finder<'_>],
        mut finds: impl FnMut(&memmem::Finder<'_>) -> Option<bool>,
    ) -> Option<bool> {
        let all = self.mode == KeywordsMode::And;
        for finder in finders {
            if finds(finder)? != all {
                return Some(!all);
            }
        }
        Some(all)
    }
}

/// Returns, for each typed path of a row group's structures, whether a predicate tests the scalars there.
fn mark_tested_paths(structures: &StructureDictionary, predicate: &Predicate) -> Vec<bool> {
    match predicate {
        Predicate::Comparison(compare) => structures.match_typed_paths(compare.path.keys()),
        Predicate::Keywords(keywords) => {
            let entity = Some(keywords.projection.json_projection().for_entity());
            let left = structures.map_typed_paths(entity, |above, key| above?.for_member(key));
            left.into_iter().map(|in_string| in_string.is_some_and(ValueProjection::can_keep_scalars)).collect()
        }
    }
}

#[derive(Clone, Copy)]
enum StructureMatch {
    Matches,
    NoMatch,
    NeedsTexts(u32),
}

impl StructureMatch {
    fn from_structure(runs: ScalarRunIter<'_>, tested_paths: &[bool], compare: &PathComparison) -> StructureMatch {
        let mut verdict = StructureMatch::NoMatch;
        for (number, run) in runs.enumerate() {
            if !tested_paths.get(run.typed_path as usize).is_some_and(|is_tested| *is_tested) {
                continue;
            }
            let undecided = match (compare.operator, run.kind) {
                (ComparisonOperator::Equal, ScalarKind::Null) if compare.can_match_null() => {
                    return StructureMatch::Matches;
                }
                (ComparisonOperator::Equal, ScalarKind::Text) => true,
                (ComparisonOperator::Equal, ScalarKind::Number) => compare.number().is_some(),
                (ComparisonOperator::Contains, ScalarKind::Text) if compare.denull => true,
                // Any string or number contains the empty string.
                (ComparisonOperator::Contains, ScalarKind::Text | ScalarKind::Number) => {
                    return StructureMatch::Matches;
                }
                (ComparisonOperator::Range(_), ScalarKind::Text) => compare.needs_exact_text(),
                (ComparisonOperator::Range(_), ScalarKind::Number) => !compare.needs_exact_text(),
                (_, ScalarKind::Null) => false,
            };
            if undecided {
                verdict = StructureMatch::NeedsTexts(number as u32 + 1);
            }
        }
        verdict
    }
}

fn scalar_matches(compare: &PathComparison, kind: ScalarKind, text: &[u8]) -> bool {
    if compare.denull && text.is_empty() {
        return false;
    }
    match compare.operator {
        ComparisonOperator::Contains => true,
        // Documents decide about strings in a range, because the full-text column contains case-folded strings.
        ComparisonOperator::Range(_) => match (kind, compare.range_needle(), std::str::from_utf8(text)) {
            (ScalarKind::Number, Some(range), Ok(text)) => range.matches_number(text),
            _ => false,
        },
        ComparisonOperator::Equal if text == compare.folded => true,
        // Case folding changes only the `E` of an exponent, so a number can be parsed from the full text.
        ComparisonOperator::Equal => match (kind, compare.number()) {
            (ScalarKind::Number, Some(number)) => {
                std::str::from_utf8(text).ok().and_then(NumericValue::parse).as_ref() == Some(number)
            }
            _ => false,
        },
    }
}

/// Whether a scalar that the predicate tests contains the needle, or equals it if the needle is a `whole` scalar with
/// its separators. `None` if the full text and the scalar runs belong to different entities.
fn contains_needle_at_paths(
    text: &[u8],
    runs: ScalarRunIter<'_>,
    tested_paths: &[bool],
    finder: &memmem::Finder<'_>,
    whole: bool,
) -> Option<bool> {
    let mut runs = runs.filter(|run| run.kind != ScalarKind::Null);
    // The number of scalars in the runs so far, and whether the predicate tests the scalars of the last run.
    let mut known = 0;
    let mut is_hit_tested = false;
    let mut at = 0;
    let mut separators = 0;
    while let Some(hit) = text.get(at..).and_then(|rest| finder.find(rest)) {
        let hit = at + hit;
        separators += memchr_iter(TEXT_SEPARATOR, text.get(at..hit).unwrap_or_default()).count();
        let ordinal = if whole { separators } else { separators.checked_sub(1)? };
        while known <= ordinal {
            let run = runs.next()?;
            known += run.length as usize;
            is_hit_tested = tested_paths.get(run.typed_path as usize).is_some_and(|is_tested| *is_tested);
        }
        if is_hit_tested {
            return Some(true);
        }
        at = if whole {
            separators += 1;
            hit + 1
        } else {
            hit + memchr(TEXT_SEPARATOR, text.get(hit..).unwrap_or_default())?
        };
    }
    Some(false)
}

/// Whether `test` accepts a scalar at a path of the predicate. `None` if text and runs are of different entities.
fn has_matching_scalar(
    text: &[u8],
    runs: impl Iterator<Item = ScalarRun>,
    tested_paths: &[bool],
    mut test: impl FnMut(ScalarKind, &[u8]) -> bool,
) -> Option<bool> {
    let mut rest = text.strip_prefix(&[TEXT_SEPARATOR])?;
    for run in runs.filter(|run| run.kind != ScalarKind::Null) {
        let length = run.length as usize;
        if !tested_paths.get(run.typed_path as usize).is_some_and(|is_tested| *is_tested) {
            let end = memchr_iter(TEXT_SEPARATOR, rest).nth(length - 1)?;
            rest = rest.get(end + 1..).unwrap_or_default();
            continue;
        }
        for _ in 0..length {
            let (scalar, others) = rest.split_at(memchr(TEXT_SEPARATOR, rest)?);
            if test(run.kind, scalar) {
                return Some(true);
            }
            rest = others.get(1..).unwrap_or_default();
        }
    }
    Some(false)
}
