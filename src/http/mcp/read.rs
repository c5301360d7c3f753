//! The tools that read a version: the read endpoint for agents, and what a read does.

use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

use super::error::ToolError;
use super::output::Output;
use super::tool::{Effect, Tool};
use super::{Caller, output, schemas};
use crate::encode::ContentCoding;
use crate::http::error::CallError;
use crate::http::management::Fields;
use crate::http::params::{self, PARAMETERS, Parameter};
use crate::http::read::rate;
use crate::model::limits;
use crate::model::request::{Format, ReadRequest};
use crate::service::{Admitted, Bucket};

/// Entities in an answer, unless asked otherwise.
const ENTITIES: u64 = 20;

/// Most bytes of an answer's entities.
const BYTES: usize = limits::TOOL_RESULT_BYTES;

const INSTEAD: &str =
    "Ask for less: a smaller limit, only some fields with keep_field, or count=true for their number.";

/// The formats that are text a model reads well.
const FORMATS: [Format; 4] = [Format::Json, Format::Jsonl, Format::Csv, Format::Tsv];

pub(super) const READ: Tool = Tool {
    name: "read",
    title: "Read a version",
    summary: "Filters, sorts, cleans and pages the entities of a version, of any public dataset or one of the caller's",
    details: "Gives two texts. The first is a JSON object: `dataset_id`, `version`, `alt`, `format`, `returned` (entities \
              in this answer), `total_count` (those that match, whatever offset and limit) and `next_offset` (null at the \
              end), and `unknown_fields` where paths are named that no entity has, or that an earlier step has taken away. The second holds the entities in `format`, exactly as stored; with count=true only their number. The \
              steps run in the order of the parameters here: what keep_field or drop_field removes, no filter, keyword or sort \
              finds.",
    effect: Effect::Nothing,
    arguments: || arguments("The dataset: a public one, or one of the caller's."),
    result: None,
    call: read,
};

pub(super) const EXPLAIN: Tool = Tool {
    name: "explain",
    title: "Explain a read",
    summary: "Tells what a read of one of the caller's datasets does, step by step, and what could make it cheaper",
    details: "Takes the arguments of `read`, makes that read without giving its entities, and costs as much. The text \
              holds the time of each stage, the plans, rows and time per operator, what was read of the file, and hints. \
              Also while the dataset is frozen.",
    effect: Effect::Nothing,
    arguments: || arguments("One of the caller's datasets."),
    result: None,
    call: explain,
};

fn arguments(dataset_id: &str) -> JsonObject {
    let own = [("dataset_id", schemas::positive(dataset_id)), ("version", schemas::selector())];
    let parameters =
        PARAMETERS.iter().map(|parameter| (parameter.name, schemas::parameter(parameter, instead(parameter))));
    schemas::object(own.into_iter().chain(parameters), &["dataset_id"])
}

/// What is otherwise here than in a URL.
fn instead(parameter: &Parameter) -> Value {
    match parameter.name {
        "format" => json!({"enum": FORMATS.map(Format::name)}),
        "limit" => json!({"default": ENTITIES}),
        "pretty" => json!({"default": false}),
        _ => json!({}),
    }
}

fn read(caller: &Caller, arguments: Fields) -> BoxFuture<'_, Result<Output, ToolError>> {
    Box::pin(async move {
        let (dataset, version) = (arguments.dataset_id()?, arguments.optional_selector("version")?);
        let request = request(&arguments)?;
        let lookup = caller.app.lookups().find_by_id(dataset, version).await;
        let admitted = lookup.and_then(|lookup| lookup.admit_user(&caller.user, request.alt));
        // Which bucket it is tells nothing of what the caller may not read.
        let is_private = admitted.as_ref().is_ok_and(|admitted| admitted.private);
        let bucket = if is_private { Bucket::Private } else { Bucket::Public };
        rate::check(rate::count(&caller.app, caller.client, bucket).await.as_ref())?;

        let admitted = admitted?;
        let request = Arc::new(request);
        if request.strict {
            caller.app.reads().check_fields(&admitted, &request).await?;
        }
        let unknown = if request.strict { Vec::new() } else { unknown_fields(caller, &admitted, &request).await };
        let answer = caller.app.reads().answer(&admitted, request.clone(), ContentCoding::Identity).await?;
        let returned = answer.total;
        let entities = output::text(answer.body, BYTES, INSTEAD).await?;
        let total = total(caller, &admitted, &request, returned).await?;
        let next = request.offset.saturating_add(returned);
        let mut about = json!({
            "dataset_id": admitted.dataset_id.get(),
            "version": admitted.version.get(),
            "alt": admitted.alt,
            "format": request.format.name(),
            "returned": if request.count { 0 } else { returned },
            "total_count": total,
            "next_offset": (!request.count && request.sample.is_none() && returned > 0 && next < total).then_some(next),
        });
        if !unknown.is_empty() {
            about["unknown_fields"] = unknown.into();
        }
        Ok(Output::Texts(vec![about.to_string(), entities]))
    })
}

/// The paths that the request names and that are not there, as far as they can be found out.
async fn unknown_fields(caller: &Caller, admitted: &Admitted, request: &ReadRequest) -> Vec<String> {
    let unknown = caller.app.reads().unknown_fields(admitted, request).await.unwrap_or_default();
    unknown.into_iter().map(|field| field.path.to_string()).collect()
}

fn explain(caller: &Caller, arguments: Fields) -> BoxFuture<'_, Result<Output, ToolError>> {
    Box::pin(async move {
        let (dataset, version) = (arguments.dataset_id()?, arguments.optional_selector("version")?);
        let request = request(&arguments)?;
        // Arguments that a read would ignore have been refused.
        let explanation = caller.app.explains().explain(&caller.user, dataset, version, request, Vec::new()).await?;
        output::bounded(explanation.to_string(), BYTES, "Explain a read with fewer and shorter parameters.")
    })
}

fn request(arguments: &Fields) -> Result<ReadRequest, ToolError> {
    let mut request = params::parse_json(arguments.members())?;
    let is_given = |name: &str| arguments.members().get(name).is_some_and(|value| !value.is_null());
    if !is_given("pretty") {
        request.pretty = false;
    }
    if !is_given("limit") && request.sample.is_none() && !request.count {
        request.limit = Some(ENTITIES);
    }
    if !FORMATS.contains(&request.format) {
        let valid = FORMATS.map(Format::name).join(", ");
        let problem = format!("{} is not text for a model; valid: {valid}", request.format.name());
        return Err(CallError::field("format", problem).into());
    }
    Ok(request)
}

/// How many entities match, whatever the page: another count only where the page does not tell.
async fn total(caller: &Caller, admitted: &Admitted, request: &ReadRequest, returned: u64) -> Result<u64, ToolError> {
    if request.count {
        return Ok(returned);
    }
    let is_last = request.limit.is_none_or(|limit| returned < limit);
    if is_last && (returned > 0 || request.offset == 0) {
        return Ok(request.offset.saturating_add(returned));
    }
    let all = ReadRequest { count: true, offset: 0, limit: None, ..request.clone() };
    Ok(caller.app.reads().answer(admitted, Arc::new(all), ContentCoding::Identity).await?.total)
}
