//! What a server does besides answering: scheduled refreshes, webhooks, sweeps, scrubs, exports made ahead, records of
//! usage. And how it ends.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use strata_cluster::nodes::Nodes;
use strata_runtime::metrics::metrics;
use strata_types::node::Role;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::rooms::Rooms;
use crate::{Deliveries, ExportsAhead, Lookups, Maintenance, Schedules, Usage};

/// Before a loop that panicked is begun again.
#[cfg(not(test))]
const RESTART: Duration = Duration::from_secs(10);
#[cfg(test)]
const RESTART: Duration = Duration::from_millis(10);

/// The loops of a process. Dropping it leaves them running.
pub struct Background {
    rooms: Arc<Rooms>,
    tasks: TaskTracker,
    stop_schedules: CancellationToken,
    stop_deliveries: CancellationToken,
    stop_nodes: CancellationToken,
}

impl Background {
    /// Starts the loops; needs a runtime. If `server.background` is false, this process only records what it answers,
    /// hears of changes, and registers if servers do.
    pub(super) fn start(rooms: Arc<Rooms>) -> Background {
        let tasks = TaskTracker::new();
        let [stop_schedules, stop_deliveries, stop_nodes] = std::array::from_fn(|_| CancellationToken::new());
        spawn_loop(&tasks, "usage", &stop_schedules, &rooms.usage, Usage::run);
        spawn_cut(&tasks, "changes", &stop_nodes, &rooms.lookups, Lookups::follow_changes);
        spawn_loop(&tasks, "nodes", &stop_nodes, &rooms.nodes, Nodes::run);
        let server = &rooms.parts.config.server;
        if server.background {
            if server.roles.include(Role::Http) {
                spawn_loop(&tasks, "exports", &stop_schedules, &rooms.exports_ahead, ExportsAhead::run);
            }
            // Those that hold a dataset now and began before are another process's.
            let ending = rooms.schedules.clone().end_refreshes_of_the_dead();
            tasks.spawn(stopped_by(stop_schedules.clone(), ending));
        }
        if makes_versions(&rooms) {
            spawn_loop(&tasks, "scheduler", &stop_schedules, &rooms.schedules, Schedules::run);
            spawn_loop(&tasks, "deliveries", &stop_deliveries, &rooms.deliveries, Deliveries::run);
            // What a sweep leaves undone, the next one does; the next process continues with the file that was
            // scrubbed.
            spawn_cut(&tasks, "sweep", &stop_schedules, &rooms.maintenance, Maintenance::sweep_periodically);
            spawn_cut(&tasks, "scrub", &stop_schedules, &rooms.maintenance, Maintenance::scrub_periodically);
        }
        tasks.close();
        Background { rooms, tasks, stop_schedules, stop_deliveries, stop_nodes }
    }
}

fn makes_versions(rooms: &Rooms) -> bool {
    rooms.parts.config.server.background && rooms.parts.config.server.roles.include(Role::Refresh)
}

/// A loop that ends by itself soon after `stop`.
fn spawn_loop<T: Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
    tasks: &TaskTracker,
    name: &'static str,
    stop: &CancellationToken,
    owner: &Arc<T>,
    run: fn(Arc<T>, CancellationToken) -> F,
) {
    let (owner, stop) = (owner.clone(), stop.clone());
    tasks.spawn(kept_up(name, stop.clone(), move || run(owner.clone(), stop.clone())));
}

/// A loop that `stop` may cut anywhere.
fn spawn_cut<T: Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
    tasks: &TaskTracker,
    name: &'static str,
    stop: &CancellationToken,
    owner: &Arc<T>,
    run: fn(Arc<T>) -> F,
) {
    let owner = owner.clone();
    tasks.spawn(stopped_by(stop.clone(), kept_up(name, stop.clone(), move || run(owner.clone()))));
}

async fn stopped_by(stop: CancellationToken, work: impl Future<Output = ()>) {
    stop.run_until_cancelled(work).await;
}

/// Runs a loop until it ends, and begins it again after a panic: without it the service would do less unseen.
pub(super) async fn kept_up<F: Future<Output = ()>>(
    name: &'static str,
    stop: CancellationToken,
    begin: impl Fn() -> F,
) {
    while AssertUnwindSafe(begin()).catch_unwind().await.is_err() {
        // The panic itself was logged where it arose.
        tracing::error!(name, restart_after_s = RESTART.as_secs(), "background task panicked; restarting it");
        metrics().loop_panics.of([name.into()]).increment(1);
        if stop.run_until_cancelled(tokio::time::sleep(RESTART)).await.is_none() {
            return;
        }
    }
}

impl Background {
    /// Ends them within about `limit`: begins nothing new, waits for the refreshes that run, stops those that take too
    /// long, and sends what they have made due while a receiver can have its full time.
    pub async fn finish(self, limit: Duration) {
        let until = Instant::now() + limit;
        let receiver = Duration::from_secs(self.rooms.parts.config.webhook.timeout_s);
        self.stop_schedules.cancel();
        self.rooms.refreshes.finish(limit).await;
        self.stop_deliveries.cancel();
        // It holds no dataset any more.
        self.stop_nodes.cancel();
        let rest = async {
            self.tasks.wait().await;
            if makes_versions(&self.rooms)
                && until.saturating_duration_since(Instant::now()) > receiver
                && let Err(error) = self.rooms.deliveries.send_due().await
            {
                tracing::warn!(?error, "failed to send due webhooks; leaving them for the next process");
            }
            self.rooms.deliveries.sent().await;
        };
        if tokio::time::timeout_at(until, rest).await.is_err() {
            tracing::warn!("interrupted webhooks whose receivers did not respond within server.drain_s");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_loop_that_panics_is_begun_again() {
        let (begun, stop) = (AtomicUsize::new(0), CancellationToken::new());
        let begin = async || assert!(begun.fetch_add(1, Ordering::SeqCst) >= 2, "a panic that is meant");
        let kept_up = kept_up("test", stop.clone(), begin);
        tokio::time::timeout(Duration::from_secs(60), kept_up).await.expect("it ends by itself");
        assert_eq!(begun.load(Ordering::SeqCst), 3);
        // And not any more, once it is to stop.
        begun.store(0, Ordering::SeqCst);
        stop.cancel();
        self::kept_up("test", stop, async || assert!(begun.fetch_add(1, Ordering::SeqCst) >= 2, "as above")).await;
        assert_eq!(begun.load(Ordering::SeqCst), 1);
    }
}
