//! Selecting: a request is planned, its plan executed, and the positions that it gives are kept.

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

use crate::distribute;
use crate::engine::{Engine, Measured, Spilled};
use crate::error::QueryError;
use crate::explain::{DistributedRun, Explained, Run};
use crate::fetch::selection::{Outcome, Selection, SelectionBuilder};
use crate::kept;
use crate::plan::planner::Plans;
use crate::plan::sorts::spilling;

impl Engine {
    /// Selects the entities of a version that a request asks for. Dropping the future stops the query.
    ///
    /// # Errors
    /// [`QueryError::Timeout`], [`QueryError::OutOfMemory`] and [`QueryError::TooMuchMemory`] by the engine's bounds,
    /// others when the version cannot be read.
    pub async fn select(&self, reader: VersionReader, request: Arc<ReadRequest>) -> Result<Outcome, QueryError> {
        if !kept::is_by_position(&request) {
            return Box::pin(self.find(reader, request)).await;
        }
        // A plan would give the same, and cost more than such a page.
        let entities = reader.entity_count();
        let start = entities.min(request.offset);
        let end = request.limit.map_or(entities, |limit| start.saturating_add(limit).min(entities));
        let plan = fmt::from_fn(move |formatter| write!(formatter, "positions={start}..{end}"));
        if request.count {
            return settled(plan, Outcome::Count(end - start));
        }
        metrics().scanned_rows.increment(end - start);
        settled(plan, Outcome::Selection(Selection::of_range(start..end)))
    }

    /// Finds the entities of a request that does not name them by their positions.
    async fn find(&self, reader: VersionReader, request: Arc<ReadRequest>) -> Result<Outcome, QueryError> {
        let kept = match kept::read_off(&reader, &request).await {
            None => Box::pin(kept::found_by_index(&reader, &request)).await?,
            kept => kept,
        };
        match kept {
            Some(Outcome::Count(count)) => settled(format!("cached: a count of {count}"), Outcome::Count(count)),
            Some(outcome) => settled(format!("cached: {} positions", outcome.len()), outcome),
            None => Ok(self.execute(reader, request).await?.0),
        }
    }

    /// As [`Engine::select`], and tells what the query did: the same plan, seen while it ran.
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
        // In a box: it is handed on from function to function, and holds kilobytes.
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
        let mut plans = Box::pin(Plans::of(reader.clone(), request, self.threads())).await?;
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
                    if keeps_most(&reader, request).await {
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
                // Before it runs: it may be stopped.
                log_plan(&plans.physical);
                let mut outcome = self.collect(plans.physical.clone(), self.context().clone(), request).await;
                if let Err(QueryError::OutOfMemory(_)) = outcome
                    && spilling(plans.physical.clone())?.is_some()
                {
                    // Anew, so that its operators count what they do from nothing.
                    plans = Box::pin(Plans::of(reader, request, self.threads())).await?;
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
        let consumer = MemoryConsumer::new("selection");
        let mut selection = SelectionBuilder::new(&consumer.register(self.context().memory_pool()));
        while let Some(batch) = batches.next().await {
            selection.append(&batch?)?;
        }
        Ok(Outcome::Selection(selection.finish()))
    }
}

/// Counts a query that no plan had to answer, and logs what did.
fn settled(plan: impl fmt::Display + Send + Sync + 'static, outcome: Outcome) -> Result<Outcome, QueryError> {
    let mut measured = Measured::start();
    if let Some(log_context) = request_log::current() {
        log_context.set_plan(plan);
    }
    let outcome = Ok(outcome);
    measured.end(&outcome);
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

/// Rows that a `dedup_key` leaves, at least, where nearly all of them would be sent.
const MANY_ROWS: u64 = 1 << 16;

/// Whether a `dedup_key` leaves most entities, as far as the profile tells: other nodes would send nearly all rows,
/// with what they are ordered by, which is more work than to find them here.
async fn keeps_most(reader: &VersionReader, request: &ReadRequest) -> bool {
    if !request.dedup || request.dedup_key.is_empty() || reader.entity_count() <= MANY_ROWS {
        return false;
    }
    // Without the profile, as without this.
    let Ok(paths) = reader.paths().await else { return false };
    let distinct = request.dedup_key.iter().filter_map(|path| paths.get(&path.to_string())?.distinct);
    distinct.max().is_some_and(|distinct| is_most(distinct, reader.entity_count()))
}

fn is_most(distinct: u64, entities: u64) -> bool {
    distinct > MANY_ROWS && distinct > entities / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_entities_are_many() {
        for (distinct, entities, expected) in
            [(200_000, 200_000, true), (110_000, 200_000, true), (90_000, 200_000, false), (60_000, 60_000, false)]
        {
            assert_eq!(is_most(distinct, entities), expected, "{distinct} of {entities}");
        }
    }
}
