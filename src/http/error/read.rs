//! The texts for reads that the service could not answer.

use axum::http::StatusCode;
use strata_service::{ReadError, UnknownCause, UnknownField, deep_sort_hint};
use strata_store::shortage::Shortage;
use strata_types::causes::Causes;
use strata_types::version::{VersionNumber, VersionSelector, there_are};

use super::shared::{
    PublicError, bad_request, busy, catalog_unavailable, failed, forbidden, no_version_of, not_found, unavailable,
};
use crate::text::quoted;

pub(super) fn public(error: &ReadError) -> PublicError {
    match error {
        ReadError::DatasetNotFound => not_found("There is no dataset with this dataset_id and name_slug."),
        ReadError::NotReadable => not_found("No dataset that you can read has this dataset_id."),
        ReadError::Unauthorized => (
            StatusCode::UNAUTHORIZED,
            "This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>.".into(),
        ),
        ReadError::Forbidden => forbidden(
            "The Authorization header does not contain this dataset's private key. API tokens are not valid here.",
        ),
        ReadError::Frozen => (StatusCode::GONE, "This dataset is frozen and no longer served.".into()),
        ReadError::VersionNotFound { selector, latest } => version_not_found(selector, *latest),
        ReadError::AltNotFound(version) => not_found(format!("Version {version} of this dataset has no alternate.")),
        ReadError::TooManyColumns { limit } => bad_request(format!(
            "The table would have more than {limit} columns. Select fewer fields with keep_field, or use a format that \
             is not a table: json, jsonl, or xml."
        )),
        ReadError::EntityTooLarge { limit_bytes } => bad_request(format!(
            "An entity in the response would be larger than {limit_bytes} bytes in this format. Select fewer fields \
             with keep_field, or use a more compact format: format=jsonl or pretty=false, without flatten."
        )),
        ReadError::UnknownFields(fields) => bad_request(unknown_fields(fields)),
        ReadError::Timeout { seconds } => {
            unavailable(format!("The query was stopped after {seconds} s. A narrower query might finish in time."))
        }
        ReadError::OutOfMemory => unavailable(
            "The query needs more memory than is currently available. Try again later, or request less data.",
        ),
        ReadError::OutOfDisk(_) => unavailable(
            "The query needs more disk space than is currently available. Try again later, or request less data.",
        ),
        // No other time helps.
        ReadError::SpillTooLarge { limit_bytes } => bad_request(format!(
            "The query needs more than {limit_bytes} bytes of disk space, the limit per client \
             (query.spill_bytes). Select fewer entities with filters, or fewer fields with keep_field."
        )),
        // No other time helps.
        ReadError::QueryTooLarge { limit_bytes } => bad_request(format!(
            "The query needs more than {limit_bytes} bytes of memory, the limit per client (query.memory_bytes). \
             Sort by a field with shorter values, or select fewer entities with filters."
        )),
        // No other time helps: like a table of too many columns it has to be another request.
        ReadError::TooMuchMemory { needed_bytes, limit_bytes } => bad_request(format!(
            "The response needs {needed_bytes} bytes of memory, but the limit per client is {limit_bytes} bytes \
             (query.memory_bytes). Select fewer columns with keep_field, or use another format."
        )),
        ReadError::TooMuchDisk { needed_bytes, limit_bytes } => bad_request(format!(
            "The response needs {needed_bytes} bytes of disk space at once, but the limit per client is \
             {limit_bytes} bytes (query.spill_bytes). Select fewer columns with keep_field, or use another format."
        )),
        ReadError::Busy(refused) => busy(refused),
        ReadError::CatalogUnavailable { reason, .. } => catalog_unavailable(*reason),
        ReadError::Unreadable(_) => failed("Failed to read the dataset from storage. The error was logged."),
    }
}

/// Fields that a refusal of a strict request names.
const NAMED_FIELDS: usize = 3;

fn unknown_fields(fields: &[UnknownField]) -> String {
    let mut text = "Invalid query: strict=true does not allow unknown fields.".to_owned();
    for field in fields.iter().take(NAMED_FIELDS) {
        let (UnknownField { parameter, path, cause }, deep_sort) = (field, field.deep_sort());
        let path = path.to_string();
        let (path, cause) = (
            quoted(&path),
            match cause {
                UnknownCause::Absent { nearest: Some(nearest) } if deep_sort.is_some() => {
                    deep_sort_hint(quoted(nearest))
                }
                UnknownCause::Absent { nearest: Some(nearest) } => {
                    format!("no entity in this version has this field. Did you mean {}?", quoted(nearest))
                }
                UnknownCause::Absent { nearest: None } => {
                    "no entity in this version has this field. To list the existing paths, call GET /dataset/profile. \
                     For a private dataset, only the owner can call it."
                        .to_owned()
                }
                UnknownCause::Taken { step } => format!("{step} removed this field from every entity."),
            },
        );
        text.push_str(&format!(" {parameter}: {path}: {cause}"));
    }
    match fields.len().saturating_sub(NAMED_FIELDS) {
        0 => {}
        more => text.push_str(&format!(" And {more} more.")),
    }
    text
}

fn version_not_found(selector: &VersionSelector, latest: Option<VersionNumber>) -> PublicError {
    match selector {
        VersionSelector::Active => not_found("This dataset has no active version."),
        VersionSelector::Latest => not_found("This dataset has no versions yet."),
        VersionSelector::Number(number) => no_version_of(*number, &there_are(latest)),
    }
}

/// Logs a failed read when the reason is the service's own; also one whose body fails after its first byte.
pub(crate) fn log(error: &ReadError) {
    match error {
        // Whose bound it is may want to know.
        ReadError::QueryTooLarge { .. }
        | ReadError::SpillTooLarge { .. }
        | ReadError::TooMuchMemory { .. }
        | ReadError::TooMuchDisk { .. } => {
            tracing::warn!(error = %Causes(error), "rejected query");
        }
        ReadError::Timeout { .. }
        | ReadError::OutOfMemory
        | ReadError::OutOfDisk(_)
        | ReadError::Busy(_)
        | ReadError::CatalogUnavailable { .. } => {
            tracing::warn!(error = %Causes(error), "failed to run query");
        }
        // The fault is not in the dataset.
        ReadError::Unreadable(_) if Shortage::of(error).is_some() => {
            tracing::error!(error = %Causes(error), "failed to run query because a resource is unavailable");
        }
        ReadError::Unreadable(_) => tracing::error!(error = %Causes(error), "failed to read dataset"),
        _ => {}
    }
}
