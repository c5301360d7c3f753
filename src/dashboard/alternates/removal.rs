//! `…/alternate/remove`: entities are removed by their positions, after a preview.

use askama::Template;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_http::visit::BaseUrl;
use strata_service::{EntityChange, EntityEdit, ManageError};
use strata_types::limits::EDITOR_POSITIONS;

use super::change::{self, Target, call, save};
use super::list::list;
use super::text;
use crate::context::{Heading, Tab};
use crate::entity_diff::{Compared, Equality, Paths, Room};
use crate::form_handling::SubmittedForm;
use crate::format;
use crate::query::{Query, invalid};
use crate::safe_text::SafeText;
use crate::visit::{PageResult, Shell, Visit, render};

/// Entities that the preview shows.
const SHOWN: usize = 10;

#[derive(Template)]
#[template(path = "removal.html")]
struct RemovalPage {
    shell: Shell,
    heading: Heading,
    list: String,
    positions: String,
    problem: Option<String>,
    alert: Option<String>,
    checked: Option<Checked>,
}

struct Checked {
    number: String,
    etag: String,
    /// The first of them with their positions; `None` if one is too large for a page.
    entities: Vec<(String, Option<Compared>)>,
    left_out: usize,
    api: String,
    call: SafeText,
}

pub(super) async fn open(visit: &Visit, target: &Target, query: &Query) -> PageResult {
    let asked = match (query.first("positions"), query.first("position")) {
        (Some(positions), Some(_)) => {
            let problem = "cannot be combined with position";
            return Err(invalid("positions", positions, problem, "positions or position, but not both"));
        }
        (positions, position) => positions.or(position),
    };
    page(visit, target, asked, StatusCode::OK, None).await
}

pub(super) async fn act(visit: &mut Visit, target: &Target, sent: SubmittedForm) -> PageResult {
    let SubmittedForm { fields, room, .. } = sent;
    let asked = fields.first("positions").unwrap_or_default();
    let positions = text::positions(asked, EDITOR_POSITIONS);
    let (Some("save"), Some(etag), Ok(positions)) = (fields.first("do"), fields.first("etag"), positions) else {
        return page(visit, target, Some(asked), StatusCode::OK, None).await;
    };
    // Only the entities of the preview are removed.
    if fields.first("checked") != Some(asked) {
        let alert = "You have changed the positions. Review the entities again before you remove them.".to_owned();
        return page(visit, target, Some(asked), StatusCode::OK, Some(alert)).await;
    }
    let (status, alert) = match save(visit, target, etag, edits(&positions), room).await {
        Err(HttpError::Manage(ManageError::Stale)) => {
            let alert = "Another user saved changes first, so nothing was removed. These positions might now contain \
                         different entities. Review the entities again.";
            (StatusCode::CONFLICT, alert.to_owned())
        }
        Err(error) => visit.tell(error),
        reply => return reply,
    };
    page(visit, target, Some(asked), status, Some(alert)).await
}

fn edits(positions: &[u64]) -> Vec<EntityEdit> {
    positions.iter().map(|position| EntityEdit { position: *position, change: EntityChange::Remove }).collect()
}

async fn page(
    visit: &Visit,
    target: &Target,
    asked: Option<&str>,
    mut status: StatusCode,
    alert: Option<String>,
) -> PageResult {
    let current = list(visit, &target.place, None).await?;
    let mut problem = None;
    let mut checked = None;
    match asked.map(|asked| text::positions(asked, EDITOR_POSITIONS)) {
        None => {}
        Some(Err(mistake)) => (status, problem) = (StatusCode::BAD_REQUEST, Some(format!("{mistake}."))),
        Some(Ok(positions)) => match positions.last().filter(|last| **last >= current.length) {
            Some(last) => {
                status = StatusCode::NOT_FOUND;
                problem = Some(format::no_position(&last.to_string(), "list", current.length));
            }
            None => checked = Some(check(visit, target, &positions).await?),
        },
    }
    let page = RemovalPage {
        shell: visit.shell(format!("Remove entities, {}", target.dataset.name.as_str())),
        heading: Heading::for_dataset(visit, &target.dataset, &target.place, Tab::Versions),
        list: change::name(target, &current),
        positions: asked.unwrap_or_default().to_owned(),
        problem,
        alert,
        checked,
    };
    render(status, &page)
}

async fn check(visit: &Visit, target: &Target, positions: &[u64]) -> Result<Checked, HttpError> {
    let mut room = Room::for_page();
    let mut entities = Vec::new();
    let mut etag = None;
    for position in positions.iter().take(SHOWN) {
        let found = list(visit, &target.place, Some(*position)).await?;
        etag.get_or_insert(found.etag);
        let caption = format!("Entity at position {}", format::grouped(*position));
        let compared = found.entity.text().map(|entity| {
            Compared::new(caption, ["Now", "After saving"], [Some(entity), None], Equality::Text, Paths::All, &mut room)
        });
        entities.push((format::grouped(*position), compared));
    }
    let etag = etag.unwrap_or_default();
    Ok(Checked {
        number: format::counted(positions.len() as u64, "entity", "entities"),
        left_out: positions.len() - entities.len(),
        entities,
        api: BaseUrl::of(&visit.head, &visit.services).url("/dataset/alternate/edit"),
        call: call(target, &etag, &edits(positions)),
        etag,
    })
}
