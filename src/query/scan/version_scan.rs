//! The operator that scans a version.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{Statistics, internal_err};
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
use strata_format::aux_index::{AuxLookup, ColumnSortIndex, GroupRepresentatives, SortIndexCursor};
use strata_format::reader::{PrefetchPlan, VersionReader};
use strata_store::StorageError;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{QueryError, to_external_error};
use crate::principal_quota::UnchargedMemory;
use crate::scan::access_path::PlannedPredicate;
use crate::scan::dedup_key_source::DedupKeySource;
use crate::scan::distinct_filter::DistinctFilter;
use crate::scan::hash_index::HashIndexResults;
use crate::scan::keyword_index::KeywordIndexQueries;
use crate::scan::predicate::Predicate;
use crate::scan::row_group_output::RowGroupOutput;
use crate::scan::row_selection::RowSelection;
use crate::scan::scan_columns::{ComputedColumns, GROUP_COLUMN, POSITION_COLUMN};
use crate::scan::scan_metrics::{ScanMetrics, with_busy_timer};
use crate::scan::scan_report::{AccessPath, ScanReport};
use crate::scan::scan_spec::ScanSpec;
use crate::scan::sort_key::{OrderSpec, RankBounds};
use crate::scan::top_k_threshold::TopKThreshold;
use crate::scan::{distinct_cache, row_group_scheduler, sort_index, sort_key};
use crate::unary_exec::single_partition_properties;

/// A sort index orders the selected entities if they are at least this many, and at least this many times the limit.
/// Fewer entities are sorted directly, which is faster.
const MIN_SORT_INDEX_ENTITIES: usize = 4_096;
const MIN_SORT_INDEX_FACTOR: usize = 4;
const YIELD_EVERY_POSITIONS: usize = 1 << 16;

