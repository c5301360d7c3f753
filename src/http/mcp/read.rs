//! The tools that query entities (`read`) and explain queries (`explain`).

use std::sync::Arc;

use axum::http::HeaderMap;
use rmcp::model::JsonObject;
use serde_json::{Value, json};
use strata_encode::ContentCoding;
use strata_service::{
    AuthorizedRead, AuthorizedTarget, RateLimitBucket, ReadError, ReadRequester, UnknownField, UnknownFieldCause,
    alternate_etag, nested_sort_hint,
};
use strata_types::limits;
use strata_types::read_request::{ReadRequest, ResponseFormat};
use strata_types::token_scope::TokenScope;

use super::ToolCaller;
use super::argument_schemas::{flag_schema, parameter_schema, positive_schema, version_selector_schema};
use super::tool::{self, ToolArgument, ToolError, ToolOutput, ToolResult, ToolSpec};
use crate::display_text::quote_for_display;
use crate::error::CallError;
use crate::management::CallFields;
use crate::params::{self, PARAMETERS, QueryParameter};
use crate::read::rate_limiting;

const DEFAULT_ENTITY_LIMIT: u64 = 20;
const MAX_RESULT_BYTES: usize = limits::MAX_TOOL_RESULT_BYTES;
const POSITIONS_NAME: &str = "positions";
const EDIT_ADVICE: &str = "edit_alt_version with this version, etag, and positions";

/// Tells the model how to edit entities whose returned form differs from the stored form, for example without nulls.
const EDIT_COMPLETE_ADVICE: &str = "edit_alt_version with this version, etag, and positions. `set` requires complete \
     entities, but the entities of this result differ from the stored entities. Before you use `set`, read the \
     entities again without include_source, denull, keep_field, drop_field, flatten, csv, or tsv";

const NO_MATCH_ADVICE: &str = "nothing matches: profile returns the paths of this version with their types and \
     frequent values; filter compares whole values; filter_contains and keywords match substrings";
const SEE_HINTS_ADVICE: &str = "nothing matches: see hints";
const OFFSET_TOO_LARGE_ADVICE: &str = "offset is past the last of the total_count entities: read with a smaller offset";
const MAX_REMOVED_FIELD_HINTS: usize = 10;
const HINTS_NAME: &str = "hints";

const RESULT_TOO_LONG_ADVICE: &str =
    "Use a smaller limit, select fields with keep_field, or return only the number with count=true.";

/// The text formats that a model can read.
const TEXT_FORMATS: [ResponseFormat; 4] =
    [ResponseFormat::Json, ResponseFormat::Jsonl, ResponseFormat::Csv, ResponseFormat::Tsv];

pub(super) const READ_TOOL: ToolSpec = ToolSpec {
    name: "read",
    summary: "Filters, sorts, cleans, and pages the entities of a version, in a public dataset or one of yours",
    details: "Returns two strings. The first is JSON: `returned`, `total_count` (all matches before offset and limit), \
         `next_offset` (null at the end), `total_matches` (with total=true, before sample), `unknown_fields` (paths \
         that no entity has at that step), `did_you_mean` (similar paths), and `hints`. The second contains the \
         entities in `format`, exactly as stored. With count=true, it contains only their number. Steps run in the \
         order of these parameters: later steps cannot find what keep_field or drop_field removed.",
    scope: TokenScope::Read,
    arguments: || {
        let dataset = ("dataset_id", positive_schema("A public dataset or one of yours"));
        let target = vec![dataset, ("version", version_selector_schema())];
        let positions = flag_schema("Also returns the entities' positions and the etag for edit_alt_version");
        [target, read_arguments(), vec![(POSITIONS_NAME, positions)]].concat()
    },
    required: &["dataset_id"],
    inherited_arguments: None,
    call: |caller, arguments| Box::pin(read_entities(caller, arguments)),
};

