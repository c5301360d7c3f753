//! The query engine: the threads, memory pool and spill space that principals share ([`crate::principal_quota`]).

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::{Duration, Instant};

use ::metrics::Counter;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use strata_limits::{FairLimit, HashedPrincipal, Principal};
use strata_runtime::blocking::run_blocking_on;
use strata_runtime::metrics::metrics;
use strata_runtime::priority::ThreadPriority;
use strata_store::StorageError;
use strata_store::free_space::DiskReserve;
use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::QueryError;
use crate::active_queries::ActiveQueries;
use crate::distribution::QueryDistributor;
use crate::principal_quota::{PrincipalMemoryPool, PrincipalShares, PrincipalTempFiles, SpillQuota, UnchargedMemory};

/// The memory that a sort or dedup needs to spill. The only active principal can reserve it even beyond its share.
const MIN_PRINCIPAL_MEMORY_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug)]
pub struct QueryEngineOptions {
    pub threads: usize,
    pub memory_bytes: usize,
    pub shares: PrincipalShares,
    pub timeout: Duration,
    pub diff_timeout: Duration,
    /// The directory for data that queries spill. `None` disables spilling.
    pub spill_directory: Option<PathBuf>,
    pub spill_bytes: u64,
    /// The free disk space below which the queries of principals cannot spill.
    pub disk_reserve: Option<DiskReserve>,
}

impl Default for QueryEngineOptions {
    fn default() -> QueryEngineOptions {
        QueryEngineOptions {
            threads: strata_runtime::priority::processor_count(),
            memory_bytes: 1 << 30,
            shares: PrincipalShares { principal_percent: 100, anonymous_percent: 100 },
            timeout: Duration::from_secs(60),
            diff_timeout: Duration::from_secs(60),
            spill_directory: None,
            spill_bytes: 0,
            disk_reserve: None,
        }
    }
}

/// Runs queries. Clones share their resources.
#[derive(Clone)]
pub struct QueryEngine {
    state: Arc<QueryEngineState>,
    /// The principal whose share of memory and disk the queries use. If `None`, only the engine's limits apply.
    principal: Option<HashedPrincipal>,
    /// The DataFusion task context, which is created on first use, because most requests do not need it.
    task_context: Arc<OnceLock<Arc<TaskContext>>>,
    priority: ThreadPriority,
    elapsed: Duration,
}

#[derive(Clone)]
pub struct WeakQueryEngine(Weak<QueryEngineState>);

impl WeakQueryEngine {
    /// Returns the query engine without a principal, for short work. `None` after the last [`QueryEngine`] was dropped.
    pub fn upgrade(&self) -> Option<QueryEngine> {
        self.0.upgrade().map(QueryEngine::new)
    }
}

struct QueryEngineState {
    options: QueryEngineOptions,
    runtime_env: Arc<RuntimeEnv>,
    session_config: SessionConfig,
    memory_quota: FairLimit,
    spill_quota: FairLimit,
    active_queries: ActiveQueries,
    /// The runtime of each thread priority, in the order of [`ThreadPriority::ALL`].
    runtimes: [QueryRuntime; 4],
    distributor: OnceLock<Arc<dyn QueryDistributor>>,
}

impl QueryEngineState {
    fn runtime_env_for(&self, hashed: Option<HashedPrincipal>) -> Arc<RuntimeEnv> {
        let env = &self.runtime_env;
        let Some(principal) = hashed.map(Principal::Hashed) else { return env.clone() };
        let pool = PrincipalMemoryPool { inner: env.memory_pool.clone(), quota: self.memory_quota.clone(), principal };
        let spill_quota =
            SpillQuota { quota: self.spill_quota.clone(), principal, reserve: self.options.disk_reserve.clone() };
        let files = PrincipalTempFiles { inner: env.disk_manager.clone(), spill_quota };
        let disk = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(files)).build();
        Arc::new(RuntimeEnv {
            memory_pool: Arc::new(pool),
            // Building the disk manager of a principal fails only if a directory cannot be created.
            disk_manager: disk.map_or_else(|_| env.disk_manager.clone(), Arc::new),
            ..(**env).clone()
        })
    }
}

struct QueryRuntime {
    queries: DetachedRuntime,
    /// Threads for [`QueryEngine::spawn_dedicated`], whose blocking calls must not wait for the runtime `queries`.
    dedicated: DetachedRuntime,
}

