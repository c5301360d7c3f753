//! The planner of requests: DataFusion's, with the few rules that these plans need.

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
use strata_types::request::ReadRequest;

use crate::engine;
use crate::plan::limit_pushdown::LimitPushdown;
use crate::plan::pipeline;
use crate::plan::sorts::CompactBeforeSort;

/// The plans of a request, each created from the previous one.
#[derive(Clone)]
pub(crate) struct Plans {
    pub(crate) logical: LogicalPlan,
    pub(crate) optimized: LogicalPlan,
    pub(crate) physical: Arc<dyn ExecutionPlan>,
}

/// Creates plans, which are executed in the context of an engine. It has only the necessary ones of DataFusion's two
/// dozen rules, because each costs time in every request.
static PLANNER: LazyLock<SessionState> = LazyLock::new(|| {
    SessionStateBuilder::new()
        .with_config(engine::with_settings(SessionConfig::new()))
        .with_analyzer_rules(Vec::new())
        .with_optimizer_rules(vec![
            Arc::new(PushDownLimit::new()),
            // After limits, which filters cannot pass.
            Arc::new(PushDownFilter::new()),
            // Last: removes the columns of filters that have been pushed down.
            Arc::new(OptimizeProjections::new()),
        ])
        .with_physical_optimizer_rules(vec![
            Arc::new(LimitPushdown),
            Arc::new(CompactBeforeSort),
            // After limits: a count over a scan without predicates is then known.
            Arc::new(AggregateStatistics::new()),
        ])
        .build()
});

impl Plans {
    /// The scan processes `threads` row groups at once.
    pub(crate) async fn new(reader: VersionReader, request: &ReadRequest, threads: usize) -> Result<Plans> {
        let logical = pipeline::plan(reader, threads, request)?;
        let optimized = PLANNER.optimize(&logical)?;
        let physical = PLANNER.query_planner().create_physical_plan(&optimized, &*PLANNER).await?;
        Ok(Plans { logical, optimized, physical })
    }
}
