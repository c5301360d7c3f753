//! The query engine: one DataFusion session for all queries, with the rules that their plans need, a memory
//! pool, and threads of its own.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result as EngineResult;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::metrics::metrics;
use crate::metrics::request_log::{self, RequestLogContext};
use crate::model::request::ReadRequest;
use crate::priority::Priority;
use crate::query::QueryError;
use crate::query::explain::{Explained, Observer, Planned};
use crate::query::fetch::selection::Selection;
use crate::query::plan::compact::CompactBeforeSort;
use crate::query::plan::limit_pushdown::LimitPushdown;
use crate::query::plan::pipeline;
use crate::query::plan::table::VersionTable;
use crate::query::tenants::{Budget, DiskShare, Tenant, TenantFiles, TenantPool, TenantShares};
use crate::storage::reader::VersionReader;

/// Memory that sorts and dedups need to spill, whatever they spill. One tenant who is alone may have so much, whatever
/// its share.
const LEAST_MEMORY_BYTES: u64 = 16 << 20;

/// What bounds the engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Threads for queries and for encoding their answers; also how many row groups one query works on at once.
    pub threads: usize,
    /// What all queries together may hold, in bytes.
    pub memory_bytes: usize,
    /// What those of one tenant may have of that, and of what may be spilled.
    pub shares: TenantShares,
    /// How long settling a selection may take.
    pub timeout: Duration,
    /// How long comparing two versions may take.
    pub diff_timeout: Duration,
    /// Where sorts and dedups spill; `None`: nowhere.
    pub spill_directory: Option<PathBuf>,
    /// What all queries together may spill, in bytes.
    pub spill_bytes: u64,
}

/// The engine. Clones share everything; queries of one that comes from [`Engine::of`] take the share of a tenant.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    context: Arc<TaskContext>,
    /// What its queries may hold when no others do.
    most_memory_bytes: u64,
    /// Whose threads run its work.
    priority: Priority,
}

struct Shared {
    state: SessionState,
    memory: Arc<Budget>,
    spilled: Arc<Budget>,
    threads: usize,
    timeout: Duration,
    diff_timeout: Duration,
    /// The same number of threads for each of [`Priority::ALL`].
    runtimes: [QueryRuntime; 4],
}

/// The threads of queries. They are left to end by themselves: a runtime must not be waited for from async code.
struct QueryRuntime(Option<Runtime>);

impl QueryRuntime {
    fn try_new(threads: usize, priority: Priority) -> Result<QueryRuntime, crate::storage::StorageError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(priority.thread_name())
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(move || priority.take())
            .enable_all()
            .build()?;
        Ok(QueryRuntime(Some(runtime)))
    }

    fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(Runtime::handle)
    }
}

impl Drop for QueryRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Rows of a batch between operators. A merge of spilled runs holds two batches of each.
pub(super) const BATCH_ROWS: usize = 2_048;

/// The stack of a thread that works on queries. Entities nest 128 levels, and so deep do the encoders recurse; plans
/// nest as deep as their operators are many, which no request can raise ([`pipeline`]), and DataFusion's own recursion
/// guard takes over before the end. Given here, so that no setting of the system or its environment makes it smaller.
const STACK_BYTES: usize = 4 << 20;

/// What a sort sets aside for the merge of what it has spilled, where there is much memory.
const MERGE_BYTES: usize = 10 << 20;

/// What a query found.
#[derive(Debug)]
pub enum Outcome {
    /// `count=true`: how many entities the request would return.
    Count(u64),
    /// The entities.
    Selection(Selection),
}

