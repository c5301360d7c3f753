//! The operator that scans the fields of the documents of two versions. Its output is one partition, in any order.

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

use super::entity_counts::{DiffEntityCounts, locate_row_group};
use super::field_hash::HashSeeds;
use super::record_rows;
use super::row_group_fields::{FieldRanks, FieldValues, RowFeatures};
use crate::error::QueryError;
use crate::tasks;
use crate::unary_exec::single_partition_properties;

#[derive(Clone, Debug)]
pub enum FieldScanOutput {
    Values,
    Features(Arc<FieldRanks>),
}

impl FieldScanOutput {
    pub(super) fn schema(&self) -> SchemaRef {
        match self {
            FieldScanOutput::Values => record_rows::VALUE_ROW_SCHEMA.clone(),
            FieldScanOutput::Features(_) => record_rows::FEATURE_ROW_SCHEMA.clone(),
        }
    }
}

/// Scans the fields of documents for a diff. The rows that it returns for values are distinct within a row group.
#[derive(Clone, Debug)]
pub struct FieldScan {
    pub(super) readers: [VersionReader; 2],
    pub(super) entity_counts: DiffEntityCounts,
    pub(super) output: FieldScanOutput,
    pub(super) seeds: HashSeeds,
    /// The indexes of the row groups to scan, ascending, as in [`DiffEntityCounts`].
    pub(super) units: Arc<[usize]>,
    pub(super) is_partial: bool,
    threads: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FieldScan {
    /// Creates a scan of the row groups that contain chosen entities. The scan processes `threads` row groups at once.
    pub fn new(
        readers: &[VersionReader; 2],
        entity_counts: DiffEntityCounts,
        output: FieldScanOutput,
        seeds: HashSeeds,
        threads: usize,
    ) -> FieldScan {
        let properties = single_partition_properties(EquivalenceProperties::new(output.schema()));
        let readers = readers.clone();
        let has_chosen = |unit: &usize| entity_counts.counts_by_row(&readers, *unit).iter().any(|count| *count > 0);
        let units = (0..tasks::row_groups_of_both(&readers).len()).filter(has_chosen).collect();
        FieldScan {
            readers,
            entity_counts,
            output,
            seeds,
            units,
            is_partial: false,
            threads,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    pub(super) fn with_row_groups(&self, units: Arc<[usize]>) -> FieldScan {
        FieldScan { units, is_partial: true, metrics: ExecutionPlanMetricsSet::new(), ..self.clone() }
    }

    async fn read_batches(&self, unit: usize, memory: &MemoryReservation) -> Result<Vec<RecordBatch>, QueryError> {
        let Some((version, row_group)) = locate_row_group(&self.readers, unit) else { return Ok(Vec::new()) };
        let reader = &self.readers[version];
        let counts = self.entity_counts.counts_by_row(&self.readers, unit);
        match &self.output {
            FieldScanOutput::Values => {
                let fields = FieldValues::read(reader, row_group, &counts, self.seeds, memory).await?;
                record_rows::encode_values(fields)
            }
            FieldScanOutput::Features(ranks) => {
                let rows: Vec<usize> = (0..counts.len()).filter(|row| counts[*row] > 0).collect();
                let first = reader.row_groups()[row_group].first_position;
                let chosen_rows = rows.iter().copied();
                let fields = RowFeatures::read(reader, row_group, chosen_rows, ranks, self.seeds, memory).await?;
                record_rows::encode_features(rows.iter().map(|row| first + *row as u64), &fields)
            }
        }
    }
}

impl DisplayAs for FieldScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = match &self.output {
            FieldScanOutput::Values => "values",
            FieldScanOutput::Features(_) => "features",
        };
        write!(formatter, "FieldScan: {output}, row_groups={}", self.units.len())
    }
}

impl ExecutionPlan for FieldScan {
    fn name(&self) -> &'static str {
        "FieldScan"
    }

    crate::leaf_exec_methods!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("FieldScan has only one partition");
        }
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let memory = Arc::new(MemoryConsumer::new("FieldScan").register(context.memory_pool()));
        let scan = Arc::new(self.clone());
        let jobs = (0..self.units.len()).map(move |number| {
            let scan = scan.clone();
            let memory = memory.clone();
            async move {
                let batches = scan.read_batches(scan.units[number], &memory).await?;
                let reservation = memory.new_empty();
                reservation.try_grow(batches.iter().map(RecordBatch::get_array_memory_size).sum())?;
                Ok((batches, reservation))
            }
        });
        let batches = tasks::run_in_order(jobs, self.threads).map_err(DataFusionError::from);
        let each = |(batches, reservation): (Vec<RecordBatch>, MemoryReservation)| {
            futures::stream::iter(batches).map(move |batch| {
                // The memory reservation of a row group is released after its last batch.
                let _reservation = &reservation;
                Ok(batch)
            })
        };
        let batches = batches.map_ok(each).try_flatten().map(move |batch| batch.record_output(&metrics));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
