//! The scan of a version as an operator of a plan.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::internal_err;
use datafusion::common::stats::Precision;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput, Time};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use strata_format::aux_index::{AuxLookup, ColumnOrder, Firsts, OrderCursor};
use strata_format::reader::{VersionReader, Wanted};
use strata_store::StorageError;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{QueryError, external};
use crate::operator::in_one_partition;
use crate::scan::access::Condition;
use crate::scan::batches::RowGroupOutput;
use crate::scan::dedup_source::GroupSource;
use crate::scan::distinct::DistinctFilter;
use crate::scan::distinct_cache;
use crate::scan::hash_index::HashIndexes;
use crate::scan::keyword_index::KeywordQuestions;
use crate::scan::metrics::{ScanMetrics, timed};
use crate::scan::predicate::Predicate;
use crate::scan::report::{AccessName, ScanUse};
use crate::scan::row_group_scheduler;
use crate::scan::row_selection::RowSelection;
use crate::scan::schema::{Computed, GROUP, POSITION};
use crate::scan::sort_index;
use crate::scan::sort_key::OrderSpec;
use crate::scan::spec::ScanSpec;
use crate::scan::top_k::TopKThreshold;
use crate::tenants::SharedMemory;

/// A sort index is used for selected entities if they are at least this many, and at least this many times as many as
/// are needed. Otherwise sorting them is faster.
const MIN_SELECTED: usize = 4_096;
const MIN_SELECTED_FACTOR: usize = 4;

/// Positions that are processed between two yields.
const YIELD_EVERY_POSITIONS: usize = 1 << 16;

/// A scan of a version. It has one partition, ordered by position.
#[derive(Clone)]
pub struct VersionScan {
    pub(super) spec: ScanSpec,
    pub(super) threads: usize,
    properties: Arc<PlanProperties>,
    /// Rows, bytes and time. The other metrics are in the spec.
    metrics: ExecutionPlanMetricsSet,
}

impl VersionScan {
    /// A scan that returns the columns of `schema` of the entities that match all predicates.
    pub(crate) fn new(
        reader: VersionReader,
        schema: SchemaRef,
        computed: Computed,
        predicates: Vec<Predicate>,
        fetch: Option<usize>,
        threads: usize,
    ) -> VersionScan {
        let mut predicates: Vec<Condition> =
            predicates.into_iter().map(|predicate| Condition::new(&reader, predicate)).collect();
        predicates.sort_by_key(Condition::rank);
        let ordering = schema.index_of(POSITION).ok().map(|index| {
            let position: Arc<dyn PhysicalExpr> = Arc::new(Column::new(POSITION, index));
            [PhysicalSortExpr::new(position, SortOptions { descending: false, nulls_first: false })]
        });
        let equivalence = EquivalenceProperties::new_with_orderings(schema.clone(), ordering);
        let properties = in_one_partition(equivalence);
        let spec = ScanSpec {
            range: 0..reader.entity_count(),
            part: None,
            keywords: KeywordQuestions::new(&reader, &predicates).map(Arc::new),
            indexes: HashIndexes::default(),
            reader,
            schema,
            metrics: Arc::new(ScanMetrics::new(&predicates)),
            predicates: predicates.into(),
            fetch,
            threshold: None,
            distinct: false,
            computed,
            group_source: None,
            distinct_filter: None,
        };
        VersionScan { spec, threads: threads.max(1), properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    fn changed(&self, change: impl FnOnce(&mut ScanSpec)) -> VersionScan {
        let mut scan = self.clone();
        change(&mut scan.spec);
        scan
    }

    /// The same scan, which can leave out rows that are not among the first `k` of the order.
    pub(crate) fn with_top_k(&self, k: usize) -> VersionScan {
        self.changed(|spec| spec.threshold = spec.computed.order.is_some().then(|| Arc::new(TopKThreshold::new(k))))
    }

    /// The same scan, which can leave out rows that are not the first of their group.
    pub(crate) fn with_distinct(&self) -> VersionScan {
        self.changed(|spec| spec.distinct = spec.computed.group.is_some())
    }

    /// A partial scan of these positions in these row groups, ascending, with its own metrics and threshold. It does
    /// not use cached indexes of the whole version.
    pub(super) fn with_row_groups(&self, range: Range<u64>, part: Arc<[usize]>) -> VersionScan {
        let scan = self.changed(|spec| {
            spec.range = range;
            spec.part = Some(part);
            spec.metrics = Arc::new(ScanMetrics::new(&spec.predicates));
            spec.threshold = spec.threshold.as_ref().map(|threshold| Arc::new(TopKThreshold::new(threshold.k)));
        });
        VersionScan { metrics: ExecutionPlanMetricsSet::new(), ..scan }
    }

    /// The number of entities after which the scan ends.
    pub fn most(&self) -> Option<usize> {
        self.spec.fetch
    }

    /// A plan that skips rows of this scan and returns at most `fetch` others.
    pub(crate) fn with_limit(&self, skip: usize, fetch: Option<usize>) -> Arc<dyn ExecutionPlan> {
        let mut scan = self.clone();
        let spec = &mut scan.spec;
        if spec.predicates.is_empty() {
            let end = match spec.fetch {
                Some(most) => spec.range.end.min(spec.range.start.saturating_add(most as u64)),
                None => spec.range.end,
            };
            let start = spec.range.start.saturating_add(skip as u64).min(end);
            let length = fetch.map_or(u64::MAX, |fetch| fetch as u64);
            spec.range = start..end.min(start.saturating_add(length));
            spec.fetch = None;
            return Arc::new(scan);
        }
        if let Some(fetch) = fetch {
            let most = skip.saturating_add(fetch);
            spec.fetch = Some(spec.fetch.map_or(most, |before| before.min(most)));
        }
        let scan = Arc::new(scan);
        if skip == 0 && (fetch.is_none() || scan.spec.fetch == fetch) {
            return scan;
        }
        Arc::new(GlobalLimitExec::new(scan, skip, fetch))
    }

    pub(crate) fn used(&self) -> ScanUse {
        self.spec.used(self.metrics.clone_inner().output_rows().unwrap_or_default() as u64)
    }
}

impl fmt::Debug for VersionScan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("VersionScan").field("reader", &self.spec.reader).finish_non_exhaustive()
    }
}

