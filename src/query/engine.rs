//! The query engine: what queries run in. Threads of their own, a memory pool and disk to spill to, shared by all
//! queries, and by tenants ([`super::tenants`]).

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

/// Memory that sorts and dedups need to spill, whatever they spill. One tenant who is alone may have so much, whatever
/// its share.
const MIN_MEMORY_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Threads for queries and for encoding their answers; also how many row groups one query works on at once.
    pub threads: usize,
    pub memory_bytes: usize,
    /// What those of one tenant may have of that, and of what may be spilled.
    pub shares: TenantShares,
    pub timeout: Duration,
    pub diff_timeout: Duration,
    /// Where sorts and dedups spill; `None`: nowhere.
    pub spill_directory: Option<PathBuf>,
    pub spill_bytes: u64,
    /// What the queries of tenants leave free of the disk; `None`: nothing.
    pub disk_reserve: Option<DiskReserve>,
}

/// One thread per processor and 1 GiB of memory, for whoever needs no shares and no spilling.
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

/// The engine. Clones share everything; queries of one that comes from [`Engine::of`] take the share of a tenant.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    /// Whose share its queries take; `None`: that of all.
    tenant: Option<HashedPrincipal>,
    /// Made when a query asks for it: most pages need none.
    context: Arc<OnceLock<Arc<TaskContext>>>,
    /// Whose threads run its work.
    priority: Priority,
    /// How much of the time of its queries is over before they begin.
    spent: Duration,
}

/// The engine, for who must not keep it: it ends with the last [`Engine`].
#[derive(Clone)]
pub struct WeakEngine(Weak<Shared>);

impl WeakEngine {
    /// The engine, for queries of all and short work; `None` where it has ended.
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
    /// The same number of threads for each of [`Priority::ALL`].
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
            // Only directories that cannot be made are an error.
            disk_manager: disk.map_or_else(|_| all.disk_manager.clone(), Arc::new),
            ..(**all).clone()
        })
    }
}

/// The threads of queries.
struct QueryRuntime {
    queries: DetachedRuntime,
    /// The threads of [`Engine::spawn_apart`]. Not those of the other runtime's blocking calls: work on a thread of its
    /// own waits for such calls, which would wait for its thread where there can be no other.
    apart: DetachedRuntime,
}

/// A runtime that is left to end by itself: none must be waited for from async code.
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
        let begun = |mut builder: tokio::runtime::Builder| {
            let builder = builder.thread_name(priority.thread_name()).thread_stack_size(STACK_BYTES);
            let runtime = builder.on_thread_start(move || priority.take()).build()?;
            io::Result::Ok(DetachedRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) })
        };
        let mut queries = tokio::runtime::Builder::new_multi_thread();
        queries.worker_threads(threads).enable_all();
        let apart = tokio::runtime::Builder::new_current_thread();
        Ok(QueryRuntime { queries: begun(queries)?, apart: begun(apart)? })
    }
}

/// Rows of a batch between operators. A merge of spilled runs holds two batches of each.
pub(super) const BATCH_ROWS: usize = 2_048;

/// The stack of a thread that works on queries. Entities nest 128 levels, and so deep do the encoders recurse; plans
/// nest as deep as their operators are many, which no request can raise (`plan/pipeline.rs`), and DataFusion's own
/// recursion guard takes over before the end. Given here, so that no setting of the system or its environment makes it
/// smaller.
const STACK_BYTES: usize = 4 << 20;

/// How long the tasks of a query that failed may take to give back what they hold, before it counts as another's.
const GIVING_BACK: Duration = Duration::from_millis(500);

