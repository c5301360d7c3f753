//! The operators of a node's part as bytes, and its scan as it arrives from the one that answers: its file is opened
//! when it runs. What surrounds them is DataFusion's own protocol.

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
use strata_query::fields::part::FieldScanDescription;
use strata_query::fields::scan::FieldScan;
use strata_query::operator::in_one_partition;
use strata_query::scan::part::ScanDescription;
use strata_query::scan::version_scan::VersionScan;
use strata_store::store::Store;

use super::task::{NodeTask, Runner};

#[derive(Clone)]
pub(super) struct Files {
    pub(super) store: Store,
    pub(super) cache: PartCache,
}

#[derive(Debug, Serialize, Deserialize)]
enum Described {
    Entities(Box<ScanDescription>),
    Fields(Box<FieldScanDescription>),
}

impl Described {
    /// An operator; `None` where it is no scan of a part.
    fn of(scan: &Arc<dyn ExecutionPlan>) -> Option<Described> {
        let entities = || Some(Described::Entities(Box::new(scan.downcast_ref::<VersionScan>()?.describe()?)));
        let fields = || Some(Described::Fields(Box::new(scan.downcast_ref::<FieldScan>()?.describe()?)));
        entities().or_else(fields)
    }

    fn schema(&self) -> Result<SchemaRef> {
        match self {
            Described::Entities(scan) => scan.schema(),
            Described::Fields(scan) => Ok(scan.schema()),
        }
    }

    /// The scan, of opened files, on so many row groups at once.
    async fn open(&self, files: &Files, threads: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let open = async |file| {
            let reader = VersionReader::open_described(&files.store, file, &files.cache).await;
            reader.map_err(|error| DataFusionError::External(Box::new(error)))
        };
        Ok(match self {
            Described::Entities(scan) => Arc::new(scan.open(open(&scan.file).await?, threads)?),
            Described::Fields(scan) => {
                let [one, other] = &scan.files;
                Arc::new(scan.open(&[open(one).await?, open(other).await?], threads)?)
            }
        })
    }
}

pub(super) struct PartScan {
    described: Arc<Described>,
    files: Files,
    threads: usize,
    properties: Arc<PlanProperties>,
}

impl PartScan {
    fn try_new(described: Described, files: Files, threads: usize) -> Result<PartScan> {
        let properties = in_one_partition(EquivalenceProperties::new(described.schema()?));
        Ok(PartScan { described: Arc::new(described), files, threads, properties })
    }

    fn is_of_diff(&self) -> bool {
        matches!(*self.described, Described::Fields(_))
    }
}

impl fmt::Debug for PartScan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PartScan").field("described", &self.described).finish_non_exhaustive()
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

    strata_query::leaf!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let described = self.described.clone();
        let files = self.files.clone();
        let threads = self.threads;
        let opened = async move { described.open(&files, threads).await?.execute(partition, context) };
        let batches = futures::stream::once(opened).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

#[derive(Serialize, Deserialize)]
enum Operator {
    NodeTask,
    Scan(Described),
}

pub(super) struct PartCodec {
    /// What parts run in; none where they are only sent.
    pub(super) here: Option<(Runner, Files)>,
}

impl fmt::Debug for PartCodec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PartCodec").finish_non_exhaustive()
    }
}

fn is_of_diff(part: &Arc<dyn ExecutionPlan>) -> bool {
    let scan = part.downcast_ref::<PartScan>();
    scan.map_or_else(|| part.children().into_iter().any(is_of_diff), PartScan::is_of_diff)
}

impl PhysicalExtensionCodec for PartCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let operator: Operator =
            serde_json::from_slice(bytes).map_err(|error| exec_datafusion_err!("unknown operator: {error}"))?;
        let Some((runner, files)) = &self.here else { return internal_err!("this node does not accept operators") };
        match (operator, inputs) {
            (Operator::NodeTask, [input]) => {
                let runner = Runner { is_of_diff: is_of_diff(input), ..runner.clone() };
                Ok(Arc::new(NodeTask::new(runner, input.clone())))
            }
            (Operator::Scan(described), []) => {
                Ok(Arc::new(PartScan::try_new(described, files.clone(), runner.engine.threads())?))
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
        let operator = if node.is::<NodeTask>() {
            Operator::NodeTask
        } else if let Some(described) = Described::of(&node) {
            Operator::Scan(described)
        } else {
            return internal_err!("{} cannot be sent to other nodes", node.name());
        };
        serde_json::to_writer(bytes, &operator)
            .map_err(|error| internal_datafusion_err!("cannot encode operator as JSON: {error}"))
    }
}
