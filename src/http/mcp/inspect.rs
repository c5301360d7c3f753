//! The tools that describe a version (`profile`) and compare two versions (`diff` and `changes`).

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Value, json};
use strata_diff::ChangeType;
use strata_encode::ContentCoding;
use strata_format::profile::{ProfilePathRecord, TypeCounts, ValueRecord};
use strata_service::{DiffError, DiffFormat, Principal, ProfileRequest, ReadError, ReadRequester, VersionProfile};
use strata_types::token_scope::TokenScope;
use strata_types::version::{VersionSelector, VersionVariant};
use strata_types::{limits, suggest};

use super::argument_schemas::{
    flag_schema, positive_schema, text_schema, version_schema, version_selector_schema, whole_number_schema,
};
use super::tool::{self, ToolOutput, ToolResult, ToolSpec};
use super::{ToolCaller, read};
use crate::display_text::{quote_for_display, truncate_with_ellipsis};
use crate::management::{CallFields, DiffCall};

const MAX_RESULT_BYTES: usize = limits::MAX_TOOL_RESULT_BYTES;
const DEFAULT_PATH_LIMIT: u64 = 50;
const DEFAULT_RECORD_LIMIT: u64 = 20;
const READ_PATHS_ADVICE: &str =
    "read, with these paths in `filter` and `keep_field`; for more details, profile with `below` and details=true";
const OFFSET_TOO_LARGE_ADVICE: &str =
    "offset is past the last of the path_count paths: call profile with a smaller offset";

pub(super) const PROFILE_TOOL: ToolSpec = ToolSpec {
    name: "profile",
    summary: "Describes the contents of a version: its paths with their types, ranges, frequent values, and counts",
    details: "Call it before `read` to learn the paths for filters and keep_field. `paths` has one line per path: its \
              types, the number of entities that have it (if not all), the number of distinct values, and frequent \
              values or the range. details=true returns everything known. `next_offset` is null at the end.",
    scope: TokenScope::Read,
    arguments: || {
        vec![
            ("dataset_id", positive_schema("A public dataset or one of yours")),
            ("version", version_selector_schema()),
            ("alt", flag_schema("Profiles the version's alternate")),
            ("below", text_schema("Only this path and paths below it")),
            ("offset", whole_number_schema(0, "Number of paths to skip")),
            ("limit", whole_number_schema(DEFAULT_PATH_LIMIT, "Maximum number of paths")),
            ("details", flag_schema("Returns everything known about each path")),
        ]
    },
    required: &["dataset_id"],
    inherited_arguments: None,
    call: |caller, arguments| Box::pin(profile_version(caller, arguments)),
};

pub(super) const DIFF_TOOL: ToolSpec = ToolSpec {
    name: "diff",
    summary: "Compares two versions of one of your datasets: entities added, subtracted, and modified",
    details: "`added`, `subtracted`, `modified`, `total_v1`, and `total_v2` count all entities. `records` is a page of \
              changes, each with both entities and, for a modified entity, `field_diffs`.",
    scope: TokenScope::Read,
    arguments: || {
        let names = ChangeType::ALL.map(ChangeType::name);
        vec![
            ("dataset_id", positive_schema("One of your datasets")),
            ("v1", version_schema("The version to compare from")),
            ("v2", version_schema("The version to compare to")),
            ("alt", flag_schema("Compares v1 with the alternate of v2")),
            ("change_type", json!({"type": "string", "enum": names, "description": "Only records of this type"})),
            ("offset", whole_number_schema(0, "Number of records to skip")),
            (
                "limit",
                whole_number_schema(DEFAULT_RECORD_LIMIT, "Maximum number of records; 0 returns only the counts"),
            ),
        ]
    },
    required: &["dataset_id", "v1", "v2"],
    inherited_arguments: None,
    call: |caller, arguments| Box::pin(diff_versions(caller, arguments)),
};

pub(super) const CHANGES_TOOL: ToolSpec = ToolSpec {
    name: "changes",
    summary: "Returns the edits that turn another version into this one, in a public dataset or one of yours",
    details: "Each line is an edit with a `position` in version `since`: `set` replaces the entity, `remove` removes \
              it, and `insert` inserts entities before it. The last line has the numbers of both versions.",
    scope: TokenScope::Read,
    arguments: || {
        vec![
            ("dataset_id", positive_schema("A public dataset or one of yours")),
            ("version", version_selector_schema()),
            ("since", positive_schema("The number of the version that you know")),
        ]
    },
    required: &["dataset_id", "since"],
    inherited_arguments: None,
    call: |caller, arguments| Box::pin(read_changes(caller, arguments)),
};

#[derive(Serialize)]
struct ProfileToolPage {
    path_count: u64,
    next_offset: Option<u64>,
    profile: VersionProfile,
}

/// The maximum total size of the lines of a default page, so that the whole result of the tool stays below 6 KB.
const MAX_LINES_BYTES: usize = 5_000;

/// Returns a line for each path of a profile. Values are truncated until all lines fit into the budget. If the lines do
/// not fit even without values, the page ends early, but contains at least one line.
fn format_profile_lines(paths: &[ProfilePathRecord], entities: u64) -> Vec<String> {
    let budget = MAX_LINES_BYTES.max(paths.len() * MAX_LINES_BYTES / DEFAULT_PATH_LIMIT as usize);
    // In the result, each line is a JSON string, followed by a comma.
    let bytes = |line: &String| serde_json::to_string(line).map_or(0, |text| text.len()) + 1;
    for characters in [24, 12, 6, 0] {
        let lines: Vec<String> = paths.iter().map(|path| format_profile_line(path, entities, characters)).collect();
        if lines.iter().map(bytes).sum::<usize>() <= budget {
            return lines;
        }
    }
    let mut sum = 0;
    let fits = |(index, line): &(usize, String)| {
        sum += bytes(line);
        sum <= budget || *index == 0
    };
    let lines = paths.iter().map(|path| format_profile_line(path, entities, 0)).enumerate().take_while(fits);
    lines.map(|(_, line)| line).collect()
}

