//! What the scan gives of one row group: predicates evaluated from cheap to dear, then the columns of what is left.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanBufferBuilder};
use arrow::buffer::BooleanBuffer;
use datafusion::common::internal_err;
use datafusion::error::Result;
use strata_format::layout::{ShreddedKind, ShreddedPart};
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_types::request::KeywordsMode;

use crate::error::external;
use crate::fetch::pages::Pages;
use crate::fetch::pages_ahead::PagesAhead;
use crate::pace::Pace;
use crate::scan::access::{self, Access, PrunedBy};
use crate::scan::batches::Given;
use crate::scan::dedup_key::GroupKeys;
use crate::scan::distinct::RowOrder;
use crate::scan::kept_index::{self, EqualColumn};
use crate::scan::kernels::{self, Elements};
use crate::scan::keyword_index::{IndexedRows, Sure};
use crate::scan::predicate::{Compare, Comparison, Keywords, Predicate};
use crate::scan::range_statistics::{self, Told};
use crate::scan::row_selection::RowSelection;
use crate::scan::schema::ORDER;
use crate::scan::shapes::Settled;
use crate::scan::sort_key::SortColumn;
use crate::scan::spec::ScanSpec;
use crate::scan::verify::{Unverified, Verifier};

impl ScanSpec {
    pub(super) async fn row_group(self: &Arc<Self>, row_group: usize) -> Result<Given> {
        let selected = self.selection(row_group).await?;
        // Most row groups of a search have nothing, and what they need not take is in boxes.
        if selected.len() == 0 {
            return Ok(Given::default());
        }
        Box::pin(self.selected_batches(row_group, selected)).await
    }

    pub(super) async fn all_keys(&self, row_group: usize) -> Result<ArrayRef> {
        let Some(source) = &self.group_source else { return internal_err!("the scan does not compute groups") };
        tokio::task::consume_budget().await;
        let rows: Vec<usize> = self.rows(row_group).collect();
        self.metrics.scanned.add(1);
        self.metrics.tested.add(rows.len());
        metrics().scanned_rows.increment(rows.len() as u64);
        let mut keys = GroupKeys::open(&self.reader, row_group, rows.len(), source).await.map_err(external)?;
        let found = keys.keys(&rows).await.map_err(external)?;
        self.metrics.group_pages.add(keys.pages.used);
        Ok(found)
    }

    pub(super) async fn selection(&self, row_group: usize) -> Result<RowSelection> {
        // Cancelling takes effect between row groups, even when nothing has to be waited for.
        tokio::task::consume_budget().await;
        self.select(row_group, self.looked_at(row_group)).await.map_err(external)
    }

    pub(super) async fn selected_batches(
        self: &Arc<Self>,
        row_group: usize,
        mut selected: RowSelection,
    ) -> Result<Given> {
        let order = self.computed.order.as_ref().filter(|_| self.gives(ORDER));
        let column = match order {
            Some(order) if self.threshold.is_some() || self.distinct_filter.is_some() => {
                SortColumn::open(&self.reader, row_group, order).await.map_err(external)?
            }
            _ => None,
        };
        let ranked = column.as_ref().zip(order).map(|(column, order)| (column, order, column.ranks(order, &selected)));
        let ranked = ranked.filter(|(_, _, ranks)| !ranks.undecided);
        if let (Some(threshold), Some((column, order, ranks))) = (&self.threshold, &ranked) {
            let compare = |one, other| column.compare(order, one, other);
            let rows = threshold.select(&selected, &ranks.ranks, compare);
            self.metrics.top_k.add(selected.len(), rows.len());
            selected = RowSelection::List(rows);
        }
        if let (Some(filter), Some(source)) = (&self.distinct_filter, &self.group_source)
            && let Some(codes) = source.codes()
            && (order.is_none() || ranked.is_some())
        {
            let first = self.reader.row_groups()[row_group].first as usize;
            let rows = match &ranked {
                Some((column, order, ranks)) => {
                    let compare = |one, other| column.compare(order, one, other);
                    filter.select(&codes, first, &selected, Some(&RowOrder { ranks: &ranks.ranks, compare: &compare }))
                }
                None => filter.select(&codes, first, &selected, None),
            };
            self.metrics.distinct.add(selected.len(), rows.len());
            selected = RowSelection::List(rows);
        }
        self.batches(row_group, &selected).await
    }

