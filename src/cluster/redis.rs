//! Redis, or Valkey, for calls that can do without it, behind a circuit breaker.
//!
//! A call waits for at most a few milliseconds. The first one that is late, or that fails, opens the circuit: further
//! calls do not wait at all. One task then looks after the connection:
//!
//! 1. It probes a late connection a few times, at growing intervals.
//! 2. If there is still no response, or if the connection failed, it makes another one, with growing pauses. A
//!    connection counts when a script that writes was answered in time.
//! 3. Without calls, it probes every second. So no caller waits to find out.
//!
//! All calls share one connection, and the number of calls that wait for it is bounded.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError, Script, ScriptInvocation};
use strata_runtime::metrics::metrics;
use strata_types::causes::Causes;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

const CALLS: usize = 1_024;

const CONNECT: Duration = Duration::from_secs(1);

const IDLE: Duration = Duration::from_secs(1);

/// When a late connection is asked again, after the time before.
const SECOND_LOOKS_MS: [u64; 7] = [0, 10, 20, 40, 80, 160, 320];

/// The pause before the second attempt to connect, which doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a connection must hold before the pauses start again with the shortest.
const STEADY: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://` or `rediss://`, with its password.
    pub url: String,
    pub answer_within: Duration,
    pub prefix: String,
    pub scripts: Vec<Script>,
}

/// See the module. Dropping it ends the task and the connection.
pub struct Redis {
    shared: Arc<Shared>,
    tried: watch::Receiver<bool>,
    _keeper: AbortOnDropHandle<()>,
}

/// Redis did not answer in time, or cannot. The command may have run nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

struct Shared {
    client: Client,
    options: RedisOptions,
    /// Writes one key, so that an answer means that scripts work.
    probe: Script,
    /// The connection, while calls may use it: the circuit is closed.
    live: ArcSwapOption<MultiplexedConnection>,
    calls: Semaphore,
    opened: Mutex<Option<Cause>>,
    has_opened: Notify,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("no response in time")]
    Late,
    #[error("{}", Causes(.0))]
    Failed(RedisError),
}

impl Redis {
    /// Begins to connect; needs a runtime.
    pub fn start(options: RedisOptions) -> Result<Redis, RedisError> {
        // The one that all other connections use, too. That it is there already is no error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::open(options.url.as_str())?;
        let shared = Arc::new(Shared {
            client,
            options,
            probe: Script::new("redis.call('SET', KEYS[1], 1, 'PX', 60000) return 1"),
            live: ArcSwapOption::empty(),
            calls: Semaphore::new(CALLS),
            opened: Mutex::new(None),
            has_opened: Notify::new(),
        });
        let (has_tried, tried) = watch::channel(false);
        let keeper = tokio::spawn(shared.clone().keep_up(has_tried));
        Ok(Redis { shared, tried, _keeper: AbortOnDropHandle::new(keeper) })
    }

    /// Waits until the first attempt to connect is over, for about two seconds at most.
    pub async fn tried(&self) {
        let _ = self.tried.clone().wait_for(|tried| *tried).await;
    }

    pub fn prefix(&self) -> &str {
        &self.shared.options.prefix
    }

    pub fn is_up(&self) -> bool {
        self.shared.live.load().is_some()
    }

    /// Calls a script. [`NoAnswer`] comes at once while the circuit is open, or within `answer_within`.
    pub async fn call<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, NoAnswer> {
        let outcome = |outcome: &'static str| metrics().redis_calls.of([outcome.into()]).increment(1);
        let Some(live) = self.shared.live.load_full() else {
            outcome("away");
            return Err(NoAnswer);
        };
        let Ok(_turn) = self.shared.calls.try_acquire() else {
            outcome("full");
            return Err(NoAnswer);
        };
        let begun = Instant::now();
        let mut connection = MultiplexedConnection::clone(&live);
        let cause = match timeout(self.shared.options.answer_within, script.invoke_async(&mut connection)).await {
            Ok(Ok(answer)) => {
                outcome("answered");
                metrics().redis_seconds.record(begun.elapsed());
                return Ok(answer);
            }
            Ok(Err(error)) => {
                outcome("failed");
                Cause::Failed(error)
            }
            Err(_) => {
                outcome("late");
                Cause::Late
            }
        };
        self.shared.open_circuit(&live, cause);
        Err(NoAnswer)
    }
}

