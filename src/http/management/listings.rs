//! `/datasets`: the public datasets that their owners chose to list.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use serde_json::json;
use strata_catalog::DatasetListing;
use strata_service::{DatasetService, RateLimitBucket};
use strata_types::ids::DatasetId;
use strata_types::limits;
use utoipa::ToSchema;

use super::CallFields;
use super::records::{format_time, response_types};
use crate::AppState;
use crate::endpoint::{AllowedCallers, Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec};
use crate::error::HttpError;
use crate::headers::{client_ip, cors};
use crate::openapi_components::response_headers::{CORS_HEADERS, RATE_LIMIT_HEADERS};
use crate::read::rate_limiting;

const DEFAULT_PAGE_ENTRIES: u32 = 100;
const MAX_PAGE_ENTRIES: u32 = limits::MAX_LISTED_DATASETS_PER_PAGE as u32;

pub(super) static FIND_DATASETS_ENDPOINT: Endpoint =
    Endpoint::get("/datasets", "findDatasets", EndpointGroup::Datasets, || get(list_public_datasets))
        .summary("Lists the public datasets that their owners chose to list, ordered by ID")
        .description(
            "This operation requires no authentication, and each call counts as a public query. The list contains \
         datasets that are public, listed, and not frozen, and that have at least one version.",
        )
        .callers(AllowedCallers::Anyone)
        .input(EndpointInput::Query(&[
            FieldSpec::optional("q", FieldKind::BoundedText(limits::MAX_DATASET_SEARCH_CHARACTERS), || {
                json!("countries")
            })
            .description("Returns only datasets whose name or description contains this text, ignoring case."),
            FieldSpec::optional("after", FieldKind::PositiveInteger, || json!(1))
                .description("Returns only datasets with a greater `dataset_id`."),
            FieldSpec::optional("limit", FieldKind::PositiveInteger, || json!(100))
                .description("The maximum number of datasets to return. The default is 100, and the maximum is 1,000."),
        ]))
        .response(EndpointResponse {
            headers: &[RATE_LIMIT_HEADERS, CORS_HEADERS],
            ..EndpointResponse::for_record::<ListingsResponse>(
                "A page of datasets. To get the next page, pass the last `dataset_id` as `after`.",
            )
        })
        .errors(&[429, 503]);

/// Lists public datasets. Credentials in the request are ignored, so scripts from any origin can read the responses.
async fn list_public_datasets(State(services): State<AppState>, head: Parts) -> Response {
    let client = client_ip::request_client(&head, &services);
    let mut headers = HeaderMap::new();
    let result: Result<_, HttpError> = async {
        let query = CallFields::from_query(head.uri.query(), &FIND_DATASETS_ENDPOINT)?;
        let text = query.optional_text("q")?;
        let after = query.optional_positive_integer("after")?.map(DatasetId::new);
        let limit = query.page_limit(DEFAULT_PAGE_ENTRIES, MAX_PAGE_ENTRIES)?;
        DatasetService::check_listing_query(text)?;
        rate_limiting::admit_request(&services, client, RateLimitBucket::Public, &mut headers).await?;
        let listings = services.datasets.search_dataset_list(client, text, after, limit).await?;
        Ok(Json(ListingsResponse::new(listings.iter().map(ListedDataset::from).collect())))
    }
    .await;
    cors::allow_any_origin(&mut headers);
    (headers, result).into_response()
}

/// A dataset, as anyone can see it.
#[derive(Serialize, ToSchema)]
pub(crate) struct ListedDataset {
    /// The ID of the dataset.
    dataset_id: u64,
    /// The name of the dataset.
    name: String,
    /// The name of the dataset in URLs.
    name_slug: String,
    /// The description of the dataset, or null if there is none.
    description: Option<String>,
    /// The license of the entities, or null if it is unspecified.
    licence: Option<String>,
    /// The number of the active version.
    version: u64,
    /// The number of entities in the active version.
    entity_count: u64,
    /// The size of the active version's file in bytes.
    file_size_bytes: u64,
    /// When the newest version was created.
    #[schema(format = DateTime)]
    refreshed_at: String,
}

impl From<&DatasetListing> for ListedDataset {
    fn from(listing: &DatasetListing) -> Self {
        let DatasetListing { dataset, active_version, refreshed_at } = listing;
        ListedDataset {
            dataset_id: dataset.id.get(),
            name: dataset.name.as_str().to_owned(),
            name_slug: dataset.name.slug().to_owned(),
            description: dataset.metadata.description.clone(),
            licence: dataset.metadata.license.clone(),
            version: active_version.number.get(),
            entity_count: active_version.file.entity_count,
            file_size_bytes: active_version.file.size_bytes,
            refreshed_at: format_time(*refreshed_at),
        }
    }
}

response_types! {
    /// A response that contains the listed datasets, ordered by ID.
    ListingsResponse {
        /// The datasets.
        datasets: Vec<ListedDataset>,
    }
}