    async fn select(&self, row_group: usize, selected: RowSelection) -> Result<RowSelection, StorageError> {
        let is_indexed = |number| self.indexes.candidates.as_ref().is_some_and(|candidates| candidates.are_of(number));
        for (number, (access, predicate)) in self.predicates.iter().enumerate() {
            if !is_indexed(number)
                && let Some(by) = access::pruned(&self.reader, row_group, predicate, *access).await?
            {
                self.indexes.looked_through(number, kept_index::PRUNED_ELEMENTS);
                return Ok(self.prune(row_group, &selected, by));
            }
        }
        let indexed = match &self.keywords {
            Some(keywords) => keywords.rows(&self.reader, row_group).await?,
            None => Vec::new(),
        };
        let mut candidates = selected.clone();
        for rows in indexed.iter().flatten() {
            candidates = candidates.and(rows.candidates.clone());
        }
        if indexed.iter().any(Option::is_some) && candidates.len() == 0 {
            return Ok(self.prune(row_group, &selected, PrunedBy::KeywordIndex));
        }
        let rows = selected.len();
        let matching = Box::pin(self.matching(row_group, selected, &indexed)).await?;
        // Not before: work that was begun may be dropped when there is enough.
        metrics().scanned_rows.increment(rows as u64);
        self.metrics.scanned.add(1);
        self.metrics.tested.add(rows);
        Ok(matching)
    }

    async fn matching(
        &self,
        row_group: usize,
        mut selected: RowSelection,
        indexed: &[Option<IndexedRows>],
    ) -> Result<RowSelection, StorageError> {
        let mut left = selected.len();
        let mut unverified: Vec<Unverified<'_>> = Vec::new();
        for (number, ((access, predicate), counts)) in self.predicates.iter().zip(&self.metrics.predicates).enumerate()
        {
            if left == 0 {
                return Ok(selected);
            }
            // A request may have a thousand predicates, each as much work as a row group is large.
            tokio::task::consume_budget().await;
            match (access, predicate) {
                (Access::ShreddedColumn(shredded), Predicate::Compare(compare)) => {
                    if range_statistics::told(&self.reader, row_group, *shredded, compare) == Told::EveryRow {
                        counts.settled_by_statistics.add(1);
                    } else {
                        selected = self.by_shredded(row_group, (number, *shredded), compare, selected).await?;
                    }
                }
                (Access::Shapes, _) if self.reader.shape_index().get(row_group).is_some() => {
                    let indexed = self.counted(number, indexed);
                    // Nothing after the last predicate takes rows away.
                    let is_last = number + 1 == self.predicates.len() && unverified.is_empty();
                    let most = self.fetch.filter(|_| is_last);
                    selected = match Box::pin(self.by_shapes(row_group, number, selected, indexed, most)).await? {
                        Settled::Rows(rows) => rows,
                        Settled::Open(rows, sure) => {
                            unverified.push(Unverified { predicate, sure });
                            rows
                        }
                    };
                }
                // Without shapes nothing but documents tells what no text does.
                (Access::Shapes, _) if predicate.searched().is_none() => {
                    unverified.push(Unverified { predicate, sure: None });
                }
                (Access::Search | Access::SearchThenDocuments | Access::Shapes, _) => {
                    let indexed = self.counted(number, indexed);
                    let decides = *access == Access::Search;
                    let (rows, open) =
                        self.by_index_and_search(row_group, selected, predicate, indexed, decides).await?;
                    selected = rows;
                    unverified.extend(open);
                }
                _ => unverified.push(Unverified { predicate, sure: None }),
            }
            let before = std::mem::replace(&mut left, selected.len());
            counts.rows.add(before, left);
        }
        if unverified.is_empty() {
            return Ok(selected.truncated(self.fetch));
        }
        self.verify(row_group, selected, &unverified).await
    }

    fn prune(&self, row_group: usize, rows: &RowSelection, by: PrunedBy) -> RowSelection {
        self.count_pruned(row_group, rows.len(), by);
        if by == PrunedBy::KeywordIndex {
            for number in 0..self.predicates.len() {
                if self.keywords.as_ref().is_some_and(|keywords| keywords.asks(number)) {
                    self.metrics.predicates[number].indexed.exact.add(1);
                    metrics().keyword_index.of(["exact".into()]).increment(1);
                }
            }
        }
        RowSelection::Range(0..0)
    }

