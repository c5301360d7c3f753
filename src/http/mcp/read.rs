//! The tools that read a version: the read endpoint for agents, and what a read does.

use std::sync::Arc;

use axum::http::HeaderMap;
use rmcp::model::JsonObject;
use serde_json::{Value, json};
use strata_encode::ContentCoding;
use strata_service::{
    Admitted, AuthorizedRead, Bucket, Requester, UnknownCause, UnknownField, alternate_etag, deep_sort_hint,
};
use strata_types::limits;
use strata_types::request::{Format, ReadRequest};
use strata_types::scope::Scope;

use super::tool::{self, Argument, Output, Tool, ToolError, ToolResult};
use super::{Caller, schemas};
use crate::error::CallError;
use crate::management::Fields;
use crate::params::{self, PARAMETERS, Parameter};
use crate::read::rate;
use crate::text::quoted;

/// Entities in an answer, unless asked otherwise.
const ENTITIES: u64 = 20;

const BYTES: usize = limits::TOOL_RESULT_BYTES;

const POSITIONS: &str = "positions";

const EDIT: &str = "edit_alt_version with this version, etag, and positions";

/// What to do with positions of entities of which the read has left something out.
const EDIT_WHOLE: &str = "edit_alt_version with this version, etag, and positions. `set` requires complete entities, \
                          but the entities of this result differ from the stored entities. Before you use `set`, read \
                          the entities again without include_source, denull, keep_field, drop_field, flatten, csv, or \
                          tsv";

/// What to do where nothing matches, and where `offset` passes over all that does.
const NOT_FOUND: &str = "nothing matches: profile returns the paths of this version with their types and frequent \
                         values; filter compares whole values; filter_contains and keywords match substrings";
const HINTED: &str = "nothing matches: see hints";
const BEYOND: &str = "offset is past the last of the total_count entities: read with a smaller offset";

/// Fields of which it is said which step removes them.
const TAKEN: usize = 10;

/// The member of the result that says what was perhaps meant.
const HINTS: &str = "hints";

const INSTEAD: &str = "Use a smaller limit, select fields with keep_field, or return only the number with count=true.";

/// The formats that are text a model reads well.
const FORMATS: [Format; 4] = [Format::Json, Format::Jsonl, Format::Csv, Format::Tsv];

pub(super) const READ: Tool = Tool {
    name: "read",
    summary: "Filters, sorts, cleans, and pages the entities of a version, in a public dataset or one of yours",
    details: "Returns two strings. The first is JSON: `returned`, `total_count` (all matches before offset and limit), \
              `next_offset` (null at the end), `total_matches` (with total=true, before sample), `unknown_fields` \
              (paths that no entity has at that step), `did_you_mean` (similar paths), and `hints`. The second \
              contains the entities in `format`, exactly as stored. With count=true, it contains only their number. \
              Steps run in the order of these parameters: later steps cannot find what keep_field or drop_field \
              removed.",
    scope: Scope::Read,
    arguments: || {
        let mut arguments = vec![
            ("dataset_id", schemas::positive("A public dataset or one of yours")),
            ("version", schemas::selector()),
        ];
        arguments.extend(parameters());
        let positions = schemas::flag("Also returns the entities' positions and the etag for edit_alt_version");
        arguments.push((POSITIONS, positions));
        arguments
    },
    required: &["dataset_id"],
    like: None,
    call: |caller, arguments| Box::pin(read(caller, arguments)),
};

pub(super) const EXPLAIN: Tool = Tool {
    name: "explain",
    summary: "Explains step by step what a read of one of your datasets does, and how to make the read cheaper",
    details: "Takes the arguments of `read` and runs the read, but returns no entities. Costs as much as the read.",
    scope: Scope::Read,
    arguments: || vec![("dataset_id", schemas::positive("One of your datasets")), ("version", schemas::selector())],
    required: &["dataset_id"],
    like: Some((READ.name, parameters)),
    call: |caller, arguments| Box::pin(explain(caller, arguments)),
};

fn parameters() -> Vec<Argument> {
    PARAMETERS.iter().map(|parameter| (parameter.name, schemas::parameter(parameter, instead(parameter)))).collect()
}

