//! Texts that errors of several kinds have.

use axum::http::StatusCode;

use crate::catalog::Unavailability;
use crate::service::Refused;

/// The text for a request that found a gate shut.
pub(super) fn busy(refused: &Refused) -> String {
    let Refused { gate, waited } = refused;
    let waited = waited.map_or(String::new(), |waited| format!(" This request waited for {} s.", waited.as_secs()));
    format!(
        "Too many {} at the same time, from this client or in total.{waited} Try again in {} s, or ask for less.",
        gate.what,
        Refused::RETRY_AFTER_S
    )
}

/// The status and the text where the catalog cannot be used.
pub(super) fn catalog_unavailable(reason: Unavailability) -> (StatusCode, String) {
    let text = format!("The catalog is not available: {reason}. Try again in {} s.", reason.retry_after_s());
    (StatusCode::SERVICE_UNAVAILABLE, text)
}
