//! The status and the public text of each error of the service.

use axum::http::StatusCode;
use strata_catalog::{CatalogError, UnavailableReason};
use strata_ingest::SourceError;
use strata_service::{
    DiffError, ManageError, Overloaded, ReadError, RefreshError, UnknownField, UnknownFieldCause, nested_sort_hint,
};
use strata_store::spool_quota::SpoolQuotaExceeded;
use strata_store::unavailable::ResourceUnavailable;
use strata_types::error_chain::ErrorChain;
use strata_types::version::{VersionNumber, VersionSelector, describe_versions};

use super::REFRESH_RETRY_AFTER_S;
use crate::display_text::quote_for_display;

pub(super) type PublicError = (StatusCode, String);

macro_rules! statuses {
    ($($name:ident: $status:ident),+ $(,)?) => { $(
        pub(super) fn $name(text: impl Into<String>) -> PublicError {
            (StatusCode::$status, text.into())
        }
    )+ };
}

statuses! {
    bad_request: BAD_REQUEST,
    unauthorized: UNAUTHORIZED,
    forbidden: FORBIDDEN,
    not_found: NOT_FOUND,
    conflict: CONFLICT,
    too_many_requests: TOO_MANY_REQUESTS,
    internal_error: INTERNAL_SERVER_ERROR,
    unavailable: SERVICE_UNAVAILABLE,
}

pub(super) fn from_overloaded(overloaded: &Overloaded) -> PublicError {
    let Overloaded { limit, waited } = overloaded;
    let waited = waited.map_or(String::new(), |waited| format!(" This request waited {} s.", waited.as_secs()));
    unavailable(format!(
        "Too many concurrent {}, from this client or in total.{waited} Try again in {} s, or make a smaller request.",
        limit.requests,
        Overloaded::RETRY_AFTER_S
    ))
}

pub(super) fn version_not_found(number: VersionNumber, existing_versions: &str) -> PublicError {
    not_found(match number.get() {
        // Version numbers that exceed a `u64` are parsed as `u64::MAX`.
        u64::MAX => format!("This dataset has no version with such a large number; {existing_versions}."),
        number => format!("This dataset has no version {number}; {existing_versions}."),
    })
}

pub(super) fn catalog_unavailable(reason: UnavailableReason) -> PublicError {
    unavailable(format!("The metadata database is unavailable: {reason}. Try again in {} s.", reason.retry_after_s()))
}

