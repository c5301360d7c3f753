//! The scan of a node, as it arrives from the one that answers: its file is opened when it runs.

use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::TryStreamExt;

use crate::query::scan::part::ScanDescription;
use crate::storage::cache::PartCache;
use crate::storage::reader::VersionReader;
use crate::storage::store::Store;

/// Where files are.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) store: Store,
    pub(super) cache: PartCache,
}

/// The operator.
pub(super) struct PartScan {
    description: Arc<ScanDescription>,
    files: Files,
    /// How many row groups are worked on at once.
    threads: usize,
    properties: Arc<PlanProperties>,
}

impl PartScan {
    /// The scan that was described.
    ///
    /// # Errors
    /// When it gives what no scan of a part does.
    pub(super) fn try_new(description: ScanDescription, files: Files, threads: usize) -> Result<PartScan> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(description.schema()?),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(PartScan { description: Arc::new(description), files, threads, properties: Arc::new(properties) })
    }
}

impl fmt::Debug for PartScan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PartScan").field("description", &self.description).finish_non_exhaustive()
    }
}

impl DisplayAs for PartScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PartScan")
    }
}

impl ExecutionPlan for PartScan {
    fn name(&self) -> &'static str {
        "PartScan"
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
        if children.is_empty() { Ok(self) } else { internal_err!("the scan of a part has no children") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("the scan of a part has no children") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (description, files, threads) = (self.description.clone(), self.files.clone(), self.threads);
        let opened = async move {
            let reader = VersionReader::open_described(&files.store, description.file(), &files.cache).await;
            let reader = reader.map_err(|error| DataFusionError::External(Box::new(error)))?;
            description.open(reader, threads)?.execute(partition, context)
        };
        let batches = futures::stream::once(opened).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