impl Engine {
    /// An engine with threads of its own.
    ///
    /// # Errors
    /// When the threads or the spill directory cannot be had.
    pub fn try_new(options: &EngineOptions) -> Result<Engine, QueryError> {
        let threads = options.threads.max(1);
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(options.memory_bytes));
        let disk = DiskManagerBuilder::default()
            .with_mode(match &options.spill_directory {
                Some(directory) => DiskManagerMode::Directories(vec![directory.clone()]),
                None => DiskManagerMode::Disabled,
            })
            .with_max_temp_directory_size(options.spill_bytes);
        let environment =
            RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk).build_arc()?;
        // The scan itself works on several row groups at once and keeps their order; partitions would lose it.
        let config = SessionConfig::new()
            .with_target_partitions(1)
            .with_batch_size(BATCH_ROWS)
            .with_sort_spill_reservation_bytes((options.memory_bytes / 16).min(MERGE_BYTES));
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(environment)
            .with_analyzer_rules(Vec::new())
            .with_optimizer_rules(logical_rules())
            .with_physical_optimizer_rules(physical_rules())
            .build();
        let [short, medium, heavy, long] = Priority::ALL.map(|priority| QueryRuntime::try_new(threads, priority));
        let runtimes = [short?, medium?, heavy?, long?];
        let context = state.task_ctx();
        let EngineOptions { timeout, diff_timeout, .. } = *options;
        let memory = Arc::new(Budget::new(options.memory_bytes as u64, LEAST_MEMORY_BYTES, options.shares));
        let spilled = Arc::new(Budget::new(options.spill_bytes, 0, options.shares));
        let shared = Shared { state, memory, spilled, threads, timeout, diff_timeout, runtimes };
        let most_memory_bytes = options.memory_bytes as u64;
        Ok(Engine { shared: Arc::new(shared), context, most_memory_bytes, priority: Priority::Short })
    }

    /// The same engine, for queries of a tenant: what they hold and spill is within the tenant's share. One whose files
    /// cannot be told apart shares with all.
    pub fn of(&self, tenant: Tenant) -> Engine {
        let shared = &self.shared;
        let all = shared.state.runtime_env();
        let pool = TenantPool { all: all.memory_pool.clone(), budget: shared.memory.clone(), tenant };
        let share = DiskShare { budget: shared.spilled.clone(), tenant };
        let files = TenantFiles { all: all.disk_manager.clone(), share };
        let disk = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(files)).build();
        let environment = RuntimeEnv {
            memory_pool: Arc::new(pool),
            // Only directories that cannot be made are an error.
            disk_manager: disk.map_or_else(|_| all.disk_manager.clone(), Arc::new),
            ..(**all).clone()
        };
        let context = TaskContext::new(
            None,
            self.context.session_id(),
            self.context.session_config().clone(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            Arc::new(environment),
        );
        let most_memory_bytes = shared.memory.most(tenant);
        Engine { shared: shared.clone(), context: Arc::new(context), most_memory_bytes, priority: self.priority }
    }

    /// The same engine, for work of this priority: it runs on threads of its own. An engine is for short work at first.
    pub fn at(&self, priority: Priority) -> Engine {
        Engine { priority, ..self.clone() }
    }

    /// How many threads queries have.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// What queries run in: the memory pool and where they spill.
    pub(crate) fn context(&self) -> &Arc<TaskContext> {
        &self.context
    }

    /// How long settling a selection may take.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// How long comparing two versions may take.
    pub(crate) fn diff_timeout(&self) -> Duration {
        self.shared.diff_timeout
    }

    /// What all queries together hold now, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.context.memory_pool().reserved()
    }

    /// What its queries may hold together when no others hold any, in bytes.
    pub fn most_memory_bytes(&self) -> u64 {
        self.most_memory_bytes
    }

    /// Takes memory for something that is no query, until the reservation is dropped.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`] when queries hold too much of it.
    pub fn reserve(&self, name: &'static str, size_bytes: usize) -> Result<MemoryReservation, QueryError> {
        let reservation = MemoryConsumer::new(name).register(self.context.memory_pool());
        reservation.try_grow(size_bytes)?;
        Ok(reservation)
    }

    /// Runs work on the engine's threads, so that it does not keep connections waiting. Dropping the handle
    /// stops the work at its next point of waiting. What it logs names the request at hand.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
        let work = work.in_current_span();
        AbortOnDropHandle::new(match self.shared.runtimes[self.priority as usize].handle() {
            Some(handle) => handle.spawn(work),
            None => tokio::spawn(work),
        })
    }

    /// As [`Engine::spawn`], on a thread of its own: for work that may go on for long without a point of waiting, such
    /// as writing a large entity. The system shares the processors between such threads and those of queries, so that
    /// nothing else waits behind it. Callers bound how much there is at once; work that is stopped ends at its next
    /// point of waiting, and what bounds it should move into it.
    pub fn spawn_apart<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> AbortOnDropHandle<T> {
        let work = work.in_current_span();
        self.spawn(async move {
            let cancelled = CancellationToken::new();
            let _cancel = cancelled.clone().drop_guard();
            let runtime = Handle::current();
            let working = move || runtime.block_on(async move { cancelled.run_until_cancelled(work).await });
            match tokio::task::spawn_blocking(working).await {
                Ok(Some(done)) => done,
                // Nobody waits any more: this task is stopped, too, or its runtime ends.
                Ok(None) => std::future::pending().await,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => std::future::pending().await,
                },
            }
        })
    }

    /// Settles which entities of a version a request selects. Dropping the future stops the query.
    ///
    /// # Errors
    /// [`QueryError::Timeout`] and [`QueryError::OutOfMemory`] by the engine's bounds, others when the version
    /// cannot be read.
    pub async fn select(&self, reader: VersionReader, request: Arc<ReadRequest>) -> Result<Outcome, QueryError> {
        self.settle(reader, request, None).await
    }

    /// As [`Engine::select`], and tells what the query did: the same plan, seen while it ran.
    ///
    /// # Errors
    /// As of [`Engine::select`].
    pub async fn explain(
        &self,
        reader: VersionReader,
        request: Arc<ReadRequest>,
    ) -> Result<(Outcome, Explained), QueryError> {
        let observer = Arc::new(Observer::default());
        let outcome = self.settle(reader, request, Some(observer.clone())).await?;
        let unplanned = || QueryError::Engine(internal_datafusion_err!("a query was settled without a plan"));
        Ok((outcome, observer.explained().ok_or_else(unplanned)?))
    }

    async fn settle(
        &self,
        reader: VersionReader,
        request: Arc<ReadRequest>,
        observer: Option<Arc<Observer>>,
    ) -> Result<Outcome, QueryError> {
        let engine = self.clone();
        let limit = self.shared.timeout;
        let log_context = request_log::current();
        let query = async move { engine.run(reader, &request, log_context, observer).await };
        self.run_within(limit, query).await
    }

    /// Runs a query on the engine's threads, and counts it. Dropping the future stops it.
    ///
    /// # Errors
    /// [`QueryError::Timeout`] when it takes longer than the limit, and what it fails with.
    pub(crate) async fn run_within<T: Send + 'static>(
        &self,
        limit: Duration,
        query: impl Future<Output = Result<T, QueryError>> + Send + 'static,
    ) -> Result<T, QueryError> {
        let mut measured = Measured::start();
        let outcome = match self.spawn(async move { tokio::time::timeout(limit, query).await }).await? {
            Ok(outcome) => outcome,
            Err(_) => Err(QueryError::Timeout { seconds: limit.as_secs() }),
        };
        measured.end(&outcome);
        outcome
    }

    async fn run(
        &self,
        reader: VersionReader,
        request: &ReadRequest,
        log_context: Option<Arc<RequestLogContext>>,
        observer: Option<Arc<Observer>>,
    ) -> Result<Outcome, QueryError> {
        let started = Instant::now();
        let Plans { logical, optimized, physical: plan } = self.plans(reader, request).await?;
        let planning = started.elapsed();
        if let Some(observer) = &observer {
            observer.planned(Planned { logical, optimized, physical: plan.clone(), planning });
        }
        if let Some(log_context) = log_context {
            log_context.set_plan(OneLine(plan.clone()));
        }
        let outcome = self.execute(plan, request).await;
        if let Some(observer) = &observer {
            observer.selected(started.elapsed().saturating_sub(planning));
        }
        outcome
    }

    /// What a physical plan gives.
    async fn execute(&self, plan: Arc<dyn ExecutionPlan>, request: &ReadRequest) -> Result<Outcome, QueryError> {
        let _spilled = Spilled(plan.clone());
        let mut batches = execute_stream(plan, self.context.clone())?;
        if request.count {
            let mut count = 0;
            while let Some(batch) = batches.next().await {
                let batch = batch?;
                count += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
            }
            return Ok(Outcome::Count(u64::try_from(count).unwrap_or_default()));
        }
        let consumer = MemoryConsumer::new("selection");
        let mut selection = Selection::new(consumer.register(self.context.memory_pool()));
        while let Some(batch) = batches.next().await {
            selection.append(&batch?)?;
        }
        Ok(Outcome::Selection(selection))
    }

    /// The plans of a request, each made of the one before.
    async fn plans(&self, reader: VersionReader, request: &ReadRequest) -> EngineResult<Plans> {
        let state = &self.shared.state;
        let logical = pipeline::plan(VersionTable::new(reader, self.shared.threads), request)?;
        let optimized = state.optimize(&logical)?;
        let physical = state.query_planner().create_physical_plan(&optimized, state).await?;
        Ok(Plans { logical, optimized, physical })
    }
}

