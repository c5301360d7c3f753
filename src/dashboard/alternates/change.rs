//! What the changes of an alternate have in common.

use strata_catalog::VersionRecord;
use strata_http::error::HttpError;
use strata_service::{BodyRoom, EntityChange, EntityEdit, ManageError};
use strata_types::dataset::Dataset;
use strata_types::user::User;
use strata_types::version::{Version, VersionSelector, there_are};

use super::list::List;
use crate::acting::own;
use crate::browse::numbered;
use crate::figures;
use crate::place::Place;
use crate::shown::Shown;
use crate::visit::{Reply, Visit};

const CALL_CHARACTERS: usize = 2_000;

pub(super) struct Target {
    pub(super) user: User,
    pub(super) dataset: Dataset,
    /// The version by its number.
    pub(super) place: Place,
    pub(super) version: Version,
    /// The last part of the path.
    pub(super) action: String,
}

/// The visitor's version that a path names; 401 for nobody, 404 for all that is not the visitor's.
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
    let found = view.versions.into_iter().map(|VersionRecord { version, .. }| version);
    let missing = || ManageError::NoVersionOf { number, there_are: there_are(dataset.latest_version) };
    let version = found.into_iter().find(|version| version.number == number).ok_or_else(missing)?;
    let place = numbered(&place, number);
    Ok(Target { user, dataset, place, version, action })
}

/// Saves edits of the list that has this etag. [`ManageError::Stale`] if somebody else has saved or deleted the
/// alternate first.
pub(super) async fn save(
    visit: &Visit,
    target: &Target,
    etag: &str,
    edits: Vec<EntityEdit>,
    room: Option<BodyRoom>,
) -> Result<Reply, HttpError> {
    let version = (target.place.dataset.id, target.version.number);
    Box::pin(visit.app.datasets().edit_alternate(&target.user, version, etag, edits, room)).await?;
    Ok(Reply::done("saved", &target.place.alternate()))
}

/// The body of the API call that makes edits.
pub(super) fn call(target: &Target, etag: &str, edits: &[EntityEdit]) -> Shown {
    let mut body =
        format!("{{\"dataset_id\":{},\"version\":{},\"etag\":", target.place.dataset.id, target.version.number)
            .into_bytes();
    strata_json::write_string(etag, &mut body);
    body.extend_from_slice(b",\"edits\":[");
    for (number, EntityEdit { position, change }) in edits.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        body.extend_from_slice(format!("{comma}\n  {{\"position\":{position},").as_bytes());
        match change {
            EntityChange::Set(entity) => body.extend_from_slice(&[b"\"set\":", &entity[..]].concat()),
            EntityChange::Remove => body.extend_from_slice(b"\"remove\":true"),
            EntityChange::Insert(entities) => {
                let list = entities.iter().map(|entity| entity.to_vec()).collect::<Vec<_>>().join(&b',');
                body.extend_from_slice(&[&b"\"insert\":["[..], &list, b"]"].concat());
            }
        }
        body.push(b'}');
        // What is cut anyway need not be written.
        if body.len() > 4 * CALL_CHARACTERS {
            break;
        }
    }
    body.extend_from_slice(b"]}");
    Shown::new(&String::from_utf8_lossy(&body), CALL_CHARACTERS)
}

pub(super) fn name(target: &Target, list: &List) -> String {
    let entities = figures::counted(list.length, "entity", "entities");
    match list.is_alternate {
        true => format!("You are editing the alternate of version {}. It has {entities}.", target.version.number),
        false => format!(
            "Version {} has no alternate yet. When you save, strata creates one: strata copies the version’s \
             {entities} and applies this change. The version itself does not change.",
            target.version.number
        ),
    }
}
