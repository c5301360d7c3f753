//! `/dataset/profile`: the profile of a version, for the owner, and for anyone if the dataset is public.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use strata_service::{Principal, ProfileRequest, RateLimitBucket, VersionProfile};

use super::caller::OptionalUser;
use super::records::response_types;
use super::{CallFields, fields};
use crate::AppState;
use crate::endpoint::{AllowedCallers, Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec};
use crate::error::HttpError;
use crate::headers::{client_ip, cors};
use crate::large_responses;
use crate::read::rate_limiting;

pub(super) static PROFILE_VERSION_ENDPOINT: Endpoint =
    Endpoint::get("/dataset/profile", "profileVersion", EndpointGroup::Versions, || get(profile_version))
        .summary(
            "Returns the profile of a version: its paths, their types and values, and which paths have an indexed \
             column",
        )
        .description(
            "You can profile your own datasets and public datasets. The profile shows which fields the entities have, \
             how often they occur, which types they contain, and how their values are distributed.",
        )
        .callers(AllowedCallers::UsersOrAnonymous)
        .input(EndpointInput::Query(&[
            FieldSpec {
                description: "The ID of one of your datasets or of a public dataset.",
                ..fields::DATASET_ID_FIELD
            },
            FieldSpec::optional("version", FieldKind::VersionSelector, || json!("latest")).description(
                "The version: `active` (the default), `latest`, or a version number, with or without a `v`.",
            ),
            FieldSpec::optional("alt", FieldKind::Boolean, || json!(false))
                .description("Whether to profile the version's alternate."),
        ]))
        .response(EndpointResponse::for_record::<ProfileResponse>("The profile of the version."))
        .errors(&[404, 429]);

/// Returns a version's profile. Anonymous calls count as public reads of the client; scripts of any origin can read the
/// responses. User calls count as private reads. For anonymous callers, private and missing datasets return 401.
async fn profile_version(OptionalUser(user): OptionalUser, State(services): State<AppState>, head: Parts) -> Response {
    let client = client_ip::request_client(&head, &services);
    let mut headers = HeaderMap::new();
    let result: Result<_, HttpError> = async {
        let query = CallFields::from_query(head.uri.query(), &PROFILE_VERSION_ENDPOINT)?;
        let dataset = query.dataset_id()?;
        let version = query.version_selector_or_active("version")?;
        let variant = query.version_variant()?;
        let bucket = if user.is_some() { RateLimitBucket::Private } else { RateLimitBucket::Public };
        rate_limiting::admit_request(&services, client, bucket, &mut headers).await?;
        let principal = user.as_ref().map_or(Principal::Anonymous(client), |user| Principal::User(user.id));
        let reads = services.reads.clone();
        let user = user.clone();
        let profile = async move {
            let caller = user.as_ref();
            let profile = reads.profile(ProfileRequest { caller, client, dataset, version, variant }).await?;
            Ok(Json(ProfileResponse::new(profile.without_histograms())).into_response())
        };
        large_responses::reserve_and_build_response(&services, principal, profile).await
    }
    .await;
    if user.is_none() {
        cors::allow_any_origin(&mut headers);
    }
    (headers, result).into_response()
}

response_types! {
    /// A response that contains a profile.
    ProfileResponse {
        /// The profile.
        profile: VersionProfile,
    }
}
