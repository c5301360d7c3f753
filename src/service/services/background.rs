//! The background tasks of a server: scheduled refreshes, webhooks, sweeps, scrubs, export prewarming, usage records.
//! And how a server ends.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use strata_cluster::nodes::Nodes;
use strata_config::Config;
use strata_runtime::metrics::metrics;
use strata_types::node::Role;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{Deliveries, ExportsAhead, Lookups, Maintenance, Refreshes, Services, Usage};

/// The time before a task that panicked is started again.
#[cfg(not(test))]
const RESTART_DELAY: Duration = Duration::from_secs(10);
#[cfg(test)]
const RESTART_DELAY: Duration = Duration::from_millis(10);

/// The background tasks of a process. They continue when this is dropped.
pub struct Background {
    services: Arc<Services>,
    tasks: TaskTracker,
    stop_schedules: CancellationToken,
    stop_deliveries: CancellationToken,
    stop_nodes: CancellationToken,
}

impl Services {
    /// Starts the background tasks of a server, in the current runtime. If `server.background` is false, the process
    /// only records usage, follows changes, and registers as a node if servers do.
    pub fn start_background(self: &Arc<Self>) -> Background {
        let tasks = TaskTracker::new();
        let [stop_schedules, stop_deliveries, stop_nodes] = std::array::from_fn(|_| CancellationToken::new());
        spawn_loop(&tasks, "usage", &stop_schedules, &self.usage, Usage::run);
        spawn_cut(&tasks, "changes", &stop_nodes, &self.lookups, Lookups::follow_changes);
        spawn_loop(&tasks, "nodes", &stop_nodes, &self.nodes, Nodes::run);
        let server = &self.config.server;
        if server.background {
            if server.roles.include(Role::Http) {
                spawn_loop(&tasks, "exports", &stop_schedules, &self.exports_ahead, ExportsAhead::run);
            }
            // Refreshes that hold a dataset now, and began before, belong to another process.
            let ending = self.refreshes.clone().end_refreshes_of_the_dead();
            tasks.spawn(stopped_by(stop_schedules.clone(), ending));
        }
        if creates_versions(&self.config) {
            spawn_loop(&tasks, "scheduler", &stop_schedules, &self.refreshes, Refreshes::run_schedules);
            spawn_loop(&tasks, "deliveries", &stop_deliveries, &self.deliveries, Deliveries::run);
            // The next sweep removes what an interrupted one leaves; the next process continues an interrupted scrub.
            spawn_cut(&tasks, "sweep", &stop_schedules, &self.maintenance, Maintenance::sweep_periodically);
            spawn_cut(&tasks, "scrub", &stop_schedules, &self.maintenance, Maintenance::scrub_periodically);
        }
        tasks.close();
        Background { services: self.clone(), tasks, stop_schedules, stop_deliveries, stop_nodes }
    }
}

fn creates_versions(config: &Config) -> bool {
    config.server.background && config.server.roles.include(Role::Refresh)
}

/// Spawns a loop that ends by itself soon after `stop`.
fn spawn_loop<T: Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
    tasks: &TaskTracker,
    name: &'static str,
    stop: &CancellationToken,
    owner: &Arc<T>,
    run: fn(Arc<T>, CancellationToken) -> F,
) {
    let owner = owner.clone();
    let stop = stop.clone();
    tasks.spawn(supervise(name, stop.clone(), move || run(owner.clone(), stop.clone())));
}

/// Spawns a loop that `stop` can interrupt anywhere.
fn spawn_cut<T: Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
    tasks: &TaskTracker,
    name: &'static str,
    stop: &CancellationToken,
    owner: &Arc<T>,
    run: fn(Arc<T>) -> F,
) {
    let owner = owner.clone();
    tasks.spawn(stopped_by(stop.clone(), supervise(name, stop.clone(), move || run(owner.clone()))));
}

async fn stopped_by(stop: CancellationToken, work: impl Future<Output = ()>) {
    stop.run_until_cancelled(work).await;
}

/// Runs a loop until it ends, and starts it again after a panic. Without it, the service would silently do less.
pub(super) async fn supervise<F: Future<Output = ()>>(
    name: &'static str,
    stop: CancellationToken,
    start: impl Fn() -> F,
) {
    while AssertUnwindSafe(start()).catch_unwind().await.is_err() {
        // The panic hook has logged the panic.
        tracing::error!(name, restart_after_s = RESTART_DELAY.as_secs(), "background task panicked; restarting it");
        metrics().loop_panics.of([name.into()]).increment(1);
        if stop.run_until_cancelled(tokio::time::sleep(RESTART_DELAY)).await.is_none() {
            return;
        }
    }
}

impl Background {
    /// Ends the tasks within about `limit`. Starts nothing new, waits for running refreshes, stops those that take too
    /// long, and sends the webhooks of their versions while a receiver can have its full time.
    pub async fn finish(self, limit: Duration) {
        let Background { services, tasks, stop_schedules, stop_deliveries, stop_nodes } = self;
        let deadline = Instant::now() + limit;
        let receiver_timeout = Duration::from_secs(services.config.webhook.timeout_s);
        stop_schedules.cancel();
        services.refreshes.finish(limit).await;
        stop_deliveries.cancel();
        // The process holds no dataset any more.
        stop_nodes.cancel();
        let rest = async {
            tasks.wait().await;
            if creates_versions(&services.config)
                && deadline.saturating_duration_since(Instant::now()) > receiver_timeout
                && let Err(error) = services.deliveries.send_due().await
            {
                tracing::warn!(?error, "failed to send due webhooks; leaving them for the next process");
            }
            services.deliveries.sent().await;
        };
        if tokio::time::timeout_at(deadline, rest).await.is_err() {
            tracing::warn!("interrupted webhooks whose receivers did not respond within server.drain_s");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn panicking_loop_is_restarted_until_stopped() {
        let starts = AtomicUsize::new(0);
        let stop = CancellationToken::new();
        let start = async || assert!(starts.fetch_add(1, Ordering::SeqCst) >= 2, "an intended panic");
        let supervised = supervise("test", stop.clone(), &start);
        tokio::time::timeout(Duration::from_secs(60), supervised).await.expect("it ends by itself");
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        starts.store(0, Ordering::SeqCst);
        stop.cancel();
        supervise("test", stop, &start).await;
        assert_eq!(starts.load(Ordering::SeqCst), 1);
    }
}
