//! The explanation of a query: its plans, the metrics of its operators, and what the scan read. It is made of the
//! executed plan, whose operators always count, so it requires no second run.

use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use serde::Serialize;
use utoipa::ToSchema;

use crate::distribute::{DistributedPlan, DistributedUse};
use crate::plan::planner::Plans;
use crate::scan::report::ScanUse;
use crate::scan::version_scan::VersionScan;

#[derive(Clone, Debug)]
pub struct Explained {
    /// The logical plan, with one indented operator on each line.
    pub logical: String,
    pub optimized: String,
    /// The operators of the physical plan, each before its inputs.
    pub operators: Vec<PlanOperator>,
    /// `None` if nothing was scanned, or if other nodes scanned.
    pub scan: Option<ScanUse>,
    /// `None` if the query was not distributed.
    pub distributed: Option<DistributedUse>,
    pub planning: Duration,
    /// From the end of planning until the entities were selected.
    pub selecting: Duration,
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
    /// Why the query ran again on this node, if it did.
    pub(super) fallback: Option<String>,
}

/// An executed query.
pub(super) struct Run {
    pub(super) plans: Plans,
    pub(super) planning: Duration,
    pub(super) selecting: Duration,
    pub(super) distributed: Option<DistributedRun>,
}

impl Run {
    pub(super) fn explained(&self) -> Explained {
        let Run { plans: Plans { logical, optimized, physical }, distributed, .. } = self;
        let mut operators = Vec::new();
        let mut scan = None;
        let physical = match distributed {
            Some(DistributedRun { plan, fallback: None }) => &plan.plan,
            _ => physical,
        };
        walk(physical, 0, &mut operators, &mut scan);
        Explained {
            logical: logical.display_indent().to_string(),
            optimized: optimized.display_indent().to_string(),
            operators,
            scan,
            distributed: distributed.as_ref().map(|DistributedRun { plan, fallback }| DistributedUse {
                nodes: plan.parts.used(),
                fallback: fallback.clone(),
            }),
            planning: self.planning,
            selecting: self.selecting,
        }
    }
}

fn walk(plan: &Arc<dyn ExecutionPlan>, depth: u32, operators: &mut Vec<PlanOperator>, scan: &mut Option<ScanUse>) {
    operators.push(operator(plan, depth));
    if let Some(found) = plan.downcast_ref::<VersionScan>() {
        *scan = Some(found.used());
    }
    plan.children().into_iter().for_each(|child| walk(child, depth + 1, operators, scan));
}

fn operator(plan: &Arc<dyn ExecutionPlan>, depth: u32) -> PlanOperator {
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
