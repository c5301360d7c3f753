//! The texts for management calls and comparisons that the service refused, or could not do.

use axum::http::StatusCode;
use strata_catalog::CatalogError;
use strata_service::{DiffError, ManageError, ReadError, Refused};

use super::read;
use super::shared::{
    PublicError, bad_request, busy, catalog_unavailable, conflict, failed, forbidden, no_version_of, not_found,
    unavailable,
};

pub(super) fn public(error: &ManageError) -> PublicError {
    match error {
        ManageError::Invalid { field, problem } => bad_request(format!("Invalid request: {field}: {problem}.")),
        ManageError::WrongCredentials => {
            (StatusCode::UNAUTHORIZED, "There is no user with this email and password.".into())
        }
        ManageError::TooManyLogins { retry_after_s } => {
            (StatusCode::TOO_MANY_REQUESTS, format!("Too many login attempts. Try again in {retry_after_s} s."))
        }
        ManageError::LoginsBusy => {
            unavailable(format!("Too many concurrent logins. Try again in {} s.", Refused::RETRY_AFTER_S))
        }
        ManageError::DatasetNotFound => not_found("You have no dataset with this dataset_id."),
        ManageError::CloneNotFound => not_found("No public dataset and none of your datasets has this dataset_id."),
        ManageError::NothingToClone => conflict("This dataset has no versions yet, so you cannot clone it."),
        ManageError::VersionNotFound => not_found("This dataset has no such version."),
        ManageError::NoVersionYet => not_found("This dataset has no versions yet."),
        ManageError::NoVersionOf { number, there_are } => no_version_of(*number, there_are),
        ManageError::AltNotFound => not_found("This version has no alternate."),
        ManageError::WebhookNotFound => not_found("This dataset has no webhook."),
        ManageError::WrongPassword => forbidden("`old` does not match your current password. Nothing was changed."),
        ManageError::SessionNotFound => not_found("You have no session with this ID."),
        ManageError::TokenNotFound => not_found("You have no API token with this name."),
        ManageError::PlanLimit { limit } => {
            forbidden(format!("Your plan allows at most {limit} active datasets; frozen datasets do not count."))
        }
        ManageError::PlanWebhooks => {
            forbidden("Your plan does not include webhooks. To use webhooks, you need the pro or scale plan.")
        }
        ManageError::TooManyTokens { limit } => {
            conflict(format!("You have {limit} API tokens, which is the maximum. Delete one first."))
        }
        ManageError::NameTaken => conflict("You already have a dataset with this name."),
        ManageError::TokenNameTaken => conflict("You already have an API token with this name."),
        ManageError::Frozen => conflict("This dataset is frozen; unfreeze it first."),
        ManageError::NotFrozen => conflict("This dataset is not frozen."),
        ManageError::HasVersions => conflict(
            "You cannot delete a dataset that has versions, because versions are permanent. To take the dataset \
             offline, freeze it (POST /dataset/rollback with `freeze`). Frozen datasets do not count toward \
             your plan's limit.",
        ),
        ManageError::Public => conflict("This dataset is public and has no private key."),
        ManageError::Busy => conflict("Another refresh of this dataset is running."),
        ManageError::Stale => conflict(
            "The etag is not current, so nothing was saved. Possible causes: the alternate changed after you received \
             the etag, or you changed the etag (32 hexadecimal digits, with or without double quotes). Pull again and \
             edit the new entities. For edits by position, find the positions again. Then send the new etag.",
        ),
        ManageError::SourceChanged => conflict(
            "The dataset changed during cloning: it has a new version or alternate. Nothing was cloned. Try again.",
        ),
        ManageError::Refused(refused) => busy(refused),
        ManageError::Catalog(CatalogError::Unavailable { reason, .. }) => catalog_unavailable(*reason),
        ManageError::Catalog(_) | ManageError::Storage(_) | ManageError::Failed(_) => {
            failed("The operation failed because of an internal error. The error was logged.")
        }
    }
}

pub(super) fn public_diff(error: &DiffError) -> PublicError {
    match error {
        DiffError::Manage(error) => public(error),
        DiffError::Read(ReadError::Timeout { seconds }) => unavailable(format!(
            "The diff was stopped after {seconds} s. A diff of versions with fewer differences might finish in time."
        )),
        DiffError::Read(ReadError::OutOfMemory) => no_room("memory"),
        DiffError::Read(ReadError::OutOfDisk(_)) => no_room("disk space"),
        // No other time helps.
        DiffError::Read(ReadError::QueryTooLarge { limit_bytes }) => {
            too_large("memory", "query.memory_bytes", *limit_bytes)
        }
        DiffError::Read(ReadError::SpillTooLarge { limit_bytes }) => {
            too_large("disk space", "query.spill_bytes", *limit_bytes)
        }
        DiffError::Read(error) => read::public(error),
    }
}

/// For a diff that may find room later.
fn no_room(what: &str) -> PublicError {
    let seconds = Refused::RETRY_AFTER_S;
    unavailable(format!("The diff needs more {what} than is currently available. Try again in {seconds} s."))
}

/// For a diff that never finds room.
fn too_large(what: &str, option: &str, limit_bytes: u64) -> PublicError {
    bad_request(format!(
        "The diff needs more than {limit_bytes} bytes of {what}, the limit per client ({option}). Compare versions \
         with fewer differences, or ask the operator to raise {option}."
    ))
}
