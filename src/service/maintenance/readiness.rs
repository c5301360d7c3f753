//! Readiness: whether small writes to the catalog and to the store succeed.
//!
//! A result is valid for `server.ready_probe_s`, and requests during a probe wait for it, so that requests cannot cause
//! load. A change of the result is logged once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use strata_catalog::CatalogError;
use strata_runtime::blocking::with_blocking_calls;
use strata_store::StorageError;
use strata_store::shortage::Shortage;
use strata_types::causes::chain;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::maintenance::binding::StoreBinding;

/// The timeout of a write. It is less than the usual timeout of a prober.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Why the service is not ready. The texts contain no secrets, because anybody can request them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("cannot write to the metadata database: {0}")]
    Catalog(String),
    #[error("cannot write to the store: {0}")]
    Store(String),
    #[error("the store is missing: {0}")]
    StoreMissing(String),
    #[error("cannot write to the metadata database ({catalog}) or to the store ({store})")]
    Both { catalog: String, store: String },
    #[error("no file descriptors are available for connections")]
    Exhausted,
    #[error("the service is shutting down")]
    Draining,
}

pub struct Readiness {
    /// The binding with the store for probes.
    binding: StoreBinding,
    last_probe: Mutex<Option<ProbeResult>>,
    draining: AtomicBool,
    exhausted: AtomicBool,
}

struct ProbeResult {
    at: Instant,
    outcome: Result<(), NotReady>,
}

impl Readiness {
    pub(crate) fn new(binding: StoreBinding) -> Readiness {
        Readiness {
            binding,
            last_probe: Mutex::default(),
            draining: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
        }
    }

    /// From now on the service is not ready, because it is about to stop. It still serves requests.
    pub fn begin_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Notes whether the service lacks file descriptors for connections. While it does, it is not ready.
    pub fn note_exhausted(&self, exhausted: bool) {
        self.exhausted.store(exhausted, Ordering::Relaxed);
    }

    pub async fn check(&self) -> Result<(), NotReady> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(NotReady::Draining);
        }
        if self.exhausted.load(Ordering::Relaxed) {
            return Err(NotReady::Exhausted);
        }
        let mut last = self.last_probe.lock().await;
        let holds = Duration::from_secs(self.binding.config.server.ready_probe_s);
        if let Some(ProbeResult { at, outcome }) = &*last
            && at.elapsed() < holds
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
        // From now on, so that the next probe does not follow a slow one at once.
        *last = Some(ProbeResult { at: Instant::now(), outcome: outcome.clone() });
        outcome
    }

    async fn probe(&self) -> Result<(), NotReady> {
        let catalog = async {
            match tokio::time::timeout(TIMEOUT, self.binding.catalog.probe()).await {
                Ok(written) => written.map_err(|error| {
                    tracing::debug!(?error, "failed to write to the metadata database");
                    catalog_reason(&error)
                }),
                Err(_) => Err(late()),
            }
        };
        let store = async {
            let probe = async {
                self.binding.verify().await?;
                self.binding.store.probe().await
            };
            match tokio::time::timeout(TIMEOUT, with_blocking_calls(probe)).await {
                Ok(written) => written.map_err(StorageError::from).flatten().map_err(|error| {
                    tracing::debug!(?error, "failed to write to the store");
                    (matches!(error, StorageError::Gone(_)), store_reason(&error))
                }),
                Err(_) => Err((false, late())),
            }
        };
        match tokio::join!(catalog, store) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(catalog), Ok(())) => Err(NotReady::Catalog(catalog)),
            (Ok(()), Err((false, reason))) => Err(NotReady::Store(reason)),
            (Ok(()), Err((true, reason))) => Err(NotReady::StoreMissing(reason)),
            (Err(catalog), Err((true, reason))) => {
                Err(NotReady::Both { catalog, store: format!("it is missing: {reason}") })
            }
            (Err(catalog), Err((false, store))) => Err(NotReady::Both { catalog, store }),
        }
    }
}

fn late() -> String {
    format!("it did not respond within {} s", TIMEOUT.as_secs())
}

fn catalog_reason(error: &CatalogError) -> String {
    match error {
        CatalogError::Unavailable { reason, .. } => reason.to_string(),
        CatalogError::Damaged { .. } => "it is damaged".to_owned(),
        _ => "an internal error occurred".to_owned(),
    }
}

fn store_reason(error: &StorageError) -> String {
    use std::io::ErrorKind;

    if let StorageError::Gone(gone) = error {
        return gone.reason.to_owned();
    }
    match Shortage::of(error) {
        Some(Shortage::Forbidden(Some(permission))) => {
            return format!("access is denied: the credentials lack the permission {permission}");
        }
        Some(Shortage::Forbidden(None)) => return "access is denied: the credentials lack a permission".to_owned(),
        Some(Shortage::Credentials) => return "the credentials are not valid".to_owned(),
        _ => {}
    }
    for error in chain(error) {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => return "its disk is full".to_owned(),
                ErrorKind::PermissionDenied => return "permission denied".to_owned(),
                ErrorKind::ReadOnlyFilesystem => return "its disk is read-only".to_owned(),
                ErrorKind::ConnectionRefused => return "the connection was refused".to_owned(),
                ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
                    return "the connection was interrupted".to_owned();
                }
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => return "it is unreachable".to_owned(),
                _ => {}
            }
        }
    }
    "an internal error occurred".to_owned()
}
