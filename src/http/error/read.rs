//! The texts for reads that the service could not answer.

use axum::http::StatusCode;

use super::shared::{busy, catalog_unavailable, no_version_of};
use crate::http::text::quoted;
use crate::model::causes::Causes;
use crate::model::version::{VersionNumber, VersionSelector, there_are};
use crate::service::{ReadError, UnknownCause, UnknownField, deep_sort_hint};
use crate::storage::shortage::Shortage;

pub(super) fn public(error: &ReadError) -> (StatusCode, String) {
    match error {
        ReadError::DatasetNotFound => {
            (StatusCode::NOT_FOUND, "There is no dataset with this dataset_id and name_slug.".into())
        }
        ReadError::NotReadable => {
            (StatusCode::NOT_FOUND, "No public dataset and none of yours has this dataset_id.".into())
        }
        ReadError::Unauthorized => (
            StatusCode::UNAUTHORIZED,
            "This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>.".into(),
        ),
        ReadError::Forbidden => (
            StatusCode::FORBIDDEN,
            "The Authorization header does not hold this dataset's private key. An API token does not open a read."
                .into(),
        ),
        ReadError::Frozen => (StatusCode::GONE, "This dataset is frozen and no longer served.".into()),
        ReadError::VersionNotFound { selector, latest } => {
            (StatusCode::NOT_FOUND, version_not_found(selector, *latest))
        }
        ReadError::AltNotFound(version) => {
            (StatusCode::NOT_FOUND, format!("Version {version} of this dataset has no alternate."))
        }
        ReadError::TooManyColumns { limit } => (
            StatusCode::BAD_REQUEST,
            format!(
                "The table would have more than {limit} columns. Choose fewer fields with keep_field, or a format that is \
                 not a table: json, jsonl or xml."
            ),
        ),
        ReadError::EntityTooLarge { limit_bytes } => (
            StatusCode::BAD_REQUEST,
            format!(
                "An entity of the answer would take more than {limit_bytes} bytes in this form. Choose fewer fields \
                 with keep_field, or a compact form: format=jsonl or pretty=false, without flatten."
            ),
        ),
        ReadError::UnknownFields(fields) => (StatusCode::BAD_REQUEST, unknown_fields(fields)),
        ReadError::Timeout { seconds } => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("The query was stopped after {seconds} s. A narrower query may finish in time."),
        ),
        ReadError::OutOfMemory => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The query needed more memory than is free for it now. Try again later, or ask for less.".into(),
        ),
        ReadError::OutOfDisk(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The query needed more disk than is free for it now. Try again later, or ask for less.".into(),
        ),
        // No other time helps.
        ReadError::SpillTooLarge { limit_bytes } => (
            StatusCode::BAD_REQUEST,
            format!(
                "The query needs more than {limit_bytes} bytes of disk, which is what query.spill_bytes allows one \
                 client. Select fewer entities with filters, or fewer fields with keep_field."
            ),
        ),
        // No other time helps.
        ReadError::QueryTooLarge { limit_bytes } => (
            StatusCode::BAD_REQUEST,
            format!(
                "The query needs more than {limit_bytes} bytes of memory, which is what query.memory_bytes allows one \
                 client. Sort by a field with shorter values, or select fewer entities with filters."
            ),
        ),
        // No other time helps: like a table of too many columns it has to be another request.
        ReadError::TooMuchMemory { needed_bytes, limit_bytes } => (
            StatusCode::BAD_REQUEST,
            format!(
                "The answer needs {needed_bytes} bytes of memory. query.memory_bytes allows one client {limit_bytes}. \
                 Choose fewer columns with keep_field, or another format."
            ),
        ),
        ReadError::TooMuchDisk { needed_bytes, limit_bytes } => (
            StatusCode::BAD_REQUEST,
            format!(
                "The answer needs {needed_bytes} bytes of disk at once. query.spill_bytes allows one client \
                 {limit_bytes}. Choose fewer columns with keep_field, or another format."
            ),
        ),
        ReadError::Busy(refused) => (StatusCode::SERVICE_UNAVAILABLE, busy(refused)),
        ReadError::CatalogUnavailable { reason, .. } => catalog_unavailable(*reason),
        ReadError::Unreadable(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "The dataset cannot be read from storage. The failure was logged.".into(),
        ),
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

fn version_not_found(selector: &VersionSelector, latest: Option<VersionNumber>) -> String {
    match selector {
        VersionSelector::Active => "This dataset has no active version.".into(),
        VersionSelector::Latest => "This dataset has no version yet.".into(),
        VersionSelector::Number(number) => no_version_of(*number, &there_are(latest)),
    }
}

/// Logs a failed read when the reason is the service's own.
///
/// Also for a body that fails after its first byte, whose status can no longer change.
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
