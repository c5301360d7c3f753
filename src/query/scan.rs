//! The scan of a version: row groups pruned, predicates evaluated, positions given in order.
//!
//! Row groups are worked on several at once and given in order. Within one, predicates run from cheap to dear:
//! leaves select rows, the search text selects rows that may match, and documents are read only for rows that
//! are still selected and only when a predicate needs them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryBuilder, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::internal_err;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt};
use tokio_util::task::AbortOnDropHandle;

use super::access::{self, Access};
use super::columns::{GroupKeys, OrderKeys, SortLeaf};
use super::documents::Pages;
use super::engine::BATCH_ROWS;
use super::error::through_engine;
use super::kernels::{self, Elements};
use super::predicate::{Compare, Comparison, Keywords, Predicate};
use super::rows::{First, Rows};
use super::table::{Computed, DOCUMENT, GROUP, ORDER, POSITION};
use crate::metrics::metrics;
use crate::model::request::KeywordsMode;
use crate::storage::StorageError;
use crate::storage::layout::{Kind, LeafColumn};
use crate::storage::reader::VersionReader;

/// A scan of one version. One partition, in order of position.
#[derive(Clone)]
pub struct VersionScan {
    reader: VersionReader,
    schema: SchemaRef,
    /// With the way each is answered, cheapest first.
    predicates: Arc<[(Access, Predicate)]>,
    /// Positions looked at.
    range: Range<u64>,
    /// Most entities given.
    fetch: Option<usize>,
    /// Only what may be among the first of the order is wanted.
    first: Option<Arc<First>>,
    computed: Computed,
    threads: usize,
    properties: Arc<PlanProperties>,
}

impl VersionScan {
    /// A scan that gives `schema`'s columns of the entities that match all predicates.
    pub fn new(
        reader: VersionReader,
        schema: SchemaRef,
        computed: Computed,
        predicates: Vec<Predicate>,
        fetch: Option<usize>,
        threads: usize,
    ) -> VersionScan {
        let mut predicates: Vec<(Access, Predicate)> =
            predicates.into_iter().map(|predicate| (access::choose(reader.layout(), &predicate), predicate)).collect();
        predicates.sort_by_key(|(access, _)| *access);
        let ordering = schema.index_of(POSITION).ok().map(|index| {
            let position: Arc<dyn PhysicalExpr> = Arc::new(Column::new(POSITION, index));
            [PhysicalSortExpr::new(position, SortOptions { descending: false, nulls_first: false })]
        });
        let equivalence = EquivalenceProperties::new_with_orderings(schema.clone(), ordering);
        let properties = PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        VersionScan {
            range: 0..reader.entity_count(),
            reader,
            schema,
            predicates: predicates.into(),
            fetch,
            first: None,
            computed,
            threads: threads.max(1),
            properties: Arc::new(properties),
        }
    }

    /// The same scan without rows that cannot be among the first `most` of the order; others may be there, too.
    pub fn with_first(&self, most: usize) -> VersionScan {
        let first = self.computed.order.is_some().then(|| Arc::new(First::new(most)));
        VersionScan { first, ..self.clone() }
    }

    /// The plan that gives the rows of this scan from the `skip`-th on, `fetch` at most.
    pub fn windowed(&self, skip: usize, fetch: Option<usize>) -> Arc<dyn ExecutionPlan> {
        let mut scan = self.clone();
        if self.predicates.is_empty() {
            let end = match self.fetch {
                Some(most) => self.range.end.min(self.range.start.saturating_add(most as u64)),
                None => self.range.end,
            };
            let start = self.range.start.saturating_add(skip as u64).min(end);
            let length = fetch.map_or(u64::MAX, |fetch| fetch as u64);
            scan.range = start..end.min(start.saturating_add(length));
            scan.fetch = None;
            return Arc::new(scan);
        }
        if let Some(fetch) = fetch {
            let most = skip.saturating_add(fetch);
            scan.fetch = Some(self.fetch.map_or(most, |before| before.min(most)));
        }
        let scan = Arc::new(scan);
        if skip == 0 && (fetch.is_none() || scan.fetch == fetch) {
            return scan;
        }
        Arc::new(datafusion::physical_plan::limit::GlobalLimitExec::new(scan, skip, fetch))
    }

