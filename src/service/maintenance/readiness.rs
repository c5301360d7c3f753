//! Probes readiness with small writes to the catalog and to the store.
//!
//! A result is reused for `server.ready_probe_s`, and requests during a probe wait for its result, so that requests
//! cannot cause load. Each change of the result is logged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use strata_catalog::CatalogError;
use strata_runtime::blocking::catch_thread_exhaustion;
use strata_store::StorageError;
use strata_store::unavailable::ResourceUnavailable;
use strata_types::error_chain::iter_error_chain;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::maintenance::store_identity::StoreIdentityCheck;

/// Timeout of a write, below the usual timeout of load balancers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(4);

/// The reason why the service is not ready. The messages are public, so they contain no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReadyReason {
    #[error("cannot write to the metadata database: {0}")]
    Catalog(String),
    #[error("cannot write to the store: {0}")]
    Store(String),
    #[error("the store is missing: {0}")]
    StoreMissing(String),
    #[error("cannot write to the metadata database ({catalog}) or to the store ({store})")]
    CatalogAndStore { catalog: String, store: String },
    #[error("no file descriptors are available for connections")]
    NoFileDescriptors,
    #[error("the service is shutting down")]
    Draining,
}

pub struct ReadinessCheck {
    /// Probes use a store client that is reserved for them.
    store_identity: StoreIdentityCheck,
    last_probe: Mutex<Option<ReadinessProbe>>,
    draining: AtomicBool,
    lacks_descriptors: AtomicBool,
}

struct ReadinessProbe {
    probed_at: Instant,
    outcome: Result<(), NotReadyReason>,
}

impl ReadinessCheck {
    pub(crate) fn new(store_identity: StoreIdentityCheck) -> ReadinessCheck {
        ReadinessCheck {
            store_identity,
            last_probe: Mutex::default(),
            draining: AtomicBool::new(false),
            lacks_descriptors: AtomicBool::new(false),
        }
    }

    /// Makes `/readyz` fail before the service stops, so that load balancers stop sending requests. The service
    /// continues to handle requests.
    pub fn begin_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn set_descriptors_exhausted(&self, lacks_descriptors: bool) {
        self.lacks_descriptors.store(lacks_descriptors, Ordering::Relaxed);
    }

    pub async fn check(&self) -> Result<(), NotReadyReason> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(NotReadyReason::Draining);
        }
        if self.lacks_descriptors.load(Ordering::Relaxed) {
            return Err(NotReadyReason::NoFileDescriptors);
        }
        let mut last = self.last_probe.lock().await;
        let max_age = Duration::from_secs(self.store_identity.config.server.ready_probe_s);
        if let Some(ReadinessProbe { probed_at, outcome }) = &*last
            && probed_at.elapsed() < max_age
        {
            return outcome.clone();
        }
        let outcome = self.probe().await;
        match (last.as_ref().map(|last| &last.outcome), &outcome) {
            (Some(Err(before)), Err(now)) if before == now => {}
            (_, Err(now)) => tracing::warn!(error = %now, "not ready"),
            (Some(Err(_)), Ok(())) => tracing::info!("ready again"),
            (Some(Ok(())) | None, Ok(())) => {}
        }
        // The recorded time is after the probe, so that the next probe does not immediately follow a slow one.
        *last = Some(ReadinessProbe { probed_at: Instant::now(), outcome: outcome.clone() });
        outcome
    }

    async fn probe(&self) -> Result<(), NotReadyReason> {
        let catalog = async {
            match tokio::time::timeout(PROBE_TIMEOUT, self.store_identity.catalog.check_writable()).await {
                Ok(written) => written.map_err(|error| {
                    tracing::debug!(?error, "failed to write to the metadata database");
                    catalog_reason(&error)
                }),
                Err(_) => Err(timeout_reason()),
            }
        };
        let store = async {
            let probe = async {
                self.store_identity.verify().await?;
                self.store_identity.store.probe_write().await
            };
            match tokio::time::timeout(PROBE_TIMEOUT, catch_thread_exhaustion(probe)).await {
                Ok(written) => written.map_err(StorageError::from).flatten().map_err(|error| {
                    tracing::debug!(?error, "failed to write to the store");
                    (matches!(error, StorageError::StoreMissing(_)), store_reason(&error))
                }),
                Err(_) => Err((false, timeout_reason())),
            }
        };
        match tokio::join!(catalog, store) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(catalog), Ok(())) => Err(NotReadyReason::Catalog(catalog)),
            (Ok(()), Err((false, reason))) => Err(NotReadyReason::Store(reason)),
            (Ok(()), Err((true, reason))) => Err(NotReadyReason::StoreMissing(reason)),
            (Err(catalog), Err((true, reason))) => {
                Err(NotReadyReason::CatalogAndStore { catalog, store: format!("it is missing: {reason}") })
            }
            (Err(catalog), Err((false, store))) => Err(NotReadyReason::CatalogAndStore { catalog, store }),
        }
    }
}

fn timeout_reason() -> String {
    format!("it did not respond within {} s", PROBE_TIMEOUT.as_secs())
}

fn catalog_reason(error: &CatalogError) -> String {
    match error {
        CatalogError::Unavailable { reason, .. } => reason.to_string(),
        CatalogError::DamagedDatabase { .. } => "it is damaged".to_owned(),
        _ => "an internal error occurred".to_owned(),
    }
}

fn store_reason(error: &StorageError) -> String {
    use std::io::ErrorKind;

    if let StorageError::StoreMissing(missing) = error {
        return missing.reason.to_owned();
    }
    match ResourceUnavailable::from_error(error) {
        Some(ResourceUnavailable::StorePermissionDenied(Some(permission))) => {
            return format!("access is denied: the credentials lack the permission {permission}");
        }
        Some(ResourceUnavailable::StorePermissionDenied(None)) => {
            return "access is denied: the credentials lack a permission".to_owned();
        }
        Some(ResourceUnavailable::StoreCredentialsRejected) => return "the credentials are not valid".to_owned(),
        _ => {}
    }
    let mut io_errors = iter_error_chain(error).filter_map(|error| error.downcast_ref::<std::io::Error>());
    let reason = io_errors.find_map(|error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("its disk is full"),
        ErrorKind::PermissionDenied => Some("permission denied"),
        ErrorKind::ReadOnlyFilesystem => Some("its disk is read-only"),
        ErrorKind::ConnectionRefused => Some("the connection was refused"),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Some("the connection was interrupted"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Some("it is unreachable"),
        _ => None,
    });
    reason.unwrap_or("an internal error occurred").to_owned()
}
