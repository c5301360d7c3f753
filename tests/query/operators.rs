//! The parts that all operators share.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use strata_query::unary_exec::{OperatorInput, UnaryExec, UnaryOperator, expect_no_inputs};

#[derive(Clone, Debug)]
struct Same;

impl UnaryOperator for Same {
    const NAME: &'static str = "Same";

    fn execute(&self, input: OperatorInput<'_>) -> Result<SendableRecordBatchStream> {
        input.execute()
    }
}

#[test]
fn operator_requires_one_input() {
    let empty: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(UnaryExec::new(Same, empty.clone()));
    let above = |children| {
        plan.clone().replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    };
    let again = above(vec![empty.clone()]).expect("one");
    assert!(again.is::<UnaryExec<Same>>() && again.children().len() == 1);
    assert!(above(vec![]).is_err());
    assert!(above(vec![empty.clone(), empty]).is_err());
}

#[test]
fn leaf_rejects_inputs() {
    let leaf = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
    assert!(expect_no_inputs(leaf.clone(), &[]).expect("a leaf").is::<EmptyExec>());
    assert!(expect_no_inputs(leaf.clone(), &[leaf]).is_err_and(|error| error.to_string().contains("EmptyExec")));
}
