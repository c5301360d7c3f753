//! The tools that look at versions as wholes: what one contains, and what two differ in.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Value, json};
use strata_diff::ChangeType;
use strata_encode::ContentCoding;
use strata_format::profile::{PathRecord, TypeCounts, ValueRecord};
use strata_service::{DiffError, DiffForm, Principal, ProfileRequest, ReadError, VersionProfile};
use strata_types::scope::Scope;
use strata_types::{limits, similar};

use super::tool::{self, Output, Tool, ToolResult};
use super::{Caller, schemas};
use crate::management::{DiffCall, Fields};
use crate::text::{beginning, quoted};

const BYTES: usize = limits::TOOL_RESULT_BYTES;

/// Paths of a profile, and records of a diff, unless asked otherwise.
const PATHS: u64 = 50;
const RECORDS: u64 = 20;

/// What to do with paths, and where `offset` passes over all of them.
const READ: &str =
    "read, with these paths in `filter` and `keep_field`; for more details, profile with `below` and details=true";
const BEYOND: &str = "offset is past the last of the path_count paths: call profile with a smaller offset";

pub(super) const PROFILE: Tool = Tool {
    name: "profile",
    summary: "Describes the contents of a version: its paths with their types, ranges, frequent values, and counts",
    details: "Call it before `read` to learn the paths for filters and keep_field. `paths` has one line per path: its \
              types, the number of entities that have it (if not all), the number of distinct values, and frequent \
              values or the range. details=true returns everything known. `next_offset` is null at the end.",
    scope: Scope::Read,
    arguments: || {
        vec![
            ("dataset_id", schemas::positive("A public dataset or one of yours")),
            ("version", schemas::selector()),
            ("alt", schemas::flag("Profiles the version's alternate")),
            ("below", schemas::text("Only this path and paths below it")),
            ("offset", schemas::whole_number(0, "Number of paths to skip")),
            ("limit", schemas::whole_number(PATHS, "Maximum number of paths")),
            ("details", schemas::flag("Returns everything known about each path")),
        ]
    },
    required: &["dataset_id"],
    like: None,
    call: |caller, arguments| Box::pin(profile(caller, arguments)),
};

pub(super) const DIFF: Tool = Tool {
    name: "diff",
    summary: "Compares two versions of one of your datasets: entities added, subtracted, and modified",
    details: "`added`, `subtracted`, `modified`, `total_v1`, and `total_v2` count all entities. `records` is a page of \
              changes, each with both entities and, for a modified entity, `field_diffs`.",
    scope: Scope::Read,
    arguments: || {
        let names = ChangeType::ALL.map(ChangeType::name);
        vec![
            ("dataset_id", schemas::positive("One of your datasets")),
            ("v1", schemas::version("The version to compare from")),
            ("v2", schemas::version("The version to compare to")),
            ("alt", schemas::flag("Compares v1 with the alternate of v2")),
            ("change_type", json!({"type": "string", "enum": names, "description": "Only records of this type"})),
            ("offset", schemas::whole_number(0, "Number of records to skip")),
            ("limit", schemas::whole_number(RECORDS, "Maximum number of records; 0 returns only the counts")),
        ]
    },
    required: &["dataset_id", "v1", "v2"],
    like: None,
    call: |caller, arguments| Box::pin(diff(caller, arguments)),
};

#[derive(Serialize)]
struct ProfilePage {
    /// Paths that there are, on all pages.
    path_count: u64,
    next_offset: Option<u64>,
    profile: VersionProfile,
}

/// Bytes of the lines of a page, on the whole: a page of 50 paths is below 6 KB with all around it.
const LINES_BYTES: usize = 5_000;

/// A line for each of these paths; fewer where they are so long that they do not fit, but at least one. The longer the
/// paths, the shorter the values in their lines.
fn lines(paths: &[PathRecord], entities: u64) -> Vec<String> {
    let most = LINES_BYTES.max(paths.len() * LINES_BYTES / PATHS as usize);
    // In JSON, with quotes and a comma.
    let bytes = |line: &String| serde_json::to_string(line).map_or(0, |text| text.len()) + 1;
    for characters in [24, 12, 6, 0] {
        let lines: Vec<String> = paths.iter().map(|path| line(path, entities, characters)).collect();
        if lines.iter().map(bytes).sum::<usize>() <= most {
            return lines;
        }
    }
    let mut sum = 0;
    let fits = |(index, line): &(usize, String)| {
        sum += bytes(line);
        sum <= most || *index == 0
    };
    let lines = paths.iter().map(|path| line(path, entities, 0)).enumerate().take_while(fits);
    lines.map(|(_, line)| line).collect()
}

