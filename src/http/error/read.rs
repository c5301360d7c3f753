//! The texts for reads that the service could not answer.

use axum::http::StatusCode;
use strata_types::causes::Causes;
use strata_types::version::{VersionNumber, VersionSelector, there_are};

use super::shared::{
    PublicError, bad_request, busy, catalog_unavailable, failed, forbidden, no_version_of, not_found, unavailable,
};
use crate::http::text::quoted;
use crate::service::{ReadError, UnknownCause, UnknownField, deep_sort_hint};
use crate::storage::shortage::Shortage;

pub(super) fn public(error: &ReadError) -> PublicError {
    match error {
        ReadError::DatasetNotFound => not_found("There is no dataset with this dataset_id and name_slug."),
        ReadError::NotReadable => not_found("No public dataset and none of yours has this dataset_id."),
        ReadError::Unauthorized => (
            StatusCode::UNAUTHORIZED,
            "This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>.".into(),
        ),
        ReadError::Forbidden => forbidden(
            "The Authorization header does not hold this dataset's private key. An API token does not open a read.",
        ),
        ReadError::Frozen => (StatusCode::GONE, "This dataset is frozen and no longer served.".into()),
        ReadError::VersionNotFound { selector, latest } => version_not_found(selector, *latest),
        ReadError::AltNotFound(version) => not_found(format!("Version {version} of this dataset has no alternate.")),
        ReadError::TooManyColumns { limit } => bad_request(format!(
            "The table would have more than {limit} columns. Choose fewer fields with keep_field, or a format that is \
             not a table: json, jsonl or xml."
        )),
        ReadError::EntityTooLarge { limit_bytes } => bad_request(format!(
            "An entity of the answer would take more than {limit_bytes} bytes in this form. Choose fewer fields \
             with keep_field, or a compact form: format=jsonl or pretty=false, without flatten."
        )),
        ReadError::UnknownFields(fields) => bad_request(unknown_fields(fields)),
        ReadError::Timeout { seconds } => {
            unavailable(format!("The query was stopped after {seconds} s. A narrower query may finish in time."))
        }
        ReadError::OutOfMemory => {
            unavailable("The query needed more memory than is free for it now. Try again later, or ask for less.")
        }
        ReadError::OutOfDisk(_) => {
            unavailable("The query needed more disk than is free for it now. Try again later, or ask for less.")
        }
        // No other time helps.
        ReadError::SpillTooLarge { limit_bytes } => bad_request(format!(
            "The query needs more than {limit_bytes} bytes of disk, which is what query.spill_bytes allows one \
             client. Select fewer entities with filters, or fewer fields with keep_field."
        )),
        // No other time helps.
        ReadError::QueryTooLarge { limit_bytes } => bad_request(format!(
            "The query needs more than {limit_bytes} bytes of memory, which is what query.memory_bytes allows one \
             client. Sort by a field with shorter values, or select fewer entities with filters."
        )),
        // No other time helps: like a table of too many columns it has to be another request.
        ReadError::TooMuchMemory { needed_bytes, limit_bytes } => bad_request(format!(
            "The answer needs {needed_bytes} bytes of memory. query.memory_bytes allows one client {limit_bytes}. \
             Choose fewer columns with keep_field, or another format."
        )),
        ReadError::TooMuchDisk { needed_bytes, limit_bytes } => bad_request(format!(
            "The answer needs {needed_bytes} bytes of disk at once. query.spill_bytes allows one client \
             {limit_bytes}. Choose fewer columns with keep_field, or another format."
        )),
        ReadError::Busy(refused) => busy(refused),
        ReadError::CatalogUnavailable { reason, .. } => catalog_unavailable(*reason),
        ReadError::Unreadable(_) => failed("The dataset cannot be read from storage. The failure was logged."),
    }
}

/// Fields that a refusal of a strict request names.
const NAMED_FIELDS: usize = 3;

fn unknown_fields(fields: &[UnknownField]) -> String {
    let mut text = "Invalid query: strict=true refuses unknown fields.".to_owned();
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
                    format!("no entity of this version has it. Did you mean {}?", quoted(nearest))
                }
                UnknownCause::Absent { nearest: None } => {
                    "no entity of this version has it. GET /dataset/profile lists the existing paths; those of a private \
                     dataset are for its owner."
                        .to_owned()
                }
                UnknownCause::Taken { step } => format!("{step} has removed it from every entity."),
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
        VersionSelector::Latest => not_found("This dataset has no version yet."),
        VersionSelector::Number(number) => no_version_of(*number, &there_are(latest)),
    }
}

/// Logs a failed read when the reason is the service's own; also one whose body fails after its first byte.
pub(in crate::http) fn log(error: &ReadError) {
    match error {
        // Whose bound it is may want to know.
        ReadError::QueryTooLarge { .. }
        | ReadError::SpillTooLarge { .. }
        | ReadError::TooMuchMemory { .. }
        | ReadError::TooMuchDisk { .. } => {
            tracing::warn!(cause = %Causes(error), "a read was refused");
        }
        ReadError::Timeout { .. }
        | ReadError::OutOfMemory
        | ReadError::OutOfDisk(_)
        | ReadError::Busy(_)
        | ReadError::CatalogUnavailable { .. } => {
            tracing::warn!(cause = %Causes(error), "a read was stopped");
        }
        // The fault is not in the dataset.
        ReadError::Unreadable(_) if Shortage::of(error).is_some() => {
            tracing::error!(cause = %Causes(error), "a read lacks what it needs");
        }
        ReadError::Unreadable(_) => tracing::error!(cause = %Causes(error), "a dataset cannot be read"),
        _ => {}
    }
}
