//! Conditions on the full-text column: the rows that the keyword index lists, or all of them, are searched for words.

use arrow::array::{AsArray, BooleanBufferBuilder};
use strata_store::StorageError;

use crate::scan::access::{CandidateRows, Exact};
use crate::scan::kernels;
use crate::scan::report::AccessName;
use crate::scan::row_group::Probe;
use crate::scan::spec::ScanSpec;

impl ScanSpec {
    /// The selected rows whose full-text column may match. Documents recheck them if it is not sufficient.
    pub(super) async fn by_full_text(&self, probe: Probe<'_>) -> Result<CandidateRows, StorageError> {
        let Probe { row_group, condition, selected, indexed, .. } = probe;
        let Some((words, mode)) = condition.predicate.searched() else {
            return Ok(CandidateRows { rows: selected, exact: Exact::None });
        };
        let is_sufficient = condition.access == AccessName::SearchText;
        let exact = if is_sufficient { Exact::All } else { Exact::None };
        let Some(indexed) = indexed else {
            let texts = self.reader.search(row_group).await?;
            let rows = kernels::contains_words(texts.as_binary(), words, mode);
            return Ok(CandidateRows { rows: selected.and(rows), exact });
        };
        let selected = selected.and(indexed.candidates.clone());
        let certain = match &indexed.exact {
            Exact::All => return Ok(CandidateRows { rows: selected, exact }),
            rows @ Exact::Rows(_) if is_sufficient => rows,
            _ => &Exact::None,
        };
        let open: Vec<usize> = selected.iter().filter(|row| !certain.contains(*row)).collect();
        if open.is_empty() {
            return Ok(CandidateRows { rows: selected, exact });
        }
        if !self.prefers_full_text(row_group, &open, self.fetch) {
            return Ok(CandidateRows { rows: selected, exact: certain.clone() });
        }
        let rows = self.reader.row_groups()[row_group].rows;
        let texts = self.reader.search(row_group).await?;
        let texts = texts.as_binary();
        // Searching a single row costs more than searching the same bytes of all rows.
        let found: Vec<usize> = if open.len() > rows / 4 {
            let all = kernels::contains_words(texts, words, mode);
            open.into_iter().filter(|row| all.value(*row)).collect()
        } else {
            kernels::rows_with_words(texts, open.into_iter(), words, mode)
        };
        let mut bits = BooleanBufferBuilder::new(rows);
        match certain {
            Exact::Rows(certain) => bits.append_buffer(certain),
            _ => bits.append_n(rows, false),
        }
        found.into_iter().for_each(|row| bits.set_bit(row, true));
        Ok(CandidateRows { rows: selected.and(bits.finish()), exact })
    }

    /// Whether candidates are verified in the full-text column rather than in documents: if it is cached, if it has
    /// fewer bytes than the document pages of the candidates, or if there are many candidates and the cache has room
    /// for it. Searching a text costs a tenth of reading a document, so later requests gain from it. With `fetch`, that
    /// many matches are enough.
    pub(super) fn prefers_full_text(&self, row_group: usize, candidates: &[usize], fetch: Option<usize>) -> bool {
        /// About one of this many candidates matches.
        const CANDIDATES_PER_MATCH: usize = 4;
        /// Candidates are many if one of this many rows is a candidate.
        const MANY_DIVISOR: usize = 16;
        let reader = &self.reader;
        if reader.caches_search(row_group) {
            return true;
        }
        let max = fetch.map_or(usize::MAX, |fetch| fetch.saturating_mul(CANDIDATES_PER_MATCH));
        let rows = reader.row_groups()[row_group].rows;
        if candidates.len().min(max) >= rows / MANY_DIVISOR && reader.has_room_for_search(row_group) {
            return true;
        }
        let (full_text, documents) = reader.search_and_document_bytes(row_group);
        let pages = candidates.iter().take(max).map(|row| reader.page_of(row_group, *row));
        let mut last = None;
        let used = pages.filter(|page| last.replace(*page) != Some(*page)).count() as u64;
        (documents / reader.page_count(row_group).max(1) as u64).saturating_mul(used) > full_text
    }
}