pub(super) fn from_read_error(error: &ReadError) -> PublicError {
    match error {
        ReadError::DatasetNotFound => not_found("There is no dataset with this dataset_id and name_slug."),
        ReadError::NotReadable => not_found("No dataset that you can read has this dataset_id."),
        ReadError::Unauthorized => {
            unauthorized("This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>.")
        }
        ReadError::Forbidden => forbidden(
            "The Authorization header does not contain this dataset's private key. API tokens are not valid here.",
        ),
        ReadError::Frozen => (StatusCode::GONE, "This dataset is frozen and no longer served.".into()),
        ReadError::VersionNotFound { selector: VersionSelector::Active, .. } => {
            not_found("This dataset has no active version.")
        }
        ReadError::VersionNotFound { selector: VersionSelector::Latest, .. } => {
            not_found("This dataset has no versions yet.")
        }
        ReadError::VersionNotFound { selector: VersionSelector::Number(number), latest } => {
            version_not_found(*number, &describe_versions(*latest))
        }
        ReadError::AltNotFound(version) => not_found(format!("Version {version} of this dataset has no alternate.")),
        ReadError::TooManyColumns { limit } => bad_request(format!(
            "The table would have more than {limit} columns. Select fewer fields with keep_field, or use a format that \
             is not a table: json, jsonl, or xml."
        )),
        ReadError::EntityTooLarge { limit_bytes } => bad_request(format!(
            "An entity in the response would be larger than {limit_bytes} bytes in this format. Select fewer fields \
             with keep_field, or use a more compact format: format=jsonl or pretty=false, without flatten."
        )),
        ReadError::UnknownFields(fields) => bad_request(unknown_fields_text(fields)),
        ReadError::Timeout { seconds } => {
            unavailable(format!("The query was stopped after {seconds} s. A narrower query might finish in time."))
        }
        ReadError::OutOfMemory => unavailable(
            "The query needs more memory than is currently available. Try again later, or request less data.",
        ),
        ReadError::OutOfDisk(_) => unavailable(
            "The query needs more disk space than is currently available. Try again later, or request less data.",
        ),
        // A query that exceeds a limit fails again if it is repeated, so it returns 400 instead of 503.
        ReadError::SpillTooLarge { limit_bytes } => bad_request(format!(
            "The query needs more than {limit_bytes} bytes of disk space, the limit per client \
             (query.spill_bytes). Select fewer entities with filters, or fewer fields with keep_field."
        )),
        ReadError::QueryTooLarge { limit_bytes } => bad_request(format!(
            "The query needs more than {limit_bytes} bytes of memory, the limit per client (query.memory_bytes). \
             Sort by a field with shorter values, or select fewer entities with filters."
        )),
        ReadError::TooMuchMemory { needed_bytes, limit_bytes } => bad_request(format!(
            "The response needs {needed_bytes} bytes of memory, but the limit per client is {limit_bytes} bytes \
             (query.memory_bytes). Select fewer columns with keep_field, or use another format."
        )),
        ReadError::TooMuchDisk { needed_bytes, limit_bytes } => bad_request(format!(
            "The response needs {needed_bytes} bytes of disk space at once, but the limit per client is \
             {limit_bytes} bytes (query.spill_bytes). Select fewer columns with keep_field, or use another format."
        )),
        ReadError::Busy(refused) => from_overloaded(refused),
        ReadError::CatalogUnavailable { reason, .. } => catalog_unavailable(*reason),
        ReadError::Unreadable(_) => internal_error("Failed to read the dataset from storage. The error was logged."),
    }
}

const MAX_NAMED_FIELDS: usize = 3;

fn unknown_fields_text(fields: &[UnknownField]) -> String {
    let mut text = "Invalid query: strict=true does not allow unknown fields.".to_owned();
    for field in fields.iter().take(MAX_NAMED_FIELDS) {
        let cause = match &field.cause {
            UnknownFieldCause::Absent { nearest: Some(nearest) } if field.nearest_nested_sort_path().is_some() => {
                nested_sort_hint(quote_for_display(nearest))
            }
            UnknownFieldCause::Absent { nearest: Some(nearest) } => {
                format!("no entity in this version has this field. Did you mean {}?", quote_for_display(nearest))
            }
            UnknownFieldCause::Absent { nearest: None } => {
                "no entity in this version has this field. To list the existing paths, call GET /dataset/profile. For \
                 a private dataset, only the owner can call it."
                    .to_owned()
            }
            UnknownFieldCause::Removed { step } => format!("{step} removed this field from every entity."),
        };
        text.push_str(&format!(" {}: {}: {cause}", field.parameter, quote_for_display(&field.path.to_string())));
    }
    match fields.len().saturating_sub(MAX_NAMED_FIELDS) {
        0 => text,
        more => format!("{text} And {more} more."),
    }
}

/// Logs a failed read if the cause is internal. Also called if a body fails after its first byte.
pub(crate) fn log_read_error(error: &ReadError) {
    match error {
        ReadError::QueryTooLarge { .. }
        | ReadError::SpillTooLarge { .. }
        | ReadError::TooMuchMemory { .. }
        | ReadError::TooMuchDisk { .. } => tracing::warn!(error = %ErrorChain(error), "rejected query"),
        ReadError::Timeout { .. }
        | ReadError::OutOfMemory
        | ReadError::OutOfDisk(_)
        | ReadError::Busy(_)
        | ReadError::CatalogUnavailable { .. } => tracing::warn!(error = %ErrorChain(error), "failed to run query"),
        ReadError::Unreadable(_) if ResourceUnavailable::from_error(error).is_some() => {
            tracing::error!(error = %ErrorChain(error), "failed to run query because a resource is unavailable");
        }
        ReadError::Unreadable(_) => tracing::error!(error = %ErrorChain(error), "failed to read dataset"),
        _ => {}
    }
}