#[derive(Clone)]
pub struct VersionScan {
    pub(super) spec: ScanSpec,
    pub(super) threads: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl VersionScan {
    pub(crate) fn new(
        reader: VersionReader,
        schema: SchemaRef,
        computed: ComputedColumns,
        predicates: Vec<Predicate>,
        fetch: Option<usize>,
        threads: usize,
    ) -> VersionScan {
        let mut predicates: Vec<PlannedPredicate> =
            predicates.into_iter().map(|predicate| PlannedPredicate::new(&reader, predicate)).collect();
        predicates.sort_by_key(|planned| (planned.access_path, planned.indexed_column_number));
        let ordering = schema.index_of(POSITION_COLUMN).ok().map(|index| {
            let position: Arc<dyn PhysicalExpr> = Arc::new(Column::new(POSITION_COLUMN, index));
            [PhysicalSortExpr::new(position, SortOptions { descending: false, nulls_first: false })]
        });
        let equivalence = EquivalenceProperties::new_with_orderings(schema.clone(), ordering);
        let properties = single_partition_properties(equivalence);
        let shared_prefix_bytes =
            computed.order.as_ref().map_or(0, |order| sort_key::shared_prefix_bytes(&reader, &order.field));
        let spec = ScanSpec {
            position_range: 0..reader.entity_count(),
            partial_row_groups: None,
            keyword_queries: KeywordIndexQueries::new(&reader, &predicates, |_| true).map(Arc::new),
            hash_indexes: HashIndexResults::default(),
            reader,
            schema,
            metrics: Arc::new(ScanMetrics::new(&predicates)),
            predicates: predicates.into(),
            fetch,
            top_k_threshold: None,
            shared_prefix_bytes,
            sort_scan_counter: None,
            is_distinct: false,
            computed,
            dedup_key_source: None,
            distinct_filter: None,
        };
        VersionScan { spec, threads: threads.max(1), properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    fn with_changed_spec(&self, change: impl FnOnce(&mut ScanSpec)) -> VersionScan {
        let mut scan = self.clone();
        change(&mut scan.spec);
        scan
    }

    /// Returns a scan that can skip rows that are not among the first `k` of the sort order.
    pub(crate) fn with_top_k(&self, k: usize) -> VersionScan {
        self.with_changed_spec(|spec| {
            spec.top_k_threshold = spec.computed.order.is_some().then(|| Arc::new(TopKThreshold::new(k)))
        })
    }

    /// Returns a scan that can skip rows that are not the first of their `dedup` group.
    pub(crate) fn with_distinct(&self) -> VersionScan {
        self.with_changed_spec(|spec| spec.is_distinct = spec.computed.group.is_some())
    }

    /// Returns a partial scan of these positions in these row groups, ascending, with its own metrics and threshold. It
    /// does not use cached indexes of the whole version.
    pub(super) fn with_row_groups(&self, range: Range<u64>, row_groups: Arc<[usize]>) -> VersionScan {
        let scan = self.with_changed_spec(|spec| {
            spec.position_range = range;
            spec.partial_row_groups = Some(row_groups);
            spec.metrics = Arc::new(ScanMetrics::new(&spec.predicates));
            spec.top_k_threshold = spec.top_k_threshold.as_ref().map(|top_k| Arc::new(TopKThreshold::new(top_k.k)));
        });
        VersionScan { metrics: ExecutionPlanMetricsSet::new(), ..scan }
    }

    pub fn max_entities(&self) -> Option<usize> {
        self.spec.fetch
    }

    /// Returns a plan that skips the first `skip` rows of this scan and returns at most `fetch` of the following rows.
    pub(crate) fn with_limit(&self, skip: usize, fetch: Option<usize>) -> Arc<dyn ExecutionPlan> {
        let mut scan = self.clone();
        let spec = &mut scan.spec;
        if spec.predicates.is_empty() {
            let Range { start, end } = spec.position_range;
            let end = spec.fetch.map_or(end, |max| end.min(start.saturating_add(max as u64)));
            let start = start.saturating_add(skip as u64).min(end);
            let length = fetch.map_or(u64::MAX, |fetch| fetch as u64);
            spec.position_range = start..end.min(start.saturating_add(length));
            spec.fetch = None;
            return Arc::new(scan);
        }
        if let Some(fetch) = fetch {
            let max = skip.saturating_add(fetch);
            spec.fetch = Some(spec.fetch.map_or(max, |before| before.min(max)));
        }
        let scan = Arc::new(scan);
        if skip == 0 && (fetch.is_none() || scan.spec.fetch == fetch) {
            return scan;
        }
        Arc::new(GlobalLimitExec::new(scan, skip, fetch))
    }

    pub(crate) fn to_report(&self) -> ScanReport {
        self.spec.to_report(self.metrics.clone_inner().output_rows().unwrap_or_default() as u64)
    }
}

impl fmt::Debug for VersionScan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("VersionScan").field("reader", &self.spec.reader).finish_non_exhaustive()
    }
}

impl DisplayAs for VersionScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScanSpec { position_range, fetch, top_k_threshold, is_distinct, predicates, .. } = &self.spec;
        write!(formatter, "VersionScan: positions={}..{}", position_range.start, position_range.end)?;
        if let Some(part) = &self.spec.partial_row_groups {
            write!(formatter, ", row_groups={}", part.len())?;
        }
        if let Some(fetch) = fetch {
            write!(formatter, ", fetch={fetch}")?;
        }
        if let Some(top_k_threshold) = top_k_threshold {
            write!(formatter, ", first={}", top_k_threshold.k)?;
        }
        if *is_distinct {
            write!(formatter, ", distinct")?;
        }
        predicates.iter().try_for_each(|condition| write!(formatter, ", {condition}"))
    }
}

