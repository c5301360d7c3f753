//! Conditions on paths, evaluated with the full-text column and the path index of a row group, without documents.
//!
//! The structure (shape) of a row contains the path of each scalar in the full-text column. The number of separators
//! before a hit is the number of its scalar, so the hit counts if the condition is on its path. Conditions without a
//! text to search (a number in any spelling, null, any string) are tested scalar by scalar.
//!
//! Candidates come from the keyword index or from a search of the full-text column. If reading the full-text column
//! costs more than reading the documents of few candidates, documents decide.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryArray, BooleanBufferBuilder};
use memchr::{memchr, memchr_iter, memmem};
use strata_format::layout::SEPARATOR;
use strata_format::shapes::ScalarKind;
use strata_format::shapes::decoded::{Runs, ScalarRun, Shapes};
use strata_json::{Inside, NumericValue};
use strata_store::StorageError;
use strata_types::request::KeywordsMode;

use crate::coop::YieldBudget;
use crate::scan::access::{CandidateRows, Exact};
use crate::scan::kernels;
use crate::scan::predicate::{Compare, Comparison, Predicate};
use crate::scan::report::AccessName;
use crate::scan::row_group::Probe;
use crate::scan::row_selection::RowSelection;
use crate::scan::spec::ScanSpec;

/// Rows that are searched at a time. With enough matches, the search ends.
const BLOCK_ROWS: usize = 2_048;

/// All shapes are evaluated before any row if there are at least this many rows for each.
const MIN_SHAPE_ROWS: usize = 4;

/// This many conditions are tested scalar by scalar. Documents decide about others, in one walk.
const MAX_SCALAR_CONDITIONS: usize = 8;

impl ScanSpec {
    /// The selected rows that match a condition, by the path index of a row group that has one.
    pub(super) async fn by_path_index(&self, probe: Probe<'_>) -> Result<CandidateRows, StorageError> {
        let Probe { number, condition, .. } = probe;
        let predicate = &condition.predicate;
        let found = match (predicate, predicate.searched()) {
            // `denull` removes empty strings.
            (Predicate::Compare(compare), Some(_)) if compare.folded.is_empty() && compare.denull => {
                CandidateRows { rows: RowSelection::Range(0..0), exact: Exact::All }
            }
            (_, Some((needles, mode))) => {
                let whole = matches!(predicate, Predicate::Compare(compare) if compare.comparison == Comparison::Equal);
                self.words_by_shapes(probe, Words { needles, mode, whole }).await?
            }
            (Predicate::Compare(compare), None) => self.scalars_by_shapes(probe, compare).await?,
            (Predicate::Keywords(_), None) => CandidateRows { rows: probe.selected, exact: Exact::None },
        };
        self.metrics.count_path_index(number, matches!(found.exact, Exact::All));
        Ok(found)
    }

