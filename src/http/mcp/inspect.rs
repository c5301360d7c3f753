//! The tools that look at versions as wholes: what one contains, and what two differ in.

use futures::future::BoxFuture;
use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::error::ToolError;
use super::output::Output;
use super::tool::{Effect, Tool};
use super::{Caller, output, schemas};
use crate::diff::{ChangeType, DiffPage};
use crate::encode::ContentCoding;
use crate::http::management::Fields;
use crate::http::management::profile::ProfileRecord;
use crate::model::limits;
use crate::service::{DiffError, DiffForm};

/// Most bytes of a result.
const BYTES: usize = limits::TOOL_RESULT_BYTES;

/// Paths of a profile, and records of a diff, unless asked otherwise.
const PATHS: u64 = 50;
const RECORDS: u64 = 20;

pub(super) const PROFILE: Tool = Tool {
    name: "profile",
    title: "Profile a version",
    summary: "Tells what a version contains: its paths, their types, ranges, frequent values, and how many there are",
    details: "The way to learn a dataset's fields and values before reading it: the paths are those that filters and \
              keep_field take. Paths come in the order of first appearance, a page at a time; `next_offset` is null at the \
              end. Of any public dataset, or one of the caller's.",
    effect: Effect::Nothing,
    arguments: || {
        let properties = [
            ("dataset_id", schemas::positive("The dataset: a public one, or one of the caller's.")),
            ("version", schemas::selector()),
            ("alt", schemas::flag("Whether to profile the version's alternate.")),
            ("below", schemas::text("Only this path and those below it, such as `name` with `name.common`.")),
            ("offset", schemas::whole_number(0, "Skips the first paths.")),
            ("limit", schemas::whole_number(PATHS, "At most so many paths.")),
        ];
        schemas::object(properties, &["dataset_id"])
    },
    result: Some(schemas::record::<ProfilePage>),
    call: profile,
};

pub(super) const DIFF: Tool = Tool {
    name: "diff",
    title: "Compare two versions",
    summary: "Tells what two versions of one of the caller's datasets differ in: entities added, subtracted, modified",
    details: "The text is one JSON object: `added`, `subtracted`, `modified`, `total_v1` and `total_v2` count all entities; \
              `records` is a page of the changes, each with `id`, `change_type`, `source`, `v1` and `v2` (the entities, null \
              where there is none) and, where modified, `field_diffs`. Modified and subtracted ones come first, in the order \
              of v1, then added ones in that of v2.",
    effect: Effect::Nothing,
    arguments: diff_arguments,
    result: None,
    call: diff,
};

/// A page of a profile.
#[derive(Serialize, ToSchema)]
struct ProfilePage {
    /// Paths that there are, on all pages.
    path_count: u64,
    /// The offset of the next page; null at the end.
    next_offset: Option<u64>,
    /// The profile, with the paths of this page.
    profile: ProfileRecord,
}

fn profile(caller: &Caller, arguments: Fields) -> BoxFuture<'_, Result<Output, ToolError>> {
    Box::pin(async move {
        let (dataset, version) = (arguments.dataset_id()?, arguments.optional_selector("version")?);
        let alt = arguments.optional_boolean("alt")?.unwrap_or(false);
        let below = arguments.optional_text("below")?;
        let offset = arguments.optional_whole_number("offset")?.unwrap_or(0);
        let limit = arguments.optional_whole_number("limit")?.unwrap_or(PATHS);
        let mut profile = caller.app.profiles().find(Some(&caller.user), caller.client, dataset, version, alt).await?;

        if let Some(below) = below {
            let is_below =
                |path: &str| path.strip_prefix(below).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            profile.contents.paths.retain(|path| is_below(&path.path));
        }
        let path_count = profile.contents.paths.len() as u64;
        let end = offset.saturating_add(limit).min(path_count);
        let page = offset.min(end)..end;
        let mut number = 0..;
        profile.contents.paths.retain(|_| number.next().is_some_and(|number| page.contains(&number)));
        let next_offset = (limit > 0 && end < path_count).then_some(end);
        let instead = "Ask for less: a smaller limit, or only the paths below one.";
        output::record(&ProfilePage { path_count, next_offset, profile: profile.into() }, BYTES, instead)
    })
}

fn diff_arguments() -> JsonObject {
    let names = ChangeType::ALL.map(ChangeType::name);
    let properties = [
        ("dataset_id", schemas::positive("One of the caller's datasets.")),
        ("v1", schemas::version("The version that is compared from")),
        ("v2", schemas::version("The version that is compared to")),
        ("change_type", json!({"type": "string", "enum": names, "description": "Only records of this type."})),
        ("offset", schemas::whole_number(0, "Skips the first records.")),
        ("limit", schemas::whole_number(RECORDS, "At most so many records; 0 for the counts alone.")),
    ];
    schemas::object(properties, &["dataset_id", "v1", "v2"])
}

fn diff(caller: &Caller, arguments: Fields) -> BoxFuture<'_, Result<Output, ToolError>> {
    Box::pin(async move {
        let dataset = arguments.dataset_id()?;
        let (v1, v2) = (arguments.selector("v1")?, arguments.selector("v2")?);
        let page = DiffPage {
            change_type: arguments.optional_one_of("change_type", ChangeType::ALL, ChangeType::name)?,
            offset: arguments.optional_whole_number("offset")?.unwrap_or(0),
            limit: Some(arguments.optional_whole_number("limit")?.unwrap_or(RECORDS)),
        };
        let diff = caller.app.diffs().compare(&caller.user, dataset, v1, v2).await?;
        let answer = diff.answer(&page, DiffForm::Result, ContentCoding::Identity).await.map_err(DiffError::from)?;
        let instead = "Ask for less: a smaller limit, with an offset, or one change_type.";
        Ok(Output::Texts(vec![output::text(answer.body, BYTES, instead).await?]))
    })
}