/// What is otherwise here than in a URL.
fn instead(parameter: &Parameter) -> Value {
    match parameter.name {
        "format" => json!({"enum": FORMATS.map(Format::name)}),
        "limit" => json!({"default": ENTITIES, "description": in_short("limit")}),
        "pretty" => json!({"default": false, "description": in_short("pretty")}),
        name => in_short(name).map_or_else(|| json!({}), |about| json!({"description": about})),
    }
}

/// What a parameter does, where its documentation says more than a model needs.
fn in_short(name: &str) -> Option<&'static str> {
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

async fn read(caller: &Caller, arguments: Fields) -> ToolResult {
    let dataset = arguments.dataset_id()?;
    let version = arguments.optional_selector("version")?;
    let request = request(&arguments)?;
    let with_positions = arguments.optional_boolean(POSITIONS)?.unwrap_or(false);
    if with_positions && (request.count || request.sample.is_some()) {
        let other = if request.count { "count" } else { "sample" };
        return Err(CallError::field(POSITIONS, format!("cannot be combined with {other}; omit one of them")).into());
    }
    let lookup = caller.services.lookups.find_by_id(dataset, version).await;
    // The list that edits count in is the alternate, where there is one.
    let edited = lookup.as_ref().ok().and_then(|lookup| lookup.owned_version(&caller.user));
    let edited = edited.map(|version| (version.alt.is_some(), alternate_etag(version)));
    let admitted = lookup.and_then(|lookup| lookup.authorize(Requester::User(&caller.user), request.alt));
    // Which bucket it is tells nothing of what the caller may not read.
    let is_private = admitted.as_ref().is_ok_and(|admitted| admitted.private);
    let bucket = if is_private { Bucket::Private } else { Bucket::Public };
    rate::admit(&caller.services, caller.client, bucket, &mut HeaderMap::new()).await?;

    let admitted = admitted?;
    let request = Arc::new(request);
    if request.strict {
        caller.services.reads.check_fields(&admitted, &request).await?;
    }
    let unknown = if request.strict { json!({}) } else { unknown_fields(caller, &admitted, &request).await };
    let read = AuthorizedRead::new(&admitted, &request);
    let answer = caller.services.reads.respond(read, ContentCoding::Identity).await?;
    let returned = answer.total;
    let matches = answer.matches;
    let entities = tool::text(answer.body, BYTES, INSTEAD).await?;
    let total = total(caller, &admitted, &request, returned).await?;
    let next = request.offset.saturating_add(returned);
    let mut about = json!({
        "dataset_id": admitted.dataset_id.get(),
        "version": admitted.version.get(),
        "alt": admitted.alt,
        "format": request.format.name(),
        "returned": returned,
        "total_count": total,
        "next_offset": (!request.count && !request.is_drawn_anew() && returned > 0 && next < total).then_some(next),
    });
    if let Some(matches) = matches {
        about["total_matches"] = matches.into();
    }
    if let (Value::Object(about), Value::Object(unknown)) = (&mut about, unknown) {
        about.extend(unknown);
    }
    if total == 0 || request.sort.is_some() {
        let reads = &caller.services.reads;
        let hints = match total {
            0 => reads.hints(&admitted, &request).await,
            _ => reads.sort_hint(&admitted, &request).await.into_iter().collect(),
        };
        if !hints.is_empty() {
            let before = about[HINTS].as_array().cloned().unwrap_or_default();
            about[HINTS] = before.into_iter().chain(hints.into_iter().map(Value::from)).collect();
        }
    }
    if with_positions {
        let positions = caller.services.reads.positions(&admitted, &request).await?;
        about[POSITIONS] = positions.into();
        match edited {
            Some((has_alt, etag)) if has_alt == admitted.alt => {
                about["etag"] = etag.into();
                if returned > 0 {
                    about["next"] = if request.shows_whole_entities() { EDIT } else { EDIT_WHOLE }.into();
                }
            }
            Some(_) => {
                about["next"] =
                    "this version has an alternate, and edit positions refer to it: read with alt=true".into();
            }
            None => {}
        }
    }
    // Without hits there is nothing to edit. Whoever asked for none was not after any.
    let asks_for_none = request.limit == Some(0) || request.sample == Some(0);
    if returned == 0 && !asks_for_none && about.get("next").is_none() {
        let next = match about.get(HINTS) {
            _ if total > 0 => BEYOND,
            Some(_) => HINTED,
            None => NOT_FOUND,
        };
        about["next"] = next.into();
    }
    let about = about.to_string();
    if with_positions && about.len() + entities.len() > BYTES {
        return Err(ToolError::TooLong { limit_bytes: BYTES, instead: INSTEAD });
    }
    Ok(Output(vec![about, entities]))
}