    async fn words_by_shapes(&self, probe: Probe<'_>, words: Words<'_>) -> Result<CandidateRows, StorageError> {
        let Probe { row_group, condition, indexed, limit, .. } = probe;
        let selected = match indexed {
            Some(indexed) => probe.selected.and(indexed.candidates.clone()),
            None => probe.selected,
        };
        let rows: Vec<usize> = selected.iter().collect();
        if rows.is_empty() {
            return Ok(CandidateRows { rows: selected, exact: Exact::All });
        }
        // Without the keyword index, the number of candidates until enough match is unknown.
        let fetch = self.fetch.filter(|_| indexed.is_some());
        if !self.prefers_full_text(row_group, &rows, fetch) {
            return Ok(CandidateRows { rows: selected, exact: Exact::None });
        }
        let texts = self.reader.search(row_group).await?;
        let texts: &BinaryArray = texts.as_binary();
        let finders: Vec<memmem::Finder<'_>> = words.needles.iter().map(memmem::Finder::new).collect();
        let mut shapes: Option<(Arc<Shapes>, Vec<bool>)> = None;
        let mut matching = Vec::new();
        let mut budget = YieldBudget::default();
        for block in rows.chunk_by(|one, other| one / BLOCK_ROWS == other / BLOCK_ROWS) {
            if limit.is_some_and(|limit| matching.len() >= limit) {
                break;
            }
            let first = block.first().map_or(0, |row| row / BLOCK_ROWS * BLOCK_ROWS);
            let texts = texts.slice(first.min(texts.len()), texts.len().saturating_sub(first).min(BLOCK_ROWS));
            // Searching a single row costs more than searching the same bytes of all rows.
            let holding = (block.len() > texts.len() / 4).then(|| {
                let bytes = texts.value_offsets();
                (kernels::contains_words(&texts, words.needles, words.mode), bytes[texts.len()] - bytes[0])
            });
            budget.consume(holding.as_ref().map_or(0, |(_, bytes)| *bytes as usize)).await;
            for row in block.iter().map(|row| row - first) {
                if holding.as_ref().is_some_and(|(rows, _)| !rows.value(row)) {
                    continue;
                }
                if shapes.is_none() {
                    let Some(read) = self.sound_shapes(row_group).await? else {
                        return self.by_full_text(Probe { selected, ..probe }).await;
                    };
                    let counts = places(&read, &condition.predicate);
                    shapes = Some((read, counts));
                }
                let Some((shapes, counts)) = &shapes else { continue };
                let text = value(&texts, row);
                budget.consume(text.len()).await;
                let runs = || shapes.runs(shapes.shape_of(first + row));
                let matches = words.are_found(&finders, |finder| holds(text, runs(), counts, finder, words.whole));
                match matches {
                    Some(true) => matching.push(first + row),
                    Some(false) => {}
                    None => {
                        self.reader.report_foreign_shapes(row_group);
                        return self.by_full_text(Probe { selected, ..probe }).await;
                    }
                }
            }
        }
        Ok(CandidateRows { rows: RowSelection::List(matching), exact: Exact::All })
    }

    /// The shapes of a row group. `None` if it has none, or if they are damaged.
    async fn sound_shapes(&self, row_group: usize) -> Result<Option<Arc<Shapes>>, StorageError> {
        match self.reader.shapes(row_group).await {
            Err(error) if error.is_damage() => Ok(None),
            read => read,
        }
    }