fn format_profile_line(path: &ProfilePathRecord, entities: u64, characters: usize) -> String {
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
    let clip = |value: &Value| -> String {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        truncate_with_ellipsis(&text, characters)
    };
    let range = |min: &Option<ValueRecord>, max: &Option<ValueRecord>| {
        let bound = |bound: &ValueRecord| format!("{}{}", if bound.estimated { "~" } else { "" }, clip(&bound.value));
        Some(format!("{}..{}", bound(min.as_ref()?), bound(max.as_ref()?)))
    };
    let values = match path.top.first() {
        Some(top) if path.distinct.count <= 20 || top.count > entities / 10 => {
            let top: Vec<String> = path.top.iter().take(3).map(|top| clip(&top.value)).collect();
            Some(top.join(", "))
        }
        _ => range(&path.number_min, &path.number_max).or_else(|| range(&path.string_min, &path.string_max)),
    };
    if let Some(values) = values {
        let _ = write!(line, ": {values}");
    }
    line
}

async fn profile_version(caller: &ToolCaller, arguments: CallFields) -> ToolResult {
    let dataset = arguments.dataset_id()?;
    let version = arguments.version_selector_or_active("version")?;
    let variant = arguments.version_variant()?;
    let below = arguments.optional_text("below")?;
    let offset = arguments.optional_whole_number("offset")?.unwrap_or(0);
    let limit = arguments.optional_whole_number("limit")?.unwrap_or(DEFAULT_PATH_LIMIT);
    let details = arguments.optional_boolean("details")?.unwrap_or(false);
    let reservation =
        caller.services.large_responses.reserve(Principal::User(caller.user.id)).await.map_err(ReadError::from)?;
    let reads = caller.services.reads.clone();
    let user = caller.user.clone();
    let client = caller.client;
    let work = async move {
        let caller = Some(&user);
        reads.profile(ProfileRequest { caller, client, dataset, version, variant }).await
    };
    let (profile, _reservation) = reservation.build(work).await.map_err(ReadError::from)?;
    let mut profile = profile?;

    let mut nearest = None;
    if let Some(below) = below {
        let is_below =
            |path: &str| path.strip_prefix(below).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if !profile.contents.paths.iter().any(|path| is_below(&path.path)) {
            let known = profile.contents.paths.iter().map(|path| path.path.as_str());
            nearest = suggest::find_similar_name(below, known).map(str::to_owned);
        }
        profile.contents.paths.retain(|path| is_below(&path.path));
    }
    let path_count = profile.contents.paths.len() as u64;
    let mut end = offset.saturating_add(limit).min(path_count);
    if !details {
        let paths = profile.contents.paths.get(offset.min(end) as usize..end as usize).unwrap_or_default();
        let lines = format_profile_lines(paths, profile.contents.entities);
        end = offset.min(end) + lines.len() as u64;
        let next = match (below.map(quote_for_display), nearest.as_deref().map(quote_for_display)) {
            (Some(below), Some(nearest)) => format!("there are no paths at or below {below}: did you mean {nearest}?"),
            (Some(below), None) if path_count == 0 => {
                format!("there are no paths at or below {below}: call profile without `below`")
            }
            _ if offset >= path_count && path_count > 0 => OFFSET_TOO_LARGE_ADVICE.to_owned(),
            _ => READ_PATHS_ADVICE.to_owned(),
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
        return tool::json_output(&compact, MAX_RESULT_BYTES, "Use a smaller limit.");
    }
    let range = offset.min(end)..end;
    let mut index = 0..;
    profile.contents.paths.retain(|_| index.next().is_some_and(|index| range.contains(&index)));
    let next_offset = (limit > 0 && end < path_count).then_some(end);
    let page = ProfileToolPage { path_count, next_offset, profile: profile.without_histograms() };
    tool::json_output(&page, MAX_RESULT_BYTES, "Use a smaller limit, or set `below` to one path.")
}

async fn diff_versions(caller: &ToolCaller, arguments: CallFields) -> ToolResult {
    let mut call = DiffCall::from_fields(&arguments)?;
    call.page.limit.get_or_insert(DEFAULT_RECORD_LIMIT);
    let diff = call.compare(&caller.services, &caller.user).await?;
    let response =
        diff.page_response(&call.page, DiffFormat::Json, ContentCoding::Identity).await.map_err(DiffError::from)?;
    let advice = "Use a smaller limit with an offset, or request only one change_type.";
    Ok(ToolOutput(vec![tool::collect_text(response.body, MAX_RESULT_BYTES, advice).await?]))
}

async fn read_changes(caller: &ToolCaller, arguments: CallFields) -> ToolResult {
    let dataset = arguments.dataset_id()?;
    let version = arguments.version_selector_or_active("version")?;
    let since = VersionSelector::Number(arguments.version_number("since")?);
    let find = async |version| {
        let lookup = caller.services.lookups.find_by_id(dataset, version).await?;
        lookup.authorize(ReadRequester::User(&caller.user), VersionVariant::Original)
    };
    let target = read::admit_read(caller, find(version).await).await?;
    let since = find(since).await?;
    let changes = caller.services.diffs.find_changes(&target, &since).await?;
    let response = changes.respond(ContentCoding::Identity).await?;
    let advice =
        "Read the entities of both versions with filters. For your datasets, you can also call diff with a limit.";
    Ok(ToolOutput(vec![tool::collect_text(response.body, MAX_RESULT_BYTES, advice).await?]))
}
