//! What a query has done: its plans, what each operator gave and cost, and what the scan read for it. Told by the plan
//! that ran, after it did, from the counters that its operators keep anyway: looking costs no second run, and a read
//! that nobody looks at pays nothing more. Rows are entities, times are those in which threads were busy.

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
    /// The logical plan as the pipeline built it, an operator on each line, indented.
    pub logical: String,
    /// The logical plan that was made of it.
    pub optimized: String,
    /// The operators of the physical plan, each before its inputs.
    pub operators: Vec<PlanOperator>,
    /// The scan; `None` where nothing had to be scanned, and where other nodes helped.
    pub scan: Option<ScanUse>,
    /// How other nodes helped; `None` where none was asked.
    pub distributed: Option<DistributedUse>,
    pub planning: Duration,
    /// How long it took from there until the entities were selected.
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

/// A plan that other nodes helped with, or were to.
#[derive(Debug)]
pub(super) struct DistributedRun {
    pub(super) plan: DistributedPlan,
    /// Why the query ran again without them, if it did.
    pub(super) fallback: Option<String>,
}

/// A query that ran.
pub(super) struct Run {
    pub(super) plans: Plans,
    pub(super) planning: Duration,
    pub(super) selecting: Duration,
    pub(super) distributed: Option<DistributedRun>,
}

impl Run {
    pub(super) fn explained(&self) -> Explained {
        let Run { plans: Plans { logical, optimized, physical }, distributed, .. } = self;
        let (mut operators, mut scan) = (Vec::new(), None);
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