/// The paths that the request names and that are not there, as far as they can be found out, and for which of them
/// which path was perhaps meant. Nothing where all are there.
async fn unknown_fields(caller: &Caller, admitted: &Admitted, request: &ReadRequest) -> Value {
    let unknown = caller.services.reads.explained_unknown_fields(admitted, request).await;
    if unknown.is_empty() {
        return json!({});
    }
    let paths: Vec<String> = unknown.iter().map(|field| field.path.to_string()).collect();
    let nearest = unknown.iter().zip(&paths).filter_map(|(field, path)| match &field.cause {
        // It was typed as the field of a sort, which cannot be one.
        _ if field.deep_sort().is_some() => None,
        UnknownCause::Absent { nearest: Some(nearest) } => Some((path.clone(), nearest.clone().into())),
        _ => None,
    });
    let meant: JsonObject = nearest.collect();
    let mut told = json!({"unknown_fields": paths});
    if !meant.is_empty() {
        told["did_you_mean"] = meant.into();
    }
    let taken = unknown.iter().filter_map(|field| match &field.cause {
        UnknownCause::Taken { step } => Some(format!(
            "{step} removes {} from every entity before {} looks for it.",
            quoted(&field.path.to_string()),
            field.parameter
        )),
        UnknownCause::Absent { .. } => None,
    });
    let deep_sort = unknown.iter().find_map(UnknownField::deep_sort).map(|nearest| deep_sort_hint(quoted(nearest)));
    let hints: Vec<String> = deep_sort.into_iter().chain(taken.take(TAKEN)).collect();
    if !hints.is_empty() {
        told[HINTS] = hints.into();
    }
    told
}

async fn explain(caller: &Caller, arguments: Fields) -> ToolResult {
    let dataset = arguments.dataset_id()?;
    let version = arguments.optional_selector("version")?;
    let request = request(&arguments)?;
    // Arguments that a read would ignore have been refused.
    let explaining = caller.services.reads.explain(Some(&caller.user), dataset, version, request, Vec::new());
    let explanation = Box::pin(explaining).await?;
    tool::bounded(explanation.to_string(), BYTES, "Explain a query with fewer or shorter parameters.")
}

fn request(arguments: &Fields) -> Result<ReadRequest, ToolError> {
    let mut request = params::parse_json(&arguments.members)?;
    let is_given = |name: &str| arguments.members.get(name).is_some_and(|value| !value.is_null());
    if !is_given("pretty") {
        request.pretty = false;
    }
    if !is_given("limit") && request.sample.is_none() && !request.count {
        request.limit = Some(ENTITIES);
    }
    if !FORMATS.contains(&request.format) {
        let valid = FORMATS.map(Format::name).join(", ");
        let problem = format!("{} is not supported by this tool; valid: {valid}", request.format.name());
        return Err(CallError::field("format", problem).into());
    }
    Ok(request)
}

/// How many entities match, whatever the page: another count only where the page does not tell.
async fn total(caller: &Caller, admitted: &Admitted, request: &ReadRequest, returned: u64) -> Result<u64, ToolError> {
    let is_last = request.limit.is_none_or(|limit| returned < limit);
    if is_last && (returned > 0 || request.offset == 0) {
        return Ok(request.offset.saturating_add(returned));
    }
    let all = Arc::new(ReadRequest { count: true, total: false, offset: 0, limit: None, ..request.clone() });
    let read = AuthorizedRead::new(admitted, &all);
    Ok(caller.services.reads.respond(read, ContentCoding::Identity).await?.total)
}
