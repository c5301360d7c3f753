//! `…/entity/{position}`: one entity of a version as a tree. Positions start at 0.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::REFERER;
use axum::response::Response;
use strata_encode::ContentCoding;
use strata_service::AuthorizedRead;
use strata_types::limits::MAX_PAGE_ENTITY_BYTES;
use strata_types::read_request::{ReadRequest, ResponseFormat};
use url::Url;

use super::alternates::VERSION_POSITION_PARAM;
use super::browse::{ENTITIES_PER_PAGE, PageEntities, with_version_number};
use super::context::{DatasetHeading, DatasetTab, load_version_context};
use super::entity_tree::EntityTreeHtml;
use super::page_request::{PageLayout, PageRequest, PageResult, render};
use super::query_params::QueryParams;
use super::urls::{EntityPosition, VersionUrls};
use super::{format, unavailable};

#[derive(Template)]
#[template(path = "entity.html")]
struct EntityPage {
    layout: PageLayout,
    heading: DatasetHeading,
    back: String,
    position: u64,
    entities: u64,
    /// The tree of the entity; `None` if the entity exceeds `MAX_PAGE_ENTITY_BYTES`.
    tree: Option<EntityTreeHtml>,
    api: String,
    api_href: Option<String>,
    download: String,
    edit: String,
}

pub(super) async fn show_entity(req: PageRequest) -> Response {
    req.respond_on_worker(|req| Box::pin(unavailable::run_or_show_unavailable(req, DatasetTab::Data, render_entity)))
        .await
}

async fn render_entity(req: &mut PageRequest) -> PageResult {
    req.parse_query(&[])?;
    let (urls, rest) = VersionUrls::parse(req.head.uri.path())?;
    let typed_position = EntityPosition::parse(rest.get(1).copied().unwrap_or_default())?;
    let position = typed_position.index;
    let context = load_version_context(req, &urls, urls.alt).await?;
    let entities = context.authorized_target.file.entity_count;
    if position >= entities {
        return Err(typed_position.not_found_error("version", entities));
    }
    let request = ReadRequest { offset: position, limit: Some(1), pretty: false, ..ReadRequest::default() };
    let request = Arc::new(ReadRequest { format: ResponseFormat::Jsonl, ..request });
    let read = AuthorizedRead::new(&context.authorized_target, &request);
    let response = req.services.reads.respond(read, ContentCoding::Identity).await?;
    let found = PageEntities::read_from_body(response.body, MAX_PAGE_ENTITY_BYTES).await?;
    // Links on the page use the version number, because another version can become active.
    let urls = with_version_number(&urls, context.version.number);
    let read = QueryParams::default().with_added("offset", position).with_added("limit", 1);
    let api = read.to_url(&urls.api_path());
    let private = context.dataset.is_private();
    // An entity can have one position in the version and another in the edited copy, so there are two parameters.
    let parameter = if urls.alt { "position" } else { VERSION_POSITION_PARAM };
    let edit = QueryParams::default().with_added(parameter, position).to_url(&urls.alternate_action_url("edit"));
    let (browse, back) = match parse_referring_page(req, &urls) {
        Some((from, query)) => (from.browse_url(), query.to_url(&from.browse_url())),
        None => {
            let offset = Some(position / ENTITIES_PER_PAGE * ENTITIES_PER_PAGE).filter(|offset| *offset > 0);
            let query = QueryParams::default().with_optional("offset", offset);
            (urls.browse_url(), query.to_url(&urls.browse_url()))
        }
    };
    let page = EntityPage {
        layout: req.layout(format!("Entity at position {position}, {}", context.title())),
        heading: DatasetHeading { browse, ..DatasetHeading::new(req, &context, &urls, DatasetTab::Data) },
        back,
        position,
        entities,
        tree: found.iter().next().map(EntityTreeHtml::new),
        download: if private { read.to_url(&urls.page_url("download")) } else { api.clone() },
        api: req.absolute_url(&api),
        api_href: (!private).then_some(api),
        edit,
    };
    render(StatusCode::OK, &page)
}

/// Returns the URLs and the query of the referring page (`Referer`) if it lists entities of the same dataset.
fn parse_referring_page(req: &PageRequest, urls: &VersionUrls) -> Option<(VersionUrls, QueryParams)> {
    let url = Url::parse(req.head.headers.get(REFERER)?.to_str().ok()?).ok()?;
    let (from, _) = VersionUrls::parse(url.path()).ok()?;
    let is_same_dataset = from.dataset.id == urls.dataset.id && from.dataset.slug == urls.dataset.slug;
    (is_same_dataset && url.path() == from.browse_url()).then(|| (from, QueryParams::parse(url.query())))
}
