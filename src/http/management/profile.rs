//! `/dataset/profile`: what a version contains, for its owner, and for everybody if the dataset is public.

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};

use super::DATASET_ID;
use super::Query;
use super::caller::AnyCaller;
use super::records::ProfileAnswer;
use crate::http::error::HttpError;
use crate::http::{client_ip, cors, rate};
use crate::model::version::VersionSelector;
use crate::service::{App, Bucket};

/// `GET /dataset/profile`: `dataset_id`, perhaps `version` and `alt`.
///
/// Calls of nobody count with the public reads of a client, and scripts of any origin may read their answers. A private
/// dataset is to nobody what a missing one is: 401.
pub(super) async fn profile(AnyCaller(user): AnyCaller, State(app): State<App>, query: Query, head: Parts) -> Response {
    let client = client_ip::of(&head, &app);
    let mut status = None;
    let answered = async {
        query.only(&[DATASET_ID, "version", "alt"])?;
        let dataset = query.dataset_id()?;
        let version = query.optional_version("version")?.unwrap_or(VersionSelector::Active);
        let alt = query.optional_boolean("alt")?.unwrap_or(false);
        if user.is_none() {
            status = rate::count(&app, client, Bucket::Public).await;
            rate::check(status.as_ref())?;
        }
        let profile = app.profiles().find(user.as_ref(), client, dataset, version, alt).await?;
        Ok(Json(ProfileAnswer { ok: true, profile }).into_response())
    };
    let mut response = answered.await.unwrap_or_else(|error: HttpError| error.into_response());
    if let Some(status) = &status {
        rate::describe(response.headers_mut(), status);
    }
    if user.is_none() {
        cors::allow(response.headers_mut());
    }
    response
}
