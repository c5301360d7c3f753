//! The operator that scans two versions for the fields of their documents. It has one partition without an order.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt};
use strata_format::reader::VersionReader;

use super::chosen::{self, Chosen};
use super::row_group::{FieldValues, Ranks, RowFeatures};
use super::rows;
use super::values::Seeds;
use crate::error::QueryError;
use crate::operator::in_one_partition;
use crate::tasks;

#[derive(Clone, Debug)]
pub enum Wanted {
    Values,
    /// The features of each entity for fields with these ranks.
    Features(Arc<Ranks>),
}

impl Wanted {
    pub(super) fn schema(&self) -> SchemaRef {
        match self {
            Wanted::Values => rows::VALUES.clone(),
            Wanted::Features(_) => rows::FEATURES.clone(),
        }
    }
}

/// Rows of values are distinct within a row group.
#[derive(Clone, Debug)]
pub struct FieldScan {
    pub(super) readers: [VersionReader; 2],
    pub(super) chosen: Chosen,
    pub(super) wanted: Wanted,
    pub(super) seeds: Seeds,
    /// Ascending. See [`Chosen`].
    pub(super) units: Arc<[usize]>,
    pub(super) is_part: bool,
    threads: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FieldScan {
    /// A scan of all units with chosen entities. It processes `threads` units at once.
    pub fn new(
        readers: &[VersionReader; 2],
        chosen: Chosen,
        wanted: Wanted,
        seeds: Seeds,
        threads: usize,
    ) -> FieldScan {
        let properties = in_one_partition(EquivalenceProperties::new(wanted.schema()));
        let readers = readers.clone();
        let has_chosen = |unit: &usize| chosen.counts(&readers, *unit).iter().any(|count| *count > 0);
        let units = (0..tasks::row_groups(&readers).len()).filter(has_chosen).collect();
        FieldScan {
            readers,
            chosen,
            wanted,
            seeds,
            units,
            is_part: false,
            threads,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// A partial scan of these units, ascending, with its own metrics.
    pub(super) fn with_row_groups(&self, units: Arc<[usize]>) -> FieldScan {
        FieldScan { units, is_part: true, metrics: ExecutionPlanMetricsSet::new(), ..self.clone() }
    }

    async fn batches(&self, unit: usize, memory: &MemoryReservation) -> Result<Vec<RecordBatch>, QueryError> {
        let Some((version, row_group)) = chosen::place(&self.readers, unit) else { return Ok(Vec::new()) };
        let reader = &self.readers[version];
        let counts = self.chosen.counts(&self.readers, unit);
        match &self.wanted {
            Wanted::Values => {
                let found = FieldValues::read(reader, row_group, &counts, self.seeds, memory).await?;
                rows::of_values(found)
            }
            Wanted::Features(ranks) => {
                let chosen: Vec<usize> = (0..counts.len()).filter(|row| counts[*row] > 0).collect();
                let first = reader.row_groups()[row_group].first;
                let chosen_rows = chosen.iter().copied();
                let found = RowFeatures::read(reader, row_group, chosen_rows, ranks, self.seeds, memory).await?;
                rows::of_features(chosen.iter().map(|row| first + *row as u64), &found)
            }
        }
    }
}

impl DisplayAs for FieldScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = match &self.wanted {
            Wanted::Values => "values",
            Wanted::Features(_) => "features",
        };
        write!(formatter, "FieldScan: {wanted}, row_groups={}", self.units.len())
    }
}

impl ExecutionPlan for FieldScan {
    fn name(&self) -> &'static str {
        "FieldScan"
    }

    crate::leaf!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("FieldScan has only one partition");
        }
        let measured = BaselineMetrics::new(&self.metrics, partition);
        let memory = Arc::new(MemoryConsumer::new("FieldScan").register(context.memory_pool()));
        let scan = Arc::new(self.clone());
        let jobs = (0..self.units.len()).map(move |number| {
            let scan = scan.clone();
            let memory = memory.clone();
            async move {
                let batches = scan.batches(scan.units[number], &memory).await?;
                let held = memory.new_empty();
                held.try_grow(batches.iter().map(RecordBatch::get_array_memory_size).sum())?;
                Ok((batches, held))
            }
        });
        let batches = tasks::in_order(jobs, self.threads).map_err(DataFusionError::from);
        let each = |(batches, held): (Vec<RecordBatch>, MemoryReservation)| {
            futures::stream::iter(batches).map(move |batch| {
                // Until the last batch has been returned.
                let _held = &held;
                Ok(batch)
            })
        };
        let batches = batches.map_ok(each).try_flatten().map(move |batch| batch.record_output(&measured));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