    /// What the keyword index says of a predicate, which is counted if it was asked.
    fn counted<'i>(&self, predicate: usize, indexed: &'i [Option<IndexedRows>]) -> Option<&'i IndexedRows> {
        let indexed = indexed.get(predicate).and_then(Option::as_ref);
        if !self.keywords.as_ref().is_some_and(|keywords| keywords.asks(predicate)) {
            return indexed;
        }
        let counts = &self.metrics.predicates[predicate].indexed;
        let (counter, outcome) = match indexed {
            Some(IndexedRows { sure: Sure::All, .. }) => (&counts.exact, "exact"),
            Some(_) => (&counts.candidates, "candidates"),
            None => (&counts.scan, "scan"),
        };
        counter.add(1);
        counts.rows.add(indexed.map_or(0, |rows| rows.candidates.count_set_bits()));
        metrics().keyword_index.of([outcome.into()]).increment(1);
        indexed
    }

    /// The selected rows that may match a predicate, by the keyword index where it tells and by the search text; and
    /// the predicate, where documents are to verify them. The search text `decides`, or documents do in any case.
    pub(super) async fn by_index_and_search<'p>(
        &self,
        row_group: usize,
        selected: RowSelection,
        predicate: &'p Predicate,
        indexed: Option<&IndexedRows>,
        decides: bool,
    ) -> Result<(RowSelection, Option<Unverified<'p>>), StorageError> {
        /// So few rows are verified in documents where the search text does not tell what is hidden of it.
        const FEW: usize = 64;
        let verified = (!decides).then_some(Unverified { predicate, sure: None });
        let Some(indexed) = indexed else {
            let rows = self.by_search(row_group, predicate).await?;
            return Ok((rows.into_iter().fold(selected, RowSelection::and), verified));
        };
        let selected = selected.and(indexed.candidates.clone());
        let hides = matches!(predicate, Predicate::Keywords(keywords) if !keywords.sees_everything());
        let sure = match &indexed.sure {
            Sure::All if !hides => return Ok((selected, verified)),
            Sure::Rows(sure) if decides => Some(sure),
            _ => None,
        };
        let unsure: Vec<usize> = selected.iter().filter(|row| !sure.is_some_and(|sure| sure.value(*row))).collect();
        if unsure.is_empty() {
            return Ok((selected, verified));
        }
        if (hides && unsure.len() <= FEW) || !access::searches(&self.reader, row_group, &unsure, self.fetch) {
            return Ok((selected, Some(Unverified { predicate, sure: sure.cloned() })));
        }
        let rows = self.reader.row_groups()[row_group].rows;
        let found = match predicate.searched() {
            // A row by itself costs more than as many bytes of all rows.
            _ if hides || unsure.len() > rows / 4 => match self.by_search(row_group, predicate).await? {
                Some(rows) => unsure.into_iter().filter(|row| rows.value(*row)).collect(),
                None => unsure,
            },
            Some((words, mode)) => {
                let texts = self.reader.search(row_group).await?;
                kernels::rows_with_words(texts.as_binary(), unsure.into_iter(), words, mode)
            }
            None => unsure,
        };
        let mut bits = BooleanBufferBuilder::new(rows);
        match sure {
            Some(sure) => bits.append_buffer(sure),
            None => bits.append_n(rows, false),
        }
        found.into_iter().for_each(|row| bits.set_bit(row, true));
        Ok((selected.and(bits.finish()), verified))
    }

    /// RowSelection whose search text holds what every match holds; `None` when that is nothing.
    async fn by_search(&self, row_group: usize, predicate: &Predicate) -> Result<Option<BooleanBuffer>, StorageError> {
        let texts = self.reader.search(row_group).await?;
        let texts = texts.as_binary();
        let Some((words, mode)) = predicate.searched() else { return Ok(None) };
        let rows = kernels::contains_words(texts, words, mode);
        let Predicate::Keywords(keywords) = predicate else { return Ok(Some(rows)) };
        let hidden = self.hidden_columns(row_group, keywords).await?;
        // Counting costs more, and most words are in few rows.
        if hidden.is_empty() || rows.count_set_bits() == 0 {
            return Ok(Some(rows));
        }
        let elsewhere = words.iter().map(|word| kernels::contains_besides(texts, &hidden, word));
        Ok(elsewhere.reduce(|one, other| match mode {
            KeywordsMode::Or => &one | &other,
            KeywordsMode::And => &one & &other,
        }))
    }

    /// The texts of shredded columns that a search does not see, such as the origin of every entity, which most
    /// entities share words of. None where they are many: reading all of them would cost more than it saves.
    async fn hidden_columns(&self, row_group: usize, keywords: &Keywords) -> Result<Vec<ArrayRef>, StorageError> {
        const FEW: usize = 4;
        let shredded_columns = self.reader.layout().shredded_columns.iter().enumerate();
        let numbers: Vec<usize> = shredded_columns
            .filter(|(_, shredded)| !keywords.reshape.sees(&shredded.keys))
            .map(|(number, _)| number)
            .collect();
        let mut hidden = Vec::new();
        if numbers.len() <= FEW {
            for number in numbers {
                hidden.extend(self.reader.shredded(row_group, number, ShreddedPart::Text).await?);
            }
        }
        Ok(hidden)
    }

    /// Those of the selected rows that match a predicate by its shredded column.
    async fn by_shredded(
        &self,
        row_group: usize,
        (predicate, shredded): (usize, usize),
        compare: &Compare,
        selected: RowSelection,
    ) -> Result<RowSelection, StorageError> {
        /// Rows by themselves cost more than as many of all rows.
        const ONE_IN: usize = 16;
        let rows = self.reader.row_groups()[row_group].rows;
        if let RowSelection::List(list) = &selected
            && list.len() <= rows / ONE_IN
            && compare.comparison == Comparison::Equal
            && !compare.matches_null()
        {
            let column = EqualColumn::open(&self.reader, row_group, shredded, compare.number().is_some()).await?;
            return Ok(RowSelection::List(column.equal_rows(list.iter().copied(), usize::MAX, compare).await));
        }
        self.indexes.looked_through(predicate, rows as u64);
        Ok(selected.and(self.all_by_shredded(row_group, shredded, compare).await?))
    }

    async fn all_by_shredded(
        &self,
        row_group: usize,
        shredded: usize,
        compare: &Compare,
    ) -> Result<BooleanBuffer, StorageError> {
        if let Some(range) = compare.range() {
            return self.by_range(row_group, shredded, compare, range).await;
        }
        let missing = || StorageError::Layout(format!("indexed column {shredded} has no text"));
        let text = self.reader.shredded(row_group, shredded, ShreddedPart::Text).await?.ok_or_else(missing)?;
        let text = Elements::of(&text);
        let folded = &compare.folded;
        let without_empty = folded.is_empty() && compare.denull;
        if compare.comparison == Comparison::Contains {
            let mut elements = text.text_contains(folded);
            if without_empty {
                elements = &elements & &!&text.text_equals(b"");
            }
            return Ok(text.rows(elements));
        }
        let mut elements = text.text_equals(folded);
        if without_empty {
            elements = BooleanBuffer::new_unset(elements.len());
        }
        if let Some(number) = compare.number()
            && let Some(doubles) = self.reader.shredded(row_group, shredded, ShreddedPart::Number).await?
            && let Some(remainders) = self.reader.shredded(row_group, shredded, ShreddedPart::Remainder).await?
        {
            let equal = Elements::of(&doubles).number_equals(&Elements::of(&remainders), number);
            elements = &elements | &equal;
        }
        if compare.matches_null()
            && self.reader.holds_null(row_group, shredded)
            && let Some(kinds) = self.reader.shredded(row_group, shredded, ShreddedPart::Kind).await?
        {
            elements = &elements | &Elements::of(&kinds).kind_is(ShreddedKind::Null);
        }
        Ok(text.rows(elements))
    }

    /// The selected rows whose documents match, no more than are asked for.
    async fn verify(
        &self,
        row_group: usize,
        selected: RowSelection,
        predicates: &[Unverified<'_>],
    ) -> Result<RowSelection, StorageError> {
        let most = self.fetch.unwrap_or(usize::MAX);
        let (mut tested, mut matching) = (0, Vec::new());
        let end = self.reader.row_groups()[row_group].rows;
        let (mut pages, mut pace) = (Pages::of(&self.reader, row_group, selected.len(), end), Pace::default());
        let mut verifier = Verifier::new(predicates);
        let unsure = |row: &usize| !predicates.iter().all(|unverified| unverified.is_sure_of(*row));
        let mut ahead = PagesAhead::new(self.fetch.is_some());
        for row in selected.iter() {
            if matching.len() >= most {
                break;
            }
            if !unsure(&row) {
                matching.push(row);
                continue;
            }
            tested += 1;
            if pages.are_scattered() {
                let following = || selected.iter().filter(unsure).skip_while(|other| *other <= row);
                let following = || following().map(|row| (row_group, row));
                ahead.reached(&self.reader, &mut pages, (row_group, row), following).await;
            }
            let document = pages.document(row).await?;
            if verifier.matches(row, document, &mut pace).await {
                matching.push(row);
            }
        }
        self.metrics.verified.add(tested, matching.len());
        self.metrics.verified_pages.add(pages.used);
        Ok(RowSelection::List(matching))
    }
}