pub(super) const EXPLAIN_TOOL: ToolSpec = ToolSpec {
    name: "explain",
    summary: "Explains step by step what a read of one of your datasets does, and how to make the read cheaper",
    details: "Takes the arguments of `read` and runs the read, but returns no entities. Costs as much as the read.",
    scope: TokenScope::Read,
    arguments: || vec![("dataset_id", positive_schema("One of your datasets")), ("version", version_selector_schema())],
    required: &["dataset_id"],
    inherited_arguments: Some((READ_TOOL.name, read_arguments)),
    call: |caller, arguments| Box::pin(explain_read(caller, arguments)),
};

fn read_arguments() -> Vec<ToolArgument> {
    PARAMETERS
        .iter()
        .map(|parameter| (parameter.name, parameter_schema(parameter, schema_overrides(parameter))))
        .collect()
}

/// Returns the members of a parameter's schema that differ between the tool and the OpenAPI document.
fn schema_overrides(parameter: &QueryParameter) -> Value {
    match parameter.name {
        "format" => json!({"enum": TEXT_FORMATS.map(ResponseFormat::name)}),
        "limit" => json!({"default": DEFAULT_ENTITY_LIMIT, "description": short_description("limit")}),
        "pretty" => json!({"default": false, "description": short_description("pretty")}),
        name => short_description(name).map_or_else(|| json!({}), |text| json!({"description": text})),
    }
}

/// A shorter description of a parameter whose documentation is too long for a model.
fn short_description(name: &str) -> Option<&'static str> {
    Some(match name {
        "include_source" => "false removes the top-level `_source` before all other steps",
        "keep_field" => "Keeps only the fields at the listed paths",
        "drop_field" => "Removes the fields at the listed paths",
        "filter" => "path:value: a value at the path equals `value`, ignoring case",
        "filter_contains" => "path:value: a value at the path contains `value`, ignoring case",
        "filter_gt" => "path:value: a value at the path is greater than `value`, a number or a string such as a date",
        "filter_gte" => "path:value: greater than or equal",
        "filter_lt" => "path:value: less than",
        "filter_lte" => "path:value: less than or equal",
        "keywords" => "A value contains a keyword, ignoring case",
        "keywords_mode" => "or: any keyword; and: all keywords",
        "sort" => "field:asc or field:desc, for one top-level field",
        "dedup" => "Keeps the first of each group of equal entities",
        "dedup_key" => "With dedup: compares only values at these paths",
        "sample" => "N random entities after the earlier steps",
        "seed" => "With sample: draws the same entities each time",
        "offset" => "Skips the first N entities",
        "limit" => "Returns at most N entities after `offset`",
        "pretty" => "Indents JSON",
        "typed" => "Only for Parquet, which this tool does not return",
        "count" => "Returns only the number of entities",
        "total" => "Also returns `total_matches`",
        "alt" => "Reads the version's alternate",
        "strict" => "Rejects paths that no entity has",
        _ => return None,
    })
}

/// Counts a call toward the rate limit of reads, and then returns its target or the error of the lookup.
pub(super) async fn admit_read(
    caller: &ToolCaller,
    target: Result<AuthorizedTarget, ReadError>,
) -> Result<AuthorizedTarget, ToolError> {
    // An unauthorized read counts toward the public rate limit, so that the limit does not reveal private datasets.
    let is_private = target.as_ref().is_ok_and(|target| target.is_private);
    let bucket = if is_private { RateLimitBucket::Private } else { RateLimitBucket::Public };
    rate_limiting::admit_request(&caller.services, caller.client, bucket, &mut HeaderMap::new()).await?;
    Ok(target?)
}