    async fn scalars_by_shapes(&self, probe: Probe<'_>, compare: &Compare) -> Result<CandidateRows, StorageError> {
        let Probe { row_group, number, selected, limit, .. } = probe;
        let Some(shapes) = self.sound_shapes(row_group).await? else {
            return Ok(CandidateRows { rows: selected, exact: Exact::None });
        };
        let mut budget = YieldBudget::default();
        let counts = shapes.places_of(compare.path.keys());
        if !counts.contains(&true) {
            return Ok(CandidateRows { rows: RowSelection::Range(0..0), exact: Exact::All });
        }
        let mut verdicts: Vec<Option<Verdict>> = vec![None; shapes.shape_count()];
        // If every entity has a string at the path, documents decide about all.
        if compare.needs_exact_text() && shapes.shape_count() <= selected.len() / MIN_SHAPE_ROWS {
            for (shape, verdict) in verdicts.iter_mut().enumerate() {
                *verdict = Some(Verdict::new(shapes.runs(shape), &counts, compare));
                budget.consume(shapes.shape_bytes(shape)).await;
            }
            if verdicts.iter().all(|verdict| matches!(verdict, Some(Verdict::Texts(_)))) {
                return Ok(CandidateRows { rows: selected, exact: Exact::None });
            }
        }
        // Rows that match, and rows whose texts decide, with the runs of their shape to test.
        let mut rows = Vec::new();
        let mut open = Vec::new();
        for row in selected.iter().collect::<Vec<_>>() {
            let shape = shapes.shape_of(row);
            let verdict = match verdicts.get(shape).copied().flatten() {
                Some(verdict) => verdict,
                None => {
                    let verdict = Verdict::new(shapes.runs(shape), &counts, compare);
                    if let Some(found) = verdicts.get_mut(shape) {
                        *found = Some(verdict);
                    }
                    budget.consume(shapes.shape_bytes(shape)).await;
                    verdict
                }
            };
            match verdict {
                Verdict::Matches => rows.push((row, None)),
                Verdict::Differs => {}
                Verdict::Texts(runs) => {
                    rows.push((row, Some(runs)));
                    open.push(row);
                }
            }
        }
        let mut texts = None;
        if !open.is_empty() {
            let before =
                self.predicates[..number].iter().filter(|before| before.access == AccessName::SearchTextAndShapes);
            if before.take(MAX_SCALAR_CONDITIONS).count() == MAX_SCALAR_CONDITIONS
                || compare.needs_exact_text()
                || !self.prefers_full_text(row_group, &open, None)
            {
                let exact = if open.len() < rows.len() {
                    let mut exact = BooleanBufferBuilder::new(0);
                    exact.append_n(self.reader.row_groups()[row_group].rows, false);
                    rows.iter().filter(|(_, open)| open.is_none()).for_each(|(row, _)| exact.set_bit(*row, true));
                    Exact::Rows(exact.finish())
                } else {
                    Exact::None
                };
                let rows = RowSelection::List(rows.into_iter().map(|(row, _)| row).collect());
                return Ok(CandidateRows { rows, exact });
            }
            texts = Some(self.reader.search(row_group).await?);
        }
        let texts: Option<&BinaryArray> = texts.as_ref().map(|texts| texts.as_binary());
        let mut matching = Vec::new();
        for (row, runs) in rows {
            if limit.is_some_and(|limit| matching.len() >= limit) {
                break;
            }
            if let (Some(runs), Some(texts)) = (runs, texts) {
                let text = value(texts, row);
                budget.consume(text.len()).await;
                let runs = shapes.runs(shapes.shape_of(row)).take(runs as usize);
                let found = any_scalar(text, runs, &counts, |kind, text| fits(compare, kind, text));
                match found {
                    Some(true) => {}
                    Some(false) => continue,
                    None => {
                        self.reader.report_foreign_shapes(row_group);
                        return Ok(CandidateRows { rows: selected, exact: Exact::None });
                    }
                }
            }
            matching.push(row);
        }
        Ok(CandidateRows { rows: RowSelection::List(matching), exact: Exact::All })
    }
}

fn value(texts: &BinaryArray, row: usize) -> &[u8] {
    if row < texts.len() { texts.value(row) } else { &[] }
}

struct Words<'p> {
    /// None is empty.
    needles: &'p [Vec<u8>],
    mode: KeywordsMode,
    /// Whether the needles are whole scalars, with a separator on both sides.
    whole: bool,
}