/// The plans of a request.
struct Plans {
    logical: LogicalPlan,
    optimized: LogicalPlan,
    physical: Arc<dyn ExecutionPlan>,
}

/// Counts a query when it ends, or is cancelled.
struct Measured {
    started: Instant,
    outcome: &'static str,
}

impl Measured {
    fn start() -> Measured {
        Measured { started: Instant::now(), outcome: "cancelled" }
    }

    fn end<T>(&mut self, outcome: &Result<T, QueryError>) {
        self.outcome = match outcome {
            Ok(_) => "settled",
            Err(QueryError::Timeout { .. }) => "timeout",
            Err(QueryError::OutOfMemory(_)) => "memory",
            Err(QueryError::Storage(_) | QueryError::Engine(_) | QueryError::Task(_)) => "failed",
        };
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        metrics().queries.of([self.outcome.into()]).increment(1);
        metrics().query_seconds.record(self.started.elapsed());
    }
}

/// Counts what the operators of a plan have spilled, when its execution ends in whatever way.
pub(crate) struct Spilled(pub(crate) Arc<dyn ExecutionPlan>);

impl Drop for Spilled {
    fn drop(&mut self) {
        fn bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
            let own = plan.metrics().and_then(|metrics| metrics.spilled_bytes()).unwrap_or_default();
            own + plan.children().into_iter().map(bytes).sum::<usize>()
        }
        metrics().spilled_bytes.increment(bytes(&self.0) as u64);
    }
}

/// Displays a plan on one line, each operator before its input.
struct OneLine(Arc<dyn ExecutionPlan>);

impl fmt::Display for OneLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = displayable(&*self.0).indent(false).to_string();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        formatter.write_str(lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| write!(formatter, " <- {line}"))
    }
}

/// The logical rules that these plans need, out of DataFusion's two dozen: each costs time in every request.
fn logical_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(PushDownLimit::new()),
        // After limits, which filters cannot pass.
        Arc::new(PushDownFilter::new()),
        // Last: what the filters that were pushed down needed is not read any more.
        Arc::new(OptimizeProjections::new()),
    ]
}

/// The physical rules that these plans need.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    vec![
        Arc::new(LimitPushdown),
        Arc::new(CompactBeforeSort),
        // After windows: a count over a scan without predicates is known then.
        Arc::new(AggregateStatistics::new()),
    ]
}
