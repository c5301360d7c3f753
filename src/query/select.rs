//! Selects entities: plans a request, executes the plan, and collects the positions that it returns.

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
use strata_types::request::ReadRequest;

use crate::cached_answer;
use crate::distribute;
use crate::engine::{Engine, Measured, Spilled};
use crate::error::QueryError;
use crate::explain::{DistributedRun, Explained, Run};
use crate::fetch::selection::{Outcome, Selection, SelectionBuilder};
use crate::plan::planner::Plans;
use crate::plan::sorts::spilling;

impl Engine {
    /// Selects the entities of a request. Dropping the future stops the query.
    ///
    /// # Errors
    /// [`QueryError`], by the limits of the engine, or if the version cannot be read.
    pub async fn select(&self, reader: VersionReader, request: Arc<ReadRequest>) -> Result<Outcome, QueryError> {
        if !cached_answer::is_by_position(&request) {
            return Box::pin(self.find(reader, request)).await;
        }
        // A plan would return the same entities, but cost more than such a page.
        let entities = reader.entity_count();
        let start = entities.min(request.offset);
        let end = request.limit.map_or(entities, |limit| start.saturating_add(limit).min(entities));
        let plan = fmt::from_fn(move |formatter| write!(formatter, "positions={start}..{end}"));
        if request.count {
            return Ok(count_without_plan(plan, Outcome::Count(end - start)));
        }
        metrics().scanned_rows.increment(end - start);
        Ok(count_without_plan(plan, Outcome::Selection(Selection::from_range(start..end))))
    }

    async fn find(&self, reader: VersionReader, request: Arc<ReadRequest>) -> Result<Outcome, QueryError> {
        let cached = match cached_answer::try_cached(&reader, &request).await {
            None => Box::pin(cached_answer::probe_index(&reader, &request)).await?,
            cached => cached,
        };
        Ok(match cached {
            Some(Outcome::Count(count)) => {
                count_without_plan(format!("cached: a count of {count}"), Outcome::Count(count))
            }
            Some(outcome) => count_without_plan(format!("cached: {} positions", outcome.len()), outcome),
            None => self.execute(reader, request).await?.0,
        })
    }

    /// Like [`Engine::select`], with an explanation. It always executes a plan.
    pub async fn explain(
        &self,
        reader: VersionReader,
        request: Arc<ReadRequest>,
    ) -> Result<(Outcome, Explained), QueryError> {
        let (outcome, run) = self.execute(reader, request).await?;
        Ok((outcome, run.explained()))
    }

    async fn execute(
        &self,
        reader: VersionReader,
        request: Arc<ReadRequest>,
    ) -> Result<(Outcome, Box<Run>), QueryError> {
        let engine = self.clone();
        let log_context = request_log::current();
        // Boxed, because it has kilobytes and several functions move it.
        let query = Box::pin(async move { engine.run(reader, &request, log_context).await });
        self.run_query_within(self.timeout(), query).await
    }

    async fn run(
        &self,
        reader: VersionReader,
        request: &ReadRequest,
        log_context: Option<Arc<RequestLogContext>>,
    ) -> Result<(Outcome, Box<Run>), QueryError> {
        let started = Instant::now();
        let mut plans = Box::pin(Plans::new(reader.clone(), request, self.threads())).await?;
        let planning = started.elapsed();
        let log_plan = |plan: &Arc<dyn ExecutionPlan>| {
            if let Some(log_context) = &log_context {
                log_context.set_plan(one_line(plan.clone()));
            }
        };
        let distributed = match self.distribution() {
            None => None,
            Some(distribution) => {
                let distributing = async {
                    let plan = distribution.distribute(&plans.physical, self.context(), self.tenant()).await?;
                    if dedup_keeps_most(&reader, request).await {
                        return None;
                    }
                    log_plan(&plan.plan);
                    let collected = self.collect(plan.plan.clone(), plan.context.clone(), request);
                    let limit = distribute::most_time(self.timeout());
                    let finished = distribute::finish(&**distribution, &plan, limit, collected).await;
                    Some((plan, finished))
                };
                Box::pin(distributing).await
            }
        };
        let (distributed, outcome) = match distributed {
            Some((plan, Ok(outcome))) => (Some(DistributedRun { plan, fallback: None }), Ok(outcome)),
            tried => {
                // Before the execution, which can be cancelled.
                log_plan(&plans.physical);
                let mut outcome = self.collect(plans.physical.clone(), self.context().clone(), request).await;
                if let Err(QueryError::OutOfMemory(_)) = outcome
                    && spilling(plans.physical.clone())?.is_some()
                {
                    // New operators, whose metrics begin at zero.
                    plans = Box::pin(Plans::new(reader, request, self.threads())).await?;
                    if let Some(plan) = spilling(plans.physical.clone())? {
                        plans.physical = plan.clone();
                        outcome = self.collect(plan, self.context().clone(), request).await;
                    }
                }
                (tried.map(|(plan, finished)| DistributedRun { plan, fallback: finished.err() }), outcome)
            }
        };
        let selecting = started.elapsed().saturating_sub(planning);
        Ok((outcome?, Box::new(Run { plans, planning, selecting, distributed })))
    }

    async fn collect(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        request: &ReadRequest,
    ) -> Result<Outcome, QueryError> {
        let _spilled = Spilled(plan.clone());
        let mut batches = execute_stream(plan, context)?;
        if request.count {
            let mut count = 0;
            while let Some(batch) = batches.next().await {
                let batch = batch?;
                count += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
            }
            return Ok(Outcome::Count(u64::try_from(count).unwrap_or_default()));
        }
        let reservation = MemoryConsumer::new("selection").register(self.context().memory_pool());
        let mut selection = SelectionBuilder::new(&reservation);
        while let Some(batch) = batches.next().await {
            selection.append(&batch?)?;
        }
        Ok(Outcome::Selection(selection.finish()))
    }
}

/// Counts and logs a query that was answered without a plan.
fn count_without_plan(plan: impl fmt::Display + Send + Sync + 'static, outcome: Outcome) -> Outcome {
    let mut measured = Measured::start();
    if let Some(log_context) = request_log::current() {
        log_context.set_plan(plan);
    }
    measured.end(&Ok(()));
    outcome
}

/// Displays a plan on one line, each operator before its input.
fn one_line(plan: Arc<dyn ExecutionPlan>) -> impl fmt::Display + Send + Sync + 'static {
    fmt::from_fn(move |formatter| {
        let text = displayable(&*plan).indent(false).to_string();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        formatter.write_str(lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| write!(formatter, " <- {line}"))
    })
}

/// Whether the profile says that a `dedup_key` leaves most entities. Other nodes would then send nearly all rows with
/// their keys, which takes longer than finding them here.
async fn dedup_keeps_most(reader: &VersionReader, request: &ReadRequest) -> bool {
    /// Fewer rows are always sent.
    const MANY_ROWS: u64 = 1 << 16;
    let entities = reader.entity_count();
    if !request.dedup || request.dedup_key.is_empty() || entities <= MANY_ROWS {
        return false;
    }
    let Ok(paths) = reader.paths().await else { return false };
    let distinct = request.dedup_key.iter().filter_map(|path| paths.get(&path.to_string())?.distinct);
    distinct.max().is_some_and(|distinct| distinct > MANY_ROWS && distinct > entities / 2)
}
