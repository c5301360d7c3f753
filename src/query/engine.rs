//! The query engine: threads, a memory pool and spill space, which tenants share ([`super::tenants`]).

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
use strata_runtime::blocking::blocking_on;
use strata_runtime::metrics::metrics;
use strata_runtime::priority::Priority;
use strata_store::StorageError;
use strata_store::free_space::DiskReserve;
use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::QueryError;
use crate::concurrency::ActiveQueries;
use crate::distribute::Distribution;
use crate::tenants::{DiskShare, SharedMemory, TenantFiles, TenantPool, TenantShares};

/// Memory that any sort or dedup needs to spill. A tenant can have it beyond its share while it is alone.
const MIN_MEMORY_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Threads for queries and encoding. A query processes as many row groups at once.
    pub threads: usize,
    pub memory_bytes: usize,
    /// The shares of a tenant in `memory_bytes` and in `spill_bytes`.
    pub shares: TenantShares,
    pub timeout: Duration,
    pub diff_timeout: Duration,
    /// The directory for spill files. `None` disables spilling.
    pub spill_directory: Option<PathBuf>,
    pub spill_bytes: u64,
    /// The disk space that the queries of tenants leave free.
    pub disk_reserve: Option<DiskReserve>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            threads: strata_runtime::priority::processors(),
            memory_bytes: 1 << 30,
            shares: TenantShares { one_percent: 100, anonymous_percent: 100 },
            timeout: Duration::from_secs(60),
            diff_timeout: Duration::from_secs(60),
            spill_directory: None,
            spill_bytes: 0,
            disk_reserve: None,
        }
    }
}

/// The engine. Clones share its resources.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    /// Whose share its queries use. `None` is no tenant.
    tenant: Option<HashedPrincipal>,
    /// Created by the first query that needs it. Most pages do not.
    context: Arc<OnceLock<Arc<TaskContext>>>,
    priority: Priority,
    /// The part of the time limit that has passed before a query begins.
    elapsed: Duration,
}

/// A handle that does not keep the engine alive.
#[derive(Clone)]
pub struct WeakEngine(Weak<Shared>);

impl WeakEngine {
    /// The engine without a tenant, for short work. `None` if the last [`Engine`] has been dropped.
    pub fn upgrade(&self) -> Option<Engine> {
        self.0.upgrade().map(Engine::new)
    }
}

struct Shared {
    options: EngineOptions,
    environment: Arc<RuntimeEnv>,
    config: SessionConfig,
    memory: FairLimit,
    spilled: FairLimit,
    active_queries: ActiveQueries,
    /// In the order of [`Priority::ALL`].
    runtimes: [QueryRuntime; 4],
    distribution: OnceLock<Arc<dyn Distribution>>,
}

impl Shared {
    fn environment(&self, tenant: Option<HashedPrincipal>) -> Arc<RuntimeEnv> {
        let all = &self.environment;
        let Some(principal) = tenant.map(Principal::Hashed) else { return all.clone() };
        let pool = TenantPool { all: all.memory_pool.clone(), quota: self.memory.clone(), principal };
        let share = DiskShare { quota: self.spilled.clone(), principal, reserve: self.options.disk_reserve.clone() };
        let files = TenantFiles { all: all.disk_manager.clone(), share };
        let disk = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(files)).build();
        Arc::new(RuntimeEnv {
            memory_pool: Arc::new(pool),
            // Building fails only if a directory cannot be created.
            disk_manager: disk.map_or_else(|_| all.disk_manager.clone(), Arc::new),
            ..(**all).clone()
        })
    }
}

