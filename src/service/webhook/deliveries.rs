//! Sends due webhooks: exactly one POST for each version.
//!
//! A process claims a delivery when it can send it at once. A claimed delivery is never claimed again, even if the
//! process is killed; the next process finds the others. There are no retries.
//!
//! A process that publishes a version wakes its own loop. It finds the versions of other processes that did not send
//! their webhooks by polling.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError, Delivery, DeliveryOutcome};
use strata_config::Config;
use strata_ingest::net::Outgoing;
use strata_runtime::crash;
use strata_runtime::metrics::metrics;
use strata_types::user::Plan;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::webhook::{WebhookPayload, WebhookSender};

/// The maximum number of concurrent POSTs.
const MAX_CONCURRENT: usize = 32;

/// How often the process checks for versions that other processes published.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    #[error("{0}")]
    Catalog(#[from] CatalogError),
    /// TLS cannot be set up on this machine.
    #[error("failed to create the HTTP client for webhooks")]
    Client(#[from] reqwest::Error),
}

pub struct Deliveries {
    config: Arc<Config>,
    catalog: Catalog,
    outgoing: Outgoing,
    due: Notify,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    sender: OnceLock<WebhookSender>,
}

impl Deliveries {
    pub(crate) fn new(config: Arc<Config>, catalog: Catalog, outgoing: Outgoing) -> Deliveries {
        let tasks = TaskTracker::new();
        // A closed tracker still accepts tasks, and can be waited for.
        tasks.close();
        let slots = Arc::new(Semaphore::new(MAX_CONCURRENT));
        Deliveries { config, catalog, outgoing, due: Notify::new(), slots, tasks, sender: OnceLock::new() }
    }

    pub(crate) fn wake(&self) {
        self.due.notify_one();
    }

    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let rounds = async {
            loop {
                if let Err(error) = self.claim_and_send().await {
                    tracing::warn!(?error, "failed to claim due webhooks");
                }
                // A version that is published meanwhile leaves its mark, so it is not missed.
                let _ = tokio::time::timeout(POLL_INTERVAL, self.due.notified()).await;
            }
        };
        stop.run_until_cancelled(rounds).await;
    }

    /// Sends all due webhooks, and waits until every receiver has responded or timed out. On an error, unclaimed ones
    /// remain due.
    pub async fn send_due(self: &Arc<Self>) -> Result<(), DeliveryError> {
        let sent = self.claim_and_send().await;
        self.tasks.wait().await;
        sent
    }

    pub(crate) async fn sent(&self) {
        self.tasks.wait().await;
    }

    async fn claim_and_send(self: &Arc<Self>) -> Result<(), DeliveryError> {
        let Deliveries { slots, tasks, sender, .. } = &**self;
        let sender = match sender.get() {
            Some(sender) => sender,
            None => {
                let timeout = Duration::from_secs(self.config.webhook.timeout_s);
                let made = WebhookSender::try_new(self.outgoing.clone(), timeout)?;
                sender.get_or_init(|| made)
            }
        };
        loop {
            // The semaphore is never closed.
            let Ok(slot) = slots.clone().acquire_owned().await else { return Ok(()) };
            // In a task, so that a claim is not dropped between its commit and its POST.
            let deliveries = self.clone();
            let sender = sender.clone();
            let claims = tasks.clone();
            let claimed = tasks.spawn(async move {
                let Some(delivery) = deliveries.catalog.claim_delivery().await? else { return Ok(false) };
                crash::point("delivery.claimed");
                claims.spawn(async move {
                    deliveries.send(&sender, &delivery).await;
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

    async fn send(&self, sender: &WebhookSender, delivery: &Delivery) {
        // Webhooks are not on this plan; one may be left over from another (docs/reference/webhook-delivery.md,
        // Webhooks).
        if delivery.owner_plan == Plan::Free {
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
        let answer = sender.send(&delivery.url, delivery.secret.as_ref(), &payload).await;
        crash::point("delivery.sent");
        let ended = match answer {
            Ok(200..300) => "accepted",
            Ok(_) => "rejected",
            Err(_) => "unanswered",
        };
        metrics().webhooks.of([ended.into()]).increment(1);
        let outcome = DeliveryOutcome { duration: Some(begun.elapsed()), answer };
        if let Err(error) = self.catalog.record_delivery(delivery, &outcome).await {
            tracing::warn!(%error, dataset_id = delivery.dataset.get(), "failed to record webhook delivery");
        }
    }
}
