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

/// The plans of a request, each made of the one before.
#[derive(Clone)]
pub(crate) struct Plans {
    pub(crate) logical: LogicalPlan,
    pub(crate) optimized: LogicalPlan,
    pub(crate) physical: Arc<dyn ExecutionPlan>,
}

/// Plans are made here, and executed in the context of an engine: what this session holds besides its rules is unused.
/// The rules are those that these plans need, out of DataFusion's two dozen: each costs time in every request.
static PLANNER: LazyLock<SessionState> = LazyLock::new(|| {
    SessionStateBuilder::new()
        .with_config(engine::with_settings(SessionConfig::new()))
        .with_analyzer_rules(Vec::new())
        .with_optimizer_rules(vec![
            Arc::new(PushDownLimit::new()),
            // After limits, which filters cannot pass.
            Arc::new(PushDownFilter::new()),
            // Last: what the filters that were pushed down needed is not read any more.
            Arc::new(OptimizeProjections::new()),
        ])
        .with_physical_optimizer_rules(vec![
            Arc::new(LimitPushdown),
            Arc::new(CompactBeforeSort),
            // After limits: a count over a scan without predicates is known then.
            Arc::new(AggregateStatistics::new()),
        ])
        .build()
});

impl Plans {
    /// The plans of a request over a version, whose scan works on so many row groups at once.
    pub(crate) async fn of(reader: VersionReader, request: &ReadRequest, threads: usize) -> Result<Plans> {
        let logical = pipeline::plan(reader, threads, request)?;
        let optimized = PLANNER.optimize(&logical)?;
        let physical = PLANNER.query_planner().create_physical_plan(&optimized, &*PLANNER).await?;
        Ok(Plans { logical, optimized, physical })
    }
}
