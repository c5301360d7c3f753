//! The scan of a version: row groups pruned, predicates evaluated, positions given in order.
//!
//! Row groups are worked on several at once and given in order. Within one, predicates run from cheap to dear:
//! shredded columns select rows, the search text selects rows that may match, and documents are read only for rows that
//! are still selected and only when a predicate needs them.

pub mod access;
pub mod columns;
mod counts;
pub mod kernels;
pub mod predicate;
mod row_group;
pub mod rows;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

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
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt};
use tokio_util::task::AbortOnDropHandle;

use self::counts::{ScanCounts, timed};
use crate::query::plan::table::{Computed, POSITION};
use crate::query::scan::access::Access;
use crate::query::scan::predicate::Predicate;
use crate::query::scan::rows::First;
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
    /// Rows, bytes and time; then what only a scan does.
    metrics: ExecutionPlanMetricsSet,
    counts: Arc<ScanCounts>,
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
            counts: Arc::new(ScanCounts::of(predicates.len())),
            metrics: ExecutionPlanMetricsSet::new(),
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
        let row_groups = self.row_groups();
        // Positions alone cost nothing.
        let cheap = self.predicates.is_empty() && self.schema.fields().iter().all(|field| field.name() == POSITION);
        let alone = row_groups.len() == 1 || self.threads == 1 || cheap;
        let threads = if alone { 1 } else { self.threads };
        let scan = Arc::new(self.clone());
        let measured = BaselineMetrics::new(&self.metrics, partition);
        let time = measured.elapsed_compute().clone();
        let batches = futures::stream::iter(row_groups)
            .map(move |row_group| {
                let (scan, time) = (scan.clone(), time.clone());
                async move {
                    if alone {
                        return timed(&time, scan.row_group(row_group)).await;
                    }
                    // Dropped when the query ends early, which stops the work.
                    let task = tokio::spawn(async move { timed(&time, scan.row_group(row_group)).await });
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
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        if self.predicates.is_empty() && self.fetch.is_none() {
            statistics.num_rows = Precision::Exact((self.range.end - self.range.start) as usize);
        }
        Ok(Arc::new(statistics))
    }
}