async fn read_entities(caller: &ToolCaller, arguments: CallFields) -> ToolResult {
    let dataset = arguments.dataset_id()?;
    let version = arguments.version_selector_or_active("version")?;
    let request = parse_request(&arguments)?;
    let with_positions = arguments.optional_boolean(POSITIONS_NAME)?.unwrap_or(false);
    if with_positions && (request.count || request.sample.is_some()) {
        let other = if request.count { "count" } else { "sample" };
        let problem = format!("cannot be combined with {other}; omit one of them");
        return Err(CallError::for_field(POSITIONS_NAME, problem).into());
    }
    let lookup = caller.services.lookups.find_by_id(dataset, version).await;
    // If a version has an alternate (edited copy), the positions in edits refer to the alternate.
    let edited = lookup.as_ref().ok().and_then(|lookup| lookup.version_owned_by(&caller.user));
    let edited = edited.map(|version| (version.alternate.is_some(), alternate_etag(version)));
    let target = lookup.and_then(|lookup| lookup.authorize(ReadRequester::User(&caller.user), request.variant()));
    let target = admit_read(caller, target).await?;
    let request = Arc::new(request);
    if request.strict {
        caller.services.reads.reject_unknown_fields(&target, &request).await?;
    }
    let unknown = if request.strict { json!({}) } else { describe_unknown_fields(caller, &target, &request).await };
    let read = AuthorizedRead::new(&target, &request);
    let response = caller.services.reads.respond(read, ContentCoding::Identity).await?;
    let returned = response.total;
    let matches = response.matches;
    let entities = tool::collect_text(response.body, MAX_RESULT_BYTES, RESULT_TOO_LONG_ADVICE).await?;
    let total = count_matches(caller, &target, &request, returned).await?;
    let next = request.offset.saturating_add(returned);
    let mut summary = json!({
        "dataset_id": target.dataset_id.get(),
        "version": target.version.get(),
        "alt": target.variant.is_alternate(),
        "format": request.format.name(),
        "returned": returned,
        "total_count": total,
        "next_offset": (!request.count && !request.is_random() && returned > 0 && next < total).then_some(next),
    });
    if let Some(matches) = matches {
        summary["total_matches"] = matches.into();
    }
    if let (Value::Object(summary), Value::Object(unknown)) = (&mut summary, unknown) {
        summary.extend(unknown);
    }
    if total == 0 || request.sort.is_some() {
        let reads = &caller.services.reads;
        let hints = match total {
            0 => reads.empty_result_hints(&target, &request).await,
            _ => reads.sort_hint(&target, &request).await.into_iter().collect(),
        };
        if !hints.is_empty() {
            let before = summary[HINTS_NAME].as_array().cloned().unwrap_or_default();
            summary[HINTS_NAME] = before.into_iter().chain(hints.into_iter().map(Value::from)).collect();
        }
    }
    if with_positions {
        let positions = caller.services.reads.find_positions(&target, &request).await?;
        summary[POSITIONS_NAME] = positions.into();
        match edited {
            Some((has_alt, etag)) if has_alt == target.variant.is_alternate() => {
                summary["etag"] = etag.into();
                if returned > 0 {
                    let advice = if request.returns_whole_entities() { EDIT_ADVICE } else { EDIT_COMPLETE_ADVICE };
                    summary["next"] = advice.into();
                }
            }
            Some(_) => {
                summary["next"] =
                    "this version has an alternate, and edit positions refer to it: read with alt=true".into();
            }
            None => {}
        }
    }
    // If the read returns no entities, the result says what to try next, unless the caller requested none.
    let requests_none = request.limit == Some(0) || request.sample == Some(0);
    if returned == 0 && !requests_none && summary.get("next").is_none() {
        let next = match summary.get(HINTS_NAME) {
            _ if total > 0 => OFFSET_TOO_LARGE_ADVICE,
            Some(_) => SEE_HINTS_ADVICE,
            None => NO_MATCH_ADVICE,
        };
        summary["next"] = next.into();
    }
    let summary = summary.to_string();
    if with_positions && summary.len() + entities.len() > MAX_RESULT_BYTES {
        return Err(ToolError::ResultTooLong { limit_bytes: MAX_RESULT_BYTES, advice: RESULT_TOO_LONG_ADVICE });
    }
    Ok(ToolOutput(vec![summary, entities]))
}