impl Shared {
    /// Opens the circuit, unless it is open or another connection has taken the place of this one.
    fn open_circuit(&self, live: &Arc<MultiplexedConnection>, cause: Cause) {
        let before = self.live.compare_and_swap(live, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, live)) {
            *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
            self.has_opened.notify_one();
        }
    }

    fn close_circuit(&self, connection: &MultiplexedConnection) {
        // The cause was that of the connection before.
        self.take_cause();
        self.live.store(Some(Arc::new(connection.clone())));
    }

    fn take_cause(&self) -> Option<Cause> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn keep_up(self: Arc<Self>, has_tried: watch::Sender<bool>) {
        let mut pause = FIRST_PAUSE;
        // Since when callers do without it, as the log says.
        let mut away: Option<Instant> = None;
        loop {
            let connected = timeout(CONNECT, self.connect()).await.unwrap_or(Err(Cause::Late));
            let cause = match connected {
                Ok(connection) => {
                    if let Some(away) = away.take() {
                        tracing::info!(after_s = away.elapsed().as_secs(), "connected to Redis; sharing limits");
                    }
                    let since = Instant::now();
                    self.close_circuit(&connection);
                    has_tried.send_replace(true);
                    let cause = self.until_away(&connection).await;
                    if since.elapsed() >= STEADY {
                        pause = FIRST_PAUSE;
                    }
                    match cause {
                        // The server may have closed a connection that was idle, or have been restarted.
                        Cause::Failed(_) if pause == FIRST_PAUSE => {
                            pause *= 2;
                            continue;
                        }
                        cause => cause,
                    }
                }
                Err(cause) => cause,
            };
            if away.is_none() {
                away = Some(Instant::now());
                tracing::warn!(error = %cause, "failed to reach Redis; applying limits locally");
            }
            has_tried.send_replace(true);
            // Not all processes at the same moment.
            sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A connection on which scripts are answered in time.
    async fn connect(&self) -> Result<MultiplexedConnection, Cause> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(CALLS);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(Cause::Failed)?;
        for script in self.options.scripts.iter().chain([&self.probe]) {
            script.load_async(&mut connection).await.map_err(Cause::Failed)?;
        }
        self.ask(&connection).await?;
        Ok(connection)
    }

    async fn ask(&self, connection: &MultiplexedConnection) -> Result<(), Cause> {
        let mut connection = connection.clone();
        let mut probe = self.probe.prepare_invoke();
        probe.key(format!("{}:probe", self.options.prefix));
        match timeout(self.options.answer_within, probe.invoke_async::<()>(&mut connection)).await {
            Ok(answer) => answer.map_err(Cause::Failed),
            Err(_) => Err(Cause::Late),
        }
    }

    /// Waits until the connection fails, and returns the cause. The circuit is open then.
    async fn until_away(&self, connection: &MultiplexedConnection) -> Cause {
        loop {
            let cause = tokio::select! {
                () = self.has_opened.notified() => self.take_cause(),
                () = sleep(IDLE) => self.ask(connection).await.err(),
            };
            let Some(cause) = cause else { continue };
            self.live.store(None);
            match cause {
                Cause::Late if self.answers_again(connection).await => self.close_circuit(connection),
                cause => return cause,
            }
        }
    }

    async fn answers_again(&self, connection: &MultiplexedConnection) -> bool {
        for pause_ms in SECOND_LOOKS_MS {
            sleep(Duration::from_millis(pause_ms)).await;
            match self.ask(connection).await {
                Ok(()) => return true,
                Err(Cause::Late) => {}
                Err(Cause::Failed(_)) => return false,
            }
        }
        false
    }
}