    /// The rows of a row group that lie in the range.
    fn rows(&self, row_group: usize) -> Range<usize> {
        let group = self.reader.row_groups()[row_group];
        let within = |position: u64| (position.saturating_sub(group.first) as usize).min(group.rows);
        within(self.range.start)..within(self.range.end)
    }

    /// The row groups that the range touches.
    fn row_groups(&self) -> Range<usize> {
        if self.range.is_empty() || self.fetch == Some(0) {
            return 0..0;
        }
        self.reader.row_group_of(self.range.start)..self.reader.row_group_of(self.range.end - 1) + 1
    }

    /// What the scan gives of one row group.
    async fn row_group(&self, row_group: usize) -> Result<Vec<RecordBatch>> {
        // Cancelling takes effect between row groups, even when nothing has to be waited for.
        tokio::task::consume_budget().await;
        let rows = self.rows(row_group);
        let mut selected = self.select(row_group, rows).await.map_err(through_engine)?;
        if let (Some(first), Some(order)) = (&self.first, &self.computed.order) {
            let leaf = SortLeaf::open(&self.reader, row_group, order).await.map_err(through_engine)?;
            if let Some(leaf) = leaf
                && let ranks = leaf.ranks(order)
                && !ranks.undecided
            {
                let compare = |one, other| leaf.compare(order, one, other);
                selected = Rows::List(first.among(&selected, &ranks.ranks, compare));
            }
        }
        self.batches(row_group, &selected).await
    }

    async fn select(&self, row_group: usize, rows: Range<usize>) -> Result<Rows, StorageError> {
        let mut selected = Rows::Range(rows);
        for (access, predicate) in self.predicates.iter() {
            if !access::may_match(&self.reader, row_group, predicate, *access).await? {
                metrics().pruned_rows.increment(selected.len() as u64);
                metrics().pruned_bytes.increment(self.reader.stored_bytes(row_group));
                return Ok(Rows::Range(0..0));
            }
        }
        metrics().scanned_rows.increment(selected.len() as u64);
        let mut unverified: Vec<&Predicate> = Vec::new();
        for (access, predicate) in self.predicates.iter() {
            if selected.is_empty() {
                return Ok(selected);
            }
            match (access, predicate) {
                (Access::Leaf(leaf), Predicate::Compare(compare)) => {
                    selected = selected.and(self.by_leaf(row_group, *leaf, compare).await?);
                }
                (Access::Search | Access::SearchThenDocuments, _) => {
                    if let Some(rows) = self.by_search(row_group, predicate).await? {
                        selected = selected.and(rows);
                    }
                    if *access != Access::Search {
                        unverified.push(predicate);
                    }
                }
                _ => unverified.push(predicate),
            }
        }
        if unverified.is_empty() {
            return Ok(selected.truncated(self.fetch));
        }
        self.verify(row_group, selected, &unverified).await
    }

    /// Rows whose search text holds what every match holds; `None` when that is nothing.
    async fn by_search(&self, row_group: usize, predicate: &Predicate) -> Result<Option<BooleanBuffer>, StorageError> {
        let texts = self.reader.search(row_group).await?;
        let texts = texts.as_binary();
        match predicate {
            Predicate::Compare(compare) => Ok(access::needle(compare).map(|needle| kernels::contains(texts, &needle))),
            Predicate::Keywords(keywords) => {
                let rows = kernels::contains_words(texts, keywords.folded(), keywords.mode());
                let hidden = self.hidden_leaves(row_group, keywords).await?;
                // Counting costs more, and most words are in few rows.
                if hidden.is_empty() || rows.count_set_bits() == 0 {
                    return Ok(Some(rows));
                }
                let elsewhere = keywords.folded().iter().map(|word| kernels::contains_besides(texts, &hidden, word));
                Ok(elsewhere.reduce(|one, other| match keywords.mode() {
                    KeywordsMode::Or => &one | &other,
                    KeywordsMode::And => &one & &other,
                }))
            }
        }
    }

