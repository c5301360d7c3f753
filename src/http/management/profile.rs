//! `/dataset/profile`: the profile of a version, for its owner, and for everyone if the dataset is public.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use strata_service::{Bucket, Principal, ProfileRequest, VersionProfile};

use super::caller::AnyCaller;
use super::records::answers;
use super::{Fields, fields};
use crate::AppState;
use crate::endpoint::{Answer, Callers, Endpoint, Field, FieldKind, Group, Input};
use crate::error::HttpError;
use crate::headers::{client_ip, cors};
use crate::large_responses;
use crate::read::rate;

pub(super) static PROFILE: Endpoint =
    Endpoint::get("/dataset/profile", "profileVersion", Group::Versions, || get(profile))
        .summary(
            "Returns the profile of a version: its paths, their types and values, and which paths have an indexed \
             column",
        )
        .description(
            "You can profile your own datasets and public datasets. The profile shows which fields the entities have, \
             how often they occur, which types they contain, and how their values are distributed.",
        )
        .callers(Callers::UsersAndAnybody)
        .input(Input::Query(&[
            Field { about: "The ID of one of your datasets or of a public dataset.", ..fields::DATASET_ID },
            Field::optional("version", FieldKind::Version, || json!("latest"))
                .about("The version: `active` (the default), `latest`, or a version number, with or without a `v`."),
            Field::optional("alt", FieldKind::Boolean, || json!(false))
                .about("Whether to profile the version's alternate."),
        ]))
        .answer(Answer::record::<ProfileAnswer>("The profile of the version."))
        .errors(&[404, 429]);

/// Calls without credentials count as public reads of a client, and scripts from any origin can read their responses.
/// Calls of users count as private reads. Without credentials, private and missing datasets both return 401.
async fn profile(AnyCaller(user): AnyCaller, State(services): State<AppState>, head: Parts) -> Response {
    let client = client_ip::client(&head, &services);
    let mut headers = HeaderMap::new();
    let answered = async {
        let query = Fields::from_query(head.uri.query(), &PROFILE)?;
        let dataset = query.dataset_id()?;
        let version = query.optional_selector("version")?;
        let alt = query.optional_boolean("alt")?.unwrap_or(false);
        let bucket = if user.is_some() { Bucket::Private } else { Bucket::Public };
        rate::admit(&services, client, bucket, &mut headers).await?;
        let principal = user.as_ref().map_or(Principal::Anonymous(client), |user| Principal::User(user.id));
        let reads = services.reads.clone();
        let user = user.clone();
        let profile = async move {
            let caller = user.as_ref();
            let profile = reads.profile(ProfileRequest { caller, client, dataset, version, alt }).await?;
            Ok(Json(ProfileAnswer::new(profile.without_spreads())).into_response())
        };
        large_responses::built(&services, principal, profile).await
    };
    let mut response = answered.await.unwrap_or_else(|error: HttpError| error.into_response());
    if user.is_none() {
        cors::allow(&mut headers);
    }
    response.headers_mut().extend(headers);
    response
}

answers! {
    /// A response that contains a profile.
    ProfileAnswer {
        /// The profile.
        profile: VersionProfile,
    }
}