pub(super) fn from_manage_error(error: &ManageError) -> PublicError {
    match error {
        ManageError::InvalidField { field, problem } => bad_request(format!("Invalid request: {field}: {problem}.")),
        ManageError::WrongCredentials => unauthorized("There is no user with this email and password."),
        ManageError::TooManyLogins { retry_after_s } => {
            too_many_requests(format!("Too many login attempts. Try again in {retry_after_s} s."))
        }
        ManageError::LoginsBusy => {
            unavailable(format!("Too many concurrent logins. Try again in {} s.", Overloaded::RETRY_AFTER_S))
        }
        ManageError::DatasetNotFound => not_found("You have no dataset with this dataset_id."),
        ManageError::CloneSourceNotFound => {
            not_found("No public dataset and none of your datasets has this dataset_id.")
        }
        ManageError::CloneSourceEmpty => conflict("This dataset has no versions yet, so you cannot clone it."),
        ManageError::VersionNotFound => not_found("This dataset has no such version."),
        ManageError::NoVersionYet => not_found("This dataset has no versions yet."),
        ManageError::UnknownVersion { number, existing_versions } => version_not_found(*number, existing_versions),
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
        ManageError::NotPrivate => conflict("This dataset is public and has no private key."),
        ManageError::RefreshRunning => conflict("Another refresh of this dataset is running."),
        ManageError::Stale => conflict(
            "The etag is not current, so nothing was saved. Possible causes: the alternate changed after you received \
             the etag, or you changed the etag (32 hexadecimal digits, with or without double quotes). Pull again and \
             edit the new entities. For edits by position, find the positions again. Then send the new etag.",
        ),
        ManageError::CloneSourceChanged => conflict(
            "The dataset changed during cloning: it has a new version or alternate. Nothing was cloned. Try again.",
        ),
        ManageError::CheckTimeout { seconds } => unavailable(format!(
            "The checks were stopped after {seconds} s. Fewer checks, or a simpler JSON Schema, might finish in time."
        )),
        ManageError::CheckQuotaExceeded(full) => {
            unavailable(format!("The checks could not run: {full}. Try again in {REFRESH_RETRY_AFTER_S} s."))
        }
        ManageError::Overloaded(refused) => from_overloaded(refused),
        ManageError::Catalog(CatalogError::Unavailable { reason, .. }) => catalog_unavailable(*reason),
        ManageError::Catalog(_) | ManageError::Storage(_) | ManageError::Internal(_) => {
            internal_error("The operation failed because of an internal error. The error was logged.")
        }
    }
}

pub(super) fn from_diff_error(error: &DiffError) -> PublicError {
    match error {
        DiffError::Manage(error) => from_manage_error(error),
        DiffError::Read(ReadError::Timeout { seconds }) => unavailable(format!(
            "The diff was stopped after {seconds} s. A diff of versions with fewer differences might finish in time."
        )),
        DiffError::Read(ReadError::OutOfMemory) => diff_out_of_resource("memory"),
        DiffError::Read(ReadError::OutOfDisk(_)) => diff_out_of_resource("disk space"),
        DiffError::Read(ReadError::QueryTooLarge { limit_bytes }) => {
            diff_too_large("memory", "query.memory_bytes", *limit_bytes)
        }
        DiffError::Read(ReadError::SpillTooLarge { limit_bytes }) => {
            diff_too_large("disk space", "query.spill_bytes", *limit_bytes)
        }
        DiffError::Read(error) => from_read_error(error),
    }
}

fn diff_out_of_resource(resource: &str) -> PublicError {
    let seconds = Overloaded::RETRY_AFTER_S;
    unavailable(format!("The diff needs more {resource} than is currently available. Try again in {seconds} s."))
}

fn diff_too_large(resource: &str, option: &str, limit_bytes: u64) -> PublicError {
    bad_request(format!(
        "The diff needs more than {limit_bytes} bytes of {resource}, the limit per client ({option}). Compare versions \
         with fewer differences, or ask the operator to raise {option}."
    ))
}

