//! The scan of a version as an operator of a plan: row groups worked on several at once, given in order.

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
use crate::scan::batches::Given;
use crate::scan::dedup_key::GroupSource;
use crate::scan::distinct::DistinctFilter;
use crate::scan::in_flight::{self, Bounds};
use crate::scan::kept_groups;
use crate::scan::kept_index::Indexes;
use crate::scan::kept_order;
use crate::scan::keyword_index::KeywordQuestions;
use crate::scan::metrics::{AccessName, ScanMetrics, timed};
use crate::scan::predicate::Predicate;
use crate::scan::report::ScanUse;
use crate::scan::row_selection::RowSelection;
use crate::scan::schema::{Computed, GROUP, POSITION};
use crate::scan::sort_key::OrderSpec;
use crate::scan::spec::ScanSpec;
use crate::scan::top_k::TopKThreshold;
use crate::tenants::SharedMemory;

/// Entities that are selected with predicates are found in a kept order if at least so many times as many are selected
/// as are wanted, and no fewer than [`FEW`].
const FOUND_IN: usize = 4;

/// See [`FOUND_IN`].
const FEW: usize = 4_096;

/// Positions that are looked at between two points of giving way.
const STRETCH: usize = 1 << 16;

/// A scan of one version. One partition, in order of position.
#[derive(Clone)]
pub struct VersionScan {
    pub(super) spec: ScanSpec,
    pub(super) threads: usize,
    properties: Arc<PlanProperties>,
    /// Rows, bytes and time; what only a scan does is in those of its spec.
    metrics: ExecutionPlanMetricsSet,
}

impl VersionScan {
    /// A scan that gives `schema`'s columns of the entities that match all predicates.
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
            keywords: KeywordQuestions::of(&reader, &predicates).map(Arc::new),
            indexes: Indexes::default(),
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

    /// The same scan without rows that cannot be among the first `k` of the order; others may be there, too.
    pub(crate) fn with_top_k(&self, k: usize) -> VersionScan {
        self.changed(|spec| spec.threshold = spec.computed.order.is_some().then(|| Arc::new(TopKThreshold::new(k))))
    }

    /// The same scan without rows that are not the first of their group; others may be there, too.
    pub(crate) fn with_distinct(&self) -> VersionScan {
        self.changed(|spec| spec.distinct = spec.computed.group.is_some())
    }

    /// The same scan of these positions in these row groups, ascending. It shares no metrics and no threshold, and uses
    /// nothing that is kept of the whole version.
    pub(super) fn looking_at(&self, range: Range<u64>, part: Arc<[usize]>) -> VersionScan {
        let scan = self.changed(|spec| {
            spec.range = range;
            spec.part = Some(part);
            spec.metrics = Arc::new(ScanMetrics::new(&spec.predicates));
            spec.threshold = spec.threshold.as_ref().map(|threshold| Arc::new(TopKThreshold::new(threshold.k)));
        });
        VersionScan { metrics: ExecutionPlanMetricsSet::new(), ..scan }
    }

    /// Most entities that it gives, where it ends early.
    pub fn most(&self) -> Option<usize> {
        self.spec.fetch
    }

