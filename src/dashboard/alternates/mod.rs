//! `…/alternate`: the owner edits the alternate (the edited copy of a version) entity by entity, or deletes it. Each
//! change corresponds to a call of `POST /dataset/alternate/edit` with the ETag of the list on the page.

mod add;
mod edit;
mod edit_target;
mod editable_list;
mod editor;
mod entity_text;
mod neighbors;
mod removal;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use strata_http::error::{CallError, HttpError};
use strata_service::{BodyReservation, ManageError};
use strata_types::limits::{MAX_EDITOR_FORM_BYTES, MAX_EDITOR_TEXT_BYTES};
use strata_types::version::VersionNumber;

use self::edit_target::{EditTarget, load_edit_target};
use super::context::{DatasetHeading, DatasetTab};
use super::form_handling::{ConfirmationPrompt, SubmittedForm};
use super::format;
use super::page_request::{FormRequest, PageLayout, PageRequest, PageResponse, PageResult, render};
use super::query_params::QueryParams;
use super::urls::VersionUrls;

/// The query parameter with a position in the version. The parameter `position` is a position in the edited list.
pub(super) const VERSION_POSITION_PARAM: &str = "entity";

#[derive(Template)]
#[template(path = "alternate.html")]
struct AlternatePage {
    layout: PageLayout,
    heading: DatasetHeading,
    version: VersionNumber,
    completed_action: String,
    entities: Option<String>,
    version_count_text: String,
    last_position: Option<u64>,
    browse_url: Option<String>,
    diff_url: String,
    api: String,
}

pub(super) async fn show_alternate(req: &mut PageRequest) -> PageResult {
    let EditTarget { dataset, urls, version, .. } = load_edit_target(req).await?;
    let query = req.parse_query(&["done"])?;
    let completed_action = query.parse_choice("done", &["saved", "beside", "deleted"])?.unwrap_or_default().to_owned();
    let entities = version.alternate.as_ref().map(|file| file.entity_count);
    let entity_count_text = |entities| format::pluralize(entities, "entity", "entities");
    let number = version.number;
    let alternate = VersionUrls { alt: true, ..urls.clone() };
    let page = AlternatePage {
        layout: req.layout(format!("Alternate of version {number}, {}", dataset.name.as_str())),
        heading: DatasetHeading::for_dataset(req, &dataset, &urls, DatasetTab::Versions),
        version: number,
        completed_action,
        entities: entities.map(entity_count_text),
        version_count_text: entity_count_text(version.file.entity_count),
        last_position: entities.unwrap_or(version.file.entity_count).checked_sub(1),
        browse_url: (!dataset.frozen && entities.is_some()).then(|| alternate.browse_url()),
        diff_url: urls.dataset.diff_url(&number, &number, true),
        api: req.absolute_url("/dataset/alternate/edit"),
    };
    render(StatusCode::OK, &page)
}

pub(super) async fn show_alternate_form(req: PageRequest) -> Response {
    req.respond_on_worker(|req| Box::pin(render_editor_form(req))).await
}

async fn render_editor_form(req: &mut PageRequest) -> PageResult {
    let target = load_edit_target(req).await?;
    req.dataset_urls = Some(target.urls.dataset.clone());
    let query = req.parse_query(match target.action.as_str() {
        "edit" => &["position", VERSION_POSITION_PARAM],
        "add" => &["position"],
        "remove" => &["positions", "position"],
        _ => &[],
    })?;
    match target.action.as_str() {
        // If the response to a form was a page, browsers stay on the path of the form. A GET request for this path
        // redirects to the page of the alternate.
        "edit" if query.pairs().is_empty() => Ok(PageResponse::SeeOther(target.urls.alternate_url())),
        "edit" => edit::render_edit_form(req, &target, &query).await,
        "add" => add::render_addition_form(req, &target, &query).await,
        "remove" => removal::render_removal_form(req, &target, &query).await,
        "delete" => render_deletion(req, &target, StatusCode::OK, None),
        _ => Err(HttpError::PathNotFound),
    }
}

