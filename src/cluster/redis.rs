//! A client for Redis or Valkey with a circuit breaker, for callers that have a fallback.
//!
//! A call waits for at most a few milliseconds. The first call that times out or fails opens the circuit: further calls
//! fail at once. A background task then restores the connection:
//!
//! 1. After a timeout, the task probes the connection a few times, at growing intervals.
//! 2. If there is still no response, or if the connection failed, the task connects again, with growing delays. It
//!    closes the circuit when a script that writes has succeeded in time.
//! 3. While the circuit is closed, the task probes every second, so that it usually notices an outage before a caller.
//!
//! All calls share one connection, and the number of concurrent calls is limited.

use parking_lot::Mutex;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError, Script, ScriptInvocation};
use strata_runtime::metrics::metrics;
use strata_types::error_chain::ErrorChain;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

const MAX_CONCURRENT_CALLS: usize = 1_024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Delays before each further probe of a connection to Redis that has timed out.
const REPROBE_DELAYS_MS: [u64; 7] = [0, 10, 20, 40, 80, 160, 320];
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(50);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(2);

/// A connection that lasted for this long resets the delay before the next attempt to connect.
const STABLE_CONNECTION_TIME: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct RedisOptions {
    pub url: String,
    pub response_timeout: Duration,
    pub key_prefix: String,
    pub scripts: Vec<Script>,
}

pub struct RedisClient {
    shared: Arc<RedisState>,
    first_attempt: watch::Receiver<bool>,
    _reconnect_task: AbortOnDropHandle<()>,
}

/// Redis did not respond to a call in time, or is not connected. Redis may have run the command nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisUnavailable;

struct RedisState {
    client: Client,
    options: RedisOptions,
    /// A script that writes a key, so that its response proves that Redis runs scripts.
    probe: Script,
    /// The connection to Redis; `None` while the circuit is open.
    connection: ArcSwapOption<MultiplexedConnection>,
    call_permits: Semaphore,
    open_cause: Mutex<Option<CircuitOpenCause>>,
    circuit_opened: Notify,
}

#[derive(Debug, thiserror::Error)]
enum CircuitOpenCause {
    #[error("no response in time")]
    TimedOut,
    #[error("{}", ErrorChain(.0))]
    Failed(RedisError),
}

impl RedisClient {
    pub fn start(options: RedisOptions) -> Result<RedisClient, RedisError> {
        // An error means that a cryptography provider is already installed, which is sufficient.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let shared = Arc::new(RedisState {
            client: Client::open(options.url.as_str())?,
            options,
            probe: Script::new("redis.call('SET', KEYS[1], 1, 'PX', 60000) return 1"),
            connection: ArcSwapOption::empty(),
            call_permits: Semaphore::new(MAX_CONCURRENT_CALLS),
            open_cause: Mutex::new(None),
            circuit_opened: Notify::new(),
        });
        let (has_tried, first_attempt) = watch::channel(false);
        let task = tokio::spawn(shared.clone().maintain_connection(has_tried));
        Ok(RedisClient { shared, first_attempt, _reconnect_task: AbortOnDropHandle::new(task) })
    }

    /// Waits until the first attempt to connect is over, for at most about two seconds.
    pub async fn wait_for_first_connect_attempt(&self) {
        let _ = self.first_attempt.clone().wait_for(|tried| *tried).await;
    }

    pub fn key_prefix(&self) -> &str {
        &self.shared.options.key_prefix
    }

    pub fn is_connected(&self) -> bool {
        self.shared.connection.load().is_some()
    }

    /// Calls a script. Fails at once while the circuit is open, otherwise within `response_timeout`.
    pub async fn call<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, RedisUnavailable> {
        let count_outcome =
            |outcome: &'static str| metrics().redis_calls.with_label_values([outcome.into()]).increment(1);
        let Some(current) = self.shared.connection.load_full() else {
            count_outcome("away");
            return Err(RedisUnavailable);
        };
        let Ok(_permit) = self.shared.call_permits.try_acquire() else {
            count_outcome("full");
            return Err(RedisUnavailable);
        };
        let start = Instant::now();
        let mut connection = MultiplexedConnection::clone(&current);
        let cause = match timeout(self.shared.options.response_timeout, script.invoke_async(&mut connection)).await {
            Ok(Ok(response)) => {
                count_outcome("answered");
                metrics().redis_seconds.record(start.elapsed());
                return Ok(response);
            }
            Ok(Err(error)) => {
                count_outcome("failed");
                CircuitOpenCause::Failed(error)
            }
            Err(_) => {
                count_outcome("late");
                CircuitOpenCause::TimedOut
            }
        };
        self.shared.open_circuit(&current, cause);
        Err(RedisUnavailable)
    }
}

