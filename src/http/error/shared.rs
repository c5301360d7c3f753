//! Texts that errors of several kinds have.

use axum::http::StatusCode;
use strata_catalog::Unavailability;
use strata_service::Refused;
use strata_types::version::VersionNumber;

/// The status and the text that the caller sees.
pub(super) type PublicError = (StatusCode, String);

pub(super) fn bad_request(text: impl Into<String>) -> PublicError {
    (StatusCode::BAD_REQUEST, text.into())
}

pub(super) fn forbidden(text: impl Into<String>) -> PublicError {
    (StatusCode::FORBIDDEN, text.into())
}

pub(super) fn not_found(text: impl Into<String>) -> PublicError {
    (StatusCode::NOT_FOUND, text.into())
}

pub(super) fn conflict(text: impl Into<String>) -> PublicError {
    (StatusCode::CONFLICT, text.into())
}

pub(super) fn failed(text: impl Into<String>) -> PublicError {
    (StatusCode::INTERNAL_SERVER_ERROR, text.into())
}

pub(super) fn unavailable(text: impl Into<String>) -> PublicError {
    (StatusCode::SERVICE_UNAVAILABLE, text.into())
}

pub(super) fn busy(refused: &Refused) -> PublicError {
    let Refused { gate, waited } = refused;
    let waited = waited.map_or(String::new(), |waited| format!(" This request waited {} s.", waited.as_secs()));
    unavailable(format!(
        "Too many concurrent {}, from this client or in total.{waited} Try again in {} s, or make a smaller request.",
        gate.what,
        Refused::RETRY_AFTER_S
    ))
}

pub(super) fn no_version_of(number: VersionNumber, there_are: &str) -> PublicError {
    not_found(match number.get() {
        // Longer numbers are read as the largest.
        u64::MAX => format!("This dataset has no version with such a large number; {there_are}."),
        number => format!("This dataset has no version {number}; {there_are}."),
    })
}

pub(super) fn catalog_unavailable(reason: Unavailability) -> PublicError {
    unavailable(format!("The metadata database is unavailable: {reason}. Try again in {} s.", reason.retry_after_s()))
}