    /// The plan that gives the rows of this scan from the `skip`-th on, `fetch` at most.
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
        let (spec, wanted) = self.spec.reading_ahead();
        let running = Running {
            spec,
            wanted: Arc::new(wanted),
            threads: self.threads,
            time: measured.elapsed_compute().clone(),
            memory: MemoryConsumer::new("VersionScan").register(context.memory_pool()),
            shared_memory: SharedMemory::of(&context, "hash index"),
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
        // Ends with the batch that fills the fetch, without asking for another.
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
    /// Its reader fetches ahead what is wanted.
    spec: ScanSpec,
    wanted: Arc<Wanted>,
    threads: usize,
    time: Time,
    memory: MemoryReservation,
    /// For what is made for all.
    shared_memory: MemoryReservation,
}

type Batches = BoxStream<'static, Result<Given>>;

impl Running {
    /// What the scan gives: from what is kept of the version, if that tells, and else from its row groups.
    async fn batches(mut self) -> Result<Batches> {
        // What is kept is of the whole version. Keys that are read off it order entities among themselves, not among
        // those of other nodes.
        if self.spec.part.is_none() {
            self.ask_indexes().await;
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
        let work = |spec: Arc<ScanSpec>, row_group, least_rank| async move {
            if spec.is_beyond_threshold(row_group, least_rank) {
                return Ok(Given::default());
            }
            spec.row_group(row_group).await
        };
        Ok(self.on_row_groups(row_groups.into_iter(), self.spec.is_cheap(), |given| given.entities, work))
    }

    async fn ask_indexes(&mut self) {
        let spec = &mut self.spec;
        spec.indexes = Indexes::ask(&spec.reader, &spec.predicates, &self.memory, &self.shared_memory).await;
        if let Some(candidates) = &spec.indexes.candidates {
            spec.metrics.record(|scan| {
                let used = scan.predicates.iter_mut().enumerate().filter(|(number, _)| candidates.are_of(*number));
                used.for_each(|(_, used)| used.access = AccessName::HashIndex);
            });
        }
    }

    /// Decides where the keys of groups come from. Gives the first entities of all groups, where they are kept.
    async fn first_of_groups(&mut self) -> Result<Option<Batches>> {
        let Some(groups) = self.spec.computed.group.clone().filter(|_| self.spec.gives(GROUP)) else {
            return Ok(None);
        };
        let keeps = self.spec.finds_all_firsts();
        if keeps && let Some(firsts) = kept_groups::kept_firsts(&self.spec.reader, &groups).await {
            let _ = self.spec.metrics.group_source.set(AccessName::KeptSet);
            return Ok(Some(self.given(firsts)));
        }
        let open = async {
            let may_read = self.spec.may_read_for_codes().await?;
            GroupSource::open(&self.spec.reader, &groups, Some(may_read), &self.memory).await
        };
        let source = Arc::new(timed(&self.time, Box::pin(open)).await.map_err(external)?);
        let _ = self.spec.metrics.group_source.set(source.source());
        self.spec.group_source = Some(source.clone());
        let codes = source.codes();
        if keeps {
            let row_groups = self.spec.row_groups().map(|row_group| (row_group, ()));
            let keys = self.on_row_groups(
                row_groups,
                false,
                |_| 0,
                |spec, row_group, ()| async move { spec.all_keys(row_group).await },
            );
            let keys = keys.map_err(out_of_engine);
            let found = kept_groups::build_firsts(&self.spec.reader, &groups, codes, keys, &self.memory);
            if let Some(firsts) = found.await.map_err(external)? {
                return Ok(Some(self.given(firsts)));
            }
        }
        if self.spec.distinct
            && let Some(codes) = source.codes()
        {
            self.spec.distinct_filter = Some(Arc::new(DistinctFilter::new(&codes, self.memory.new_empty())));
        }
        Ok(None)
    }

    /// The first entities of groups, in the order of their positions.
    fn given(&self, firsts: Arc<Firsts>) -> Batches {
        let spec = self.spec.clone();
        let entities = usize::try_from(spec.reader.entity_count()).unwrap_or(usize::MAX);
        spec.metrics.distinct.add(entities, firsts.count());
        let batches = futures::stream::iter((0..entities).step_by(STRETCH)).then(move |start| {
            let batch = spec.known(&firsts.within(start..start.saturating_add(STRETCH)), start);
            async move {
                tokio::task::yield_now().await;
                batch.map(Given::from)
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
            let Some(kept) = Box::pin(self.built_order(order)).await? else { return Ok(None) };
            spec.metrics.top_k.add(kept.count(), k.min(kept.count()));
            return Ok(Some(self.in_order(OrderCursor::new(kept, order.descending), k, None)));
        }
        // None is made here. Conditions are tested on all entities whether there is an order or not; it would only save
        // the ranks of those selected, and making it ranks and sorts all of them.
        let Some(kept) = kept_order::kept_order(&spec.reader, order).await.hit() else { return Ok(None) };
        let reserved = self.memory.new_empty();
        if reserved.try_grow(kept.count() / 8 + 1).is_err() {
            return Ok(None);
        }
        let row_groups = spec.row_groups_left().into_iter().map(|row_group| (row_group, ()));
        let select =
            |spec: Arc<ScanSpec>, row_group, ()| async move { Ok((row_group, spec.selection(row_group).await?)) };
        let mut selections = self.on_row_groups(row_groups, false, |_| 0, select);
        let mut bits = BooleanBufferBuilder::new(kept.count());
        while let Some((row_group, selection)) = selections.try_next().await? {
            let first = spec.reader.row_groups()[row_group].first as usize;
            bits.append_n(first.saturating_sub(bits.len()), false);
            selection.append_to(&mut bits, spec.reader.row_groups()[row_group].rows);
        }
        bits.append_n(kept.count().saturating_sub(bits.len()), false);
        let bits = bits.build();
        let selected = bits.count_set_bits();
        if selected >= FEW.max(k.saturating_mul(FOUND_IN)) {
            spec.metrics.top_k.add(selected, k);
            return Ok(Some(self.in_order(OrderCursor::new(kept, order.descending), k, Some((bits, reserved)))));
        }
        // Where few are selected, they are sorted sooner than they are found among all.
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

    /// The order that serves a sort, built if the cache does not contain it.
    async fn built_order(&self, order: &OrderSpec) -> Result<Option<Arc<ColumnOrder>>> {
        let reader = &self.spec.reader;
        match kept_order::kept_order(reader, order).await {
            AuxLookup::Miss => {}
            found => return Ok(found.hit()),
        }
        let by = Arc::new(order.clone());
        let row_groups = self.spec.row_groups().map(|row_group| (row_group, ()));
        let columns = self.on_row_groups(
            row_groups,
            false,
            |_| 0,
            move |spec, row_group, ()| {
                let by = by.clone();
                async move { kept_order::ranked_column(&spec.reader, row_group, &by).await.map_err(external) }
            },
        );
        let columns = columns.map_err(out_of_engine).boxed();
        Ok(kept_order::build(reader, order, columns, &self.memory, &self.time).await.map_err(external)?.hit())
    }

    /// The first `k` of an order, or the first `k` of it that are selected.
    fn in_order(&self, cursor: OrderCursor, k: usize, selected: Option<(BooleanBuffer, MemoryReservation)>) -> Batches {
        let _ = self.spec.metrics.order_source.set(AccessName::KeptOrder);
        let spec = self.spec.clone();
        let batches = futures::stream::try_unfold((cursor, 0), move |(mut cursor, given)| {
            let step = if selected.is_some() { STRETCH } else { STRETCH.min(k - given) };
            let mut looked_at = 0;
            let positions = cursor.by_ref().take(step).inspect(|_| looked_at += 1);
            let is_selected = |position: &u32| match &selected {
                Some((bits, _)) => bits.value(*position as usize),
                None => true,
            };
            let positions: Vec<u64> = positions.filter(is_selected).take(k - given).map(u64::from).collect();
            let batch = (looked_at > 0).then(|| spec.known(&positions, given));
            async move {
                tokio::task::yield_now().await;
                let given = given + positions.len();
                batch.map(|batch| Ok((Given::from(batch?), (cursor, given)))).transpose()
            }
        });
        batches.boxed()
    }

    /// Runs work on row groups, on several at once, and gives what it gives in their order. `found` tells how many
    /// entities of those that the scan gives an outcome holds.
    fn on_row_groups<I, T, F>(
        &self,
        row_groups: impl ExactSizeIterator<Item = (usize, I)> + Send + Unpin + 'static,
        is_cheap: bool,
        found: fn(&T) -> usize,
        work: impl Fn(Arc<ScanSpec>, usize, I) -> F + Clone + Send + Unpin + 'static,
    ) -> BoxStream<'static, Result<T>>
    where
        I: Send + Unpin + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let alone = row_groups.len() == 1 || self.threads == 1 || is_cheap;
        let threads = if alone { 1 } else { self.threads };
        // Of an order, the best row groups rule out the others; with predicates, nobody knows how many it takes.
        let threshold = self.spec.threshold.as_ref().filter(|_| self.spec.predicates.is_empty());
        let most = self.spec.fetch.or(threshold.map(|threshold| threshold.k));
        let shared = in_flight::Shared::new(Bounds { threads, wanted: most });
        let (spec, time) = (Arc::new(self.spec.clone()), self.time.clone());
        let (sizes, wanted) = (spec.clone(), self.wanted.clone());
        let row_groups = row_groups.map(move |(row_group, input)| {
            let bytes = sizes.row_group_bytes(row_group, &wanted);
            ((row_group, input), bytes)
        });
        let worked = in_flight::in_order(shared.clone(), row_groups, move |(row_group, input), progress| {
            let (time, reader) = (time.clone(), spec.reader.clone());
            // In a box: it is large, and moves several times until it is polled.
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
                // Dropped when the query ends early, which stops the work.
                let task = tokio::spawn(work);
                AbortOnDropHandle::new(task).await.map_err(|error| DataFusionError::External(Box::new(error)))?
            }
        });
        worked.boxed()
    }
}

fn out_of_engine(error: DataFusionError) -> StorageError {
    match QueryError::from(error) {
        QueryError::Storage(error) => error,
        _ => StorageError::Worker,
    }
}
