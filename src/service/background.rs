//! What a server does besides answering: scheduled refreshes, webhooks, sweeps, scrubs, exports made ahead, records of
//! usage. And how it ends.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster::nodes::Nodes;
use crate::metrics::metrics;
use crate::model::node::{Role, Roles};
use crate::service::{Deliveries, ExportsAhead, Lookups, Maintenance, Refreshes, Schedules, Usage};

/// Before a loop that panicked is begun again.
#[cfg(not(test))]
const RESTART: Duration = Duration::from_secs(10);
#[cfg(test)]
const RESTART: Duration = Duration::from_millis(10);

pub(crate) struct Loops {
    pub refreshes: Arc<Refreshes>,
    pub schedules: Arc<Schedules>,
    pub deliveries: Arc<Deliveries>,
    pub maintenance: Arc<Maintenance>,
    pub exports_ahead: Arc<ExportsAhead>,
    /// Which hear of changes in any case: reads see them.
    pub lookups: Arc<Lookups>,
    /// Which runs in any case: it records what this process answers.
    pub usage: Arc<Usage>,
    pub receiver: Duration,
    /// Which registers in any case, if servers do.
    pub nodes: Arc<Nodes>,
    /// Whether the others run at all (`server.background`).
    pub run: bool,
    pub roles: Roles,
}

/// The loops of a process. Dropping it leaves them running.
pub struct Background {
    loops: Loops,
    tasks: TaskTracker,
    stop_schedules: CancellationToken,
    stop_deliveries: CancellationToken,
    stop_nodes: CancellationToken,
}

impl Loops {
    fn makes_versions(&self) -> bool {
        self.run && self.roles.include(Role::Refresh)
    }
}

impl Background {
    /// Starts the loops, if they are to run; needs a runtime.
    pub(crate) fn start(loops: Loops) -> Background {
        let tasks = TaskTracker::new();
        let [stop_schedules, stop_deliveries, stop_nodes] = std::array::from_fn(|_| CancellationToken::new());
        spawn_loop(&tasks, "usage", &stop_schedules, &loops.usage, Usage::run);
        spawn_cut(&tasks, "changes", &stop_nodes, &loops.lookups, Lookups::follow_changes);
        spawn_loop(&tasks, "nodes", &stop_nodes, &loops.nodes, Nodes::run);
        if loops.run {
            if loops.roles.include(Role::Http) {
                spawn_loop(&tasks, "exports", &stop_schedules, &loops.exports_ahead, ExportsAhead::run);
            }
            // Those that hold a dataset now and began before are another process's.
            let ending = loops.schedules.clone().end_refreshes_of_the_dead();
            tasks.spawn(stopped_by(stop_schedules.clone(), ending));
        }
        if loops.makes_versions() {
            spawn_loop(&tasks, "scheduler", &stop_schedules, &loops.schedules, Schedules::run);
            spawn_loop(&tasks, "deliveries", &stop_deliveries, &loops.deliveries, Deliveries::run);
            // What a sweep leaves undone, the next one does; the next process continues with the file that was
            // scrubbed.
            spawn_cut(&tasks, "sweep", &stop_schedules, &loops.maintenance, Maintenance::sweep_periodically);
            spawn_cut(&tasks, "scrub", &stop_schedules, &loops.maintenance, Maintenance::scrub_periodically);
        }
        tasks.close();
        Background { loops, tasks, stop_schedules, stop_deliveries, stop_nodes }
    }
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
pub(crate) async fn kept_up<F: Future<Output = ()>>(
    name: &'static str,
    stop: CancellationToken,
    begin: impl Fn() -> F,
) {
    while AssertUnwindSafe(begin()).catch_unwind().await.is_err() {
        // The panic itself was logged where it arose.
        tracing::error!(name, "a loop of the service panicked, and is begun again in {} s", RESTART.as_secs());
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
        self.stop_schedules.cancel();
        self.loops.refreshes.finish(limit).await;
        self.stop_deliveries.cancel();
        // It holds no dataset any more.
        self.stop_nodes.cancel();
        let rest = async {
            self.tasks.wait().await;
            if self.loops.makes_versions()
                && until.saturating_duration_since(Instant::now()) > self.loops.receiver
                && let Err(error) = self.loops.deliveries.send_due().await
            {
                tracing::warn!(cause = ?error, "webhooks that are due are left to the next process");
            }
            self.loops.deliveries.sent().await;
        };
        if tokio::time::timeout_at(until, rest).await.is_err() {
            tracing::warn!("webhooks were cut whose receivers did not answer within the drain limit");
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
