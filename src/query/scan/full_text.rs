//! Conditions on the full-text column: the rows that the keyword index lists, or all of them, are searched for words.

use arrow::array::{ArrayRef, AsArray, BooleanBufferBuilder};
use arrow::buffer::BooleanBuffer;
use strata_format::layout::ShreddedPart;
use strata_store::StorageError;
use strata_types::request::KeywordsMode;

use crate::scan::access::{CandidateRows, Exact};
use crate::scan::kernels;
use crate::scan::predicate::{Keywords, Predicate};
use crate::scan::report::AccessName;
use crate::scan::row_group::Probe;
use crate::scan::spec::ScanSpec;

impl ScanSpec {
    /// The selected rows whose full-text column contains what every match contains. Documents recheck them unless the
    /// full-text column is sufficient.
    pub(super) async fn by_full_text(&self, probe: Probe<'_>) -> Result<CandidateRows, StorageError> {
        /// Documents decide about this many candidates if the request hides fields.
        const FEW: usize = 64;
        let Probe { row_group, condition, selected, indexed, .. } = probe;
        let predicate = &condition.predicate;
        let Some((words, mode)) = predicate.searched() else {
            return Ok(CandidateRows { rows: selected, exact: Exact::None });
        };
        let is_sufficient = condition.access == AccessName::SearchText;
        let exact = if is_sufficient { Exact::All } else { Exact::None };
        let Some(indexed) = indexed else {
            let rows = self.rows_with_words(row_group, predicate, words, mode).await?;
            return Ok(CandidateRows { rows: selected.and(rows), exact });
        };
        let selected = selected.and(indexed.candidates.clone());
        let hides = matches!(predicate, Predicate::Keywords(keywords) if !keywords.sees_everything());
        let certain = match &indexed.exact {
            Exact::All if !hides => return Ok(CandidateRows { rows: selected, exact }),
            rows @ Exact::Rows(_) if is_sufficient => rows,
            _ => &Exact::None,
        };
        let open: Vec<usize> = selected.iter().filter(|row| !certain.contains(*row)).collect();
        if open.is_empty() {
            return Ok(CandidateRows { rows: selected, exact });
        }
        if (hides && open.len() <= FEW) || !self.prefers_full_text(row_group, &open, self.fetch) {
            return Ok(CandidateRows { rows: selected, exact: certain.clone() });
        }
        let rows = self.reader.row_groups()[row_group].rows;
        // Searching one row by itself costs more than searching the same bytes of all rows.
        let found: Vec<usize> = if hides || open.len() > rows / 4 {
            let all = self.rows_with_words(row_group, predicate, words, mode).await?;
            open.into_iter().filter(|row| all.value(*row)).collect()
        } else {
            let texts = self.reader.search(row_group).await?;
            kernels::rows_with_words(texts.as_binary(), open.into_iter(), words, mode)
        };
        let mut bits = BooleanBufferBuilder::new(rows);
        match certain {
            Exact::Rows(certain) => bits.append_buffer(certain),
            _ => bits.append_n(rows, false),
        }
        found.into_iter().for_each(|row| bits.set_bit(row, true));
        Ok(CandidateRows { rows: selected.and(bits.finish()), exact })
    }

    /// The rows of a row group whose full-text column contains the words.
    async fn rows_with_words(
        &self,
        row_group: usize,
        predicate: &Predicate,
        words: &[Vec<u8>],
        mode: KeywordsMode,
    ) -> Result<BooleanBuffer, StorageError> {
        let texts = self.reader.search(row_group).await?;
        let texts = texts.as_binary();
        let rows = kernels::contains_words(texts, words, mode);
        let Predicate::Keywords(keywords) = predicate else { return Ok(rows) };
        let hidden = self.hidden_columns(row_group, keywords).await?;
        // Counting occurrences costs more, and most words are in few rows.
        if hidden.is_empty() || rows.count_set_bits() == 0 {
            return Ok(rows);
        }
        let elsewhere = words.iter().map(|word| kernels::contains_besides(texts, &hidden, word));
        let rows_elsewhere = elsewhere.reduce(|one, other| match mode {
            KeywordsMode::Or => &one | &other,
            KeywordsMode::And => &one & &other,
        });
        Ok(rows_elsewhere.unwrap_or(rows))
    }

    /// The texts of indexed columns that a keyword search must not see, such as `_source`, whose words most entities
    /// share. Empty if there are many: reading all of them would cost more than it saves.
    async fn hidden_columns(&self, row_group: usize, keywords: &Keywords) -> Result<Vec<ArrayRef>, StorageError> {
        const MAX_COLUMNS: usize = 4;
        let columns = self.reader.layout().shredded_columns.iter().enumerate();
        let hidden = columns.filter(|(_, column)| !keywords.reshape.sees(&column.keys));
        let numbers: Vec<usize> = hidden.map(|(number, _)| number).collect();
        let mut texts = Vec::new();
        if numbers.len() <= MAX_COLUMNS {
            for number in numbers {
                texts.extend(self.reader.shredded(row_group, number, ShreddedPart::Text).await?);
            }
        }
        Ok(texts)
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
