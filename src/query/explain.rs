//! Explains a query: its plans, the metrics of its operators, and the report of the scan. The operators of an executed
//! plan always count, so an explanation requires no second run.

use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use serde::Serialize;
use utoipa::ToSchema;

use crate::distribution::{DistributedPlan, DistributionReport};
use crate::plan::planner::QueryPlanStages;
use crate::scan::scan_report::ScanReport;
use crate::scan::version_scan::VersionScan;

#[derive(Clone, Debug)]
pub struct QueryExplanation {
    pub logical_plan: String,
    pub optimized_plan: String,
    pub operators: Vec<PlanOperator>,
    /// The report of the scan; `None` if this node did not scan the version.
    pub scan: Option<ScanReport>,
    pub distributed: Option<DistributionReport>,
    pub planning_time: Duration,
    /// The time from the end of planning until the selection was complete.
    pub selection_time: Duration,
}

/// An operator of the physical plan, and its metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PlanOperator {
    /// The depth of the operator in the plan. The root has depth 0.
    pub depth: u32,
    /// The name and arguments of the operator.
    pub operator: String,
    /// The number of rows that the operator returned. Null if the operator does not count rows.
    pub rows: Option<u64>,
    /// The size of the returned rows in memory, in bytes. Null if the operator does not measure the size.
    pub bytes: Option<u64>,
    /// The time in microseconds for which the operator itself kept threads busy. Null if the operator does not measure
    /// the time.
    pub compute_us: Option<u64>,
    /// The number of times that the operator spilled to disk.
    pub spills: u64,
    /// The number of bytes that the operator spilled.
    pub spilled_bytes: u64,
}

#[derive(Debug)]
pub(super) struct DistributedRun {
    pub(super) plan: DistributedPlan,
    /// The reason why the query ran again on this node after its distribution failed; `None` if it did not run again.
    pub(super) fallback_reason: Option<String>,
}

pub(super) struct ExecutedQuery {
    pub(super) plans: QueryPlanStages,
    pub(super) planning_time: Duration,
    pub(super) selection_time: Duration,
    pub(super) distributed: Option<DistributedRun>,
}

impl ExecutedQuery {
    pub(super) fn to_explanation(&self) -> QueryExplanation {
        let ExecutedQuery { plans: QueryPlanStages { logical, optimized, physical }, distributed, .. } = self;
        let mut operators = Vec::new();
        let mut scan = None;
        let physical = match distributed {
            Some(DistributedRun { plan, fallback_reason: None }) => &plan.plan,
            _ => physical,
        };
        walk_plan(physical, 0, &mut operators, &mut scan);
        QueryExplanation {
            logical_plan: logical.display_indent().to_string(),
            optimized_plan: optimized.display_indent().to_string(),
            operators,
            scan,
            distributed: distributed.as_ref().map(|DistributedRun { plan, fallback_reason }| DistributionReport {
                nodes: plan.remote_parts.node_part_reports(),
                fallback: fallback_reason.clone(),
            }),
            planning_time: self.planning_time,
            selection_time: self.selection_time,
        }
    }
}

fn walk_plan(plan: &Arc<dyn ExecutionPlan>, depth: u32, out: &mut Vec<PlanOperator>, scan: &mut Option<ScanReport>) {
    out.push(describe_operator(plan, depth));
    if let Some(version_scan) = plan.downcast_ref::<VersionScan>() {
        *scan = Some(version_scan.to_report());
    }
    plan.children().into_iter().for_each(|child| walk_plan(child, depth + 1, out, scan));
}

fn describe_operator(plan: &Arc<dyn ExecutionPlan>, depth: u32) -> PlanOperator {
    let metrics = plan.metrics().unwrap_or_default();
    let bytes = metrics.sum(|metric| matches!(metric.value(), MetricValue::OutputBytes(_)));
    PlanOperator {
        depth,
        operator: displayable(&**plan).one_line().to_string().trim().to_owned(),
        rows: metrics.output_rows().map(|rows| rows as u64),
        bytes: bytes.map(|bytes| bytes.as_usize() as u64),
        compute_us: metrics.elapsed_compute().map(|nanoseconds| nanoseconds as u64 / 1_000),
        spills: metrics.spill_count().unwrap_or_default() as u64,
        spilled_bytes: metrics.spilled_bytes().unwrap_or_default() as u64,
    }
}
