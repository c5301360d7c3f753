//! Implements the parts of [`ExecutionPlan`] that all operators with one input ([`UnaryExec`]), and all leaves, share.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};

pub trait UnaryOperator: Clone + fmt::Debug + Send + Sync + 'static {
    const NAME: &'static str;

    fn properties(&self, input: &dyn ExecutionPlan) -> Arc<PlanProperties> {
        input.properties().clone()
    }

    fn fmt_one_line(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(Self::NAME)
    }

    fn execute(&self, input: OperatorInput<'_>) -> Result<SendableRecordBatchStream>;

    fn metrics(&self) -> Option<MetricsSet> {
        None
    }
}

pub struct OperatorInput<'p> {
    pub plan: &'p Arc<dyn ExecutionPlan>,
    pub partition: usize,
    pub context: Arc<TaskContext>,
    pub schema: SchemaRef,
}

impl OperatorInput<'_> {
    pub fn execute(&self) -> Result<SendableRecordBatchStream> {
        self.plan.execute(self.partition, self.context.clone())
    }
}

#[derive(Debug)]
pub struct UnaryExec<O> {
    operator: O,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl<O: UnaryOperator> UnaryExec<O> {
    pub fn new(operator: O, input: Arc<dyn ExecutionPlan>) -> UnaryExec<O> {
        let properties = operator.properties(&*input);
        UnaryExec { operator, input, properties }
    }
}

impl<O: UnaryOperator> DisplayAs for UnaryExec<O> {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operator.fmt_one_line(formatter)
    }
}

impl<O: UnaryOperator> ExecutionPlan for UnaryExec<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(UnaryExec::new(self.operator.clone(), input))),
            Err(children) => internal_err!("{} requires one input, but got {}", O::NAME, children.len()),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.operator.execute(OperatorInput { plan: &self.input, partition, context, schema: self.schema() })
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.operator.metrics()
    }
}

pub fn single_partition_properties(equivalence: EquivalenceProperties) -> Arc<PlanProperties> {
    let partitioning = Partitioning::UnknownPartitioning(1);
    Arc::new(PlanProperties::new(equivalence, partitioning, EmissionType::Incremental, Boundedness::Bounded))
}

pub fn expect_no_inputs<L: ExecutionPlan>(
    leaf: Arc<L>,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    if inputs.is_empty() { Ok(leaf) } else { internal_err!("{} has no inputs", leaf.name()) }
}

/// The methods of [`ExecutionPlan`] that are the same for all leaves with a field `properties`.
#[macro_export]
macro_rules! leaf_exec_methods {
    () => {
        fn properties(&self) -> &std::sync::Arc<datafusion::physical_plan::PlanProperties> {
            &self.properties
        }

        fn children(&self) -> Vec<&std::sync::Arc<dyn ExecutionPlan>> {
            Vec::new()
        }

        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(
                &std::sync::Arc<dyn datafusion::physical_expr::PhysicalExpr>,
            ) -> datafusion::error::Result<datafusion::common::tree_node::TreeNodeRecursion>,
        ) -> datafusion::error::Result<datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn ExecutionPlan>>,
        ) -> datafusion::error::Result<std::sync::Arc<dyn ExecutionPlan>> {
            $crate::unary_exec::expect_no_inputs(self, &children)
        }
    };
}