impl ExecutionPlan for VersionScan {
    fn name(&self) -> &'static str {
        "VersionScan"
    }

    crate::leaf_exec_methods!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("VersionScan has only one partition");
        }
        let measured = BaselineMetrics::new(&self.metrics, partition);
        let execution = ScanExecution {
            spec: self.spec.clone(),
            prefetch_plan: Arc::default(),
            threads: self.threads,
            busy_time: measured.elapsed_compute().clone(),
            memory: MemoryConsumer::new("VersionScan").register(context.memory_pool()),
            uncharged_memory: UnchargedMemory::reserve_uncharged(&context, "index build"),
        };
        let batches = futures::stream::once(execution.start_scan()).try_flatten();
        let fetch = self.spec.fetch;
        let mut returned = 0;
        let time = measured.elapsed_compute().clone();
        let batches = batches.map_ok(move |output| output.into_batches(&time)).try_flatten();
        let batches = batches.try_filter(|batch| futures::future::ready(batch.num_rows() > 0));
        let batches = batches.map_ok(move |batch| {
            let rows = fetch.map_or(batch.num_rows(), |fetch| batch.num_rows().min(fetch - returned));
            returned += rows;
            (batch.slice(0, rows).record_output(&measured), fetch.is_some_and(|fetch| returned >= fetch))
        });
        // The stream ends with the batch that completes the fetch, without another poll.
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
        let ScanSpec { predicates, fetch, position_range, .. } = &self.spec;
        if predicates.is_empty() && fetch.is_none() {
            statistics.num_rows = Precision::Exact((position_range.end - position_range.start) as usize);
        }
        Ok(Arc::new(statistics))
    }
}

struct ScanExecution {
    spec: ScanSpec,
    prefetch_plan: Arc<PrefetchPlan>,
    threads: usize,
    busy_time: Time,
    memory: MemoryReservation,
    /// Memory for indexes that the queries of all principals use. It is charged to no principal.
    uncharged_memory: MemoryReservation,
}

/// Up to this many candidates of hash indexes are verified without the keyword index.
const MAX_VERIFIED_CANDIDATES: usize = 64;

type ScanOutputStream = BoxStream<'static, Result<RowGroupOutput>>;

impl ScanExecution {
    async fn start_scan(mut self) -> Result<ScanOutputStream> {
        // Keys from cached indexes are comparable only on this node, so partial scans do not use them.
        if self.spec.partial_row_groups.is_none() {
            self.probe_hash_indexes().await;
        }
        self.prefetch_plan = Arc::new(self.spec.prefetch_plan());
        self.spec.reader = self.spec.reader.with_readahead(PrefetchPlan::clone(&self.prefetch_plan));
        if self.spec.partial_row_groups.is_none() {
            if let Some(batches) = Box::pin(self.try_group_representatives()).await? {
                return Ok(batches);
            }
            if let Some(batches) = Box::pin(self.try_sort_index()).await? {
                return Ok(batches);
            }
        } else if let Some(groups) =
            self.spec.computed.group.as_ref().filter(|_| self.spec.has_output_column(GROUP_COLUMN))
        {
            let source =
                DedupKeySource::open(&self.spec.reader, groups, None, &self.memory).await.map_err(to_external_error)?;
            let _ = self.spec.metrics.group_source.set(source.access_path());
            self.spec.dedup_key_source = Some(Arc::new(source));
        }
        if let Some(threshold) = &self.spec.top_k_threshold
            && let Some(shared) = TopKThreshold::try_with_best_ranks(threshold.k, self.memory.new_empty())
        {
            self.spec.top_k_threshold = Some(Arc::new(shared));
        }
        let row_groups = self.spec.row_groups_by_min_rank().await;
        self.prefetch_in_scan_order(&row_groups);
        let work = |spec: Arc<ScanSpec>, row_group, bounds| async move {
            if spec.prune_by_threshold(row_group, bounds) {
                return Ok(RowGroupOutput::default());
            }
            spec.scan_row_group(row_group).await
        };
        let is_cheap = self.spec.is_cheaper_than_spawning();
        Ok(self.run_on_row_groups(row_groups.into_iter(), is_cheap, |output| output.entities, work))
    }

    /// Makes readahead follow the order of a top-k scan, without the row groups that statistics have already excluded.
    fn prefetch_in_scan_order(&mut self, row_groups: &[(usize, Option<RankBounds>)]) {
        let spec = &self.spec;
        let unpruned = row_groups.iter().filter(|(number, bounds)| !spec.is_beyond_threshold(*number, *bounds));
        let unpruned: Vec<usize> = unpruned.map(|(row_group, _)| *row_group).collect();
        if spec.top_k_threshold.is_some() {
            let plan = PrefetchPlan { scan_order: Some(unpruned.into()), ..PrefetchPlan::clone(&self.prefetch_plan) };
            self.spec.reader = self.spec.reader.with_readahead(plan);
        }
    }

