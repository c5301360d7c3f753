//! What a server does besides answering: scheduled refreshes, webhooks, sweeps, scrubs. And how it ends.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::metrics;
use crate::service::App;

/// Before a loop that panicked is begun again.
#[cfg(not(test))]
const RESTART: Duration = Duration::from_secs(10);
#[cfg(test)]
const RESTART: Duration = Duration::from_millis(10);

/// The loops of a process. Dropping it leaves them running.
pub struct Background {
    app: App,
    tasks: TaskTracker,
    stop_schedules: CancellationToken,
    stop_deliveries: CancellationToken,
}

impl App {
    /// Starts the loops; needs a runtime.
    pub fn start_background(&self) -> Background {
        let (tasks, stop_schedules, stop_deliveries) =
            (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        // Those that hold a dataset now and began before are another process's.
        let (app, began) = (self.clone(), self.catalog().now());
        tasks.spawn(stopped_by(stop_schedules.clone(), async move { app.end_refreshes_of_the_dead(began).await }));
        let (app, stop) = (self.clone(), stop_schedules.clone());
        tasks.spawn(kept_up("scheduler", stop.clone(), move || app.clone().scheduling(stop.clone())));
        let (app, stop) = (self.clone(), stop_deliveries.clone());
        tasks.spawn(kept_up("deliveries", stop.clone(), move || app.clone().delivering(stop.clone())));
        let (app, stop) = (self.clone(), stop_schedules.clone());
        // Cut anywhere: what a sweep leaves undone, the next one does.
        tasks.spawn(stopped_by(stop.clone(), kept_up("sweep", stop, move || app.clone().sweeping())));
        let (app, stop) = (self.clone(), stop_schedules.clone());
        // Cut anywhere: the next process goes on with the file that was being read.
        tasks.spawn(stopped_by(stop.clone(), kept_up("scrub", stop, move || app.clone().scrubbing())));
        tasks.close();
        Background { app: self.clone(), tasks, stop_schedules, stop_deliveries }
    }
}

impl App {
    async fn scheduling(self, stop: CancellationToken) {
        self.run_scheduler(stop).await;
    }

    async fn delivering(self, stop: CancellationToken) {
        self.run_deliveries(stop).await;
    }

    async fn sweeping(self) {
        self.sweep_periodically().await;
    }

    async fn scrubbing(self) {
        self.scrub_periodically().await;
    }
}

async fn stopped_by(stop: CancellationToken, work: impl Future<Output = ()>) {
    stop.run_until_cancelled(work).await;
}

/// Runs a loop until it ends. One that panics is begun again after a pause, until `stop`: without it the service would
/// look well and do less.
pub(in crate::service) async fn kept_up<F: Future<Output = ()>>(
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
        self.app.finish_refreshes(limit).await;
        self.stop_deliveries.cancel();
        let rest = async {
            self.tasks.wait().await;
            let receiver = Duration::from_secs(self.app.config().webhook.timeout_s);
            if until.saturating_duration_since(Instant::now()) > receiver
                && let Err(error) = self.app.deliver_due().await
            {
                tracing::warn!(cause = ?error, "webhooks that are due are left to the next process");
            }
            self.app.deliveries_sent().await;
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
