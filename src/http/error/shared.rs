//! Texts that errors of several kinds have.

use axum::http::StatusCode;

use crate::catalog::Unavailability;
use crate::model::version::VersionNumber;
use crate::service::Refused;

pub(super) fn busy(refused: &Refused) -> String {
    let Refused { gate, waited } = refused;
    let waited = waited.map_or(String::new(), |waited| format!(" This request waited for {} s.", waited.as_secs()));
    format!(
        "Too many {} at the same time, from this client or in total.{waited} Try again in {} s, or ask for less.",
        gate.what,
        Refused::RETRY_AFTER_S
    )
}

pub(super) fn no_version_of(number: VersionNumber, there_are: &str) -> String {
    match number.get() {
        // Longer numbers are read as the largest.
        u64::MAX => format!("This dataset has no version with so large a number; {there_are}."),
        number => format!("This dataset has no version {number}; {there_are}."),
    }
}

pub(super) fn catalog_unavailable(reason: Unavailability) -> (StatusCode, String) {
    let text = format!("The catalog is not available: {reason}. Try again in {} s.", reason.retry_after_s());
    (StatusCode::SERVICE_UNAVAILABLE, text)
}
