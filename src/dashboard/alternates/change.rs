//! The target of a change of an alternate, and saving it.

use strata_http::error::HttpError;
use strata_service::{BodyRoom, EntityChange, EntityEdit, ManageError};
use strata_types::dataset::Dataset;
use strata_types::user::User;
use strata_types::version::{Version, VersionSelector, there_are};

use super::list::List;
use crate::browse::numbered;
use crate::form_handling::own;
use crate::format;
use crate::safe_text::SafeText;
use crate::urls::Place;
use crate::visit::{PageResult, Reply, Visit};

const CALL_CHARACTERS: usize = 2_000;

pub(super) struct Target {
    pub(super) user: User,
    pub(super) dataset: Dataset,
    pub(super) place: Place,
    pub(super) version: Version,
    pub(super) action: String,
}

/// The visitor's version that a path names.
pub(super) async fn target(visit: &Visit) -> Result<Target, HttpError> {
    let user = visit.user()?;
    let (place, rest) = Place::parse(visit.head.uri.path())?;
    let action = rest.get(1).copied().unwrap_or_default().to_owned();
    let view = own(visit).await?.view;
    let dataset = view.dataset;
    let number = match place.selector {
        VersionSelector::Active => dataset.active_version(),
        VersionSelector::Latest => dataset.latest_version,
        VersionSelector::Number(number) => Some(number),
    };
    let number = number.ok_or(ManageError::NoVersionYet)?;
    let mut versions = view.versions.into_iter().map(|record| record.version);
    let missing = || ManageError::NoVersionOf { number, there_are: there_are(dataset.latest_version) };
    let version = versions.find(|version| version.number == number).ok_or_else(missing)?;
    Ok(Target { user, dataset, place: numbered(&place, number), version, action })
}

/// Saves edits of the list that has this etag. [`ManageError::Stale`] if another user has saved or deleted the
/// alternate first.
pub(super) async fn save(
    visit: &Visit,
    target: &Target,
    etag: &str,
    edits: Vec<EntityEdit>,
    room: Option<BodyRoom>,
) -> PageResult {
    let dataset = target.place.dataset.id;
    Box::pin(visit.services.datasets.edit_alternate(&target.user, dataset, target.version.number, etag, edits, room))
        .await?;
    Ok(Reply::done("saved", &target.place.alternate()))
}

/// The body of the API call that makes edits.
pub(super) fn call(target: &Target, etag: &str, edits: &[EntityEdit]) -> SafeText {
    let Target { place, version, .. } = target;
    let etag = serde_json::Value::from(etag);
    let mut body =
        format!("{{\"dataset_id\":{},\"version\":{},\"etag\":{etag},\"edits\":[", place.dataset.id, version.number);
    for (number, EntityEdit { position, change }) in edits.iter().enumerate() {
        let change = match change {
            EntityChange::Set(entity) => format!("\"set\":{}", String::from_utf8_lossy(entity)),
            EntityChange::Remove => "\"remove\":true".to_owned(),
            EntityChange::Insert(entities) => {
                let list: Vec<_> = entities.iter().map(|entity| String::from_utf8_lossy(entity)).collect();
                format!("\"insert\":[{}]", list.join(","))
            }
        };
        let comma = if number > 0 { "," } else { "" };
        body.push_str(&format!("{comma}\n  {{\"position\":{position},{change}}}"));
        // The text is truncated.
        if body.len() > 4 * CALL_CHARACTERS {
            break;
        }
    }
    SafeText::new(&(body + "]}"), CALL_CHARACTERS)
}

pub(super) fn name(target: &Target, list: &List) -> String {
    let entities = format::counted(list.length, "entity", "entities");
    match list.is_alternate {
        true => format!("You are editing the alternate of version {}. It has {entities}.", target.version.number),
        false => format!(
            "Version {} has no alternate yet. When you save, strata creates one: strata copies the version’s \
             {entities} and applies this change. The version itself does not change.",
            target.version.number
        ),
    }
}
