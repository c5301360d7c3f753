//! `…/alternate/remove`: removes entities by position from an alternate (edited copy of a version) after a preview.

use askama::Template;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_service::{EntityChange, EntityEdit, ManageError};
use strata_types::limits::MAX_REMOVED_ENTITIES;

use super::edit_target::{self, EditTarget, api_call_body, save_edits};
use super::editable_list::load_list;
use super::entity_text;
use crate::context::{DatasetHeading, DatasetTab};
use crate::entity_diff::{ComparisonBudget, EntityComparison, LeafEquality, ShownPaths};
use crate::form_handling::SubmittedForm;
use crate::format;
use crate::page_request::{PageLayout, PageRequest, PageResponse, PageResult, render};
use crate::query_params::{QueryParams, invalid_parameter_error};
use crate::safe_text::SafeText;

const MAX_PREVIEW_ENTITIES: usize = 10;

#[derive(Template)]
#[template(path = "removal.html")]
struct RemovalPage {
    layout: PageLayout,
    heading: DatasetHeading,
    list_description: String,
    positions: String,
    problem: Option<String>,
    alert: Option<String>,
    preview: Option<RemovalPreview>,
}

struct RemovalPreview {
    count_text: String,
    etag: String,
    entities: Vec<(String, Option<EntityComparison>)>,
    omitted_count: usize,
    api: String,
    api_call: SafeText,
}

pub(super) async fn render_removal_form(req: &PageRequest, target: &EditTarget, query: &QueryParams) -> PageResult {
    let positions = match (query.first("positions"), query.first("position")) {
        (Some(positions), Some(_)) => {
            let problem = "cannot be combined with position";
            let valid = "positions or position, but not both";
            return Err(invalid_parameter_error("positions", positions, problem, valid));
        }
        (positions, position) => positions.or(position),
    };
    render_removal(req, target, positions, StatusCode::OK, None).await
}

pub(super) async fn handle_removal(req: &mut PageRequest, target: &EditTarget, form: SubmittedForm) -> PageResult {
    let SubmittedForm { fields, body_reservation, .. } = form;
    let typed_positions = fields.first("positions").unwrap_or_default();
    let positions = entity_text::parse_positions(typed_positions, MAX_REMOVED_ENTITIES);
    let (Some("save"), Some(etag), Ok(positions)) = (fields.first("do"), fields.first("etag"), positions) else {
        return render_removal(req, target, Some(typed_positions), StatusCode::OK, None).await;
    };
    // Entities are removed only if a preview has shown exactly these positions.
    if fields.first("checked") != Some(typed_positions) {
        let alert = "You have changed the positions. Review the entities again before you remove them.".to_owned();
        return render_removal(req, target, Some(typed_positions), StatusCode::OK, Some(alert)).await;
    }
    let (status, alert) = match save_edits(req, target, etag, build_removals(&positions), body_reservation).await {
        Err(HttpError::Manage(ManageError::Stale)) => {
            let alert = "Another user saved changes first, so nothing was removed. These positions might now contain \
                         different entities. Review the entities again.";
            (StatusCode::CONFLICT, alert.to_owned())
        }
        Err(error) => req.log_and_render(error),
        Ok(()) => return Ok(PageResponse::redirect_with_notice("saved", &target.urls.alternate_url())),
    };
    render_removal(req, target, Some(typed_positions), status, Some(alert)).await
}

fn build_removals(positions: &[u64]) -> Vec<EntityEdit> {
    positions.iter().map(|position| EntityEdit { position: *position, change: EntityChange::Remove }).collect()
}

async fn render_removal(
    req: &PageRequest,
    target: &EditTarget,
    typed_positions: Option<&str>,
    mut status: StatusCode,
    alert: Option<String>,
) -> PageResult {
    let current = load_list(req, &target.urls, None).await?;
    let mut problem = None;
    let mut preview = None;
    match typed_positions.map(|typed_positions| entity_text::parse_positions(typed_positions, MAX_REMOVED_ENTITIES)) {
        None => {}
        Some(Err(mistake)) => (status, problem) = (StatusCode::BAD_REQUEST, Some(format!("{mistake}."))),
        Some(Ok(positions)) => match positions.last().filter(|last| **last >= current.length) {
            Some(last) => {
                status = StatusCode::NOT_FOUND;
                problem = Some(format::position_not_found_text(&last.to_string(), "list", current.length));
            }
            None => preview = Some(build_preview(req, target, &positions).await?),
        },
    }
    let page = RemovalPage {
        layout: req.layout(format!("Remove entities, {}", target.dataset.name.as_str())),
        heading: DatasetHeading::for_dataset(req, &target.dataset, &target.urls, DatasetTab::Versions),
        list_description: edit_target::describe_editable_list(target, &current),
        positions: typed_positions.unwrap_or_default().to_owned(),
        problem,
        alert,
        preview,
    };
    render(status, &page)
}

async fn build_preview(req: &PageRequest, target: &EditTarget, positions: &[u64]) -> Result<RemovalPreview, HttpError> {
    let mut budget = ComparisonBudget::for_page();
    let mut entities = Vec::new();
    let mut etag = None;
    for position in positions.iter().take(MAX_PREVIEW_ENTITIES) {
        let list = load_list(req, &target.urls, Some(*position)).await?;
        etag.get_or_insert(list.etag);
        let caption = format!("Entity at position {}", format::group_thousands(*position));
        let titles = ["Now", "After saving"];
        let comparison = list.entity.entity_bytes().map(|entity| {
            let sides = [Some(entity), None];
            EntityComparison::new(caption, titles, sides, LeafEquality::Text, ShownPaths::All, &mut budget)
        });
        entities.push((format::group_thousands(*position), comparison));
    }
    let etag = etag.unwrap_or_default();
    Ok(RemovalPreview {
        count_text: format::pluralize(positions.len() as u64, "entity", "entities"),
        omitted_count: positions.len() - entities.len(),
        entities,
        api: req.absolute_url("/dataset/alternate/edit"),
        api_call: api_call_body(target, &etag, &build_removals(positions)),
        etag,
    })
}