    /// The texts of leaves that a search does not see, such as the origin of every entity, which most entities share
    /// words of. None where they are many: reading all of them would cost more than it saves.
    async fn hidden_leaves(&self, row_group: usize, keywords: &Keywords) -> Result<Vec<ArrayRef>, StorageError> {
        /// How many are few.
        const FEW: usize = 4;
        let leaves = self.reader.layout().leaves.iter().enumerate();
        let numbers: Vec<usize> =
            leaves.filter(|(_, leaf)| !keywords.reshape().sees(&leaf.keys)).map(|(number, _)| number).collect();
        let mut hidden = Vec::new();
        if numbers.len() <= FEW {
            for number in numbers {
                hidden.extend(self.reader.leaf(row_group, number, LeafColumn::Text).await?);
            }
        }
        Ok(hidden)
    }

    /// Rows that match by a leaf.
    async fn by_leaf(&self, row_group: usize, leaf: usize, compare: &Compare) -> Result<BooleanBuffer, StorageError> {
        let missing = || StorageError::Layout(format!("leaf {leaf} has no text"));
        let text = self.reader.leaf(row_group, leaf, LeafColumn::Text).await?.ok_or_else(missing)?;
        let text = Elements::of(&text);
        let folded = compare.folded();
        let without_empty = folded.is_empty() && compare.ignores_empty();
        if compare.comparison() == Comparison::Contains {
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
            && let Some(doubles) = self.reader.leaf(row_group, leaf, LeafColumn::Number).await?
            && let Some(remainders) = self.reader.leaf(row_group, leaf, LeafColumn::Remainder).await?
        {
            let equal = Elements::of(&doubles).number_equals(&Elements::of(&remainders), number);
            elements = &elements | &equal;
        }
        if compare.matches_null()
            && self.reader.holds_null(row_group, leaf)
            && let Some(kinds) = self.reader.leaf(row_group, leaf, LeafColumn::Kind).await?
        {
            elements = &elements | &Elements::of(&kinds).kind_is(Kind::Null);
        }
        Ok(text.rows(elements))
    }

    /// The selected rows whose documents match, no more than are asked for.
    async fn verify(&self, row_group: usize, selected: Rows, predicates: &[&Predicate]) -> Result<Rows, StorageError> {
        let most = self.fetch.unwrap_or(usize::MAX);
        let mut matching = Vec::new();
        let mut pages = self.pages(row_group, &selected);
        for row in selected.iter() {
            if matching.len() >= most {
                break;
            }
            let document = pages.document(row).await?;
            if predicates.iter().all(|predicate| predicate.matches(document)) {
                matching.push(row);
            }
        }
        Ok(Rows::List(matching))
    }

    fn pages(&self, row_group: usize, selected: &Rows) -> Pages<'_> {
        let end = self.reader.row_groups()[row_group].rows;
        Pages::of(&self.reader, row_group, selected.len(), end)
    }

    /// The schema's columns of the selected rows, in batches that keep nothing alive but themselves: what sorts and
    /// aggregates hold is accounted by batch.
    async fn batches(&self, row_group: usize, selected: &Rows) -> Result<Vec<RecordBatch>> {
        let first = self.reader.row_groups()[row_group].first;
        if let Rows::Range(rows) = selected
            && self.schema.fields().iter().all(|field| field.name() == POSITION)
        {
            let positions = UInt64Array::from_iter_values(first + rows.start as u64..first + rows.end as u64);
            let columns = self.schema.fields().iter().map(|_| Arc::new(positions.clone()) as ArrayRef).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            return Ok(vec![RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?]);
        }
        let rows: Vec<usize> = selected.iter().collect();
        let order = match &self.computed.order {
            Some(spec) if self.gives(ORDER) => Some(OrderKeys::open(&self.reader, row_group, rows.len(), spec).await),
            _ => None,
        };
        let group = match &self.computed.group {
            Some(spec) if self.gives(GROUP) => Some(GroupKeys::open(&self.reader, row_group, rows.len(), spec).await),
            _ => None,
        };
        let (mut order, mut group) =
            (order.transpose().map_err(through_engine)?, group.transpose().map_err(through_engine)?);
        let mut pages = self.pages(row_group, selected);
        let mut batches = Vec::with_capacity(rows.len().div_ceil(BATCH_ROWS));
        for rows in rows.chunks(BATCH_ROWS) {
            let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
            for field in self.schema.fields() {
                columns.push(match (field.name().as_str(), &mut order, &mut group) {
                    (POSITION, _, _) => {
                        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| first + *row as u64)))
                    }
                    (DOCUMENT, _, _) => {
                        let mut documents = BinaryBuilder::new();
                        for row in rows {
                            documents.append_value(pages.document(*row).await.map_err(through_engine)?);
                        }
                        Arc::new(documents.finish())
                    }
                    (ORDER, Some(order), _) => order.keys(rows).await.map_err(through_engine)?,
                    (GROUP, _, Some(group)) => group.keys(rows).await.map_err(through_engine)?,
                    (other, _, _) => return internal_err!("a version has no column {other}"),
                });
            }
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            batches.push(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?);
        }
        Ok(batches)
    }

    fn gives(&self, column: &str) -> bool {
        self.schema.fields().iter().any(|field| field.name() == column)
    }
}

