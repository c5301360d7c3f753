//! `/dataset/alternate/…`: the second entity list of a version.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::{Request, State};
use axum::routing::on;
use serde::Serialize;
use strata_catalog as catalog;
use strata_ingest::EnvelopeFields;
use strata_service::{AlternateError, App};
use strata_types::ids::DatasetId;
use strata_types::version::VersionNumber;
use utoipa::ToSchema;

use super::fields::VERSION_NAME;
use super::records::{VersionAnswer, VersionRecord};
use super::{Caller, Fields, body, fields};
use super::{DATASET_ID, JsonResult};
use crate::endpoint::{Answer, Endpoint, Group, Input};
use crate::error::{CallError, HttpError};

pub(super) static SAVE: Endpoint =
    Endpoint::post("/dataset/alternate/save", "saveAlternate", Group::Alternates, |method| on(method, save))
        .summary("Saves a version's alternate, replacing any previous alternate")
        .description(
            "The entities replace the whole alternate, and the version itself does not change. To avoid overwriting \
             another user's changes, use `POST /agent/push_alt_version` instead.",
        )
        .input(Input::Body(&[fields::DATASET_ID, fields::VERSION, fields::ENTITIES]))
        .answer(Answer::record::<SavedAnswer>("The version with its saved alternate."))
        .errors(&[404, 409, 422, 503]);

static BESIDE: LazyLock<Vec<&'static str>> = LazyLock::new(|| SAVE.beside_entities());

/// Members come in any order, entities of any size within `sources.max_bytes`. Nothing is saved unless the whole body
/// came and can be used.
async fn save(Caller(user): Caller, State(app): State<App>, request: Request) -> JsonResult<SavedAnswer> {
    if !body::is_json(request.headers()) {
        return Err(CallError::NotJson.into());
    }
    body::check_announced(&app, request.body(), 0)?;
    body::check_query(request.uri())?;
    let chunks = request.into_body().into_data_stream();
    let pushed = app.ingest().receive(user.id, chunks, &BESIDE).await.map_err(AlternateError::from)?;
    let dataset = DatasetId::new(positive(&pushed.members, DATASET_ID)?);
    let version = VersionNumber::new(positive(&pushed.members, VERSION_NAME)?);
    let saved = app.datasets().save_alternate(&user, dataset, version, pushed.entities, None).await?;
    Ok(Json(SavedAnswer { ok: true, version: VersionRecord::from(&saved), alt_entity_count: alt_entity_count(&saved) }))
}

/// The response after an alternate is saved.
#[derive(Serialize, ToSchema)]
struct SavedAnswer {
    /// Always true.
    ok: bool,
    /// The version.
    version: VersionRecord,
    /// The number of entities in the alternate. `version.entity_count` does not change, because it counts the entities
    /// of the version itself.
    alt_entity_count: u64,
}

/// How many entities the alternate of a version has.
pub(super) fn alt_entity_count(saved: &catalog::VersionRecord) -> u64 {
    saved.version.alt.as_ref().map_or(0, |alt| alt.entity_count)
}

pub(super) static DELETE: Endpoint =
    Endpoint::delete("/dataset/alternate/delete", "deleteAlternate", Group::Alternates, |method| on(method, delete))
        .summary("Deletes the alternate of a version")
        .description("After the deletion, queries of the alternate return 404. The version itself does not change.")
        .input(Input::Body(&[fields::DATASET_ID, fields::VERSION]))
        .answer(Answer::record::<VersionAnswer>("The updated version."))
        .errors(&[404]);

async fn delete(Caller(user): Caller, State(app): State<App>, fields: Fields) -> JsonResult<VersionAnswer> {
    let (dataset, version) = (fields.dataset_id()?, fields.version(VERSION_NAME)?);
    let deleted = app.datasets().delete_alternate(&user, dataset, version).await?;
    Ok(Json(VersionAnswer::from(&deleted)))
}

/// A member beside the entities that must be a positive integer.
pub(super) fn positive(members: &EnvelopeFields, name: &'static str) -> Result<u64, HttpError> {
    let problem = match members.integer(name).map_err(HttpError::Entities)? {
        Some(0) => "0 is not valid; valid: a positive integer",
        Some(number) => return Ok(number),
        None => "missing; valid: a positive integer",
    };
    Err(CallError::field(name, problem).into())
}
