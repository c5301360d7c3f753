//! `…/entity/{position}`: one entity of a version as a tree. Positions start at 0.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::REFERER;
use axum::response::Response;
use strata_encode::ContentCoding;
use strata_http::visit::BaseUrl;
use strata_service::AuthorizedRead;
use strata_types::limits::PAGE_BYTES;
use strata_types::request::{Format, ReadRequest};
use url::Url;

use super::alternates::OF_VERSION;
use super::browse::{Entities, PAGE, numbered};
use super::context::{Heading, Tab, open};
use super::query::Query;
use super::tree::Tree;
use super::urls::{Place, Position};
use super::visit::{PageResult, Shell, Visit, render};
use super::{format, unavailable};

#[derive(Template)]
#[template(path = "entity.html")]
struct EntityPage {
    shell: Shell,
    heading: Heading,
    /// The page of entities that has the link to this one, or one that has this entity.
    back: String,
    position: u64,
    entities: u64,
    /// `None` if the entity is too large.
    tree: Option<Tree>,
    api: String,
    api_href: Option<String>,
    download: String,
    edit: String,
}

pub(super) async fn show(visit: Visit) -> Response {
    visit.build(|visit| Box::pin(unavailable::or_told(visit, Tab::Data, entity))).await
}

async fn entity(visit: &mut Visit) -> PageResult {
    let uri = visit.head.uri.clone();
    visit.query(&[])?;
    let (place, rest) = Place::parse(uri.path())?;
    let asked = Position::parse(rest.get(1).copied().unwrap_or_default())?;
    let position = asked.at;
    let opened = open(visit, &place, place.alt).await?;
    let entities = opened.admitted.file.entity_count;
    if position >= entities {
        return Err(asked.is_in_none("version", entities));
    }
    let request = Arc::new(ReadRequest {
        offset: position,
        limit: Some(1),
        format: Format::Jsonl,
        pretty: false,
        ..ReadRequest::default()
    });
    let read = AuthorizedRead::new(&opened.admitted, &request);
    let answer = visit.services.reads.respond(read, ContentCoding::Identity).await?;
    let found = Entities::take(answer.body, PAGE_BYTES).await?;
    let tree = found.iter().next().map(Tree::new);
    // Links name the version, since another one can become active.
    let place = numbered(&place, opened.version.number);
    let read = Query::default().and("offset", position).and("limit", 1);
    let api = read.at(&place.api());
    let private = opened.dataset.is_private();
    let download = if private { read.at(&place.page("download")) } else { api.clone() };
    // Positions of a version are not those of its alternate.
    let named = if place.alt { "position" } else { OF_VERSION };
    let edit = Query::default().and(named, position).at(&place.alternate_action("edit"));
    let (browse, back) = match came_from(visit, &place) {
        Some((from, query)) => (from.browse(), query.at(&from.browse())),
        None => {
            let query = Query::default();
            let query = if position < PAGE { query } else { query.and("offset", position / PAGE * PAGE) };
            (place.browse(), query.at(&place.browse()))
        }
    };
    let page = EntityPage {
        shell: visit.shell(format!("Entity at position {position}, {}", opened.title())),
        heading: Heading { browse, ..Heading::new(visit, &opened, &place, Tab::Data) },
        back,
        position,
        entities,
        tree,
        api: BaseUrl::of(&visit.head, &visit.services).url(&api),
        api_href: (!private).then_some(api),
        download,
        edit,
    };
    render(StatusCode::OK, &page)
}

/// The page of entities of this dataset that has the link to this page, and its query string.
fn came_from(visit: &Visit, place: &Place) -> Option<(Place, Query)> {
    let referer = visit.head.headers.get(REFERER)?.to_str().ok()?;
    let url = Url::parse(referer).ok()?;
    let (from, _) = Place::parse(url.path()).ok()?;
    let is_of_it = from.dataset.id == place.dataset.id && from.dataset.slug == place.dataset.slug;
    (is_of_it && url.path() == from.browse()).then(|| (from, Query::parse(url.query())))
}
