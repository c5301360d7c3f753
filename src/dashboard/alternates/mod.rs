//! `…/alternate`: the alternate of a version, for its owner: edited entity by entity, and deleted. Each change is one
//! of `POST /dataset/alternate/edit`, made with the etag of what its page shows.
//!
//! | Module | Holds |
//! |---|---|
//! | `editor` | an entity as a text; what somebody else saved meanwhile, and the merge of both |
//! | `removal` | entities taken away by their positions |
//! | `change` | what both have in common: the target of a change, and saving it |
//! | `list` | the list that is changed, and entities of it |
//! | `beside` | what stands beside an entity, which tells whether it was changed or removed |
//! | `text` | entities as texts that people edit |

mod beside;
mod change;
mod editor;
mod list;
mod removal;
mod text;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use strata_http::error::{CallError, HttpError};
use strata_http::visit::BaseUrl;
use strata_service::{BodyRoom, ManageError};
use strata_types::limits::{EDITOR_BYTES, EDITOR_FORM_BYTES};
use strata_types::version::VersionNumber;

use self::change::{Target, target};
use super::acting::{Question, Sent};
use super::figures;
use super::opened::{Heading, Tab};
use super::place::Place;
use super::query::Query;
use super::visit::{Posted, Reply, Shell, Visit, render};

/// The parameter of the editor that names an entity by its position in the version. `position` is one in the list.
pub(super) const OF_VERSION: &str = "entity";

#[derive(Template)]
#[template(path = "alternate.html")]
struct AlternatePage {
    shell: Shell,
    heading: Heading,
    version: VersionNumber,
    notice: Option<String>,
    entities: Option<String>,
    of_version: String,
    last: Option<u64>,
    /// None where readers get 410.
    browse: Option<String>,
    diff: String,
    api: String,
}

pub(super) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    let Target { dataset, place, version, .. } = target(visit).await?;
    let query = visit.query(&["done"])?;
    query.one_of("done", &["saved", "beside", "deleted"])?;
    let entities = version.alt.as_ref().map(|file| file.entity_count);
    let counted = |entities| figures::counted(entities, "entity", "entities");
    let notice = match (query.first("done"), entities) {
        (Some("saved"), Some(entities)) => {
            Some(format!("Your changes were saved. The alternate now has {}.", counted(entities)))
        }
        (Some("beside"), Some(entities)) => Some(format!(
            "Your changes were saved, and another user’s changes to other entities were kept. The alternate now has \
             {}.",
            counted(entities)
        )),
        (Some("deleted"), None) => Some("The alternate was deleted. The version itself has not changed.".to_owned()),
        _ => None,
    };
    let number = version.number;
    let alternate = Place { alt: true, ..place.clone() };
    let page = AlternatePage {
        shell: visit.shell(format!("Alternate of version {number}, {}", dataset.name.as_str())),
        heading: Heading::around(visit, &dataset, &place, Tab::Versions),
        version: number,
        notice,
        entities: entities.map(counted),
        of_version: counted(version.file.entity_count),
        last: entities.unwrap_or(version.file.entity_count).checked_sub(1),
        browse: (!dataset.frozen && entities.is_some()).then(|| alternate.browse()),
        diff: place.dataset.diff(&number, &number, true),
        api: BaseUrl::of(&visit.head, &visit.app).url("/dataset/alternate/edit"),
    };
    render(StatusCode::OK, &page)
}

pub(super) async fn form(visit: Visit) -> Response {
    visit.build(|visit| Box::pin(opened_form(visit))).await
}

async fn opened_form(visit: &mut Visit) -> Result<Reply, HttpError> {
    let target = target(visit).await?;
    visit.dataset = Some(target.place.dataset.clone());
    let query = visit.query(match target.action.as_str() {
        "edit" => &["position", OF_VERSION],
        "add" => &["position"],
        "remove" => &["positions", "position"],
        _ => &[],
    })?;
    match target.action.as_str() {
        // A browser keeps the address of the form where the answer to it was a page.
        "edit" if query.pairs().is_empty() => Ok(Reply::SeeOther(target.place.alternate())),
        "edit" => editor::open(visit, &target, &query).await,
        "add" => editor::open_new(visit, &target, &query).await,
        "remove" => removal::open(visit, &target, &query).await,
        "delete" => confirm(visit, &target, StatusCode::OK, None),
        _ => Err(HttpError::NoSuchPath),
    }
}

