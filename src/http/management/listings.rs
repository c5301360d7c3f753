//! `/datasets`: the public datasets that their owners list, for everyone.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use serde_json::json;
use strata_catalog::Listing;
use strata_service::{Bucket, Datasets};
use strata_types::ids::DatasetId;
use strata_types::limits;
use utoipa::ToSchema;

use super::Fields;
use super::records::{answers, time};
use crate::AppState;
use crate::description::headers::{CORS, RATE};
use crate::endpoint::{Answer, Callers, Endpoint, Field, FieldKind, Group, Input};
use crate::error::HttpError;
use crate::headers::{client_ip, cors};
use crate::read::rate;

const PAGE: u32 = 100;
const MAX_ENTRIES: u32 = limits::LISTINGS as u32;

pub(super) static DATASETS: Endpoint = Endpoint::get("/datasets", "findDatasets", Group::Datasets, || get(datasets))
    .summary("Lists the public datasets that their owners chose to list, ordered by ID")
    .description(
        "This operation requires no authentication, and each call counts as a public query. The list contains \
         datasets that are public, listed, and not frozen, and that have at least one version.",
    )
    .callers(Callers::Anybody)
    .input(Input::Query(&[
        Field::optional("q", FieldKind::TextPart(limits::LISTINGS_QUERY_CHARACTERS), || json!("countries"))
            .about("Returns only datasets whose name or description contains this text, ignoring case."),
        Field::optional("after", FieldKind::Positive, || json!(1))
            .about("Returns only datasets with a greater `dataset_id`."),
        Field::optional("limit", FieldKind::Positive, || json!(100))
            .about("The maximum number of datasets to return. The default is 100, and the maximum is 1,000."),
    ]))
    .answer(Answer {
        headers: &[RATE, CORS],
        ..Answer::record::<ListingsAnswer>(
            "A page of datasets. To get the next page, pass the last `dataset_id` as `after`.",
        )
    })
    .errors(&[429, 503]);

/// Ignores credentials. Scripts from any origin can read the responses.
async fn datasets(State(services): State<AppState>, head: Parts) -> Response {
    let client = client_ip::client(&head, &services);
    let mut headers = HeaderMap::new();
    let answered = async {
        let query = Fields::from_query(head.uri.query(), &DATASETS)?;
        let text = query.optional_text("q")?;
        let after = query.optional_positive("after")?.map(DatasetId::new);
        let limit = query.limit(PAGE, MAX_ENTRIES)?;
        Datasets::check_listing_query(text)?;
        rate::admit(&services, client, Bucket::Public, &mut headers).await?;
        let found = services.datasets.listed(client, text, after, limit).await?;
        let datasets = found.iter().map(ListedDataset::from).collect();
        Ok(Json(ListingsAnswer::new(datasets)).into_response())
    };
    let mut response = answered.await.unwrap_or_else(|error: HttpError| error.into_response());
    cors::allow(&mut headers);
    response.headers_mut().extend(headers);
    response
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

impl From<&Listing> for ListedDataset {
    fn from(listing: &Listing) -> Self {
        let Listing { dataset, active, refreshed_at } = listing;
        ListedDataset {
            dataset_id: dataset.id.get(),
            name: dataset.name.as_str().to_owned(),
            name_slug: dataset.name.slug().to_owned(),
            description: dataset.about.description.clone(),
            licence: dataset.about.licence.clone(),
            version: active.number.get(),
            entity_count: active.file.entity_count,
            file_size_bytes: active.file.size_bytes,
            refreshed_at: time(*refreshed_at),
        }
    }
}

answers! {
    /// A response that contains the listed datasets, ordered by ID.
    ListingsAnswer {
        /// The datasets.
        datasets: Vec<ListedDataset>,
    }
}