impl fmt::Debug for VersionScan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("VersionScan").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl DisplayAs for VersionScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "VersionScan: positions={}..{}", self.range.start, self.range.end)?;
        if let Some(fetch) = self.fetch {
            write!(formatter, ", fetch={fetch}")?;
        }
        if let Some(first) = &self.first {
            write!(formatter, ", first={}", first.most())?;
        }
        for (access, predicate) in self.predicates.iter() {
            match access {
                Access::Leaf(leaf) => write!(formatter, ", {predicate} by leaf {leaf}")?,
                Access::Search => write!(formatter, ", {predicate} by search text")?,
                Access::SearchThenDocuments => write!(formatter, ", {predicate} by search text and documents")?,
                Access::Documents => write!(formatter, ", {predicate} by documents")?,
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for VersionScan {
    fn name(&self) -> &'static str {
        "VersionScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of a version has no children") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of a version has no children") }
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("a scan of a version has one partition");
        }
        let row_groups = self.row_groups();
        // Positions alone cost nothing.
        let cheap = self.predicates.is_empty() && self.schema.fields().iter().all(|field| field.name() == POSITION);
        let alone = row_groups.len() == 1 || self.threads == 1 || cheap;
        let threads = if alone { 1 } else { self.threads };
        let scan = Arc::new(self.clone());
        let batches = futures::stream::iter(row_groups)
            .map(move |row_group| {
                let scan = scan.clone();
                async move {
                    if alone {
                        return scan.row_group(row_group).await;
                    }
                    // Dropped when the query ends early, which stops the work.
                    let task = tokio::spawn(async move { scan.row_group(row_group).await });
                    AbortOnDropHandle::new(task)
                        .await
                        .map_err(|error| datafusion::error::DataFusionError::External(Box::new(error)))?
                }
            })
            .buffered(threads);
        let fetch = self.fetch;
        let mut given = 0;
        let batches = batches.map_ok(|batches| futures::stream::iter(batches.into_iter().map(Ok))).try_flatten();
        let batches = batches.try_filter(|batch| futures::future::ready(batch.num_rows() > 0));
        let batches = batches.map_ok(move |batch| {
            let rows = fetch.map_or(batch.num_rows(), |fetch| batch.num_rows().min(fetch - given));
            given += rows;
            (batch.slice(0, rows), fetch.is_some_and(|fetch| given >= fetch))
        });
        // Ends with the batch that fills the fetch, without asking for another.
        let batches = futures::stream::unfold(Some(Box::pin(batches)), |stream| async move {
            let mut stream = stream?;
            match stream.next().await? {
                Ok((batch, true)) => Some((Ok(batch), None)),
                Ok((batch, false)) => Some((Ok(batch), Some(stream))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        if self.predicates.is_empty() && self.fetch.is_none() {
            statistics.num_rows = Precision::Exact((self.range.end - self.range.start) as usize);
        }
        Ok(Arc::new(statistics))
    }
}