pub(super) async fn act(Posted { mut visit, body }: Posted) -> Response {
    // Received before the session is checked: if it has ended, the error page shows the typed text again.
    let (fields, room) = match visit.fields_within(body, EDITOR_FORM_BYTES).await {
        Ok(received) => received,
        Err(HttpError::Call(CallError::TooLarge { limit, .. })) => return visit.answer(Err(too_long(limit))).await,
        Err(error) => return visit.answer(Err(error)).await,
    };
    visit.typed = fields.iter().find(|(name, _)| name == "text").map(|(_, text)| text.clone());
    match visit.user().and_then(|_| visit.check_token(&fields)) {
        Ok(()) => visit.build(|visit| Box::pin(done(visit, Query::from_iter(fields), room))).await,
        Err(error) => visit.answer(Err(error)).await,
    }
}

/// That nothing is read of a form as long as this.
fn too_long(limit_bytes: u64) -> HttpError {
    let text = format!(
        "Nothing was saved because the form is longer than {} bytes. To recover your text, go back in your browser. \
         The editor accepts up to {} bytes. For longer texts, use POST /dataset/alternate/edit.",
        figures::grouped(limit_bytes),
        figures::grouped(EDITOR_BYTES as u64)
    );
    HttpError::Invalid { status: StatusCode::PAYLOAD_TOO_LARGE, text }
}

async fn done(visit: &mut Visit, fields: Query, room: Option<BodyRoom>) -> Result<Reply, HttpError> {
    let target = target(visit).await?;
    visit.dataset = Some(target.place.dataset.clone());
    let sent = Sent { action: target.action.clone(), fields, _room: None };
    match sent.action.as_str() {
        "edit" => {
            sent.check(&["etag", "length", "position", "base", "text"], &["beside", "do"])?;
            sent.check_pressed("do", &["preview", "save", "merge"])?;
            Box::pin(editor::act(visit, &target, &sent, room)).await
        }
        "add" => {
            sent.check(&["etag", "length", "position", "text"], &["do"])?;
            sent.check_pressed("do", &["preview", "save"])?;
            Box::pin(editor::act_new(visit, &target, &sent, room)).await
        }
        "remove" => {
            sent.check(&["positions"], &["etag", "checked", "do"])?;
            sent.check_pressed("do", &["preview", "save"])?;
            Box::pin(removal::act(visit, &target, &sent.fields, room)).await
        }
        "delete" => {
            sent.check(&["etag"], &[])?;
            delete(visit, &target, &sent.fields).await
        }
        _ => Err(HttpError::NoSuchPath),
    }
}

/// The page that says what will be deleted.
fn confirm(visit: &Visit, target: &Target, status: StatusCode, notice: Option<&str>) -> Result<Reply, HttpError> {
    let Target { dataset, place, version, .. } = target;
    let Some(alternate) = &version.alt else { return Err(ManageError::AltNotFound.into()) };
    let entities = figures::counted(alternate.entity_count, "entity", "entities");
    let effects = [
        format!("The alternate and its {entities} will be deleted, including all edits."),
        "This cannot be undone.".to_owned(),
        format!("Requests for {} will return 404.", Place { alt: true, ..place.clone() }.api()),
        format!("Version {} itself will not change.", version.number),
    ];
    let question = Question {
        title: format!("Delete the alternate of version {}?", version.number),
        effects: notice.map(str::to_owned).into_iter().chain(effects).collect(),
        action: place.alternate_action("delete"),
        etag: Some(strata_service::alternate_etag(version)),
        button: "Delete alternate".to_owned(),
        danger: true,
        back: place.alternate(),
        ..Question::default()
    };
    question.page(visit, Heading::around(visit, dataset, place, Tab::Versions), status)
}

async fn delete(visit: &Visit, target: &Target, fields: &Query) -> Result<Reply, HttpError> {
    let Target { user, place, version, .. } = target;
    if version.alt.is_some() && fields.first("etag") != Some(strata_service::alternate_etag(version).as_str()) {
        let notice = "The alternate has changed in the meantime, so it was not deleted. Confirm again to delete it.";
        return confirm(visit, target, StatusCode::CONFLICT, Some(notice));
    }
    visit.app.datasets().delete_alternate(user, place.dataset.id, version.number).await?;
    Ok(Reply::done("deleted", &place.alternate()))
}
