//! What a server does besides answering: scheduled refreshes, webhooks, sweeps, scrubs. And how it ends.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::App;

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
        let (app, stop) = (self.clone(), stop_schedules.clone());
        tasks.spawn(async move { app.run_scheduler(stop).await });
        let (app, stop) = (self.clone(), stop_deliveries.clone());
        tasks.spawn(async move { app.run_deliveries(stop).await });
        let (app, stop) = (self.clone(), stop_schedules.clone());
        // Cut anywhere: what a sweep leaves undone, the next one does.
        tasks.spawn(async move { stop.run_until_cancelled(app.sweep_periodically()).await });
        let (app, stop) = (self.clone(), stop_schedules.clone());
        // Cut anywhere: the next process goes on with the file that was being read.
        tasks.spawn(async move { stop.run_until_cancelled(app.scrub_periodically()).await });
        tasks.close();
        Background { app: self.clone(), tasks, stop_schedules, stop_deliveries }
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
