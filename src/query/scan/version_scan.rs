//! The scan of a version as an operator of a plan: row groups worked on several at once, given in order.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
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
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput, Time};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt};
use tokio_util::task::AbortOnDropHandle;

use crate::query::scan::access::{self, Access};
use crate::query::scan::in_flight::{self, Bounds};
use crate::query::scan::keyword_index::KeywordQuestions;
use crate::query::scan::metrics::ScanMetrics;
use crate::query::scan::predicate::Predicate;
use crate::query::scan::report::ScanUse;
use crate::query::scan::schema::{Computed, POSITION};
use crate::query::scan::spec::ScanSpec;
use crate::query::scan::top_k::TopKThreshold;
use crate::storage::reader::VersionReader;

/// A scan of one version. One partition, in order of position.
#[derive(Clone)]
pub(crate) struct VersionScan {
    spec: ScanSpec,
    /// How many row groups are worked on at once.
    threads: usize,
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
        let spec = ScanSpec {
            range: 0..reader.entity_count(),
            keywords: KeywordQuestions::of(&reader, &predicates).map(Arc::new),
            reader,
            schema,
            metrics: Arc::new(ScanMetrics::of(predicates.len())),
            predicates: predicates.into(),
            fetch,
            threshold: None,
            computed,
        };
        VersionScan {
            spec,
            threads: threads.max(1),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same scan without rows that cannot be among the first `k` of the order; others may be there, too.
    pub(crate) fn with_top_k(&self, k: usize) -> VersionScan {
        let mut scan = self.clone();
        scan.spec.threshold = self.spec.computed.order.is_some().then(|| Arc::new(TopKThreshold::new(k)));
        scan
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

    /// What the scan has done so far.
    pub(in crate::query) fn used(&self) -> ScanUse {
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
        let ScanSpec { range, fetch, threshold, predicates, .. } = &self.spec;
        write!(formatter, "VersionScan: positions={}..{}", range.start, range.end)?;
        if let Some(fetch) = fetch {
            write!(formatter, ", fetch={fetch}")?;
        }
        if let Some(threshold) = threshold {
            write!(formatter, ", first={}", threshold.k())?;
        }
        for (access, predicate) in predicates.iter() {
            match access {
                Access::ShreddedColumn(shredded) => write!(formatter, ", {predicate} by shredded column {shredded}")?,
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
        let (spec, wanted) = self.spec.reading_ahead();
        let row_groups = spec.row_groups();
        // Positions alone cost nothing.
        let cheap = spec.predicates.is_empty() && spec.schema.fields().iter().all(|field| field.name() == POSITION);
        let alone = row_groups.len() == 1 || self.threads == 1 || cheap;
        let threads = if alone { 1 } else { self.threads };
        let measured = BaselineMetrics::new(&self.metrics, partition);
        let time = measured.elapsed_compute().clone();
        let shared = in_flight::Shared::new(Bounds { threads, wanted: spec.fetch });
        let sizes = spec.clone();
        let row_groups = row_groups.map(move |row_group| (row_group, sizes.row_group_bytes(row_group, &wanted)));
        let batches = in_flight::in_order(shared, row_groups, move |row_group, progress| {
            let (spec, time) = (spec.clone(), time.clone());
            let waits = {
                let spec = spec.clone();
                move || spec.reader.waits_for_store()
            };
            let work = async move {
                let work = async {
                    let batches = timed(&time, spec.row_group(row_group)).await;
                    if let Ok(batches) = &batches {
                        progress.found(batches.iter().map(RecordBatch::num_rows).sum());
                    }
                    batches
                };
                progress.run(waits, work).await
            };
            async move {
                if alone {
                    return work.await;
                }
                // Dropped when the query ends early, which stops the work.
                let task = tokio::spawn(work);
                AbortOnDropHandle::new(task)
                    .await
                    .map_err(|error| datafusion::error::DataFusionError::External(Box::new(error)))?
            }
        });
        let fetch = self.spec.fetch;
        let mut given = 0;
        let batches = batches.map_ok(|batches| futures::stream::iter(batches.into_iter().map(Ok))).try_flatten();
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

/// Runs work and adds the time that it keeps a thread busy, which its waiting for the store is no part of.
async fn timed<F: Future>(time: &Time, work: F) -> F::Output {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let _timer = time.timer();
        work.as_mut().poll(context)
    })
    .await
}
