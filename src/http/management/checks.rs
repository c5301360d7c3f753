//! `POST /dataset/check`: runs the checks of a dataset, or others, on the active version.

use axum::Json;
use axum::routing::post;
use strata_checks::CheckReport;
use utoipa::ToSchema;

use super::caller::CHECK_PATH;
use super::{JsonResult, UserCall, fields};
use crate::endpoint::{Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldSpec};

pub(super) static CHECK_ENDPOINT: Endpoint =
    Endpoint::post(CHECK_PATH, "checkVersion", EndpointGroup::Versions, || post(check_active_version))
        .summary("Runs checks on the active version and returns all results, without changing anything")
        .description(
            "Use this operation to try checks before you set them. By default, strata runs the checks of the dataset.",
        )
        .input(EndpointInput::Body(&[
            fields::DATASET_ID_FIELD,
            FieldSpec {
                description: "The checks to run instead of the checks of the dataset, which do not change.",
                ..fields::CHECKS_FIELD
            },
        ]))
        .response(EndpointResponse::for_record::<CheckResponse>("The result of each check."))
        .errors(&[404, 503]);

async fn check_active_version(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<CheckResponse> {
    let checks = fields.checks()?.flatten();
    let checked = services.datasets.check_active_version(&user, fields.dataset_id()?, checks).await?;
    Ok(Json(CheckResponse::new(checked.version.get(), &checked.report)))
}

/// Whether the active version passed a check, and why not.
#[derive(serde::Serialize, ToSchema)]
struct CheckRecord {
    /// The name of the check, such as `required`.
    check: &'static str,
    /// Whether the version passed the check.
    passed: bool,
    /// Why the version failed the check, or null if it passed.
    text: Option<String>,
}

/// The results of checks on the active version.
#[derive(serde::Serialize, ToSchema)]
struct CheckResponse {
    /// Always true, also if a check failed.
    ok: bool,
    /// The number of the active version.
    version: u64,
    /// Whether the version passed all checks.
    passed: bool,
    /// One result for each check.
    results: Vec<CheckRecord>,
}

impl CheckResponse {
    fn new(version: u64, report: &CheckReport) -> CheckResponse {
        let results = report.results.iter().map(|result| CheckRecord {
            check: result.check.as_str(),
            passed: result.has_passed(),
            text: result.text.clone(),
        });
        CheckResponse { ok: true, version, passed: report.has_passed(), results: results.collect() }
    }
}
