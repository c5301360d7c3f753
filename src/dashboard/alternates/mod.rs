//! `…/alternate`: the alternate of a version, for its owner: edited entity by entity, and deleted. Each change is a
//! call of `POST /dataset/alternate/edit` with the etag of what its page shows.

mod add;
mod change;
mod edit;
mod editor;
mod list;
mod neighbours;
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
use super::context::{Heading, Tab};
use super::form_handling::{Question, SubmittedForm};
use super::format;
use super::query::Query;
use super::urls::Place;
use super::visit::{PageResult, Posted, Reply, Shell, Visit, render};

/// The parameter of the editor with a position in the version. `position` is one in the list.
pub(super) const OF_VERSION: &str = "entity";

#[derive(Template)]
#[template(path = "alternate.html")]
struct AlternatePage {
    shell: Shell,
    heading: Heading,
    version: VersionNumber,
    /// The change that was just made.
    done: String,
    entities: Option<String>,
    of_version: String,
    last: Option<u64>,
    /// `None` if reads return 410.
    browse: Option<String>,
    diff: String,
    api: String,
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    let Target { dataset, place, version, .. } = target(visit).await?;
    let query = visit.query(&["done"])?;
    let done = query.one_of("done", &["saved", "beside", "deleted"])?.unwrap_or_default().to_owned();
    let entities = version.alt.as_ref().map(|file| file.entity_count);
    let counted = |entities| format::counted(entities, "entity", "entities");
    let number = version.number;
    let alternate = Place { alt: true, ..place.clone() };
    let page = AlternatePage {
        shell: visit.shell(format!("Alternate of version {number}, {}", dataset.name.as_str())),
        heading: Heading::for_dataset(visit, &dataset, &place, Tab::Versions),
        version: number,
        done,
        entities: entities.map(counted),
        of_version: counted(version.file.entity_count),
        last: entities.unwrap_or(version.file.entity_count).checked_sub(1),
        browse: (!dataset.frozen && entities.is_some()).then(|| alternate.browse()),
        diff: place.dataset.diff(&number, &number, true),
        api: BaseUrl::of(&visit.head, &visit.services).url("/dataset/alternate/edit"),
    };
    render(StatusCode::OK, &page)
}

pub(super) async fn form(visit: Visit) -> Response {
    visit.build(|visit| Box::pin(opened_form(visit))).await
}

async fn opened_form(visit: &mut Visit) -> PageResult {
    let target = target(visit).await?;
    visit.dataset = Some(target.place.dataset.clone());
    let query = visit.query(match target.action.as_str() {
        "edit" => &["position", OF_VERSION],
        "add" => &["position"],
        "remove" => &["positions", "position"],
        _ => &[],
    })?;
    match target.action.as_str() {
        // A browser keeps the address of the form if the response to it was a page.
        "edit" if query.pairs().is_empty() => Ok(Reply::SeeOther(target.place.alternate())),
        "edit" => edit::open(visit, &target, &query).await,
        "add" => add::open(visit, &target, &query).await,
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

fn too_long(limit_bytes: u64) -> HttpError {
    let text = format!(
        "Nothing was saved because the form is longer than {} bytes. To recover your text, go back in your browser. \
         The editor accepts up to {} bytes. For longer texts, use POST /dataset/alternate/edit.",
        format::grouped(limit_bytes),
        format::grouped(EDITOR_BYTES as u64)
    );
    HttpError::Invalid { status: StatusCode::PAYLOAD_TOO_LARGE, text }
}

async fn done(visit: &mut Visit, fields: Query, room: Option<BodyRoom>) -> PageResult {
    let target = target(visit).await?;
    visit.dataset = Some(target.place.dataset.clone());
    let sent = SubmittedForm { action: target.action.clone(), fields, room };
    match sent.action.as_str() {
        "edit" => {
            sent.check(&["etag", "length", "position", "base", "text"], &["beside", "do"])?;
            sent.check_pressed("do", &["preview", "save", "merge"])?;
            Box::pin(edit::act(visit, &target, sent)).await
        }
        "add" => {
            sent.check(&["etag", "length", "position", "text"], &["do"])?;
            sent.check_pressed("do", &["preview", "save"])?;
            Box::pin(add::act(visit, &target, sent)).await
        }
        "remove" => {
            sent.check(&["positions"], &["etag", "checked", "do"])?;
            sent.check_pressed("do", &["preview", "save"])?;
            Box::pin(removal::act(visit, &target, sent)).await
        }
        "delete" => {
            sent.check(&["etag"], &[])?;
            delete(visit, &target, &sent.fields).await
        }
        _ => Err(HttpError::NoSuchPath),
    }
}

fn confirm(visit: &Visit, target: &Target, status: StatusCode, notice: Option<&str>) -> PageResult {
    let Target { dataset, place, version, .. } = target;
    let Some(alternate) = &version.alt else { return Err(ManageError::AltNotFound.into()) };
    let entities = format::counted(alternate.entity_count, "entity", "entities");
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
    question.page(visit, Heading::for_dataset(visit, dataset, place, Tab::Versions), status)
}

async fn delete(visit: &Visit, target: &Target, fields: &Query) -> PageResult {
    let Target { user, place, version, .. } = target;
    if version.alt.is_some() && fields.first("etag") != Some(strata_service::alternate_etag(version).as_str()) {
        let notice = "The alternate has changed in the meantime, so it was not deleted. Confirm again to delete it.";
        return confirm(visit, target, StatusCode::CONFLICT, Some(notice));
    }
    visit.services.datasets.delete_alternate(user, place.dataset.id, version.number).await?;
    Ok(Reply::done("deleted", &place.alternate()))
}
