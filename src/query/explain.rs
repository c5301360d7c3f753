//! What a query has done: its plans, what each operator gave and cost, and what the scan read for it. Told by the plan
//! that ran, after it did, from the counters that its operators keep anyway: looking costs no second run, and a read
//! that nobody looks at pays nothing more. Rows are entities, times are those in which threads were busy.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use serde::Serialize;
use utoipa::ToSchema;

use crate::query::scan::VersionScan;

/// What a query has done.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The logical plan as the pipeline built it, an operator on each line, indented.
    pub logical: String,
    /// The logical plan that was made of it.
    pub optimized: String,
    /// The operators of the physical plan, each before its inputs.
    pub operators: Vec<PlanOperator>,
    /// The scan; `None` where nothing had to be scanned.
    pub scan: Option<ScanUse>,
    /// How long planning took.
    pub planning: Duration,
    /// How long it took from there until the selection was settled.
    pub selecting: Duration,
}

/// An operator of the physical plan, and what it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PlanOperator {
    /// How many operators are above it.
    pub depth: u32,
    /// What it is.
    pub operator: String,
    /// Entities that it gave; null where it does not count them.
    pub rows: Option<u64>,
    /// Bytes in memory of what it gave; null where it does not count them.
    pub bytes: Option<u64>,
    /// Microseconds that it kept threads busy, its inputs not included; null where it does not measure them.
    pub compute_us: Option<u64>,
    /// How often it wrote to disk what did not fit into memory.
    pub spills: u64,
    /// Bytes that it wrote so.
    pub spilled_bytes: u64,
}

/// Where something was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessName {
    /// The columns of one path.
    ShreddedColumn,
    /// The search text, which decides.
    SearchText,
    /// The search text; what it found was verified in documents.
    SearchTextThenDocuments,
    /// Documents.
    Documents,
    /// The stored hash of every entity.
    StoredHashes,
}

/// What the scan of the version did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ScanUse {
    /// The first position that was looked at.
    pub first_position: u64,
    /// The position after the last one.
    pub end_position: u64,
    /// The row groups.
    pub row_groups: RowGroupUse,
    /// Entities in the row groups that were scanned, as far as their positions count.
    pub rows_tested: u64,
    /// Entities that it gave.
    pub rows_selected: u64,
    /// The predicates, in the order in which they ran.
    pub predicates: Vec<PredicateUse>,
    /// What reading documents for predicates did; null where none needs them.
    pub verification: Option<VerificationUse>,
    /// Entities left out because they could not be among the first of the order; null where that was not tried.
    pub left_out_early: Option<u64>,
    /// Where the keys of `sort` came from; null where nothing was sorted.
    pub sort: Option<KeyUse>,
    /// Where the keys of `dedup` came from; null where none was asked for.
    pub dedup: Option<KeyUse>,
}

/// What became of the row groups. All but `total` add up to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RowGroupUse {
    /// All of the version's.
    pub total: u64,
    /// Outside of the positions that `offset` and `limit` leave.
    pub outside_positions: u64,
    /// Left out because a bloom filter says that the text is not there.
    pub pruned_by_bloom_filter: u64,
    /// Left out because the number lies outside of what the statistics say, nor is its text there.
    pub pruned_by_numbers: u64,
    /// Scanned.
    pub scanned: u64,
    /// Not looked at, because there were enough entities before.
    pub not_reached: u64,
}

/// What became of a predicate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PredicateUse {
    /// The predicate, as the parameter that asks for it.
    pub predicate: String,
    /// What answered it.
    pub access: AccessName,
    /// The path of the shredded column, where it is one.
    pub column: Option<String>,
    /// Entities that it was asked about; null where documents alone answer, which all predicates share.
    pub rows_in: Option<u64>,
    /// Entities that were left.
    pub rows_out: Option<u64>,
}

/// What reading documents for predicates did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct VerificationUse {
    /// Entities whose documents were looked at.
    pub rows_in: u64,
    /// Entities that matched.
    pub rows_out: u64,
    /// Pages that these documents lie in.
    pub pages: u64,
}

/// Where the keys of an order or of groups came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeyUse {
    /// The fields.
    pub by: String,
    /// What held the keys.
    pub access: AccessName,
    /// The path of the shredded column, where it is one.
    pub column: Option<String>,
    /// Pages of documents that were looked at: with a shredded column, for values that it cannot hold.
    pub pages: u64,
}

/// Sees a query run.
#[derive(Default)]
pub(super) struct Observer {
    planned: OnceLock<Planned>,
    selecting: OnceLock<Duration>,
}

/// The plans of a query.
pub(super) struct Planned {
    pub(super) logical: LogicalPlan,
    pub(super) optimized: LogicalPlan,
    pub(super) physical: Arc<dyn ExecutionPlan>,
    pub(super) planning: Duration,
}

impl Observer {
    /// The query is planned.
    pub(super) fn planned(&self, planned: Planned) {
        let _ = self.planned.set(planned);
    }

    /// The selection is settled, so long after the query was planned.
    pub(super) fn selected(&self, selecting: Duration) {
        let _ = self.selecting.set(selecting);
    }

    /// What it saw; `None` before the query was planned.
    pub(super) fn explained(&self) -> Option<Explained> {
        let Planned { logical, optimized, physical, planning } = self.planned.get()?;
        let (mut operators, mut scan) = (Vec::new(), None);
        walk(physical, 0, &mut operators, &mut scan);
        Some(Explained {
            logical: logical.display_indent().to_string(),
            optimized: optimized.display_indent().to_string(),
            operators,
            scan,
            planning: *planning,
            selecting: self.selecting.get().copied().unwrap_or_default(),
        })
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
