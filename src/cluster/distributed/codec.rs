//! The operators of a node's part as bytes. What surrounds them is DataFusion's own protocol.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{exec_datafusion_err, internal_datafusion_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use serde::{Deserialize, Serialize};

use super::part_scan::{Described, Files, PartScan};
use super::task::{NodeTask, Runner, Task};

#[derive(Serialize, Deserialize)]
enum Operator {
    NodeTask,
    Scan(Described),
}

pub(super) struct PartCodec {
    /// What parts run in; none where they are only sent.
    here: Option<(Runner, Files)>,
}

impl PartCodec {
    pub(super) fn for_sending() -> PartCodec {
        PartCodec { here: None }
    }

    pub(super) fn for_running(runner: Runner, files: Files) -> PartCodec {
        PartCodec { here: Some((runner, files)) }
    }
}

impl fmt::Debug for PartCodec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PartCodec").finish_non_exhaustive()
    }
}

fn is_of_diff(part: &Arc<dyn ExecutionPlan>) -> bool {
    match part.downcast_ref::<PartScan>() {
        Some(scan) => scan.is_of_diff(),
        None => part.children().into_iter().any(is_of_diff),
    }
}

impl PhysicalExtensionCodec for PartCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let operator: Operator = serde_json::from_slice(bytes)
            .map_err(|error| exec_datafusion_err!("an operator that this node does not know: {error}"))?;
        let Some((runner, files)) = &self.here else { return internal_err!("nothing is sent to who answers") };
        match (operator, inputs) {
            (Operator::NodeTask, [input]) => {
                let runner = Runner { is_of_diff: is_of_diff(input), ..runner.clone() };
                Ok(Arc::new(NodeTask::new(Task { runner }, input.clone())))
            }
            (Operator::Scan(described), []) => {
                Ok(Arc::new(PartScan::try_new(described, files.clone(), runner.engine.threads())?))
            }
            _ => internal_err!("an operator with other inputs than it takes"),
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
            return internal_err!("{} is not sent to other nodes", node.name());
        };
        serde_json::to_writer(bytes, &operator)
            .map_err(|error| internal_datafusion_err!("an operator as JSON: {error}"))
    }
}
