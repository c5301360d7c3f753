//! DataFusion's planner, with the few rules that plans of requests need.

use std::sync::{Arc, LazyLock};

use datafusion::error::Result;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use strata_format::reader::VersionReader;
use strata_types::read_request::ReadRequest;

use crate::engine;
use crate::plan::limit_pushdown::LimitPushdown;
use crate::plan::logical_plan;
use crate::plan::spilling_sorts::CompactBeforeSort;

#[derive(Clone)]
pub(crate) struct QueryPlanStages {
    pub(crate) logical: LogicalPlan,
    pub(crate) optimized: LogicalPlan,
    pub(crate) physical: Arc<dyn ExecutionPlan>,
}

/// A planner with only the necessary rules of DataFusion's two dozen, because each rule costs time in every request.
static PLANNER: LazyLock<SessionState> = LazyLock::new(|| {
    SessionStateBuilder::new()
        .with_config(engine::with_query_settings(SessionConfig::new()))
        .with_analyzer_rules(Vec::new())
        .with_optimizer_rules(vec![
            Arc::new(PushDownLimit::new()),
            // This rule runs after `PushDownLimit`, because filters cannot be pushed below limits.
            Arc::new(PushDownFilter::new()),
            // This rule runs last, because it removes the columns of filters that have been pushed down.
            Arc::new(OptimizeProjections::new()),
        ])
        .with_physical_optimizer_rules(vec![
            Arc::new(LimitPushdown),
            Arc::new(CompactBeforeSort),
            // This rule runs after `LimitPushdown`, because the count of a scan without predicates is then known.
            Arc::new(AggregateStatistics::new()),
        ])
        .build()
});

impl QueryPlanStages {
    pub(crate) async fn new(reader: VersionReader, request: &ReadRequest, threads: usize) -> Result<QueryPlanStages> {
        let logical = logical_plan::build_logical_plan(reader, threads, request)?;
        let optimized = PLANNER.optimize(&logical)?;
        let physical = PLANNER.query_planner().create_physical_plan(&optimized, &*PLANNER).await?;
        Ok(QueryPlanStages { logical, optimized, physical })
    }
}