/// Maps an error of a refresh that created no version (docs/reference/refreshes.md, A version or nothing).
pub(super) fn from_refresh_error(error: &RefreshError) -> PublicError {
    let status = match error {
        RefreshError::DatasetNotFound => return not_found("You have no dataset with this dataset_id."),
        RefreshError::Frozen
        | RefreshError::RefreshRunning
        | RefreshError::NothingToFetch
        | RefreshError::SourceIsUrl => StatusCode::CONFLICT,
        RefreshError::Source(SourceError::InvalidBody { reason }) => {
            return bad_request(format!("Invalid body: {reason}."));
        }
        RefreshError::Source(SourceError::Io(_)) => return version_not_created(),
        RefreshError::Source(error) => source_error_status(error),
        RefreshError::ChecksFailed(_) | RefreshError::InvalidChecks(_) => StatusCode::UNPROCESSABLE_ENTITY,
        RefreshError::DiskQuotaExceeded(SpoolQuotaExceeded::User { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        RefreshError::DiskQuotaExceeded(_)
        | RefreshError::Overloaded(_)
        | RefreshError::LeaseLost
        | RefreshError::RoleDisabled
        | RefreshError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        RefreshError::Catalog(CatalogError::Unavailable { reason, .. }) => {
            let (status, text) = catalog_unavailable(*reason);
            return (status, format!("No version was created. {text}"));
        }
        RefreshError::Storage(_)
        | RefreshError::Catalog(_)
        | RefreshError::RecordsPath(_)
        | RefreshError::WorkerStopped => return version_not_created(),
    };
    (status, format!("No version was created: {error}."))
}

/// Maps an error of a version's edited copy that could not be saved because disk space or permits are exhausted.
pub(super) fn from_alternate_error(error: &RefreshError) -> PublicError {
    let (status, _) = from_refresh_error(error);
    let advice = match error {
        RefreshError::DiskQuotaExceeded(SpoolQuotaExceeded::User { .. }) => {
            "Send less data at once, or wait until your other uploads have finished"
        }
        RefreshError::DiskQuotaExceeded(SpoolQuotaExceeded::DiskReserve { .. }) => {
            "Free some space on this disk, or ask the operator to free some. Then try again"
        }
        _ => "Try again later",
    };
    (status, format!("Nothing was saved, and the alternate is unchanged: {error}. {advice}."))
}

fn version_not_created() -> PublicError {
    internal_error("Failed to create the version because of an internal error. The error was logged.")
}

/// Maps an error of pushed entities (docs/reference/refreshes.md, A version or nothing).
pub(super) fn from_entities_error(error: &SourceError) -> PublicError {
    let text = match error {
        SourceError::InvalidBody { reason } => format!("Invalid body: {reason}."),
        SourceError::UnusableUrl { .. } | SourceError::Interrupted { .. } | SourceError::TooSlow { .. } => {
            format!("Invalid request: {error}.")
        }
        SourceError::InvalidDocument { .. } => format!("Invalid entities: {error}."),
        SourceError::TooLarge { .. } => format!("Too large: {error}."),
        SourceError::Unreachable { .. } | SourceError::DiskQuotaExceeded(_) => format!("{error}."),
        SourceError::Io(_) => {
            "Failed to receive the entities because of an internal error. The error was logged.".into()
        }
    };
    (source_error_status(error), text)
}

fn source_error_status(error: &SourceError) -> StatusCode {
    match error {
        SourceError::UnusableUrl { .. } | SourceError::InvalidBody { .. } | SourceError::Interrupted { .. } => {
            StatusCode::BAD_REQUEST
        }
        SourceError::Unreachable { .. } => StatusCode::BAD_GATEWAY,
        SourceError::InvalidDocument { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        SourceError::TooLarge { .. } | SourceError::DiskQuotaExceeded(SpoolQuotaExceeded::User { .. }) => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        SourceError::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
        SourceError::DiskQuotaExceeded(_) => StatusCode::SERVICE_UNAVAILABLE,
        SourceError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