/// What is known of a path, with values of at most so many characters.
fn line(path: &PathRecord, entities: u64, characters: usize) -> String {
    let TypeCounts { null, boolean, number, string, object, array } = path.types;
    let counts = [
        ("string", string),
        ("number", number),
        ("boolean", boolean),
        ("object", object),
        ("array", array),
        ("null", null),
    ];
    let types: Vec<&str> = counts.iter().filter(|(_, count)| *count > 0).map(|(name, _)| *name).collect();
    let mut line = format!("{}: {}", path.path, types.join("|"));
    if path.entities < entities {
        let _ = write!(line, " in {}", path.entities);
    }
    if path.distinct.count > 0 {
        let _ = write!(line, ", {}{} distinct", if path.distinct.estimated { "~" } else { "" }, path.distinct.count);
    }
    if characters == 0 {
        return line;
    }
    let shown = |value: &Value| -> String {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        beginning(&text, characters)
    };
    let range = |min: &Option<ValueRecord>, max: &Option<ValueRecord>| {
        let bound = |bound: &ValueRecord| format!("{}{}", if bound.estimated { "~" } else { "" }, shown(&bound.value));
        Some(format!("{}..{}", bound(min.as_ref()?), bound(max.as_ref()?)))
    };
    let found = match path.top.first() {
        Some(top) if path.distinct.count <= 20 || top.count > entities / 10 => {
            let top: Vec<String> = path.top.iter().take(3).map(|top| shown(&top.value)).collect();
            Some(top.join(", "))
        }
        _ => range(&path.number_min, &path.number_max).or_else(|| range(&path.string_min, &path.string_max)),
    };
    if let Some(found) = found {
        let _ = write!(line, ": {found}");
    }
    line
}

async fn profile(caller: &Caller, arguments: Fields) -> ToolResult {
    let dataset = arguments.dataset_id()?;
    let version = arguments.optional_selector("version")?;
    let alt = arguments.optional_boolean("alt")?.unwrap_or(false);
    let below = arguments.optional_text("below")?;
    let offset = arguments.optional_whole_number("offset")?.unwrap_or(0);
    let limit = arguments.optional_whole_number("limit")?.unwrap_or(PATHS);
    let details = arguments.optional_boolean("details")?.unwrap_or(false);
    let reservation =
        caller.services.large_responses.reserve(Principal::User(caller.user.id)).await.map_err(ReadError::from)?;
    let reads = caller.services.reads.clone();
    let user = caller.user.clone();
    let client = caller.client;
    let found = async move {
        let caller = Some(&user);
        reads.profile(ProfileRequest { caller, client, dataset, version, alt }).await
    };
    let (profile, _reservation) = reservation.build(found).await.map_err(ReadError::from)?;
    let mut profile = profile?;

    let mut nearest = None;
    if let Some(below) = below {
        let is_below =
            |path: &str| path.strip_prefix(below).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if !profile.contents.paths.iter().any(|path| is_below(&path.path)) {
            let known = profile.contents.paths.iter().map(|path| path.path.as_str());
            nearest = similar::nearest(below, known).map(str::to_owned);
        }
        profile.contents.paths.retain(|path| is_below(&path.path));
    }
    let path_count = profile.contents.paths.len() as u64;
    let mut end = offset.saturating_add(limit).min(path_count);
    if !details {
        let paths = profile.contents.paths.get(offset.min(end) as usize..end as usize).unwrap_or_default();
        let lines = lines(paths, profile.contents.entities);
        end = offset.min(end) + lines.len() as u64;
        let next = match (below, nearest) {
            (Some(below), Some(nearest)) => {
                format!("there are no paths at or below {}: did you mean {}?", quoted(below), quoted(&nearest))
            }
            (Some(below), None) if path_count == 0 => {
                format!("there are no paths at or below {}: call profile without `below`", quoted(below))
            }
            _ if offset >= path_count && path_count > 0 => BEYOND.to_owned(),
            _ => READ.to_owned(),
        };
        let compact = json!({
            "dataset_id": profile.dataset_id,
            "version": profile.version,
            "alt": profile.alt,
            "entities": profile.contents.entities,
            "path_count": path_count,
            "next_offset": (limit > 0 && end < path_count).then_some(end),
            "paths": lines,
            "next": next,
        });
        return tool::record(&compact, BYTES, "Use a smaller limit.");
    }
    let page = offset.min(end)..end;
    let mut number = 0..;
    profile.contents.paths.retain(|_| number.next().is_some_and(|number| page.contains(&number)));
    let next_offset = (limit > 0 && end < path_count).then_some(end);
    let instead = "Use a smaller limit, or set `below` to one path.";
    tool::record(&ProfilePage { path_count, next_offset, profile: profile.without_spreads() }, BYTES, instead)
}

async fn diff(caller: &Caller, arguments: Fields) -> ToolResult {
    let mut call = DiffCall::from_fields(&arguments)?;
    call.page.limit.get_or_insert(RECORDS);
    let diff = call.compare(&caller.services, &caller.user).await?;
    let answer = diff.answer(&call.page, DiffForm::Result, ContentCoding::Identity).await.map_err(DiffError::from)?;
    let instead = "Use a smaller limit with an offset, or request only one change_type.";
    Ok(Output(vec![tool::text(answer.body, BYTES, instead).await?]))
}