/// Memory that a sort reserves for merging its spilled runs, where there is much memory.
const MERGE_BYTES: usize = 10 << 20;

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
            .with_sort_spill_reservation_bytes((options.memory_bytes / 16).min(MERGE_BYTES))
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

    /// The engine, for queries of all and short work.
    fn new(shared: Arc<Shared>) -> Engine {
        Engine { shared, tenant: None, context: Arc::default(), priority: Priority::Short, spent: Duration::ZERO }
    }

    /// The same engine, for queries of a tenant: what they hold and spill is within the tenant's share. One whose files
    /// cannot be told apart shares with all.
    pub fn of(&self, tenant: HashedPrincipal) -> Engine {
        Engine { tenant: Some(tenant), context: Arc::default(), ..self.clone() }
    }

    /// The same engine, for work of this priority: it runs on threads of its own. An engine is for short work at first.
    pub fn at(&self, priority: Priority) -> Engine {
        Engine { priority, ..self.clone() }
    }

    /// The same engine, for a query so much of whose time is over.
    pub fn after(&self, spent: Duration) -> Engine {
        Engine { spent, ..self.clone() }
    }

    /// The same engine, for who must not keep it.
    pub fn weak(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.shared))
    }

    /// Has parts of large queries run by other nodes from now on. Who comes first stays.
    pub fn distribute_by(&self, distribution: Arc<dyn Distribution>) {
        let _ = self.shared.distribution.set(distribution);
    }

    pub fn distribution(&self) -> Option<&Arc<dyn Distribution>> {
        self.shared.distribution.get()
    }

    /// Whose share its queries take; `None`: that of all.
    pub fn tenant(&self) -> Option<HashedPrincipal> {
        self.tenant
    }

    /// The settings of queries, in a session that another part of the program begins.
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

    /// What queries run in: the memory pool and where they spill.
    pub fn context(&self) -> &Arc<TaskContext> {
        self.context
            .get_or_init(|| Arc::new(task_context(self.shared.config.clone(), self.shared.environment(self.tenant))))
    }

    pub fn timeout(&self) -> Duration {
        self.shared.options.timeout.saturating_sub(self.spent)
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

    /// What its queries may hold together when no others hold any, in bytes.
    pub fn most_memory_bytes(&self) -> u64 {
        self.tenant.map_or(self.all_memory_bytes(), |tenant| self.shared.memory.max_units(Principal::Hashed(tenant)))
    }

    fn spilled_bytes(&self) -> u64 {
        self.shared.spilled.used_units()
    }

    /// What its queries may spill together when no others have spilled any, in bytes.
    pub fn most_spilled_bytes(&self) -> u64 {
        self.tenant
            .map_or(self.shared.options.spill_bytes, |tenant| self.shared.spilled.max_units(Principal::Hashed(tenant)))
    }

    /// Takes memory for something that is no query, until the reservation is dropped.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`] when queries hold too much of it.
    pub fn reserve(&self, name: &'static str, size_bytes: usize) -> Result<MemoryReservation, QueryError> {
        let reservation = MemoryConsumer::new(name).register(self.context().memory_pool());
        reservation.try_grow(size_bytes)?;
        Ok(reservation)
    }

    /// As [`Engine::reserve`], whatever others hold: they get less until it is given back. For what must go on, and is
    /// bounded elsewhere.
    pub fn reserve_anyway(&self, name: &'static str, size_bytes: usize) -> MemoryReservation {
        let reservation = MemoryConsumer::new(name).register(self.context().memory_pool());
        reservation.grow(size_bytes);
        reservation
    }

    /// Runs work on the engine's threads, so that it does not keep connections waiting. Dropping the handle
    /// stops the work at its next point of waiting. What it logs names the request at hand.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
        AbortOnDropHandle::new(self.runtime().queries.handle.spawn(work.in_current_span()))
    }

    fn runtime(&self) -> &QueryRuntime {
        &self.shared.runtimes[self.priority as usize]
    }

    /// As [`Engine::spawn`], on a thread of its own: for work that may go on for long without a point of waiting, such
    /// as writing a large entity. The system shares the processors between such threads and those of queries, so that
    /// nothing else waits behind it. Callers bound how much there is at once; work that is stopped ends at its next
    /// point of waiting, and what bounds it should move into it.
    ///
    /// # Errors
    /// [`QueryError::Storage`] where the system starts no thread.
    pub fn spawn_apart<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, QueryError>> + Send + 'static {
        self.spawn_apart_on(self.runtime().queries.handle.clone(), work)
    }

    /// As [`Engine::spawn_apart`], for work whose input and output, timers and tasks belong to this runtime.
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
                // Nobody waits any more: this task is stopped, too.
                Ok(None) => std::future::pending().await,
                Err(error) => Err(QueryError::Storage(error.into())),
            }
        });
        async move { task.await? }
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
        self.run_tracked(limit, query).await.0
    }

    /// As [`Engine::run_within`], and [`QueryError::TooMuchMemory`] or [`QueryError::TooMuchDisk`] when nobody else has
    /// held any meanwhile.
    pub async fn run_query_within<T: Send + 'static>(
        &self,
        limit: Duration,
        query: impl Future<Output = Result<T, QueryError>> + Send + 'static,
    ) -> Result<T, QueryError> {
        let (held_bytes, spilled_bytes) = (self.memory_bytes(), self.spilled_bytes());
        match self.run_tracked(limit, query).await {
            (Err(QueryError::OutOfMemory(cause)), true) if held_bytes == 0 => {
                match self.all_is_given_back(|engine| engine.memory_bytes() == 0).await {
                    true => Err(QueryError::TooMuchMemory { limit_bytes: self.most_memory_bytes(), cause }),
                    false => Err(QueryError::OutOfMemory(cause)),
                }
            }
            (Err(QueryError::OutOfDisk(cause)), true) if spilled_bytes == 0 => {
                match self.all_is_given_back(|engine| engine.spilled_bytes() == 0).await {
                    true => Err(QueryError::TooMuchDisk { limit_bytes: self.most_spilled_bytes() }),
                    false => Err(QueryError::OutOfDisk(cause)),
                }
            }
            (outcome, _) => outcome,
        }
    }

    /// Whether all memory, or all disk, is free after a query that was alone has failed. Its tasks are stopped, and
    /// give back what they hold at their next point of waiting. They get a moment for it.
    async fn all_is_given_back(&self, is_free: impl Fn(&Engine) -> bool) -> bool {
        let until = Instant::now() + GIVING_BACK;
        while !is_free(self) {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(GIVING_BACK / 100).await;
        }
        true
    }

    async fn run_tracked<T: Send + 'static>(
        &self,
        limit: Duration,
        query: impl Future<Output = Result<T, QueryError>> + Send + 'static,
    ) -> (Result<T, QueryError>, bool) {
        let mut measured = Measured::start();
        let guard = self.shared.active_queries.begin();
        let outcome = match self.spawn(async move { tokio::time::timeout(limit, query).await }).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(QueryError::Timeout { seconds: (limit + self.spent).as_secs() }),
            Err(stopped) => return (Err(stopped.into()), false),
        };
        measured.end(&outcome);
        (outcome, guard.ran_exclusively())
    }
}

