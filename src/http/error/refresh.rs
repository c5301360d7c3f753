//! The texts for versions and alternates that were not made.

use axum::http::StatusCode;

use super::shared::{PublicError, bad_request, catalog_unavailable, failed, not_found, unavailable};
use crate::catalog::CatalogError;
use crate::service::RefreshError;
use crate::source::SourceError;
use crate::storage::budget::SpoolFull;

/// The status and the text for a refresh that made nothing (docs/semantics.md, A version or nothing).
pub(super) fn public(error: &RefreshError) -> PublicError {
    let status = match error {
        RefreshError::NotFound => return not_found("You have no dataset with this dataset_id."),
        RefreshError::Frozen | RefreshError::Busy | RefreshError::NothingToFetch | RefreshError::NotPushed => {
            StatusCode::CONFLICT
        }
        RefreshError::Source(error) => match error {
            SourceError::BadAddress { .. } => StatusCode::BAD_REQUEST,
            SourceError::BadBody { reason } => return bad_request(format!("Invalid body: {reason}.")),
            SourceError::Interrupted { .. } => StatusCode::BAD_REQUEST,
            SourceError::Unreachable { .. } => StatusCode::BAD_GATEWAY,
            SourceError::BadDocument { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            SourceError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            SourceError::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            SourceError::Full(SpoolFull::User { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            SourceError::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
            SourceError::Io(_) => return made_nothing(),
        },
        RefreshError::Full(SpoolFull::User { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        RefreshError::Full(_)
        | RefreshError::Refused(_)
        | RefreshError::LeaseLost
        | RefreshError::NotHere
        | RefreshError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        RefreshError::Catalog(CatalogError::Unavailable { reason, .. }) => {
            let (status, text) = catalog_unavailable(*reason);
            return (status, format!("No version was made. {text}"));
        }
        RefreshError::Storage(_) | RefreshError::Catalog(_) | RefreshError::RecordsPath(_) | RefreshError::Worker => {
            return made_nothing();
        }
    };
    (status, format!("No version was made: {error}."))
}

/// The status and the text for an alternate that was not saved because there is no room for it: which, and what to do.
pub(super) fn public_edit(error: &RefreshError) -> PublicError {
    let (status, _) = public(error);
    let what_to_do = match error {
        RefreshError::Full(SpoolFull::User { .. }) => "Send less at once, or wait until your other uploads have ended",
        RefreshError::Full(SpoolFull::Disk { .. }) => "Free space on this disk, or ask the operator to, then try again",
        _ => "Try again later",
    };
    (status, format!("Nothing was saved, and the alternate is as it was: {error}. {what_to_do}."))
}

fn made_nothing() -> PublicError {
    failed("The service failed to make the version. The failure was logged.")
}

/// The status and the text for entities that were sent (docs/semantics.md, A version or nothing).
pub(super) fn public_entities(error: &SourceError) -> PublicError {
    match error {
        SourceError::BadBody { reason } => bad_request(format!("Invalid body: {reason}.")),
        SourceError::BadAddress { .. } | SourceError::Interrupted { .. } => {
            bad_request(format!("Invalid request: {error}."))
        }
        SourceError::BadDocument { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, format!("These entities cannot be used: {error}."))
        }
        SourceError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, format!("Too large: {error}.")),
        SourceError::TooSlow { .. } => (StatusCode::REQUEST_TIMEOUT, format!("Invalid request: {error}.")),
        SourceError::Unreachable { .. } => (StatusCode::BAD_GATEWAY, format!("{error}.")),
        SourceError::Full(SpoolFull::User { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, format!("{error}.")),
        SourceError::Full(_) => unavailable(format!("{error}.")),
        SourceError::Io(_) => failed("The service could not receive these entities. The failure was logged."),
    }
}
