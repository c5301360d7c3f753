//! The version whose alternate (edited copy) a dashboard form changes, and the function that saves the change.

use strata_http::error::HttpError;
use strata_service::{BodyReservation, EntityChange, EntityEdit, ManageError};
use strata_types::dataset::Dataset;
use strata_types::user::User;
use strata_types::version::{DatasetVersion, VersionSelector, describe_versions};

use super::editable_list::EditableList;
use crate::browse::with_version_number;
use crate::form_handling::load_owner_context;
use crate::format;
use crate::page_request::PageRequest;
use crate::safe_text::SafeText;
use crate::urls::VersionUrls;

const MAX_CALL_CHARACTERS: usize = 2_000;

pub(super) struct EditTarget {
    pub(super) user: User,
    pub(super) dataset: Dataset,
    pub(super) urls: VersionUrls,
    pub(super) version: DatasetVersion,
    pub(super) action: String,
}

pub(super) async fn load_edit_target(req: &PageRequest) -> Result<EditTarget, HttpError> {
    let user = req.require_user()?;
    let (urls, rest) = VersionUrls::parse(req.head.uri.path())?;
    let action = rest.get(1).copied().unwrap_or_default().to_owned();
    let view = load_owner_context(req).await?.view;
    let dataset = view.dataset;
    let number = match urls.selector {
        VersionSelector::Active => dataset.active_version(),
        VersionSelector::Latest => dataset.latest_version,
        VersionSelector::Number(number) => Some(number),
    };
    let number = number.ok_or(ManageError::NoVersionYet)?;
    let mut versions = view.versions.into_iter().map(|record| record.version);
    let missing =
        || ManageError::UnknownVersion { number, existing_versions: describe_versions(dataset.latest_version) };
    let version = versions.find(|version| version.number == number).ok_or_else(missing)?;
    Ok(EditTarget { user, dataset, urls: with_version_number(&urls, number), version, action })
}

/// Saves edits of a list of entities. Returns [`ManageError::Stale`] if the ETag of the list is no longer `etag`.
pub(super) async fn save_edits(
    req: &PageRequest,
    target: &EditTarget,
    etag: &str,
    edits: Vec<EntityEdit>,
    memory: Option<BodyReservation>,
) -> Result<(), HttpError> {
    let dataset = target.urls.dataset.id;
    Box::pin(req.services.datasets.edit_alternate(&target.user, dataset, target.version.number, etag, edits, memory))
        .await?;
    Ok(())
}

pub(super) fn api_call_body(target: &EditTarget, etag: &str, edits: &[EntityEdit]) -> SafeText {
    let EditTarget { urls, version, .. } = target;
    let etag = serde_json::Value::from(etag);
    let mut body =
        format!("{{\"dataset_id\":{},\"version\":{},\"etag\":{etag},\"edits\":[", urls.dataset.id, version.number);
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
        if body.len() > 4 * MAX_CALL_CHARACTERS {
            break;
        }
    }
    SafeText::new(&(body + "]}"), MAX_CALL_CHARACTERS)
}

pub(super) fn describe_editable_list(target: &EditTarget, list: &EditableList) -> String {
    let entities = format::pluralize(list.length, "entity", "entities");
    match list.is_alternate {
        true => format!("You are editing the alternate of version {}. It has {entities}.", target.version.number),
        false => format!(
            "Version {} has no alternate yet. When you save, strata creates one: strata copies the version’s \
             {entities} and applies this change. The version itself does not change.",
            target.version.number
        ),
    }
}