/// What plans are executed in. They hold the functions that they call, so it needs to name none.
fn task_context(config: SessionConfig, environment: Arc<RuntimeEnv>) -> TaskContext {
    TaskContext::new(
        None,
        "queries".to_owned(),
        config,
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        environment,
    )
}

/// A session with the settings that planning and execution share.
pub(super) fn with_settings(config: SessionConfig) -> SessionConfig {
    // The scan itself works on several row groups at once and keeps their order; partitions would lose it.
    config.with_target_partitions(1).with_batch_size(BATCH_ROWS)
}

/// Counts a query when it ends, or is cancelled.
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

/// Counts what the operators of a plan have spilled, when its execution ends in whatever way.
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

/// An engine of two threads, all of whose memory one tenant may have.
#[cfg(test)]
pub(super) fn test_engine(memory_bytes: usize, spill_directory: &std::path::Path) -> Engine {
    let engine = Engine::try_new(&EngineOptions {
        threads: 2,
        memory_bytes,
        shares: TenantShares { one_percent: 100, anonymous_percent: 100 },
        timeout: Duration::from_secs(600),
        diff_timeout: Duration::from_secs(600),
        spill_directory: Some(spill_directory.to_owned()),
        spill_bytes: 1 << 30,
        disk_reserve: None,
    });
    engine.expect("an engine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_query_that_had_all_memory_to_itself_can_never_have_enough() {
        const MEMORY_BYTES: usize = 1 << 20;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let engine = test_engine(MEMORY_BYTES, directory.path());
        let refused = async || {
            let of_query = engine.clone();
            let query = async move {
                let held = of_query.reserve("a task", 1 << 10)?;
                // A task that is stopped gives its memory back a little later.
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    drop(held);
                });
                of_query.reserve("a list", MEMORY_BYTES).map(drop)
            };
            engine.run_query_within(engine.timeout(), query).await
        };
        let alone = refused().await;
        assert!(
            matches!(alone, Err(QueryError::TooMuchMemory { limit_bytes, .. }) if limit_bytes == 1 << 20),
            "{alone:?}"
        );
        let others = engine.reserve("another", 1 << 10).expect("room");
        let beside = refused().await;
        assert!(matches!(beside, Err(QueryError::OutOfMemory(_))), "{beside:?}");
        drop(others);
    }
}
