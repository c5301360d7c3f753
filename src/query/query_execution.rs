//! Runs queries: plans a request, executes the plan, and collects the positions that it returns.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use futures::StreamExt;
use strata_format::reader::VersionReader;
use strata_runtime::metrics::metrics;
use strata_runtime::metrics::request_log::{self, RequestLogContext};
use strata_types::read_request::ReadRequest;

use crate::cached_response;
use crate::distribution;
use crate::engine::{QueryEngine, QueryMeasurement, SpillRecorder};
use crate::error::QueryError;
use crate::explain::{DistributedRun, ExecutedQuery, QueryExplanation};
use crate::fetch::selection::{EntitySelection, EntitySelectionBuilder, QueryOutcome};
use crate::plan::planner::QueryPlanStages;
use crate::plan::spilling_sorts::replace_top_k_by_full_sorts;

impl QueryEngine {
    /// Selects the entities of a request. Dropping the future cancels the query.
    pub async fn select(&self, reader: VersionReader, request: Arc<ReadRequest>) -> Result<QueryOutcome, QueryError> {
        if !cached_response::selects_position_range(&request) {
            return Box::pin(self.select_with_cache(reader, request)).await;
        }
        // A request with only `offset` and `limit` needs no plan, which would cost more than fetching the page.
        let entities = reader.entity_count();
        let start = entities.min(request.offset);
        let end = request.limit.map_or(entities, |limit| start.saturating_add(limit).min(entities));
        let plan = fmt::from_fn(move |formatter| write!(formatter, "positions={start}..{end}"));
        if request.count {
            return Ok(record_unplanned_query(plan, QueryOutcome::Count(end - start)));
        }
        metrics().scanned_rows.increment(end - start);
        Ok(record_unplanned_query(plan, QueryOutcome::Selection(EntitySelection::from_range(start..end))))
    }

    async fn select_with_cache(
        &self,
        reader: VersionReader,
        request: Arc<ReadRequest>,
    ) -> Result<QueryOutcome, QueryError> {
        let cached = match cached_response::try_sort_or_dedup_index(&reader, &request).await {
            None => Box::pin(cached_response::try_hash_index(&reader, &request)).await?,
            cached => cached,
        };
        Ok(match cached {
            Some(QueryOutcome::Count(count)) => {
                record_unplanned_query(format!("cached: a count of {count}"), QueryOutcome::Count(count))
            }
            Some(outcome) => record_unplanned_query(format!("cached: {} positions", outcome.len()), outcome),
            None => match cached_response::sorted_prefix(&reader, &request) {
                None => self.execute_request(reader, request).await?.0,
                Some((key, prefix)) => match self.execute_request(reader.clone(), prefix.into()).await {
                    // The first entities have long sort keys. The requested ones can be few enough for the memory.
                    Err(QueryError::OutOfMemory(_)) => self.execute_request(reader, request).await?.0,
                    executed => cached_response::cache_sorted_prefix(&reader, key, executed?.0, &request).await,
                },
            },
        })
    }

    /// Like [`QueryEngine::select`], but always executes a plan and explains it.
    pub async fn explain(
        &self,
        reader: VersionReader,
        request: Arc<ReadRequest>,
    ) -> Result<(QueryOutcome, QueryExplanation), QueryError> {
        let (outcome, run) = self.execute_request(reader, request).await?;
        Ok((outcome, run.to_explanation()))
    }

    async fn execute_request(
        &self,
        reader: VersionReader,
        request: Arc<ReadRequest>,
    ) -> Result<(QueryOutcome, Box<ExecutedQuery>), QueryError> {
        let engine = self.clone();
        let log_context = request_log::current_context();
        // The future of a query is boxed, because it has kilobytes and several functions move it.
        let query = Box::pin(async move { engine.plan_and_execute(reader, &request, log_context).await });
        self.run_with_timeout(self.timeout(), query).await
    }