struct QueryRuntime {
    queries: DetachedRuntime,
    /// The threads of [`Engine::spawn_apart`], whose blocking calls must not wait for threads of the same runtime.
    apart: DetachedRuntime,
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
    fn try_new(threads: usize, priority: Priority) -> io::Result<QueryRuntime> {
        let start = |mut builder: tokio::runtime::Builder| {
            let builder = builder.thread_name(priority.thread_name()).thread_stack_size(STACK_BYTES);
            let runtime = builder.on_thread_start(move || priority.take()).build()?;
            io::Result::Ok(DetachedRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) })
        };
        let mut queries = tokio::runtime::Builder::new_multi_thread();
        queries.worker_threads(threads).enable_all();
        let apart = tokio::runtime::Builder::new_current_thread();
        Ok(QueryRuntime { queries: start(queries)?, apart: start(apart)? })
    }
}

/// Rows of a batch between operators. A merge of spilled runs has two batches of each run in memory.
pub(super) const BATCH_ROWS: usize = 2_048;

/// The stack of a query thread, regardless of `RUST_MIN_STACK`. Encoders recurse up to 128 levels, like entities. The
/// depth of a plan does not depend on the request (`plan/pipeline.rs`).
const STACK_BYTES: usize = 4 << 20;

/// How long the tasks of a failed query can take to release memory and disk space.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

/// The most memory that a sort reserves for merging its spilled runs.
const MAX_MERGE_BYTES: usize = 10 << 20;