pub(super) async fn handle_alternate_form(FormRequest { request: mut req, body }: FormRequest) -> Response {
    let (fields, reservation) = match req.read_form_fields(body, MAX_EDITOR_FORM_BYTES).await {
        Ok(received) => received,
        Err(HttpError::Call(CallError::BodyTooLarge { limit, .. })) => {
            return req.finish_response(Err(form_too_long_error(limit))).await;
        }
        Err(error) => return req.finish_response(Err(error)).await,
    };
    req.typed_text = fields.iter().find(|(name, _)| name == "text").map(|(_, text)| text.clone());
    if let Err(error) = req.require_user().and_then(|_| req.check_form_token(&fields)) {
        return req.finish_response(Err(error)).await;
    }
    req.respond_on_worker(|req| Box::pin(apply_edits(req, QueryParams::from_iter(fields), reservation))).await
}

fn form_too_long_error(limit_bytes: u64) -> HttpError {
    let [limit, max] = [limit_bytes, MAX_EDITOR_TEXT_BYTES as u64].map(format::group_thousands);
    let text = format!(
        "Nothing was saved because the form is longer than {limit} bytes. To recover your text, go back in your \
         browser. The editor accepts up to {max} bytes. For longer texts, use POST /dataset/alternate/edit."
    );
    HttpError::InvalidRequest { status: StatusCode::PAYLOAD_TOO_LARGE, text }
}

async fn apply_edits(req: &mut PageRequest, fields: QueryParams, reservation: Option<BodyReservation>) -> PageResult {
    let target = load_edit_target(req).await?;
    req.dataset_urls = Some(target.urls.dataset.clone());
    let form = SubmittedForm { action: target.action.clone(), fields, body_reservation: reservation };
    match form.action.as_str() {
        "edit" => {
            form.check_fields(&["etag", "length", "position", "base", "text"], &["beside", "do"])?;
            form.check_optional_choice("do", &["preview", "save", "merge"])?;
            Box::pin(edit::handle_edit(req, &target, form)).await
        }
        "add" => {
            form.check_fields(&["etag", "length", "position", "text"], &["do"])?;
            form.check_optional_choice("do", &["preview", "save"])?;
            Box::pin(add::handle_insert(req, &target, form)).await
        }
        "remove" => {
            form.check_fields(&["positions"], &["etag", "checked", "do"])?;
            form.check_optional_choice("do", &["preview", "save"])?;
            Box::pin(removal::handle_removal(req, &target, form)).await
        }
        "delete" => {
            form.check_fields(&["etag"], &[])?;
            delete_alternate(req, &target, &form.fields).await
        }
        _ => Err(HttpError::PathNotFound),
    }
}

fn render_deletion(req: &PageRequest, target: &EditTarget, status: StatusCode, notice: Option<&str>) -> PageResult {
    let EditTarget { dataset, urls, version, .. } = target;
    let Some(alternate) = &version.alternate else { return Err(ManageError::AltNotFound.into()) };
    let entities = format::pluralize(alternate.entity_count, "entity", "entities");
    let effects = [
        format!("The alternate and its {entities} will be deleted, including all edits."),
        "This cannot be undone.".to_owned(),
        format!("Requests for {} will return 404.", VersionUrls { alt: true, ..urls.clone() }.api_path()),
        format!("Version {} itself will not change.", version.number),
    ];
    let question = ConfirmationPrompt {
        title: format!("Delete the alternate of version {}?", version.number),
        effects: notice.map(str::to_owned).into_iter().chain(effects).collect(),
        action: urls.alternate_action_url("delete"),
        etag: Some(strata_service::alternate_etag(version)),
        button: "Delete alternate".to_owned(),
        is_dangerous: true,
        back: urls.alternate_url(),
        ..ConfirmationPrompt::default()
    };
    question.render_page(req, DatasetHeading::for_dataset(req, dataset, urls, DatasetTab::Versions), status)
}

async fn delete_alternate(req: &PageRequest, target: &EditTarget, fields: &QueryParams) -> PageResult {
    let EditTarget { user, urls, version, .. } = target;
    if version.alternate.is_some() && fields.first("etag") != Some(strata_service::alternate_etag(version).as_str()) {
        let notice = "The alternate has changed in the meantime, so it was not deleted. Confirm again to delete it.";
        return render_deletion(req, target, StatusCode::CONFLICT, Some(notice));
    }
    req.services.datasets.delete_alternate(user, urls.dataset.id, version.number).await?;
    Ok(PageResponse::redirect_with_notice("deleted", &urls.alternate_url()))
}
