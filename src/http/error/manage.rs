//! The texts for management calls and comparisons that the service refused, or could not do.

use axum::http::StatusCode;

use super::read;
use super::shared::{busy, catalog_unavailable, no_version_of};
use crate::catalog::CatalogError;
use crate::service::{DiffError, ManageError, ReadError, Refused};

pub(super) fn public(error: &ManageError) -> (StatusCode, String) {
    let (status, text) = match error {
        ManageError::Invalid { field, problem } => {
            return (StatusCode::BAD_REQUEST, format!("Invalid request: {field}: {problem}."));
        }
        ManageError::WrongCredentials => (StatusCode::UNAUTHORIZED, "There is no user with this email and password."),
        ManageError::TooManyLogins { retry_after_s } => {
            let text = format!("Too many log-ins. Try again in {retry_after_s} s.");
            return (StatusCode::TOO_MANY_REQUESTS, text);
        }
        ManageError::LoginsBusy => {
            let text = format!("Too many log-ins at the same time. Try again in {} s.", Refused::RETRY_AFTER_S);
            return (StatusCode::SERVICE_UNAVAILABLE, text);
        }
        ManageError::DatasetNotFound => (StatusCode::NOT_FOUND, "You have no dataset with this dataset_id."),
        ManageError::CloneNotFound => {
            (StatusCode::NOT_FOUND, "You can clone public datasets and your own. None of these has this dataset_id.")
        }
        ManageError::NothingToClone => {
            (StatusCode::CONFLICT, "This dataset has no version yet, so it cannot be cloned.")
        }
        ManageError::VersionNotFound => (StatusCode::NOT_FOUND, "This dataset has no such version."),
        ManageError::NoVersionYet => (StatusCode::NOT_FOUND, "This dataset has no version yet."),
        ManageError::NoVersionOf { number, there_are } => {
            return (StatusCode::NOT_FOUND, no_version_of(*number, there_are));
        }
        ManageError::AltNotFound => (StatusCode::NOT_FOUND, "This version has no alternate."),
        ManageError::WebhookNotFound => (StatusCode::NOT_FOUND, "This dataset has no webhook."),
        ManageError::WrongPassword => (StatusCode::FORBIDDEN, "old is not your password. Nothing was changed."),
        ManageError::SessionNotFound => (StatusCode::NOT_FOUND, "You have no session with this id."),
        ManageError::TokenNotFound => (StatusCode::NOT_FOUND, "You have no API token of this name."),
        ManageError::PlanLimit { limit } => {
            let text = format!("Your plan allows at most {limit} active datasets; frozen ones do not count.");
            return (StatusCode::FORBIDDEN, text);
        }
        ManageError::PlanWebhooks => {
            (StatusCode::FORBIDDEN, "Your plan has no webhooks. The plans pro and scale have them.")
        }
        ManageError::TooManyTokens { limit } => {
            let text = format!("You have {limit} API tokens, the most that are allowed. Delete one first.");
            return (StatusCode::CONFLICT, text);
        }
        ManageError::NameTaken => (StatusCode::CONFLICT, "You already have a dataset of this name."),
        ManageError::TokenNameTaken => (StatusCode::CONFLICT, "You already have an API token of this name."),
        ManageError::Frozen => (StatusCode::CONFLICT, "This dataset is frozen; unfreeze it first."),
        ManageError::NotFrozen => (StatusCode::CONFLICT, "This dataset is not frozen."),
        ManageError::HasVersions => (
            StatusCode::CONFLICT,
            "A dataset with versions cannot be deleted, because versions are permanent. To stop serving it, freeze it \
             (POST /dataset/rollback with freeze). A frozen dataset does not count for your plan.",
        ),
        ManageError::Public => (StatusCode::CONFLICT, "This dataset is public and has no private key."),
        ManageError::Busy => (StatusCode::CONFLICT, "Another refresh of this dataset is running."),
        ManageError::Stale => (
            StatusCode::CONFLICT,
            "The etag is not the current one. Either the alternate was saved or deleted since you got it, or the etag \
             differs from the one that you got: 32 hexadecimal digits, with or without the double quotes. Nothing was \
             saved. Pull again and edit the new entities; or, for edits by position, find the positions again. Then use \
             the new etag.",
        ),
        ManageError::SourceChanged => (
            StatusCode::CONFLICT,
            "The dataset changed while it was cloned: it has a new version or alternate. Nothing was cloned. Try \
             again.",
        ),
        ManageError::Refused(refused) => return (StatusCode::SERVICE_UNAVAILABLE, busy(refused)),
        ManageError::Catalog(CatalogError::Unavailable { reason, .. }) => return catalog_unavailable(*reason),
        ManageError::Catalog(_) | ManageError::Storage(_) | ManageError::Failed(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "The service could not do this. The failure was logged.")
        }
    };
    (status, text.into())
}

pub(super) fn public_diff(error: &DiffError) -> (StatusCode, String) {
    match error {
        DiffError::Manage(error) => public(error),
        DiffError::Read(ReadError::Timeout { seconds }) => {
            let text = format!(
                "The diff was stopped after {seconds} s. A diff of versions with fewer changes between them may finish in \
                 time."
            );
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
        DiffError::Read(ReadError::OutOfMemory) => (StatusCode::SERVICE_UNAVAILABLE, no_room("memory")),
        DiffError::Read(ReadError::OutOfDisk(_)) => (StatusCode::SERVICE_UNAVAILABLE, no_room("disk")),
        // No other time helps.
        DiffError::Read(ReadError::QueryTooLarge { limit_bytes }) => {
            (StatusCode::BAD_REQUEST, too_large("memory", "query.memory_bytes", *limit_bytes))
        }
        DiffError::Read(ReadError::SpillTooLarge { limit_bytes }) => {
            (StatusCode::BAD_REQUEST, too_large("disk", "query.spill_bytes", *limit_bytes))
        }
        DiffError::Read(error) => read::public(error),
    }
}

/// The text for a diff that may find room later.
fn no_room(what: &str) -> String {
    let seconds = Refused::RETRY_AFTER_S;
    format!("The diff needed more {what} than is free for it now. Try again in {seconds} s.")
}

/// The text for a diff that never finds room.
fn too_large(what: &str, option: &str, limit_bytes: u64) -> String {
    format!(
        "The diff needs more than {limit_bytes} bytes of {what}, which is what {option} allows one client. Compare \
         versions with fewer changes between them, or ask the operator for more {option}."
    )
}