/// A runtime that shuts down in the background when it is dropped, because async code must not block.
struct DetachedRuntime {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Drop for DetachedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl QueryRuntime {
    fn try_new(threads: usize, priority: ThreadPriority) -> io::Result<QueryRuntime> {
        let start = |mut builder: tokio::runtime::Builder| {
            let builder = builder.thread_name(priority.thread_name()).thread_stack_size(QUERY_STACK_BYTES);
            let runtime = builder.on_thread_start(move || priority.apply_to_current_thread()).build()?;
            io::Result::Ok(DetachedRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) })
        };
        let mut queries = tokio::runtime::Builder::new_multi_thread();
        queries.worker_threads(threads).enable_all();
        let dedicated = tokio::runtime::Builder::new_current_thread();
        Ok(QueryRuntime { queries: start(queries)?, dedicated: start(dedicated)? })
    }
}

/// The rows of a batch that operators exchange. A merge of spilled runs keeps two batches of each run in memory.
pub(super) const BATCH_ROWS: usize = 2_048;
/// The stack of a query thread, regardless of `RUST_MIN_STACK`. Encoders recurse up to 128 levels, because entities are
/// nested up to this depth. The depth of a plan does not depend on the request.
const QUERY_STACK_BYTES: usize = 4 << 20;
/// The time for the tasks of a failed query to release memory and disk space.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_MERGE_RESERVATION_BYTES: usize = 10 << 20;