    async fn probe_hash_indexes(&mut self) {
        let spec = &mut self.spec;
        spec.hash_indexes =
            HashIndexResults::probe_all(&spec.reader, &spec.predicates, &self.memory, &self.uncharged_memory).await;
        if let Some(candidates) = &spec.hash_indexes.candidates {
            // Verifying few candidates takes less than reading the postings of a whole file.
            let has_few = candidates.len() <= MAX_VERIFIED_CANDIDATES;
            let is_searched = |number| !has_few && !candidates.was_probed(number);
            spec.keyword_queries = KeywordIndexQueries::new(&spec.reader, &spec.predicates, is_searched).map(Arc::new);
            spec.metrics.with_report(|scan| {
                let used = scan.predicates.iter_mut().enumerate().filter(|(number, _)| candidates.was_probed(*number));
                used.for_each(|(_, used)| used.access = AccessPath::HashIndex);
            });
        }
    }

    /// Decides where the `dedup` keys are read from. Returns the first entities of all groups if they are cached.
    async fn try_group_representatives(&mut self) -> Result<Option<ScanOutputStream>> {
        let Some(dedup) = self.spec.computed.group.clone().filter(|_| self.spec.has_output_column(GROUP_COLUMN)) else {
            return Ok(None);
        };
        let is_full_distinct = self.spec.is_unrestricted_dedup_scan();
        if is_full_distinct && let Some(firsts) = distinct_cache::cached_first_entities(&self.spec.reader, &dedup).await
        {
            let _ = self.spec.metrics.group_source.set(AccessPath::KeptSet);
            return Ok(Some(self.stream_first_entities(firsts)));
        }
        let open = async {
            let may_read = self.spec.allowed_reads_for_codes().await?;
            DedupKeySource::open(&self.spec.reader, &dedup, Some(may_read), &self.memory).await
        };
        let source = Arc::new(with_busy_timer(&self.busy_time, Box::pin(open)).await.map_err(to_external_error)?);
        let _ = self.spec.metrics.group_source.set(source.access_path());
        self.spec.dedup_key_source = Some(source.clone());
        let codes = source.dedup_key_codes();
        if is_full_distinct {
            let row_groups = self.spec.row_groups_in_range().map(|row_group| (row_group, ()));
            let all_keys = |spec: Arc<ScanSpec>, row_group, ()| async move { spec.read_dedup_keys(row_group).await };
            let keys = self.run_on_row_groups(row_groups, false, |_| 0, all_keys).map_err(to_storage_error);
            let found = distinct_cache::build_first_entities(&self.spec.reader, &dedup, codes, keys, &self.memory);
            if let Some(firsts) = found.await.map_err(to_external_error)? {
                return Ok(Some(self.stream_first_entities(firsts)));
            }
        }
        if self.spec.is_distinct
            && let Some(codes) = source.dedup_key_codes()
        {
            self.spec.distinct_filter = Some(Arc::new(DistinctFilter::new(&codes, self.memory.new_empty())));
        }
        Ok(None)
    }

    fn stream_first_entities(&self, firsts: Arc<GroupRepresentatives>) -> ScanOutputStream {
        let spec = self.spec.clone();
        let entities = usize::try_from(spec.reader.entity_count()).unwrap_or(usize::MAX);
        spec.metrics.duplicate_rows.add(entities - firsts.count());
        let batches = futures::stream::iter((0..entities).step_by(YIELD_EVERY_POSITIONS)).then(move |start| {
            let end = start.saturating_add(YIELD_EVERY_POSITIONS);
            let batch = spec.batch_from_positions(&firsts.positions_in(start..end), start);
            async move {
                tokio::task::yield_now().await;
                batch.map(RowGroupOutput::from)
            }
        });
        batches.boxed()
    }