    async fn plan_and_execute(
        &self,
        reader: VersionReader,
        request: &ReadRequest,
        log_context: Option<Arc<RequestLogContext>>,
    ) -> Result<(QueryOutcome, Box<ExecutedQuery>), QueryError> {
        let started = Instant::now();
        let mut plans = Box::pin(QueryPlanStages::new(reader.clone(), request, self.threads())).await?;
        let planning_time = started.elapsed();
        let log_plan = |plan: &Arc<dyn ExecutionPlan>| {
            if let Some(log_context) = &log_context {
                log_context.set_query_plan(display_one_line(plan.clone()));
            }
        };
        let distributed = match self.distributor() {
            None => None,
            Some(distributor) => {
                let distribute = async {
                    let plan = distributor.distribute(&plans.physical, self.task_context(), self.principal()).await?;
                    if is_dedup_mostly_distinct(&reader, request).await {
                        return None;
                    }
                    log_plan(&plan.plan);
                    let collected = self.collect_outcome(plan.plan.clone(), plan.context.clone(), request);
                    let limit = distribution::max_distributed_time(self.timeout());
                    let result = distribution::await_distributed(&**distributor, &plan, limit, collected).await;
                    Some((plan, result))
                };
                Box::pin(distribute).await
            }
        };
        let (distributed, outcome) = match distributed {
            Some((plan, Ok(outcome))) => (Some(DistributedRun { plan, fallback_reason: None }), Ok(outcome)),
            attempt => {
                // The plan is logged before its execution, because the execution can be cancelled.
                log_plan(&plans.physical);
                let mut outcome =
                    self.collect_outcome(plans.physical.clone(), self.task_context().clone(), request).await;
                if let Err(QueryError::OutOfMemory(_)) = outcome
                    && replace_top_k_by_full_sorts(plans.physical.clone())?.is_some()
                {
                    // The second execution needs new operators, so that their metrics begin at zero.
                    plans = Box::pin(QueryPlanStages::new(reader, request, self.threads())).await?;
                    if let Some(plan) = replace_top_k_by_full_sorts(plans.physical.clone())? {
                        plans.physical = plan.clone();
                        outcome = self.collect_outcome(plan, self.task_context().clone(), request).await;
                    }
                }
                (attempt.map(|(plan, result)| DistributedRun { plan, fallback_reason: result.err() }), outcome)
            }
        };
        let selection_time = started.elapsed().saturating_sub(planning_time);
        Ok((outcome?, Box::new(ExecutedQuery { plans, planning_time, selection_time, distributed })))
    }

    async fn collect_outcome(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        request: &ReadRequest,
    ) -> Result<QueryOutcome, QueryError> {
        let _spilled = SpillRecorder(plan.clone());
        let mut batches = execute_stream(plan, context)?;
        if request.count {
            let mut count = 0;
            while let Some(batch) = batches.next().await {
                let batch = batch?;
                count += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
            }
            return Ok(QueryOutcome::Count(u64::try_from(count).unwrap_or_default()));
        }
        let reservation = MemoryConsumer::new("selection").register(self.task_context().memory_pool());
        let mut selection = EntitySelectionBuilder::new(&reservation);
        while let Some(batch) = batches.next().await {
            selection.append(&batch?)?;
        }
        Ok(QueryOutcome::Selection(selection.finish()))
    }
}

fn record_unplanned_query(plan: impl fmt::Display + Send + Sync + 'static, outcome: QueryOutcome) -> QueryOutcome {
    let mut measurement = QueryMeasurement::start();
    if let Some(log_context) = request_log::current_context() {
        log_context.set_query_plan(plan);
    }
    measurement.record_outcome(&Ok(()));
    outcome
}

fn display_one_line(plan: Arc<dyn ExecutionPlan>) -> impl fmt::Display + Send + Sync + 'static {
    fmt::from_fn(move |formatter| {
        let text = displayable(&*plan).indent(false).to_string();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        formatter.write_str(lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| write!(formatter, " <- {line}"))
    })
}

/// Whether most entities have distinct values at the `dedup_key`, according to the profile of the version. Other nodes
/// would then send nearly all rows with their keys, which takes longer than finding the groups on this node.
async fn is_dedup_mostly_distinct(reader: &VersionReader, request: &ReadRequest) -> bool {
    const MAX_ALWAYS_SENT_ROWS: u64 = 1 << 16;
    let entities = reader.entity_count();
    if !request.dedup || request.dedup_key.is_empty() || entities <= MAX_ALWAYS_SENT_ROWS {
        return false;
    }
    let Ok(paths) = reader.profile_paths().await else { return false };
    let distinct = request.dedup_key.iter().filter_map(|path| paths.get(&path.to_string())?.distinct);
    distinct.max().is_some_and(|distinct| distinct > MAX_ALWAYS_SENT_ROWS && distinct > entities / 2)
}
