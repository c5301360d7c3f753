//! Sends due webhooks, at most one POST per version.
//!
//! A process claims a delivery only when it can send the POST at once. A claimed delivery is never claimed again, even
//! if the process is killed, and there are no retries.
//!
//! A process that publishes a version wakes its own dispatcher. Other due deliveries are found by polling.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError, ClaimedDelivery, DeliveryOutcome};
use strata_config::Config;
use strata_ingest::egress::EgressClient;
use strata_runtime::failpoint;
use strata_runtime::metrics::metrics;
use strata_types::user::UserPlan;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::webhook::{WebhookPayload, WebhookSender};

const MAX_CONCURRENT_POSTS: usize = 32;

/// Interval between polls for due deliveries that other processes have created.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    #[error("{0}")]
    Catalog(#[from] CatalogError),
    #[error("failed to create the HTTP client for webhooks")]
    Client(#[from] reqwest::Error),
}

pub struct WebhookDispatcher {
    config: Arc<Config>,
    catalog: Catalog,
    outgoing: EgressClient,
    wake_signal: Notify,
    slots: Arc<Semaphore>,
    pub(crate) tasks: TaskTracker,
    sender: OnceLock<WebhookSender>,
}

impl WebhookDispatcher {
    pub(crate) fn new(config: Arc<Config>, catalog: Catalog, outgoing: EgressClient) -> WebhookDispatcher {
        let tasks = TaskTracker::new();
        // `TaskTracker::wait` requires a closed tracker, which still accepts tasks.
        tasks.close();
        let slots = Arc::new(Semaphore::new(MAX_CONCURRENT_POSTS));
        let wake_signal = Notify::new();
        WebhookDispatcher { config, catalog, outgoing, wake_signal, slots, tasks, sender: OnceLock::new() }
    }

    pub(crate) fn wake(&self) {
        self.wake_signal.notify_one();
    }

    pub(crate) async fn run_dispatch_loop(self: Arc<Self>, stop: CancellationToken) {
        let rounds = async {
            loop {
                if let Err(error) = self.claim_and_send().await {
                    tracing::warn!(?error, "failed to claim due webhooks");
                }
                // `Notify` stores a wake-up that arrives while webhooks are being sent.
                let _ = tokio::time::timeout(POLL_INTERVAL, self.wake_signal.notified()).await;
            }
        };
        stop.run_until_cancelled(rounds).await;
    }

    /// Sends all due webhooks and waits for the responses. After an error, the unclaimed deliveries remain due.
    pub async fn send_due(self: &Arc<Self>) -> Result<(), DeliveryError> {
        let result = self.claim_and_send().await;
        self.tasks.wait().await;
        result
    }

    async fn claim_and_send(self: &Arc<Self>) -> Result<(), DeliveryError> {
        let WebhookDispatcher { slots, tasks, sender, .. } = &**self;
        let sender = match sender.get() {
            Some(sender) => sender,
            None => {
                let timeout = Duration::from_secs(self.config.webhook.timeout_s);
                let new_sender = WebhookSender::try_new(self.outgoing.clone(), timeout)?;
                sender.get_or_init(|| new_sender)
            }
        };
        loop {
            // Acquiring a slot cannot fail, because the semaphore is never closed.
            let Ok(slot) = slots.clone().acquire_owned().await else { return Ok(()) };
            // A delivery is claimed in a task, so that cancellation cannot drop a claim between commit and POST.
            let dispatcher = self.clone();
            let sender = sender.clone();
            let post_tasks = tasks.clone();
            let claimed = tasks.spawn(async move {
                let Some(delivery) = dispatcher.catalog.claim_webhook_delivery().await? else { return Ok(false) };
                failpoint::trigger_failpoint("delivery.claimed");
                post_tasks.spawn(async move {
                    dispatcher.send_delivery(&sender, &delivery).await;
                    drop(slot);
                });
                Ok::<bool, CatalogError>(true)
            });
            match claimed.await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) | Err(_) => return Ok(()),
                Ok(Err(error)) => return Err(error.into()),
            }
        }
    }

    async fn send_delivery(&self, sender: &WebhookSender, delivery: &ClaimedDelivery) {
        // The free plan does not include webhooks, but the owner can have registered the webhook under another plan.
        if delivery.owner_plan == UserPlan::Free {
            return;
        }
        let payload = WebhookPayload {
            dataset_id: delivery.dataset.get(),
            dataset_name: delivery.dataset_name.clone(),
            version: delivery.version.get(),
            entity_count: delivery.entity_count,
            refreshed_at: delivery.refreshed_at,
        };
        let begun = Instant::now();
        let response = sender.send(&delivery.url, delivery.secret.as_ref(), &payload).await;
        failpoint::trigger_failpoint("delivery.sent");
        let label = match response {
            Ok(200..300) => "accepted",
            Ok(_) => "rejected",
            Err(_) => "unanswered",
        };
        metrics().webhooks.with_label_values([label.into()]).increment(1);
        let outcome = DeliveryOutcome { duration: Some(begun.elapsed()), response };
        if let Err(error) = self.catalog.record_delivery_outcome(delivery, &outcome).await {
            tracing::warn!(%error, dataset_id = delivery.dataset.get(), "failed to record webhook delivery");
        }
    }
}