impl QueryEngine {
    pub fn try_new(options: &QueryEngineOptions) -> Result<QueryEngine, QueryError> {
        let threads = options.threads.max(1);
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(options.memory_bytes));
        let disk = DiskManagerBuilder::default()
            .with_mode(match &options.spill_directory {
                Some(directory) => DiskManagerMode::Directories(vec![directory.clone()]),
                None => DiskManagerMode::Disabled,
            })
            .with_max_temp_directory_size(options.spill_bytes);
        let runtime_env =
            RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk).build_arc()?;
        let session_config = with_query_settings(SessionConfig::new())
            .with_sort_spill_reservation_bytes((options.memory_bytes / 16).min(MAX_MERGE_RESERVATION_BYTES))
            .with_extension(Arc::new(UnchargedMemory(runtime_env.memory_pool.clone())));
        let runtime = |priority| QueryRuntime::try_new(threads, priority).map_err(StorageError::Io);
        let [short, medium, heavy, long] = ThreadPriority::ALL.map(runtime);
        let runtimes = [short?, medium?, heavy?, long?];
        let state = QueryEngineState {
            runtime_env,
            session_config,
            memory_quota: options.shares.to_quota(options.memory_bytes as u64, MIN_PRINCIPAL_MEMORY_BYTES),
            spill_quota: options.shares.to_quota(options.spill_bytes, 0),
            active_queries: ActiveQueries::default(),
            runtimes,
            distributor: OnceLock::new(),
            options: QueryEngineOptions { threads, ..options.clone() },
        };
        Ok(QueryEngine::new(Arc::new(state)))
    }

    fn new(state: Arc<QueryEngineState>) -> QueryEngine {
        let priority = ThreadPriority::Short;
        QueryEngine { state, principal: None, task_context: Arc::default(), priority, elapsed: Duration::ZERO }
    }

    pub fn for_principal(&self, principal: HashedPrincipal) -> QueryEngine {
        QueryEngine { principal: Some(principal), task_context: Arc::default(), ..self.clone() }
    }

    /// Returns a handle that uses the threads of a priority. The default is [`ThreadPriority::Short`].
    pub fn with_priority(&self, priority: ThreadPriority) -> QueryEngine {
        QueryEngine { priority, ..self.clone() }
    }

    /// Returns a handle whose timeout is reduced by `elapsed`, for a query that waited before it started.
    pub fn with_elapsed(&self, elapsed: Duration) -> QueryEngine {
        QueryEngine { elapsed, ..self.clone() }
    }

    pub fn downgrade(&self) -> WeakQueryEngine {
        WeakQueryEngine(Arc::downgrade(&self.state))
    }

    /// Sets the distributor, which runs parts of large queries on other nodes. Later calls have no effect.
    pub fn set_distributor(&self, distributor: Arc<dyn QueryDistributor>) {
        let _ = self.state.distributor.set(distributor);
    }

    pub fn distributor(&self) -> Option<&Arc<dyn QueryDistributor>> {
        self.state.distributor.get()
    }

    pub fn principal(&self) -> Option<HashedPrincipal> {
        self.principal
    }

    pub fn configure_session(&self, config: SessionConfig) -> SessionConfig {
        let config = with_query_settings(config);
        match self.state.session_config.get_extension::<UnchargedMemory>() {
            Some(memory) => config.with_extension(memory),
            None => config,
        }
    }

    pub fn threads(&self) -> usize {
        self.state.options.threads
    }

    pub fn task_context(&self) -> &Arc<TaskContext> {
        self.task_context.get_or_init(|| {
            // Physical plans contain the functions that they call, so the task context needs no function registry.
            Arc::new(TaskContext::new(
                None,
                "queries".to_owned(),
                self.state.session_config.clone(),
                HashMap::new(),
                HashMap::new(),
                HashMap::new(),
                HashMap::new(),
                self.state.runtime_env_for(self.principal),
            ))
        })
    }

    pub fn timeout(&self) -> Duration {
        self.state.options.timeout.saturating_sub(self.elapsed)
    }

    pub fn diff_timeout(&self) -> Duration {
        self.state.options.diff_timeout
    }

    pub fn reserved_memory_bytes(&self) -> usize {
        self.state.runtime_env.memory_pool.reserved()
    }

    pub fn total_memory_bytes(&self) -> u64 {
        self.state.options.memory_bytes as u64
    }

    /// The memory that the principal's queries can reserve together while no other query has memory.
    pub fn max_principal_memory_bytes(&self) -> u64 {
        let principal = self.principal.map(Principal::Hashed);
        principal.map_or(self.total_memory_bytes(), |principal| self.state.memory_quota.max_sole_units(principal))
    }

    /// The bytes that the principal's queries can spill together while no other query has spilled anything.
    pub fn max_principal_spill_bytes(&self) -> u64 {
        let principal = self.principal.map(Principal::Hashed);
        principal.map_or(self.state.options.spill_bytes, |principal| self.state.spill_quota.max_sole_units(principal))
    }

    /// Reserves memory for something other than a query. [`QueryError::OutOfMemory`] if too much memory is in use.
    pub fn try_reserve(&self, name: &'static str, size_bytes: usize) -> Result<MemoryReservation, QueryError> {
        let reservation = MemoryConsumer::new(name).register(self.task_context().memory_pool());
        reservation.try_grow(size_bytes)?;
        Ok(reservation)
    }

    /// Like [`QueryEngine::try_reserve`], but can exceed the memory limit: for vital work that has another limit.
    pub fn reserve_over_limit(&self, name: &'static str, size_bytes: usize) -> MemoryReservation {
        let reservation = MemoryConsumer::new(name).register(self.task_context().memory_pool());
        reservation.grow(size_bytes);
        reservation
    }

    /// Runs work on the engine's threads, in the current span. Dropping the handle stops the work at its next await.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
        AbortOnDropHandle::new(self.runtime().queries.handle.spawn(work.in_current_span()))
    }

    fn runtime(&self) -> &QueryRuntime {
        &self.state.runtimes[self.priority as usize]
    }

    /// Like [`QueryEngine::spawn`], on a dedicated thread: for work that can take long between two awaits, such as
    /// encoding a large entity. Callers limit the number of such threads. Cancelled work ends at its next await, so its
    /// permit should move into it. [`QueryError::Storage`] if the system cannot start a thread.
    pub fn spawn_dedicated<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, QueryError>> + Send + 'static {
        self.spawn_dedicated_on(self.runtime().queries.handle.clone(), work)
    }

    /// Like [`QueryEngine::spawn_dedicated`], for work whose I/O, timers and tasks belong to another Tokio runtime.
    pub fn spawn_dedicated_on<T: Send + 'static>(
        &self,
        runtime: Handle,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, QueryError>> + Send + 'static {
        let work = work.in_current_span();
        let dedicated = self.runtime().dedicated.handle.clone();
        let task = self.spawn(async move {
            let cancellation = CancellationToken::new();
            let _cancel = cancellation.clone().drop_guard();
            let run = move || runtime.block_on(async move { cancellation.run_until_cancelled(work).await });
            match run_blocking_on(&dedicated, run).await {
                Ok(Some(done)) => Ok(done),
                // The dedicated work was cancelled because its task was dropped, so no one awaits the result.
                Ok(None) => std::future::pending().await,
                Err(error) => Err(QueryError::Storage(error.into())),
            }
        });
        async move { task.await? }
    }

    /// Runs a query on the engine's threads and counts it. Dropping the future cancels the query.
    /// [`QueryError::Timeout`] after `limit`. [`QueryError::TooMuchMemory`] and [`QueryError::TooMuchDisk`] if the
    /// query exceeded a limit although no other query was running.
    pub async fn run_with_timeout<T: Send + 'static>(
        &self,
        limit: Duration,
        query: impl Future<Output = Result<T, QueryError>> + Send + 'static,
    ) -> Result<T, QueryError> {
        let reserved_before = self.reserved_memory_bytes();
        let spilled_before = self.state.spill_quota.used_units();
        let guard = self.state.active_queries.begin();
        let mut measurement = QueryMeasurement::start();
        let timeout = QueryError::Timeout { seconds: (limit + self.elapsed).as_secs() };
        let query = self.spawn(async move { tokio::time::timeout(limit, query).await });
        let outcome = query.await?.unwrap_or(Err(timeout));
        measurement.record_outcome(&outcome);
        drop(measurement);
        let ran_exclusively = guard.ran_exclusively();
        drop(guard);
        match outcome {
            Err(QueryError::OutOfMemory(cause)) if ran_exclusively && reserved_before == 0 => {
                match self.wait_until_resource_free(|engine| engine.reserved_memory_bytes() == 0).await {
                    true => Err(QueryError::TooMuchMemory { limit_bytes: self.max_principal_memory_bytes(), cause }),
                    false => Err(QueryError::OutOfMemory(cause)),
                }
            }
            Err(QueryError::OutOfDisk(cause)) if ran_exclusively && spilled_before == 0 => {
                match self.wait_until_resource_free(|engine| engine.state.spill_quota.used_units() == 0).await {
                    true => Err(QueryError::TooMuchDisk { limit_bytes: self.max_principal_spill_bytes() }),
                    false => Err(QueryError::OutOfDisk(cause)),
                }
            }
            outcome => outcome,
        }
    }

    async fn wait_until_resource_free(&self, is_free: impl Fn(&QueryEngine) -> bool) -> bool {
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        while !is_free(self) {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(RELEASE_TIMEOUT / 100).await;
        }
        true
    }
}