impl Engine {
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
        let config = with_settings(SessionConfig::new())
            .with_sort_spill_reservation_bytes((options.memory_bytes / 16).min(MAX_MERGE_BYTES))
            .with_extension(Arc::new(SharedMemory(environment.memory_pool.clone())));
        let runtime = |priority| QueryRuntime::try_new(threads, priority).map_err(StorageError::Io);
        let [short, medium, heavy, long] = Priority::ALL.map(runtime);
        let runtimes = [short?, medium?, heavy?, long?];
        let shared = Shared {
            environment,
            config,
            memory: options.shares.quota(options.memory_bytes as u64, MIN_MEMORY_BYTES),
            spilled: options.shares.quota(options.spill_bytes, 0),
            active_queries: ActiveQueries::default(),
            runtimes,
            distribution: OnceLock::new(),
            options: EngineOptions { threads, ..options.clone() },
        };
        Ok(Engine::new(Arc::new(shared)))
    }

    fn new(shared: Arc<Shared>) -> Engine {
        Engine { shared, tenant: None, context: Arc::default(), priority: Priority::Short, elapsed: Duration::ZERO }
    }

    /// The same engine for queries that use the tenant's share of memory and spill space.
    pub fn for_tenant(&self, tenant: HashedPrincipal) -> Engine {
        Engine { tenant: Some(tenant), context: Arc::default(), ..self.clone() }
    }

    /// The same engine for work on the threads of a priority. The default is [`Priority::Short`].
    pub fn with_priority(&self, priority: Priority) -> Engine {
        Engine { priority, ..self.clone() }
    }

    /// The same engine for a query that has already used this part of its time limit.
    pub fn with_elapsed(&self, elapsed: Duration) -> Engine {
        Engine { elapsed, ..self.clone() }
    }

    pub fn weak(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.shared))
    }

    /// Distributes large queries from now on. Only the first call has an effect.
    pub fn distribute_by(&self, distribution: Arc<dyn Distribution>) {
        let _ = self.shared.distribution.set(distribution);
    }

    pub fn distribution(&self) -> Option<&Arc<dyn Distribution>> {
        self.shared.distribution.get()
    }

    pub fn tenant(&self) -> Option<HashedPrincipal> {
        self.tenant
    }

    /// The configuration of a session with the engine's settings.
    pub fn settings(&self, config: SessionConfig) -> SessionConfig {
        let config = with_settings(config);
        match self.shared.config.get_extension::<SharedMemory>() {
            Some(memory) => config.with_extension(memory),
            None => config,
        }
    }

    pub fn threads(&self) -> usize {
        self.shared.options.threads
    }

    /// The memory pool and the spill space of queries.
    pub fn context(&self) -> &Arc<TaskContext> {
        self.context.get_or_init(|| {
            // Plans contain the functions that they call, so the context needs no registry.
            Arc::new(TaskContext::new(
                None,
                "queries".to_owned(),
                self.shared.config.clone(),
                HashMap::new(),
                HashMap::new(),
                HashMap::new(),
                HashMap::new(),
                self.shared.environment(self.tenant),
            ))
        })
    }

    pub fn timeout(&self) -> Duration {
        self.shared.options.timeout.saturating_sub(self.elapsed)
    }

    pub fn diff_timeout(&self) -> Duration {
        self.shared.options.diff_timeout
    }

    pub fn memory_bytes(&self) -> usize {
        self.shared.environment.memory_pool.reserved()
    }

    pub fn all_memory_bytes(&self) -> u64 {
        self.shared.options.memory_bytes as u64
    }

    /// What its queries can reserve together while no other query has memory.
    pub fn most_memory_bytes(&self) -> u64 {
        self.tenant.map_or(self.all_memory_bytes(), |tenant| self.shared.memory.max_units(Principal::Hashed(tenant)))
    }

    /// What its queries can spill together while no other query has spilled anything.
    pub fn most_spilled_bytes(&self) -> u64 {
        self.tenant
            .map_or(self.shared.options.spill_bytes, |tenant| self.shared.spilled.max_units(Principal::Hashed(tenant)))
    }

    /// Reserves memory for something other than a query.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`] if too much memory is in use.
    pub fn reserve(&self, name: &'static str, size_bytes: usize) -> Result<MemoryReservation, QueryError> {
        let reservation = MemoryConsumer::new(name).register(self.context().memory_pool());
        reservation.try_grow(size_bytes)?;
        Ok(reservation)
    }

    /// Like [`Engine::reserve`], even beyond the limit: for work that must continue and has another limit.
    pub fn reserve_anyway(&self, name: &'static str, size_bytes: usize) -> MemoryReservation {
        let reservation = MemoryConsumer::new(name).register(self.context().memory_pool());
        reservation.grow(size_bytes);
        reservation
    }

    /// Runs work on the engine's threads, in the current span. Dropping the handle stops the work at its next await.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
        AbortOnDropHandle::new(self.runtime().queries.handle.spawn(work.in_current_span()))
    }

    fn runtime(&self) -> &QueryRuntime {
        &self.shared.runtimes[self.priority as usize]
    }

    /// Like [`Engine::spawn`], on a dedicated thread: for work that can take long between two awaits, such as encoding
    /// a large entity. Callers limit the number of such threads. Stopped work ends at its next await, so its permit
    /// should move into it.
    ///
    /// # Errors
    /// [`QueryError::Storage`] if the system cannot start a thread.
    pub fn spawn_apart<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, QueryError>> + Send + 'static {
        self.spawn_apart_on(self.runtime().queries.handle.clone(), work)
    }

    /// Like [`Engine::spawn_apart`], for work whose I/O, timers and tasks belong to this runtime.
    pub fn spawn_apart_on<T: Send + 'static>(
        &self,
        runtime: Handle,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, QueryError>> + Send + 'static {
        let work = work.in_current_span();
        let apart = self.runtime().apart.handle.clone();
        let task = self.spawn(async move {
            let cancelled = CancellationToken::new();
            let _cancel = cancelled.clone().drop_guard();
            let working = move || runtime.block_on(async move { cancelled.run_until_cancelled(work).await });
            match blocking_on(&apart, working).await {
                Ok(Some(done)) => Ok(done),
                // The work was cancelled with this task.
                Ok(None) => std::future::pending().await,
                Err(error) => Err(QueryError::Storage(error.into())),
            }
        });
        async move { task.await? }
    }

    /// Runs a query on the engine's threads and counts it. Dropping the future stops the query.
    ///
    /// # Errors
    /// [`QueryError::Timeout`] if the query exceeds the time limit; [`QueryError::TooMuchMemory`] or
    /// [`QueryError::TooMuchDisk`] if it ran out of memory or disk space although it ran alone; its own errors.
    pub async fn run_query_within<T: Send + 'static>(
        &self,
        limit: Duration,
        query: impl Future<Output = Result<T, QueryError>> + Send + 'static,
    ) -> Result<T, QueryError> {
        let held_bytes = self.memory_bytes();
        let spilled_bytes = self.shared.spilled.used_units();
        let guard = self.shared.active_queries.begin();
        let mut measured = Measured::start();
        let outcome = match self.spawn(async move { tokio::time::timeout(limit, query).await }).await? {
            Ok(outcome) => outcome,
            Err(_) => Err(QueryError::Timeout { seconds: (limit + self.elapsed).as_secs() }),
        };
        measured.end(&outcome);
        drop(measured);
        let was_alone = guard.ran_exclusively();
        drop(guard);
        match outcome {
            Err(QueryError::OutOfMemory(cause)) if was_alone && held_bytes == 0 => {
                match self.releases_all(|engine| engine.memory_bytes() == 0).await {
                    true => Err(QueryError::TooMuchMemory { limit_bytes: self.most_memory_bytes(), cause }),
                    false => Err(QueryError::OutOfMemory(cause)),
                }
            }
            Err(QueryError::OutOfDisk(cause)) if was_alone && spilled_bytes == 0 => {
                match self.releases_all(|engine| engine.shared.spilled.used_units() == 0).await {
                    true => Err(QueryError::TooMuchDisk { limit_bytes: self.most_spilled_bytes() }),
                    false => Err(QueryError::OutOfDisk(cause)),
                }
            }
            outcome => outcome,
        }
    }

    /// Whether all of a resource is free soon after a query that ran alone has failed, when its tasks have ended.
    async fn releases_all(&self, is_free: impl Fn(&Engine) -> bool) -> bool {
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

/// The settings that planning and execution share.
pub(super) fn with_settings(config: SessionConfig) -> SessionConfig {
    // The scan processes several row groups at once and returns them in order. Partitions would lose the order.
    config.with_target_partitions(1).with_batch_size(BATCH_ROWS)
}

/// Counts a query when it ends or is cancelled.
pub(super) struct Measured {
    started: Instant,
    outcome: &'static str,
}

impl Measured {
    pub(super) fn start() -> Measured {
        Measured { started: Instant::now(), outcome: "cancelled" }
    }

    pub(super) fn end<T>(&mut self, outcome: &Result<T, QueryError>) {
        self.outcome = match outcome {
            Ok(_) => "settled",
            Err(QueryError::Timeout { .. }) => "timeout",
            Err(QueryError::OutOfMemory(_) | QueryError::TooMuchMemory { .. }) => "memory",
            Err(QueryError::OutOfDisk(_) | QueryError::TooMuchDisk { .. }) => "disk",
            Err(QueryError::Storage(_) | QueryError::Engine(_) | QueryError::Task(_)) => "failed",
        };
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        static SETTLED: LazyLock<Counter> = LazyLock::new(|| metrics().queries.of(["settled".into()]));
        match self.outcome {
            "settled" => SETTLED.increment(1),
            outcome => metrics().queries.of([outcome.into()]).increment(1),
        }
        metrics().query_seconds.record(self.started.elapsed());
    }
}

/// Counts the bytes that the operators of a plan have spilled when its execution ends.
pub struct Spilled(pub Arc<dyn ExecutionPlan>);

impl Drop for Spilled {
    fn drop(&mut self) {
        fn bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
            let own = plan.metrics().and_then(|metrics| metrics.spilled_bytes()).unwrap_or_default();
            own + plan.children().into_iter().map(bytes).sum::<usize>()
        }
        metrics().spilled_bytes.increment(bytes(&self.0) as u64);
    }
}