impl Words<'_> {
    /// Whether any or all needles are found, by the mode. `None` if `finds` returns `None`.
    fn are_found(
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

/// For each place of the shapes, whether its scalars count for a predicate.
fn places(shapes: &Shapes, predicate: &Predicate) -> Vec<bool> {
    match predicate {
        Predicate::Compare(compare) => shapes.places_of(compare.path.keys()),
        Predicate::Keywords(keywords) => {
            let entity = Some(keywords.reshape.projection().entity());
            let left = shapes.places_by(entity, |above, key| above?.member(key));
            left.into_iter().map(|inside| inside.is_some_and(Inside::keeps_scalars)).collect()
        }
    }
}

#[derive(Clone, Copy)]
enum Verdict {
    Matches,
    Differs,
    /// The texts of this many runs decide.
    Texts(u32),
}

impl Verdict {
    fn new(runs: Runs<'_>, counts: &[bool], compare: &Compare) -> Verdict {
        let mut verdict = Verdict::Differs;
        for (number, run) in runs.enumerate() {
            if !counts.get(run.place as usize).is_some_and(|counts| *counts) {
                continue;
            }
            let undecided = match (compare.comparison, run.kind) {
                (Comparison::Equal, ScalarKind::Null) if compare.matches_null() => return Verdict::Matches,
                (Comparison::Equal, ScalarKind::Text) => true,
                (Comparison::Equal, ScalarKind::Number) => compare.number().is_some(),
                (Comparison::Contains, ScalarKind::Text) if compare.denull => true,
                // Any text contains the empty text.
                (Comparison::Contains, ScalarKind::Text | ScalarKind::Number) => return Verdict::Matches,
                (Comparison::Range(_), ScalarKind::Text) => compare.needs_exact_text(),
                (Comparison::Range(_), ScalarKind::Number) => !compare.needs_exact_text(),
                (_, ScalarKind::Null) => false,
            };
            if undecided {
                verdict = Verdict::Texts(number as u32 + 1);
            }
        }
        verdict
    }
}

/// Whether a scalar matches a comparison that has no text to search.
fn fits(compare: &Compare, kind: ScalarKind, text: &[u8]) -> bool {
    if compare.denull && text.is_empty() {
        return false;
    }
    match compare.comparison {
        Comparison::Contains => true,
        // Documents decide about strings, because the text is folded.
        Comparison::Range(_) => match (kind, compare.range(), std::str::from_utf8(text)) {
            (ScalarKind::Number, Some(range), Ok(text)) => range.admits_number(text),
            _ => false,
        },
        Comparison::Equal if text == compare.folded => true,
        // Folding changes only the letter of an exponent.
        Comparison::Equal => match (kind, compare.number()) {
            (ScalarKind::Number, Some(number)) => {
                std::str::from_utf8(text).ok().and_then(NumericValue::parse).as_ref() == Some(number)
            }
            _ => false,
        },
    }
}

/// Whether a scalar that counts contains a match, or is the match if it is a `whole` scalar with its separators. `None`
/// if the text and the runs are of different entities.
fn holds(text: &[u8], runs: Runs<'_>, counts: &[bool], finder: &memmem::Finder<'_>, whole: bool) -> Option<bool> {
    let mut runs = runs.filter(|run| run.kind != ScalarKind::Null);
    // Scalars of the runs so far, and whether the scalars of the last run count.
    let mut known = 0;
    let mut hit_counts = false;
    let mut at = 0;
    // Separators before `at`.
    let mut separators = 0;
    while let Some(hit) = text.get(at..).and_then(|rest| finder.find(rest)) {
        let hit = at + hit;
        separators += memchr_iter(SEPARATOR, text.get(at..hit).unwrap_or_default()).count();
        let ordinal = if whole { separators } else { separators.checked_sub(1)? };
        while known <= ordinal {
            let run = runs.next()?;
            known += run.length as usize;
            hit_counts = counts.get(run.place as usize).is_some_and(|counts| *counts);
        }
        if hit_counts {
            return Some(true);
        }
        at = if whole {
            separators += 1;
            hit + 1
        } else {
            hit + memchr(SEPARATOR, text.get(hit..).unwrap_or_default())?
        };
    }
    Some(false)
}

/// Whether `test` returns true for a scalar that counts. `None` as in [`holds`].
fn any_scalar(
    text: &[u8],
    runs: impl Iterator<Item = ScalarRun>,
    counts: &[bool],
    mut test: impl FnMut(ScalarKind, &[u8]) -> bool,
) -> Option<bool> {
    let mut rest = text.strip_prefix(&[SEPARATOR])?;
    for run in runs.filter(|run| run.kind != ScalarKind::Null) {
        let length = run.length as usize;
        if !counts.get(run.place as usize).is_some_and(|counts| *counts) {
            let end = memchr_iter(SEPARATOR, rest).nth(length - 1)?;
            rest = rest.get(end + 1..).unwrap_or_default();
            continue;
        }
        for _ in 0..length {
            let end = memchr(SEPARATOR, rest)?;
            let (scalar, others) = rest.split_at(end);
            if test(run.kind, scalar) {
                return Some(true);
            }
            rest = others.get(1..).unwrap_or_default();
        }
    }
    Some(false)
}