impl RedisState {
    fn open_circuit(&self, failed: &Arc<MultiplexedConnection>, cause: CircuitOpenCause) {
        let current = self.connection.compare_and_swap(failed, None);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, failed)) {
            *self.open_cause.lock() = Some(cause);
            self.circuit_opened.notify_one();
        }
    }

    fn close_circuit(&self, connection: &MultiplexedConnection) {
        self.take_open_cause();
        self.connection.store(Some(Arc::new(connection.clone())));
    }

    fn take_open_cause(&self) -> Option<CircuitOpenCause> {
        self.open_cause.lock().take()
    }

    async fn maintain_connection(self: Arc<Self>, has_tried: watch::Sender<bool>) {
        let mut delay = MIN_RECONNECT_DELAY;
        // Start of the current outage of Redis, if the log has reported it.
        let mut outage_start: Option<Instant> = None;
        loop {
            let connected = timeout(CONNECT_TIMEOUT, self.connect()).await.unwrap_or(Err(CircuitOpenCause::TimedOut));
            let cause = match connected {
                Ok(connection) => {
                    if let Some(start) = outage_start.take() {
                        tracing::info!(after_s = start.elapsed().as_secs(), "connected to Redis; sharing limits");
                    }
                    let since = Instant::now();
                    self.close_circuit(&connection);
                    has_tried.send_replace(true);
                    let cause = self.wait_until_unavailable(&connection).await;
                    if since.elapsed() >= STABLE_CONNECTION_TIME {
                        delay = MIN_RECONNECT_DELAY;
                    }
                    match cause {
                        // Redis may have closed an idle connection or restarted, so the first attempt has no delay.
                        CircuitOpenCause::Failed(_) if delay == MIN_RECONNECT_DELAY => {
                            delay *= 2;
                            continue;
                        }
                        cause => cause,
                    }
                }
                Err(cause) => cause,
            };
            if outage_start.is_none() {
                outage_start = Some(Instant::now());
                tracing::warn!(error = %cause, "failed to reach Redis; applying limits locally");
            }
            has_tried.send_replace(true);
            // A random delay, so that not all processes connect at the same moment.
            sleep(delay.mul_f64(rand::random_range(0.5..1.0))).await;
            delay = (delay * 2).min(MAX_RECONNECT_DELAY);
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, CircuitOpenCause> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(MAX_CONCURRENT_CALLS);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(CircuitOpenCause::Failed)?;
        for script in self.options.scripts.iter().chain([&self.probe]) {
            script.load_async(&mut connection).await.map_err(CircuitOpenCause::Failed)?;
        }
        self.probe_connection(&connection).await?;
        Ok(connection)
    }

    async fn probe_connection(&self, connection: &MultiplexedConnection) -> Result<(), CircuitOpenCause> {
        let mut connection = connection.clone();
        let mut probe = self.probe.prepare_invoke();
        probe.key(format!("{}:probe", self.options.key_prefix));
        match timeout(self.options.response_timeout, probe.invoke_async::<()>(&mut connection)).await {
            Ok(result) => result.map_err(CircuitOpenCause::Failed),
            Err(_) => Err(CircuitOpenCause::TimedOut),
        }
    }

    async fn wait_until_unavailable(&self, connection: &MultiplexedConnection) -> CircuitOpenCause {
        loop {
            let cause = tokio::select! {
                () = self.circuit_opened.notified() => self.take_open_cause(),
                () = sleep(PROBE_INTERVAL) => self.probe_connection(connection).await.err(),
            };
            let Some(cause) = cause else { continue };
            self.connection.store(None);
            match cause {
                CircuitOpenCause::TimedOut if self.try_reprobe(connection).await => self.close_circuit(connection),
                cause => return cause,
            }
        }
    }

    async fn try_reprobe(&self, connection: &MultiplexedConnection) -> bool {
        for delay_ms in REPROBE_DELAYS_MS {
            sleep(Duration::from_millis(delay_ms)).await;
            match self.probe_connection(connection).await {
                Ok(()) => return true,
                Err(CircuitOpenCause::TimedOut) => {}
                Err(CircuitOpenCause::Failed(_)) => return false,
            }
        }
        false
    }
}