    async fn try_sort_index(&mut self) -> Result<Option<ScanOutputStream>> {
        let spec = &self.spec;
        let (Some(threshold), Some(order)) = (&spec.top_k_threshold, &spec.computed.order) else { return Ok(None) };
        if spec.fetch.is_some() || spec.has_output_column(GROUP_COLUMN) {
            return Ok(None);
        }
        let k = threshold.k;
        if spec.is_full_scan() {
            let index = match sort_index::cached_sort_index(&spec.reader, order).await {
                AuxLookup::Miss if sort_index::is_built_at_once(&spec.reader, k as u64) => {
                    Box::pin(self.build_sort_index(order)).await?.into_hit()
                }
                AuxLookup::Miss => {
                    let count =
                        sort_index::scan_counter_triggering_build(&spec.reader, order, &self.uncharged_memory).await;
                    self.spec.sort_scan_counter = count;
                    return Ok(None);
                }
                found => found.into_hit(),
            };
            let Some(index) = index else { return Ok(None) };
            spec.metrics.top_k_excluded_rows.add(index.positions.len().saturating_sub(k));
            return Ok(Some(self.stream_top_k(SortIndexCursor::new(index, order.direction()), k, None)));
        }
        // A missing sort index is not built here, because the predicates must be evaluated anyway.
        let Some(index) = sort_index::cached_sort_index(&spec.reader, order).await.into_hit() else { return Ok(None) };
        let reserved = self.memory.new_empty();
        if reserved.try_grow(index.positions.len() / 8 + 1).is_err() {
            return Ok(None);
        }
        let row_groups = spec.remaining_row_groups().into_iter().map(|row_group| (row_group, ()));
        let select = |spec: Arc<ScanSpec>, group, ()| async move { Ok((group, spec.select_rows(group).await?)) };
        let mut selections = self.run_on_row_groups(row_groups, false, |_| 0, select);
        let mut bits = BooleanBufferBuilder::new(index.positions.len());
        while let Some((row_group, selection)) = selections.try_next().await? {
            let first = spec.reader.row_groups()[row_group].first_position as usize;
            bits.append_n(first.saturating_sub(bits.len()), false);
            selection.append_to(&mut bits, spec.reader.row_groups()[row_group].rows);
        }
        bits.append_n(index.positions.len().saturating_sub(bits.len()), false);
        let bits = bits.build();
        let selected = bits.count_set_bits();
        if selected >= MIN_SORT_INDEX_ENTITIES.max(k.saturating_mul(MIN_SORT_INDEX_FACTOR)) {
            spec.metrics.top_k_excluded_rows.add(selected - k);
            let cursor = SortIndexCursor::new(index, order.direction());
            return Ok(Some(self.stream_top_k(cursor, k, Some((bits, reserved)))));
        }
        let rows_of = |row_group: usize| {
            let group = spec.reader.row_groups()[row_group];
            (row_group, bits.slice(group.first_position as usize, group.rows))
        };
        let row_groups: Vec<(usize, BooleanBuffer)> =
            spec.row_groups_in_range().map(rows_of).filter(|(_, rows)| rows.count_set_bits() > 0).collect();
        let batches = |spec: Arc<ScanSpec>, row_group, rows| async move {
            spec.filter_and_read_batches(row_group, RowSelection::Bits(rows)).await
        };
        Ok(Some(self.run_on_row_groups(row_groups.into_iter(), false, |output| output.entities, batches)))
    }

    async fn build_sort_index(&self, order: &OrderSpec) -> Result<AuxLookup<ColumnSortIndex>> {
        let reader = &self.spec.reader;
        let order_by = Arc::new(order.clone());
        let row_groups = self.spec.row_groups_in_range().map(|row_group| (row_group, ()));
        let ranked_column = move |spec: Arc<ScanSpec>, row_group, ()| {
            let order_by = order_by.clone();
            async move {
                let ranked =
                    sort_index::rank_column(&spec.reader, row_group, &order_by, spec.shared_prefix_bytes).await;
                ranked.map_err(to_external_error)
            }
        };
        let columns = self.run_on_row_groups(row_groups, false, |_| 0, ranked_column).map_err(to_storage_error).boxed();
        let index = sort_index::build_index(reader, order, columns, &self.memory, &self.busy_time).await;
        index.map_err(to_external_error)
    }

