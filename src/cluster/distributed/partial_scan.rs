//! Serialization of a task, which is the part of a query plan that another node runs: the operators of strata, and the
//! scan, which opens its file only on that node. DataFusion's protocol serializes all other operators.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::{exec_datafusion_err, internal_datafusion_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_query::fields::field_scan::FieldScan;
use strata_query::fields::partial_field_scan::SerializedFieldScan;
use strata_query::scan::partial_scan::SerializedScan;
use strata_query::scan::version_scan::VersionScan;
use strata_query::unary_exec::single_partition_properties;
use strata_store::store::Store;

use super::remote_task::{NodeTaskExec, TaskRunner};

#[derive(Clone)]
pub(super) struct ScanStorage {
    pub(super) store: Store,
    pub(super) cache: PartCache,
}

#[derive(Debug, Serialize, Deserialize)]
enum TaskScan {
    Entities(Box<SerializedScan>),
    Fields(Box<SerializedFieldScan>),
}

impl TaskScan {
    fn from_plan(scan: &Arc<dyn ExecutionPlan>) -> Option<TaskScan> {
        let entities = || Some(TaskScan::Entities(Box::new(scan.downcast_ref::<VersionScan>()?.to_serialized()?)));
        let fields = || Some(TaskScan::Fields(Box::new(scan.downcast_ref::<FieldScan>()?.to_serialized()?)));
        entities().or_else(fields)
    }

    fn schema(&self) -> Result<SchemaRef> {
        match self {
            TaskScan::Entities(scan) => scan.schema(),
            TaskScan::Fields(scan) => Ok(scan.schema()),
        }
    }

    async fn open(&self, storage: &ScanStorage, threads: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let open = async |file| {
            let reader = VersionReader::open_described(&storage.store, file, &storage.cache).await;
            reader.map_err(|error| DataFusionError::External(Box::new(error)))
        };
        Ok(match self {
            TaskScan::Entities(scan) => Arc::new(scan.open(open(&scan.file).await?, threads)?),
            TaskScan::Fields(scan) => {
                let [old, new] = &scan.files;
                Arc::new(scan.open(&[open(old).await?, open(new).await?], threads)?)
            }
        })
    }
}

pub(super) struct PartialScanExec {
    scan: Arc<TaskScan>,
    storage: ScanStorage,
    threads: usize,
    properties: Arc<PlanProperties>,
}

impl PartialScanExec {
    fn try_new(scan: TaskScan, storage: ScanStorage, threads: usize) -> Result<PartialScanExec> {
        let properties = single_partition_properties(EquivalenceProperties::new(scan.schema()?));
        Ok(PartialScanExec { scan: Arc::new(scan), storage, threads, properties })
    }

    fn is_diff(&self) -> bool {
        matches!(*self.scan, TaskScan::Fields(_))
    }
}

impl fmt::Debug for PartialScanExec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PartScan").field("described", &self.scan).finish_non_exhaustive()
    }
}

impl DisplayAs for PartialScanExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PartScan")
    }
}

impl ExecutionPlan for PartialScanExec {
    fn name(&self) -> &'static str {
        "PartScan"
    }

    strata_query::leaf_exec_methods!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let scan = self.scan.clone();
        let storage = self.storage.clone();
        let threads = self.threads;
        let opened = async move { scan.open(&storage, threads).await?.execute(partition, context) };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), futures::stream::once(opened).try_flatten())))
    }
}

#[derive(Serialize, Deserialize)]
enum TaskOperator {
    NodeTask,
    Scan(TaskScan),
}

pub(super) struct PartialPlanCodec {
    /// The environment in which received tasks run; `None` on the coordinating node, which only sends tasks.
    pub(super) local: Option<(TaskRunner, ScanStorage)>,
}

impl fmt::Debug for PartialPlanCodec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PartCodec").finish_non_exhaustive()
    }
}

fn is_diff_plan(part: &Arc<dyn ExecutionPlan>) -> bool {
    let scan = part.downcast_ref::<PartialScanExec>();
    scan.map_or_else(|| part.children().into_iter().any(is_diff_plan), PartialScanExec::is_diff)
}

impl PhysicalExtensionCodec for PartialPlanCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let operator: TaskOperator =
            serde_json::from_slice(bytes).map_err(|error| exec_datafusion_err!("unknown operator: {error}"))?;
        let Some((runner, storage)) = &self.local else { return internal_err!("this node does not accept operators") };
        match (operator, inputs) {
            (TaskOperator::NodeTask, [input]) => {
                let runner = TaskRunner { is_diff: is_diff_plan(input), ..runner.clone() };
                Ok(Arc::new(NodeTaskExec::new(runner, input.clone())))
            }
            (TaskOperator::Scan(scan), []) => {
                Ok(Arc::new(PartialScanExec::try_new(scan, storage.clone(), runner.engine.threads())?))
            }
            _ => internal_err!("an operator has invalid inputs"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let operator = if node.is::<NodeTaskExec>() {
            TaskOperator::NodeTask
        } else if let Some(scan) = TaskScan::from_plan(&node) {
            TaskOperator::Scan(scan)
        } else {
            return internal_err!("{} cannot be sent to other nodes", node.name());
        };
        serde_json::to_writer(bytes, &operator)
            .map_err(|error| internal_datafusion_err!("cannot encode operator as JSON: {error}"))
    }
}
