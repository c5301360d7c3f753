//! The texts for versions and alternates that were not made.

use axum::http::StatusCode;
use strata_catalog::CatalogError;
use strata_ingest::SourceError;
use strata_service::RefreshError;
use strata_store::budget::SpoolFull;

use super::shared::{PublicError, bad_request, catalog_unavailable, failed, not_found};

/// The status and the text for a refresh that made nothing (docs/reference/refreshes.md, A version or nothing).
pub(super) fn public(error: &RefreshError) -> PublicError {
    let status = match error {
        RefreshError::NotFound => return not_found("You have no dataset with this dataset_id."),
        RefreshError::Frozen | RefreshError::Busy | RefreshError::NothingToFetch | RefreshError::NotPushed => {
            StatusCode::CONFLICT
        }
        RefreshError::Source(SourceError::BadBody { reason }) => {
            return bad_request(format!("Invalid body: {reason}."));
        }
        RefreshError::Source(SourceError::Io(_)) => return made_nothing(),
        RefreshError::Source(error) => source_status(error),
        RefreshError::Full(SpoolFull::User { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        RefreshError::Full(_)
        | RefreshError::Refused(_)
        | RefreshError::LeaseLost
        | RefreshError::NotHere
        | RefreshError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        RefreshError::Catalog(CatalogError::Unavailable { reason, .. }) => {
            let (status, text) = catalog_unavailable(*reason);
            return (status, format!("No version was created. {text}"));
        }
        RefreshError::Storage(_) | RefreshError::Catalog(_) | RefreshError::RecordsPath(_) | RefreshError::Worker => {
            return made_nothing();
        }
    };
    (status, format!("No version was created: {error}."))
}

/// The status and the text for an alternate that was not saved because there is no room for it: which, and what to do.
pub(super) fn public_edit(error: &RefreshError) -> PublicError {
    let (status, _) = public(error);
    let what_to_do = match error {
        RefreshError::Full(SpoolFull::User { .. }) => {
            "Send less data at once, or wait until your other uploads have finished"
        }
        RefreshError::Full(SpoolFull::Disk { .. }) => {
            "Free some space on this disk, or ask the operator to free some. Then try again"
        }
        _ => "Try again later",
    };
    (status, format!("Nothing was saved, and the alternate is unchanged: {error}. {what_to_do}."))
}

fn made_nothing() -> PublicError {
    failed("Failed to create the version because of an internal error. The error was logged.")
}

/// The status and the text for entities that were sent (docs/reference/refreshes.md, A version or nothing).
pub(super) fn public_entities(error: &SourceError) -> PublicError {
    let text = match error {
        SourceError::BadBody { reason } => format!("Invalid body: {reason}."),
        SourceError::BadAddress { .. } | SourceError::Interrupted { .. } | SourceError::TooSlow { .. } => {
            format!("Invalid request: {error}.")
        }
        SourceError::BadDocument { .. } => format!("Invalid entities: {error}."),
        SourceError::TooLarge { .. } => format!("Too large: {error}."),
        SourceError::Unreachable { .. } | SourceError::Full(_) => format!("{error}."),
        SourceError::Io(_) => {
            "Failed to receive the entities because of an internal error. The error was logged.".into()
        }
    };
    (source_status(error), text)
}

fn source_status(error: &SourceError) -> StatusCode {
    match error {
        SourceError::BadAddress { .. } | SourceError::BadBody { .. } | SourceError::Interrupted { .. } => {
            StatusCode::BAD_REQUEST
        }
        SourceError::Unreachable { .. } => StatusCode::BAD_GATEWAY,
        SourceError::BadDocument { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        SourceError::TooLarge { .. } | SourceError::Full(SpoolFull::User { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        SourceError::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
        SourceError::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
        SourceError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