    fn stream_top_k(
        &self,
        cursor: SortIndexCursor,
        k: usize,
        selected: Option<(BooleanBuffer, MemoryReservation)>,
    ) -> ScanOutputStream {
        let _ = self.spec.metrics.order_source.set(AccessPath::KeptOrder);
        let spec = self.spec.clone();
        let batches = futures::stream::try_unfold((cursor, 0), move |(mut cursor, before)| {
            let step = if selected.is_some() { YIELD_EVERY_POSITIONS } else { YIELD_EVERY_POSITIONS.min(k - before) };
            let mut visited = 0;
            let positions = cursor.by_ref().take(step).inspect(|_| visited += 1);
            let is_selected = |position: &u32| selected.as_ref().is_none_or(|(bits, _)| bits.value(*position as usize));
            let positions: Vec<u64> = positions.filter(is_selected).take(k - before).map(u64::from).collect();
            let batch = (visited > 0).then(|| spec.batch_from_positions(&positions, before));
            async move {
                tokio::task::yield_now().await;
                let count = before + positions.len();
                batch.map(|batch| Ok((RowGroupOutput::from(batch?), (cursor, count)))).transpose()
            }
        });
        batches.boxed()
    }

    /// Runs work on several row groups and returns the results in order. `count_entities` counts those in a result.
    fn run_on_row_groups<I, T, F>(
        &self,
        row_groups: impl ExactSizeIterator<Item = (usize, I)> + Send + 'static,
        is_cheap: bool,
        count_entities: fn(&T) -> usize,
        work: impl Fn(Arc<ScanSpec>, usize, I) -> F + Clone + Send + 'static,
    ) -> BoxStream<'static, Result<T>>
    where
        I: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let is_single = row_groups.len() == 1 || self.threads == 1 || is_cheap;
        let threads = if is_single { 1 } else { self.threads };
        // A top-k scan can end after the best row groups. With predicates, it is unknown how many of them it needs.
        let threshold = self.spec.top_k_threshold.as_ref().filter(|_| self.spec.predicates.is_empty());
        let entities = self.spec.fetch.or(threshold.map(|threshold| threshold.k));
        let scheduler = row_group_scheduler::RowGroupScheduler::new(threads, entities);
        let spec = Arc::new(self.spec.clone());
        let time = self.busy_time.clone();
        let sizes = spec.clone();
        let prefetch_plan = self.prefetch_plan.clone();
        let row_groups = row_groups.map(move |(row_group, input)| {
            let bytes = sizes.estimate_row_group_bytes(row_group, &prefetch_plan);
            ((row_group, input), bytes)
        });
        let results =
            row_group_scheduler::run_in_order(scheduler.clone(), row_groups, move |(row_group, input), progress| {
                let time = time.clone();
                let reader = spec.reader.clone();
                // The future is boxed, because it is large and moves several times.
                let work = Box::pin(work(spec.clone(), row_group, input));
                let work = async move {
                    let work = async {
                        let outcome = with_busy_timer(&time, work).await?;
                        progress.add_found_entities(count_entities(&outcome));
                        Ok(outcome)
                    };
                    progress.run_with_permits(|| reader.is_waiting_for_store(), work).await
                };
                let is_single = is_single || scheduler.has_scan_per_thread();
                async move {
                    if is_single {
                        return work.await;
                    }
                    // Dropping the handle cancels the work on the row group if the query ends early.
                    let task = tokio::spawn(work);
                    AbortOnDropHandle::new(task).await.map_err(|error| DataFusionError::External(Box::new(error)))?
                }
            });
        results.boxed()
    }
}

fn to_storage_error(error: DataFusionError) -> StorageError {
    match QueryError::from(error) {
        QueryError::Storage(error) => error,
        _ => StorageError::WorkerStopped,
    }
}