impl DisplayAs for VersionScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScanSpec { range, fetch, threshold, distinct, predicates, .. } = &self.spec;
        write!(formatter, "VersionScan: positions={}..{}", range.start, range.end)?;
        if let Some(part) = &self.spec.part {
            write!(formatter, ", row_groups={}", part.len())?;
        }
        if let Some(fetch) = fetch {
            write!(formatter, ", fetch={fetch}")?;
        }
        if let Some(threshold) = threshold {
            write!(formatter, ", first={}", threshold.k)?;
        }
        if *distinct {
            write!(formatter, ", distinct")?;
        }
        predicates.iter().try_for_each(|condition| write!(formatter, ", {condition}"))
    }
}

impl ExecutionPlan for VersionScan {
    fn name(&self) -> &'static str {
        "VersionScan"
    }

    crate::leaf!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("VersionScan has only one partition");
        }
        let measured = BaselineMetrics::new(&self.metrics, partition);
        let wanted = self.spec.wanted();
        let reader = self.spec.reader.reading_ahead(wanted.clone());
        let running = Running {
            spec: ScanSpec { reader, ..self.spec.clone() },
            wanted: Arc::new(wanted),
            threads: self.threads,
            time: measured.elapsed_compute().clone(),
            memory: MemoryConsumer::new("VersionScan").register(context.memory_pool()),
            shared_memory: SharedMemory::register(&context, "hash index"),
        };
        let batches = futures::stream::once(running.batches()).try_flatten();
        let fetch = self.spec.fetch;
        let mut given = 0;
        let time = measured.elapsed_compute().clone();
        let batches = batches.map_ok(move |given| given.batches(&time)).try_flatten();
        let batches = batches.try_filter(|batch| futures::future::ready(batch.num_rows() > 0));
        let batches = batches.map_ok(move |batch| {
            let rows = fetch.map_or(batch.num_rows(), |fetch| batch.num_rows().min(fetch - given));
            given += rows;
            (batch.slice(0, rows).record_output(&measured), fetch.is_some_and(|fetch| given >= fetch))
        });
        // Ends with the batch that completes the fetch, without polling again.
        let batches = futures::stream::unfold(Some(Box::pin(batches)), |stream| async move {
            let mut stream = stream?;
            match stream.next().await? {
                Ok((batch, true)) => Some((Ok(batch), None)),
                Ok((batch, false)) => Some((Ok(batch), Some(stream))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.spec.schema.clone(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.spec.schema);
        let ScanSpec { predicates, fetch, range, .. } = &self.spec;
        if predicates.is_empty() && fetch.is_none() {
            statistics.num_rows = Precision::Exact((range.end - range.start) as usize);
        }
        Ok(Arc::new(statistics))
    }
}

struct Running {
    spec: ScanSpec,
    wanted: Arc<Wanted>,
    threads: usize,
    time: Time,
    memory: MemoryReservation,
    /// For indexes that all tenants use. No tenant is charged.
    shared_memory: MemoryReservation,
}

type Batches = BoxStream<'static, Result<RowGroupOutput>>;

impl Running {
    /// The rows of the scan, from cached indexes if they contain them, otherwise from row groups.
    async fn batches(mut self) -> Result<Batches> {
        // Keys from cached indexes are comparable only on this node, so partial scans do not use them.
        if self.spec.part.is_none() {
            self.probe_hash_indexes().await;
            if let Some(batches) = Box::pin(self.first_of_groups()).await? {
                return Ok(batches);
            }
            if let Some(batches) = Box::pin(self.first_of_order()).await? {
                return Ok(batches);
            }
        } else if let Some(groups) = self.spec.computed.group.as_ref().filter(|_| self.spec.gives(GROUP)) {
            let source = GroupSource::open(&self.spec.reader, groups, None, &self.memory).await.map_err(external)?;
            let _ = self.spec.metrics.group_source.set(source.source());
            self.spec.group_source = Some(Arc::new(source));
        }
        let row_groups = self.spec.best_first().await;
        let work = |spec: Arc<ScanSpec>, row_group, min_rank| async move {
            if spec.is_beyond_threshold(row_group, min_rank) {
                return Ok(RowGroupOutput::default());
            }
            spec.row_group(row_group).await
        };
        Ok(self.on_row_groups(row_groups.into_iter(), self.spec.is_cheap(), |given| given.entities, work))
    }

    async fn probe_hash_indexes(&mut self) {
        let spec = &mut self.spec;
        spec.indexes = HashIndexes::probe_all(&spec.reader, &spec.predicates, &self.memory, &self.shared_memory).await;
        if let Some(candidates) = &spec.indexes.candidates {
            spec.metrics.record(|scan| {
                let used = scan.predicates.iter_mut().enumerate().filter(|(number, _)| candidates.include(*number));
                used.for_each(|(_, used)| used.access = AccessName::HashIndex);
            });
        }
    }

    /// Decides where the keys of groups come from. Returns the first entities of all groups, if the cache contains
    /// them.
    async fn first_of_groups(&mut self) -> Result<Option<Batches>> {
        let Some(groups) = self.spec.computed.group.clone().filter(|_| self.spec.gives(GROUP)) else {
            return Ok(None);
        };
        let finds_all = self.spec.finds_all_firsts();
        if finds_all && let Some(firsts) = distinct_cache::lookup(&self.spec.reader, &groups).await {
            let _ = self.spec.metrics.group_source.set(AccessName::KeptSet);
            return Ok(Some(self.first_entities(firsts)));
        }
        let open = async {
            let may_read = self.spec.may_read_for_codes().await?;
            GroupSource::open(&self.spec.reader, &groups, Some(may_read), &self.memory).await
        };
        let source = Arc::new(timed(&self.time, Box::pin(open)).await.map_err(external)?);
        let _ = self.spec.metrics.group_source.set(source.source());
        self.spec.group_source = Some(source.clone());
        let codes = source.codes();
        if finds_all {
            let row_groups = self.spec.row_groups().map(|row_group| (row_group, ()));
            let all_keys = |spec: Arc<ScanSpec>, row_group, ()| async move { spec.all_keys(row_group).await };
            let keys = self.on_row_groups(row_groups, false, |_| 0, all_keys).map_err(storage_error);
            let found = distinct_cache::build(&self.spec.reader, &groups, codes, keys, &self.memory);
            if let Some(firsts) = found.await.map_err(external)? {
                return Ok(Some(self.first_entities(firsts)));
            }
        }
        if self.spec.distinct
            && let Some(codes) = source.codes()
        {
            self.spec.distinct_filter = Some(Arc::new(DistinctFilter::new(&codes, self.memory.new_empty())));
        }
        Ok(None)
    }

    /// The first entities of groups, by position.
    fn first_entities(&self, firsts: Arc<Firsts>) -> Batches {
        let spec = self.spec.clone();
        let entities = usize::try_from(spec.reader.entity_count()).unwrap_or(usize::MAX);
        spec.metrics.distinct.add(entities - firsts.count());
        let batches = futures::stream::iter((0..entities).step_by(YIELD_EVERY_POSITIONS)).then(move |start| {
            let batch = spec.known(&firsts.within(start..start.saturating_add(YIELD_EVERY_POSITIONS)), start);
            async move {
                tokio::task::yield_now().await;
                batch.map(RowGroupOutput::from)
            }
        });
        batches.boxed()
    }

    async fn first_of_order(&self) -> Result<Option<Batches>> {
        let spec = &self.spec;
        let (Some(threshold), Some(order)) = (&spec.threshold, &spec.computed.order) else { return Ok(None) };
        if spec.fetch.is_some() || spec.gives(GROUP) {
            return Ok(None);
        }
        let k = threshold.k;
        if spec.is_whole() {
            let Some(index) = Box::pin(self.built_order(order)).await? else { return Ok(None) };
            spec.metrics.top_k.add(index.count().saturating_sub(k));
            return Ok(Some(self.in_order(OrderCursor::new(index, order.descending), k, None)));
        }
        // It is not worthwhile to build an index here, because the conditions must be evaluated anyway.
        let Some(index) = sort_index::lookup(&spec.reader, order).await.hit() else { return Ok(None) };
        let reserved = self.memory.new_empty();
        if reserved.try_grow(index.count() / 8 + 1).is_err() {
            return Ok(None);
        }
        let row_groups = spec.row_groups_left().into_iter().map(|row_group| (row_group, ()));
        let select =
            |spec: Arc<ScanSpec>, row_group, ()| async move { Ok((row_group, spec.selection(row_group).await?)) };
        let mut selections = self.on_row_groups(row_groups, false, |_| 0, select);
        let mut bits = BooleanBufferBuilder::new(index.count());
        while let Some((row_group, selection)) = selections.try_next().await? {
            let first = spec.reader.row_groups()[row_group].first as usize;
            bits.append_n(first.saturating_sub(bits.len()), false);
            selection.append_to(&mut bits, spec.reader.row_groups()[row_group].rows);
        }
        bits.append_n(index.count().saturating_sub(bits.len()), false);
        let bits = bits.build();
        let selected = bits.count_set_bits();
        if selected >= MIN_SELECTED.max(k.saturating_mul(MIN_SELECTED_FACTOR)) {
            spec.metrics.top_k.add(selected - k);
            return Ok(Some(self.in_order(OrderCursor::new(index, order.descending), k, Some((bits, reserved)))));
        }
        let rows_of = |row_group: usize| {
            let group = spec.reader.row_groups()[row_group];
            (row_group, bits.slice(group.first as usize, group.rows))
        };
        let row_groups: Vec<(usize, BooleanBuffer)> =
            spec.row_groups().map(rows_of).filter(|(_, rows)| rows.count_set_bits() > 0).collect();
        let batches = |spec: Arc<ScanSpec>, row_group, rows| async move {
            spec.selected_batches(row_group, RowSelection::Bits(rows)).await
        };
        Ok(Some(self.on_row_groups(row_groups.into_iter(), false, |given| given.entities, batches)))
    }

    /// The sort index, built if the cache does not contain it.
    async fn built_order(&self, order: &OrderSpec) -> Result<Option<Arc<ColumnOrder>>> {
        let reader = &self.spec.reader;
        match sort_index::lookup(reader, order).await {
            AuxLookup::Miss => {}
            found => return Ok(found.hit()),
        }
        let by = Arc::new(order.clone());
        let row_groups = self.spec.row_groups().map(|row_group| (row_group, ()));
        let ranked_column = move |spec: Arc<ScanSpec>, row_group, ()| {
            let by = by.clone();
            async move { sort_index::ranked_column(&spec.reader, row_group, &by).await.map_err(external) }
        };
        let columns = self.on_row_groups(row_groups, false, |_| 0, ranked_column).map_err(storage_error).boxed();
        Ok(sort_index::build(reader, order, columns, &self.memory, &self.time).await.map_err(external)?.hit())
    }

    /// The first `k` of an order, or its first `k` selected entities.
    fn in_order(&self, cursor: OrderCursor, k: usize, selected: Option<(BooleanBuffer, MemoryReservation)>) -> Batches {
        let _ = self.spec.metrics.order_source.set(AccessName::KeptOrder);
        let spec = self.spec.clone();
        let batches = futures::stream::try_unfold((cursor, 0), move |(mut cursor, before)| {
            let step = if selected.is_some() { YIELD_EVERY_POSITIONS } else { YIELD_EVERY_POSITIONS.min(k - before) };
            let mut visited = 0;
            let positions = cursor.by_ref().take(step).inspect(|_| visited += 1);
            let is_selected = |position: &u32| match &selected {
                Some((bits, _)) => bits.value(*position as usize),
                None => true,
            };
            let positions: Vec<u64> = positions.filter(is_selected).take(k - before).map(u64::from).collect();
            let batch = (visited > 0).then(|| spec.known(&positions, before));
            async move {
                tokio::task::yield_now().await;
                let count = before + positions.len();
                batch.map(|batch| Ok((RowGroupOutput::from(batch?), (cursor, count)))).transpose()
            }
        });
        batches.boxed()
    }

    /// Runs work on several row groups and returns the results in order. `found` counts the entities of a result.
    fn on_row_groups<I, T, F>(
        &self,
        row_groups: impl ExactSizeIterator<Item = (usize, I)> + Send + 'static,
        is_cheap: bool,
        found: fn(&T) -> usize,
        work: impl Fn(Arc<ScanSpec>, usize, I) -> F + Clone + Send + 'static,
    ) -> BoxStream<'static, Result<T>>
    where
        I: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let alone = row_groups.len() == 1 || self.threads == 1 || is_cheap;
        let threads = if alone { 1 } else { self.threads };
        // The best row groups of an order exclude the others. With predicates, their number is unknown.
        let threshold = self.spec.threshold.as_ref().filter(|_| self.spec.predicates.is_empty());
        let entities = self.spec.fetch.or(threshold.map(|threshold| threshold.k));
        let shared = row_group_scheduler::Shared::new(threads, entities);
        let spec = Arc::new(self.spec.clone());
        let time = self.time.clone();
        let sizes = spec.clone();
        let wanted = self.wanted.clone();
        let row_groups = row_groups.map(move |(row_group, input)| {
            let bytes = sizes.row_group_bytes(row_group, &wanted);
            ((row_group, input), bytes)
        });
        let worked = row_group_scheduler::in_order(shared.clone(), row_groups, move |(row_group, input), progress| {
            let time = time.clone();
            let reader = spec.reader.clone();
            // Boxed, because it is large and moves several times.
            let work = Box::pin(work(spec.clone(), row_group, input));
            let work = async move {
                let work = async {
                    let outcome = timed(&time, work).await?;
                    progress.found(found(&outcome));
                    Ok(outcome)
                };
                progress.run(|| reader.waits_for_store(), work).await
            };
            let alone = alone || shared.are_threads_taken();
            async move {
                if alone {
                    return work.await;
                }
                // Stops the work if the query ends early.
                let task = tokio::spawn(work);
                AbortOnDropHandle::new(task).await.map_err(|error| DataFusionError::External(Box::new(error)))?
            }
        });
        worked.boxed()
    }
}

fn storage_error(error: DataFusionError) -> StorageError {
    match QueryError::from(error) {
        QueryError::Storage(error) => error,
        _ => StorageError::Worker,
    }
}
