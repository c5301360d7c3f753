//! The sending of what webhooks are due: exactly one POST for each version.
//!
//! A delivery is claimed before it is sent, and only when there is room to send it at once. What is claimed is never
//! claimed again, whatever becomes of the process; what is not, the next process finds. There are no retries.
//!
//! A process that publishes wakes its own loop at once; what others published, and did not live to send, is found by
//! asking every few seconds.

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

use crate::webhook::{RefreshEvent, WebhookSender};

/// How many POSTs are under way at the same time.
const AT_ONCE: usize = 32;

/// How often other processes' versions are looked for.
const POLL: Duration = Duration::from_secs(2);

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
        // It is only ever waited for; a closed one takes tasks all the same.
        tasks.close();
        let (due, slots) = (Notify::new(), Arc::new(Semaphore::new(AT_ONCE)));
        Deliveries { config, catalog, outgoing, due, slots, tasks, sender: OnceLock::new() }
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
                let _ = tokio::time::timeout(POLL, self.due.notified()).await;
            }
        };
        stop.run_until_cancelled(rounds).await;
    }

    /// Sends all that is due at the moment, and waits until every receiver has answered or its time is over.
    /// On an error what was not claimed stays due.
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
            let (deliveries, sender, claims) = (self.clone(), sender.clone(), tasks.clone());
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
        let event = RefreshEvent {
            dataset_id: delivery.dataset,
            dataset_name: delivery.dataset_name.clone(),
            version: delivery.version,
            entity_count: delivery.entity_count,
            refreshed_at: delivery.refreshed_at,
        };
        let begun = Instant::now();
        let answer = sender.send(&delivery.url, delivery.secret.as_ref(), &event).await;
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