pub(super) fn with_query_settings(config: SessionConfig) -> SessionConfig {
    // DataFusion uses a single partition, because the scan processes row groups concurrently itself and returns them in
    // order. Several partitions would lose the order.
    config.with_target_partitions(1).with_batch_size(BATCH_ROWS)
}

/// Counts a query and its duration in the metrics when the query ends or is cancelled.
pub(super) struct QueryMeasurement {
    started: Instant,
    outcome: &'static str,
}

impl QueryMeasurement {
    pub(super) fn start() -> QueryMeasurement {
        QueryMeasurement { started: Instant::now(), outcome: "cancelled" }
    }

    pub(super) fn record_outcome<T>(&mut self, outcome: &Result<T, QueryError>) {
        self.outcome = match outcome {
            Ok(_) => "settled",
            Err(QueryError::Timeout { .. }) => "timeout",
            Err(QueryError::OutOfMemory(_) | QueryError::TooMuchMemory { .. }) => "memory",
            Err(QueryError::OutOfDisk(_) | QueryError::TooMuchDisk { .. }) => "disk",
            Err(QueryError::Storage(_) | QueryError::Engine(_) | QueryError::Task(_)) => "failed",
        };
    }
}

impl Drop for QueryMeasurement {
    fn drop(&mut self) {
        static SETTLED: LazyLock<Counter> = LazyLock::new(|| metrics().queries.with_label_values(["settled".into()]));
        match self.outcome {
            "settled" => SETTLED.increment(1),
            outcome => metrics().queries.with_label_values([outcome.into()]).increment(1),
        }
        metrics().query_seconds.record(self.started.elapsed());
    }
}

/// Counts the bytes that the operators of a plan have spilled in the metrics, when it is dropped.
pub struct SpillRecorder(pub Arc<dyn ExecutionPlan>);

impl Drop for SpillRecorder {
    fn drop(&mut self) {
        fn bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
            let own = plan.metrics().and_then(|metrics| metrics.spilled_bytes()).unwrap_or_default();
            own + plan.children().into_iter().map(bytes).sum::<usize>()
        }
        metrics().spilled_bytes.increment(bytes(&self.0) as u64);
    }
}
