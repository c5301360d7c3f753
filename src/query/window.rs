//! A physical rule: `offset` and `limit` directly above a scan become part of it.
//!
//! Without predicates the scan then starts at the right position, whatever the offset. With predicates it ends
//! as soon as enough entities have matched.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};

use super::scan::VersionScan;

/// The rule. Order of rows is kept by every operator of these plans, so cutting early cuts the same rows.
#[derive(Debug, Default)]
pub struct WindowIntoScan;

impl PhysicalOptimizerRule for WindowIntoScan {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|plan| {
            let (input, skip, fetch) = if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>() {
                (limit.input(), limit.skip(), limit.fetch())
            } else if let Some(limit) = plan.downcast_ref::<LocalLimitExec>() {
                (limit.input(), 0, Some(limit.fetch()))
            } else {
                return Ok(Transformed::no(plan));
            };
            let Some(scan) = input.downcast_ref::<VersionScan>() else { return Ok(Transformed::no(plan)) };
            Ok(Transformed::yes(scan.windowed(skip, fetch)))
        })
        .data()
    }

    fn name(&self) -> &str {
        "WindowIntoScan"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
