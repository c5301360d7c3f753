//! The background tasks of a server: scheduled refreshes, webhooks, sweeps, scrubs, export prewarming and usage
//! records; and their shutdown.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use strata_cluster::nodes::NodeRegistry;
use strata_config::Config;
use strata_runtime::metrics::metrics;
use strata_types::node::NodeRole;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{
    ExportPrewarmer, LookupService, MaintenanceService, RefreshService, Services, UsageRecorder, WebhookDispatcher,
};

#[cfg(not(test))]
const RESTART_DELAY: Duration = Duration::from_secs(10);
#[cfg(test)]
const RESTART_DELAY: Duration = Duration::from_millis(10);

pub struct BackgroundTasks {
    services: Arc<Services>,
    tasks: TaskTracker,
    stop_schedules: CancellationToken,
    stop_deliveries: CancellationToken,
    stop_nodes: CancellationToken,
}

impl Services {
    /// If `server.background` is false, the process only records usage, watches the catalog, and registers as a node.
    pub fn start_background(self: &Arc<Self>) -> BackgroundTasks {
        let tasks = TaskTracker::new();
        let [stop_schedules, stop_deliveries, stop_nodes] = std::array::from_fn(|_| CancellationToken::new());
        spawn_loop(&tasks, "usage", &stop_schedules, &self.usage, UsageRecorder::run_flush_loop);
        spawn_interruptible(&tasks, "changes", &stop_nodes, &self.lookups, LookupService::follow_changes);
        spawn_loop(&tasks, "nodes", &stop_nodes, &self.nodes, NodeRegistry::run_heartbeats);
        let server = &self.config.server;
        if server.background {
            if server.roles.contains(NodeRole::Http) {
                spawn_loop(&tasks, "exports", &stop_schedules, &self.export_prewarmer, ExportPrewarmer::run);
            }
            // No existing refresh lease belongs to this new process, so the leases of exited processes can be ended.
            let recovery = self.refreshes.clone().recover_leases();
            tasks.spawn(run_until_stopped(stop_schedules.clone(), recovery));
        }
        if can_create_versions(&self.config) {
            spawn_loop(&tasks, "scheduler", &stop_schedules, &self.refreshes, RefreshService::run_schedules);
            spawn_loop(&tasks, "deliveries", &stop_deliveries, &self.deliveries, WebhookDispatcher::run_dispatch_loop);
            // Sweeps and scrubs can be interrupted. The next sweep does the rest; the next process resumes a scrub.
            let service = &self.maintenance;
            spawn_interruptible(&tasks, "sweep", &stop_schedules, service, MaintenanceService::sweep_periodically);
            spawn_interruptible(&tasks, "scrub", &stop_schedules, service, MaintenanceService::scrub_periodically);
        }
        tasks.close();
        BackgroundTasks { services: self.clone(), tasks, stop_schedules, stop_deliveries, stop_nodes }
    }
}

fn can_create_versions(config: &Config) -> bool {
    config.server.background && config.server.roles.contains(NodeRole::Refresh)
}

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

fn spawn_interruptible<T: Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
    tasks: &TaskTracker,
    name: &'static str,
    stop: &CancellationToken,
    owner: &Arc<T>,
    run: fn(Arc<T>) -> F,
) {
    let owner = owner.clone();
    tasks.spawn(run_until_stopped(stop.clone(), supervise(name, stop.clone(), move || run(owner.clone()))));
}

async fn run_until_stopped(stop: CancellationToken, work: impl Future<Output = ()>) {
    stop.run_until_cancelled(work).await;
}

/// Runs a loop until it ends, and restarts it after a panic, so that a panic does not silently end a background task.
pub(super) async fn supervise<F: Future<Output = ()>>(
    name: &'static str,
    stop: CancellationToken,
    start: impl Fn() -> F,
) {
    while AssertUnwindSafe(start()).catch_unwind().await.is_err() {
        tracing::error!(name, restart_after_s = RESTART_DELAY.as_secs(), "background task panicked; restarting it");
        metrics().loop_panics.with_label_values([name.into()]).increment(1);
        if stop.run_until_cancelled(tokio::time::sleep(RESTART_DELAY)).await.is_none() {
            return;
        }
    }
}

impl BackgroundTasks {
    /// Ends the background tasks in about `limit`: waits for refreshes, interrupts slow ones, and sends due webhooks.
    pub async fn finish(self, limit: Duration) {
        let BackgroundTasks { services, tasks, stop_schedules, stop_deliveries, stop_nodes } = self;
        let deadline = Instant::now() + limit;
        let receiver_timeout = Duration::from_secs(services.config.webhook.timeout_s);
        stop_schedules.cancel();
        services.refreshes.finish_or_stop_refreshes(limit).await;
        stop_deliveries.cancel();
        stop_nodes.cancel();
        let rest = async {
            tasks.wait().await;
            if can_create_versions(&services.config)
                && deadline.saturating_duration_since(Instant::now()) > receiver_timeout
                && let Err(error) = services.deliveries.send_due().await
            {
                tracing::warn!(?error, "failed to send due webhooks; leaving them for the next process");
            }
            services.deliveries.tasks.wait().await;
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
        let start = async || assert!(starts.fetch_add(1, Ordering::SeqCst) >= 2, "panic on purpose");
        let supervised = supervise("test", stop.clone(), &start);
        tokio::time::timeout(Duration::from_secs(60), supervised).await.expect("loop ends by itself");
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        starts.store(0, Ordering::SeqCst);
        stop.cancel();
        supervise("test", stop, &start).await;
        assert_eq!(starts.load(Ordering::SeqCst), 1);
    }
}