/// Describes the requested paths that no entity has: the paths, similar existing paths, and the parts of the request
/// that remove the paths from the entities. Returns an empty object if all paths exist.
async fn describe_unknown_fields(caller: &ToolCaller, target: &AuthorizedTarget, request: &ReadRequest) -> Value {
    let unknown = caller.services.reads.unknown_fields_with_nearest(target, request).await;
    if unknown.is_empty() {
        return json!({});
    }
    let paths: Vec<String> = unknown.iter().map(|field| field.path.to_string()).collect();
    let nearest = unknown.iter().zip(&paths).filter_map(|(field, path)| match &field.cause {
        // A nested path is no suggestion for `sort`, which does not support it. The hint below explains this.
        _ if field.nearest_nested_sort_path().is_some() => None,
        UnknownFieldCause::Absent { nearest: Some(nearest) } => Some((path.clone(), nearest.clone().into())),
        _ => None,
    });
    let nearest: JsonObject = nearest.collect();
    let mut description = json!({"unknown_fields": paths});
    if !nearest.is_empty() {
        description["did_you_mean"] = nearest.into();
    }
    let removed = unknown.iter().filter_map(|field| match &field.cause {
        UnknownFieldCause::Removed { step } => Some(format!(
            "{step} removes {} from every entity before {} looks for it.",
            quote_for_display(&field.path.to_string()),
            field.parameter
        )),
        UnknownFieldCause::Absent { .. } => None,
    });
    let nested_sort = unknown
        .iter()
        .find_map(UnknownField::nearest_nested_sort_path)
        .map(|nearest| nested_sort_hint(quote_for_display(nearest)));
    let hints: Vec<String> = nested_sort.into_iter().chain(removed.take(MAX_REMOVED_FIELD_HINTS)).collect();
    if !hints.is_empty() {
        description[HINTS_NAME] = hints.into();
    }
    description
}

async fn explain_read(caller: &ToolCaller, arguments: CallFields) -> ToolResult {
    let dataset = arguments.dataset_id()?;
    let version = arguments.version_selector_or_active("version")?;
    let request = parse_request(&arguments)?;
    // `run_tool` rejects unknown names, so a call of `explain` has no ignored arguments.
    let explaining = caller.services.reads.explain(Some(&caller.user), dataset, version, request, Vec::new());
    let explanation = Box::pin(explaining).await?;
    tool::checked_output(explanation.to_string(), MAX_RESULT_BYTES, "Explain a query with fewer or shorter parameters.")
}

fn parse_request(arguments: &CallFields) -> Result<ReadRequest, ToolError> {
    let mut request = params::parse_json_members(&arguments.members)?;
    let is_set = |name: &str| arguments.members.get(name).is_some_and(|value| !value.is_null());
    if !is_set("pretty") {
        request.pretty = false;
    }
    if !is_set("limit") && request.sample.is_none() && !request.count {
        request.limit = Some(DEFAULT_ENTITY_LIMIT);
    }
    if !TEXT_FORMATS.contains(&request.format) {
        let valid = TEXT_FORMATS.map(ResponseFormat::name).join(", ");
        let problem = format!("{} is not supported by this tool; valid: {valid}", request.format.name());
        return Err(CallError::for_field("format", problem).into());
    }
    Ok(request)
}

/// Returns the number of matches on all pages. A second query counts them if the page does not show their number.
async fn count_matches(
    caller: &ToolCaller,
    target: &AuthorizedTarget,
    request: &ReadRequest,
    returned: u64,
) -> Result<u64, ToolError> {
    let is_last = request.limit.is_none_or(|limit| returned < limit);
    if is_last && (returned > 0 || request.offset == 0) {
        return Ok(request.offset.saturating_add(returned));
    }
    let all = Arc::new(ReadRequest { count: true, total: false, offset: 0, limit: None, ..request.clone() });
    let read = AuthorizedRead::new(target, &all);
    Ok(caller.services.reads.respond(read, ContentCoding::Identity).await?.total)
}
