//! Evaluates predicates on the full-text column: searches the rows that the keyword index lists, or all rows.

use arrow::array::{AsArray, BooleanBufferBuilder};
use strata_store::StorageError;

use crate::scan::access_path::{CandidateRows, ExactRows};
use crate::scan::arrow_kernels;
use crate::scan::row_group_evaluator::PredicateProbe;
use crate::scan::row_selection::RowSelection;
use crate::scan::scan_report::AccessPath;
use crate::scan::scan_spec::ScanSpec;

impl ScanSpec {
    /// Returns the selected rows whose full text may match a predicate. Documents verify these rows if necessary.
    pub(super) async fn probe_full_text(&self, probe: PredicateProbe<'_>) -> Result<CandidateRows, StorageError> {
        let PredicateProbe { row_group, condition, selected, keyword_rows, .. } = probe;
        let Some((words, mode)) = condition.predicate.full_text_needles() else {
            return Ok(CandidateRows { rows: selected, exact: ExactRows::None });
        };
        let is_sufficient = condition.access_path == AccessPath::SearchText;
        let certain = keyword_rows.map_or(&ExactRows::None, |keyword_rows| &keyword_rows.exact);
        let exact = if is_sufficient { ExactRows::All } else { certain.clone() };
        let Some(keyword_rows) = keyword_rows else {
            // Few rows, which a hash index has found, are verified in their documents.
            if let RowSelection::List(rows) = &selected
                && !self.is_full_text_cheaper(row_group, rows, self.fetch)
            {
                return Ok(CandidateRows { rows: selected, exact: ExactRows::None });
            }
            let texts = self.reader.read_full_text(row_group).await?;
            let rows = arrow_kernels::rows_containing_words(texts.as_binary(), words, mode);
            return Ok(CandidateRows { rows: selected.intersect(rows), exact });
        };
        let selected = selected.intersect(keyword_rows.candidates.clone());
        let open: Vec<usize> = selected.iter().filter(|row| !certain.contains(*row)).collect();
        if open.is_empty() {
            return Ok(CandidateRows { rows: selected, exact: ExactRows::All });
        }
        if !self.is_full_text_cheaper(row_group, &open, self.fetch) {
            return Ok(CandidateRows { rows: selected, exact: certain.clone() });
        }
        let rows = self.reader.row_groups()[row_group].rows;
        let texts = self.reader.read_full_text(row_group).await?;
        let texts = texts.as_binary();
        // Searching a single row's text costs more than searching the same number of bytes in all rows at once.
        let matching: Vec<usize> = if open.len() > rows / 4 {
            let all = arrow_kernels::rows_containing_words(texts, words, mode);
            open.into_iter().filter(|row| all.value(*row)).collect()
        } else {
            arrow_kernels::filter_rows_by_words(texts, open.into_iter(), words, mode)
        };
        let mut bits = BooleanBufferBuilder::new(rows);
        match certain {
            ExactRows::Rows(certain) => bits.append_buffer(certain),
            _ => bits.append_n(rows, false),
        }
        matching.into_iter().for_each(|row| bits.set_bit(row, true));
        Ok(CandidateRows { rows: selected.intersect(bits.finish()), exact })
    }

    /// Whether candidate rows are verified in the full-text column rather than in documents: if the column is cached,
    /// if it has fewer bytes than the document pages of the candidates, or if there are many candidates and the cache
    /// has room for the column. Searching a text costs a tenth of reading a document, so later requests gain from it.
    /// With `fetch`, that many matches are sufficient.
    pub(super) fn is_full_text_cheaper(&self, row_group: usize, candidates: &[usize], fetch: Option<usize>) -> bool {
        const CANDIDATES_PER_MATCH: usize = 4;
        /// A row group has many candidates if at least one in this many rows is a candidate.
        const MANY_DIVISOR: usize = 16;
        let reader = &self.reader;
        if reader.is_full_text_cached(row_group) {
            return true;
        }
        let max = fetch.map_or(usize::MAX, |fetch| fetch.saturating_mul(CANDIDATES_PER_MATCH));
        let rows = reader.row_groups()[row_group].rows;
        if candidates.len().min(max) >= rows / MANY_DIVISOR && reader.can_cache_full_text(row_group) {
            return true;
        }
        let (full_text, documents) = reader.stored_text_and_document_bytes(row_group);
        let pages = candidates.iter().take(max).map(|row| reader.page_for_row(row_group, *row));
        let mut last = None;
        let used = pages.filter(|page| last.replace(*page) != Some(*page)).count() as u64;
        (documents / reader.page_count(row_group).max(1) as u64).saturating_mul(used) > full_text
    }
}
