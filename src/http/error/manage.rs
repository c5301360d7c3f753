//! The texts for management calls and comparisons that the service refused, or could not do.

use axum::http::StatusCode;

use super::read;
use super::shared::{
    PublicError, bad_request, busy, catalog_unavailable, conflict, failed, forbidden, no_version_of, not_found,
    unavailable,
};
use crate::catalog::CatalogError;
use crate::service::{DiffError, ManageError, ReadError, Refused};

pub(super) fn public(error: &ManageError) -> PublicError {
    match error {
        ManageError::Invalid { field, problem } => bad_request(format!("Invalid request: {field}: {problem}.")),
        ManageError::WrongCredentials => {
            (StatusCode::UNAUTHORIZED, "There is no user with this email and password.".into())
        }
        ManageError::TooManyLogins { retry_after_s } => {
            (StatusCode::TOO_MANY_REQUESTS, format!("Too many log-ins. Try again in {retry_after_s} s."))
        }
        ManageError::LoginsBusy => {
            unavailable(format!("Too many log-ins at the same time. Try again in {} s.", Refused::RETRY_AFTER_S))
        }
        ManageError::DatasetNotFound => not_found("You have no dataset with this dataset_id."),
        ManageError::CloneNotFound => {
            not_found("You can clone public datasets and your own. None of these has this dataset_id.")
        }
        ManageError::NothingToClone => conflict("This dataset has no version yet, so it cannot be cloned."),
        ManageError::VersionNotFound => not_found("This dataset has no such version."),
        ManageError::NoVersionYet => not_found("This dataset has no version yet."),
        ManageError::NoVersionOf { number, there_are } => no_version_of(*number, there_are),
        ManageError::AltNotFound => not_found("This version has no alternate."),
        ManageError::WebhookNotFound => not_found("This dataset has no webhook."),
        ManageError::WrongPassword => forbidden("old is not your password. Nothing was changed."),
        ManageError::SessionNotFound => not_found("You have no session with this id."),
        ManageError::TokenNotFound => not_found("You have no API token of this name."),
        ManageError::PlanLimit { limit } => {
            forbidden(format!("Your plan allows at most {limit} active datasets; frozen ones do not count."))
        }
        ManageError::PlanWebhooks => forbidden("Your plan has no webhooks. The plans pro and scale have them."),
        ManageError::TooManyTokens { limit } => {
            conflict(format!("You have {limit} API tokens, the most that are allowed. Delete one first."))
        }
        ManageError::NameTaken => conflict("You already have a dataset of this name."),
        ManageError::TokenNameTaken => conflict("You already have an API token of this name."),
        ManageError::Frozen => conflict("This dataset is frozen; unfreeze it first."),
        ManageError::NotFrozen => conflict("This dataset is not frozen."),
        ManageError::HasVersions => conflict(
            "A dataset with versions cannot be deleted, because versions are permanent. To stop serving it, freeze it \
             (POST /dataset/rollback with freeze). A frozen dataset does not count for your plan.",
        ),
        ManageError::Public => conflict("This dataset is public and has no private key."),
        ManageError::Busy => conflict("Another refresh of this dataset is running."),
        ManageError::Stale => conflict(
            "The etag is not the current one. Either the alternate was saved or deleted since you got it, or the etag \
             differs from the one that you got: 32 hexadecimal digits, with or without the double quotes. Nothing was \
             saved. Pull again and edit the new entities; or, for edits by position, find the positions again. Then use \
             the new etag.",
        ),
        ManageError::SourceChanged => conflict(
            "The dataset changed while it was cloned: it has a new version or alternate. Nothing was cloned. Try \
             again.",
        ),
        ManageError::Refused(refused) => busy(refused),
        ManageError::Catalog(CatalogError::Unavailable { reason, .. }) => catalog_unavailable(*reason),
        ManageError::Catalog(_) | ManageError::Storage(_) | ManageError::Failed(_) => {
            failed("The service could not do this. The failure was logged.")
        }
    }
}

pub(super) fn public_diff(error: &DiffError) -> PublicError {
    match error {
        DiffError::Manage(error) => public(error),
        DiffError::Read(ReadError::Timeout { seconds }) => unavailable(format!(
            "The diff was stopped after {seconds} s. A diff of versions with fewer changes between them may finish in \
             time."
        )),
        DiffError::Read(ReadError::OutOfMemory) => no_room("memory"),
        DiffError::Read(ReadError::OutOfDisk(_)) => no_room("disk"),
        // No other time helps.
        DiffError::Read(ReadError::QueryTooLarge { limit_bytes }) => {
            too_large("memory", "query.memory_bytes", *limit_bytes)
        }
        DiffError::Read(ReadError::SpillTooLarge { limit_bytes }) => {
            too_large("disk", "query.spill_bytes", *limit_bytes)
        }
        DiffError::Read(error) => read::public(error),
    }
}

/// For a diff that may find room later.
fn no_room(what: &str) -> PublicError {
    let seconds = Refused::RETRY_AFTER_S;
    unavailable(format!("The diff needed more {what} than is free for it now. Try again in {seconds} s."))
}

/// For a diff that never finds room.
fn too_large(what: &str, option: &str, limit_bytes: u64) -> PublicError {
    bad_request(format!(
        "The diff needs more than {limit_bytes} bytes of {what}, which is what {option} allows one client. Compare \
         versions with fewer changes between them, or ask the operator for more {option}."
    ))
}
