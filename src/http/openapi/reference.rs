//! The API reference: the OpenAPI document as pages, one for each tag.
//!
//! A [`ReferencePage`] is independent of the markup language: the dashboard renders it as HTML, and
//! `docs/reference/api/` contains it as Markdown (`tests/http/api_reference.rs`). All content comes from the document,
//! so a page cannot differ from the response of `GET /openapi.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

use super::build_document;
use super::examples::{OperationExample, main_example};

pub const EXAMPLE_BASE_URL: &str = "http://127.0.0.1:8080";

pub struct ReferencePage {
    /// The tag of the operations on the page, which is also the name of the page.
    pub name: String,
    pub about: RichText,
    pub operations: Vec<OperationDoc>,
    pub records: Vec<RecordDoc>,
    pub errors: Vec<ErrorDoc>,
}

pub struct OperationDoc {
    /// The method and the path, such as `GET /dataset/list`, or a fixed title for a webhook.
    pub title: String,
    pub summary: RichText,
    pub description: RichText,
    pub credentials: &'static str,
    pub parameters: Vec<MemberDoc>,
    /// A link to the operation on another page that explains further parameters of this operation.
    pub parameters_of: Option<ReferenceLink>,
    pub body: Vec<MemberDoc>,
    /// The description of the request body, if the body can be something other than JSON.
    pub body_about: Option<RichText>,
    pub request: Option<CodeSample>,
    pub returns: RichText,
    pub record: Option<RichText>,
    pub response: Option<CodeSample>,
    pub statuses: Vec<String>,
}

pub struct MemberDoc {
    pub name: String,
    /// The location of a parameter: `path`, `query`, or `header`.
    pub place: Option<String>,
    pub kind: RichText,
    pub required: bool,
    pub about: RichText,
    pub default: Option<String>,
}

pub struct RecordDoc {
    pub name: String,
    pub about: RichText,
    pub one_of: Option<RichText>,
    pub members: Vec<MemberDoc>,
}

pub struct ErrorDoc {
    pub status: String,
    pub when: RichText,
    pub example: String,
}

pub struct CodeSample {
    pub language: &'static str,
    pub text: String,
}

#[derive(Clone, Default)]
pub struct RichText(pub Vec<InlineText>);

#[derive(Clone)]
pub enum InlineText {
    Text(String),
    Code(String),
    Link(ReferenceLink),
}

#[derive(Clone)]
pub struct ReferenceLink {
    pub text: String,
    /// The name of the page to which the link leads; `None` if it is the same page.
    pub page: Option<String>,
    pub anchor: String,
}

impl OperationDoc {
    pub fn anchor(&self) -> String {
        heading_anchor(&self.title)
    }
}

impl RecordDoc {
    pub fn anchor(&self) -> String {
        heading_anchor(&self.name)
    }
}

impl ReferencePage {
    pub fn title(&self) -> String {
        let mut letters = self.name.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        format!("{}{} API", first.map(String::from).unwrap_or_default(), letters.as_str())
    }
}

/// Returns the anchor of a heading, as Markdown processors generate it.
fn heading_anchor(heading: &str) -> String {
    let is_valid = |character: &char| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_');
    heading.chars().filter(is_valid).collect::<String>().to_lowercase().replace(' ', "-")
}

impl RichText {
    /// Parses a text that contains code between backticks.
    pub fn new(text: &str) -> RichText {
        let part = |(number, part): (usize, &str)| match number % 2 {
            0 => InlineText::Text(part.to_owned()),
            _ => InlineText::Code(part.to_owned()),
        };
        let text = text.replace('\n', " ");
        RichText(text.split('`').enumerate().filter(|(_, part)| !part.is_empty()).map(part).collect())
    }

    fn join(parts: Vec<RichText>, separator: &str) -> RichText {
        let mut joined = RichText::default();
        for part in parts {
            if !joined.0.is_empty() {
                joined.0.push(InlineText::Text(separator.to_owned()));
            }
            joined.0.extend(part.0);
        }
        joined
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

static DOCUMENT_JSON: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(build_document()).unwrap_or_default());

static REFERENCE_PAGES: LazyLock<Vec<ReferencePage>> = LazyLock::new(|| {
    array_items(&DOCUMENT_JSON["tags"])
        .map(|tag| build_page(text_or_empty(&tag["name"]), text_or_empty(&tag["description"])))
        .collect()
});

pub fn reference_pages() -> &'static [ReferencePage] {
    &REFERENCE_PAGES
}

struct LocatedOperation {
    method: &'static str,
    path: &'static str,
    operation: &'static Value,
}

fn object_members(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn array_items(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().into_iter().flatten()
}

fn text_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn located_operations() -> impl Iterator<Item = LocatedOperation> {
    let sections = [&DOCUMENT_JSON["paths"], &DOCUMENT_JSON["webhooks"]];
    sections.into_iter().flat_map(object_members).flat_map(|(path, item)| {
        object_members(item).map(move |(method, operation)| LocatedOperation { method, path, operation })
    })
}

fn build_page(name: &str, description: &str) -> ReferencePage {
    let mut referenced = BTreeSet::new();
    let mut errors = BTreeMap::new();
    let mut operations = Vec::new();
    for located in located_operations().filter(|located| array_items(&located.operation["tags"]).any(|tag| tag == name))
    {
        collect_record_names(&located.operation["requestBody"], &mut referenced);
        for (status, response) in object_members(&located.operation["responses"]) {
            collect_record_names(response, &mut referenced);
            if is_error_status(status) && located.path.starts_with('/') {
                errors.entry((status, text_or_empty(&response["$ref"]))).or_insert_with(|| resolve_reference(response));
            }
        }
        operations.push(operation_doc(&located));
    }
    let error = |((status, _), response): ((&str, &str), &Value)| ErrorDoc {
        status: status.to_owned(),
        when: RichText::new(text_or_empty(&response["description"])),
        example: object_members(&response["content"])
            .next()
            .map(|(_, content)| text_or_empty(&content["example"]).to_owned())
            .unwrap_or_default(),
    };
    ReferencePage {
        name: name.to_owned(),
        about: RichText::new(description),
        operations,
        records: referenced.iter().map(|name| record_doc(name)).collect(),
        errors: errors.into_iter().map(error).collect(),
    }
}

fn operation_doc(located: &LocatedOperation) -> OperationDoc {
    let LocatedOperation { method, path, operation } = *located;
    let id = text_or_empty(&operation["operationId"]);
    let is_webhook = !path.starts_with('/');
    let example = main_example(id);
    // If several operations share parameters, only the first operation explains them.
    let first =
        located_operations().find(|other| array_items(&other.operation["parameters"]).any(is_component_reference));
    let explained_at = first.filter(|first| !std::ptr::eq(first.operation, operation));
    let (shared, own): (Vec<_>, Vec<_>) = array_items(&operation["parameters"])
        .partition(|parameter| is_component_reference(parameter) && explained_at.is_some());
    let parameters_of = explained_at.filter(|_| !shared.is_empty()).map(|first| ReferenceLink {
        text: operation_title(&first),
        page: Some(text_or_empty(&first.operation["tags"][0]).to_owned()),
        anchor: heading_anchor(&operation_title(&first)),
    });
    let json = &operation["requestBody"]["content"]["application/json"];
    let success = object_members(&operation["responses"]).find(|(status, _)| status.starts_with('2'));
    let success = success.map(|(_, response)| resolve_reference(response)).unwrap_or(&Value::Null);
    let response_example = example.and_then(|example| example.response.as_ref());
    let record = &success["content"]["application/json"]["schema"];
    let request = match is_webhook {
        true => example.and_then(|example| example.body.as_ref()).map(CodeSample::from_json),
        false => example.map(|example| CodeSample { language: "sh", text: curl_command(located, example) }),
    };
    OperationDoc {
        title: operation_title(located),
        summary: RichText::new(text_or_empty(&operation["summary"])),
        description: RichText::new(text_or_empty(&operation["description"])),
        credentials: if is_webhook { "" } else { credentials_text(method, operation) },
        parameters: own.into_iter().map(|parameter| parameter_doc(resolve_reference(parameter))).collect(),
        parameters_of,
        body: member_docs(resolve_reference(&json["schema"])),
        body_about: operation["requestBody"]["description"].as_str().map(RichText::new),
        request,
        returns: RichText::new(text_or_empty(&success["description"])),
        record: record.is_object().then(|| type_text(record)),
        response: response_example.map(|response| match response.as_str() {
            Some(text) => CodeSample { language: "text", text: text.trim_end().to_owned() },
            None => CodeSample::from_json(response),
        }),
        statuses: object_members(&operation["responses"])
            .map(|(status, _)| status.to_owned())
            .filter(|status| is_error_status(status) && !is_webhook)
            .collect(),
    }
}

fn parameter_doc(parameter: &Value) -> MemberDoc {
    let schema = &parameter["schema"];
    MemberDoc {
        name: text_or_empty(&parameter["name"]).to_owned(),
        place: Some(text_or_empty(&parameter["in"]).to_owned()),
        kind: type_text(schema),
        required: parameter["required"] == true,
        about: RichText::new(text_or_empty(&parameter["description"])),
        default: default_text(schema),
    }
}

fn record_doc(name: &str) -> RecordDoc {
    let schema = &DOCUMENT_JSON["components"]["schemas"][name];
    RecordDoc {
        name: name.to_owned(),
        about: RichText::new(text_or_empty(&schema["description"])),
        one_of: schema["oneOf"].is_array().then(|| type_text(schema)),
        members: member_docs(schema),
    }
}

/// Returns the members of an object schema, including the members of all parts of an `allOf`.
fn member_docs(schema: &'static Value) -> Vec<MemberDoc> {
    let required: BTreeSet<&str> = array_items(&schema["required"]).map(text_or_empty).collect();
    let own = object_members(&schema["properties"]).map(|(name, property)| MemberDoc {
        name: name.to_owned(),
        place: None,
        kind: type_text(property),
        required: required.contains(name),
        about: RichText::new(schema_description(property)),
        default: default_text(property),
    });
    let parts = array_items(&schema["allOf"]).flat_map(|part| member_docs(resolve_reference(part)));
    own.chain(parts).collect()
}

fn type_text(schema: &Value) -> RichText {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = component_name(reference);
        let link = ReferenceLink { text: name.to_owned(), page: None, anchor: heading_anchor(name) };
        return RichText(vec![InlineText::Link(link)]);
    }
    for composed in ["oneOf", "anyOf", "allOf"] {
        if schema[composed].is_array() {
            return RichText::join(array_items(&schema[composed]).map(type_text).collect(), " or ");
        }
    }
    if schema["enum"].is_array() {
        let names = array_items(&schema["enum"]).map(|name| RichText(vec![InlineText::Code(plain_text(name))]));
        return RichText::join(names.collect(), ", ");
    }
    let names = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        names => array_items(names).map(text_or_empty).collect(),
    };
    let named = names.into_iter().map(|name| match name {
        "array" => RichText::join(vec![RichText::new("array of "), type_text(&schema["items"])], ""),
        "string" => RichText::new(match text_or_empty(&schema["format"]) {
            "date-time" => "time",
            "date" => "date",
            "binary" => "bytes",
            _ => "string",
        }),
        other => RichText::new(other),
    });
    let named: Vec<RichText> = named.collect();
    if named.is_empty() { RichText::new("any value") } else { RichText::join(named, " or ") }
}

/// Collects the names of all records that a node refers to, directly or through other records.
fn collect_record_names(node: &Value, names: &mut BTreeSet<&'static str>) {
    match node {
        Value::Object(object) => {
            if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
                let target = DOCUMENT_JSON.pointer(reference.trim_start_matches('#'));
                let schemas = DOCUMENT_JSON["components"]["schemas"].as_object();
                let key = schemas.and_then(|schemas| schemas.get_key_value(component_name(reference)));
                let is_new = match key {
                    Some((name, _)) if reference.contains("/schemas/") => names.insert(name),
                    _ => true,
                };
                if let Some(target) = target.filter(|_| is_new) {
                    collect_record_names(target, names);
                }
            }
            object.values().for_each(|value| collect_record_names(value, names));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_record_names(value, names)),
        _ => {}
    }
}

fn resolve_reference(node: &'static Value) -> &'static Value {
    let target = node["$ref"].as_str().and_then(|reference| DOCUMENT_JSON.pointer(reference.trim_start_matches('#')));
    target.unwrap_or(node)
}

/// Returns the description of a schema. A nullable reference takes the description of its target.
fn schema_description(schema: &Value) -> &str {
    let mut schemas = std::iter::once(schema).chain(array_items(&schema["oneOf"]));
    schemas.find_map(|schema| schema["description"].as_str()).unwrap_or_default()
}

fn is_component_reference(parameter: &Value) -> bool {
    parameter["$ref"].is_string()
}

fn is_error_status(status: &str) -> bool {
    status.starts_with(['4', '5'])
}

fn component_name(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or_default()
}

fn default_text(schema: &Value) -> Option<String> {
    schema.get("default").filter(|default| !default.is_null()).map(plain_text)
}

/// Returns a string without quotation marks, or any other value as JSON.
fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn operation_title(located: &LocatedOperation) -> String {
    match located.path.starts_with('/') {
        true => format!("{} {}", located.method.to_ascii_uppercase(), located.path),
        false => "The webhook request".to_owned(),
    }
}

fn credentials_text(method: &str, operation: &Value) -> &'static str {
    let own = !operation["security"].is_null();
    let security = if own { &operation["security"] } else { &DOCUMENT_JSON["security"] };
    let is_optional =
        array_items(security).any(|requirement| requirement.as_object().is_some_and(serde_json::Map::is_empty));
    match (own, array_items(security).count(), is_optional) {
        (true, 0, _) => "none",
        (true, _, true) => "for your own datasets, a session cookie or an API token; for public datasets, none",
        (true, _, false) if method == "get" => "a session cookie or an API token with any scope",
        (true, _, false) => "a session cookie or an API token with the scope `write`",
        (false, ..) => "for a public dataset, none; for a private dataset, its private key",
    }
}

pub fn example_command(example: &OperationExample) -> Option<String> {
    let located = located_operations().find(|located| located.operation["operationId"] == example.operation);
    located.filter(|located| located.path.starts_with('/')).map(|located| curl_command(&located, example))
}

fn curl_command(located: &LocatedOperation, example: &OperationExample) -> String {
    let mut path = located.path.to_owned();
    for (name, value) in &example.path {
        path = path.replace(&format!("{{{name}}}"), &plain_text(value));
    }
    let mut command = match example.query.as_str() {
        "" => format!("curl {EXAMPLE_BASE_URL}{path}"),
        query => format!("curl '{EXAMPLE_BASE_URL}{path}?{query}'"),
    };
    match (located.method, &example.body) {
        ("get", _) | ("post", Some(_)) => {}
        (method, _) => command += &format!(" -X {}", method.to_ascii_uppercase()),
    }
    let is_owner = !located.operation["security"].is_null() && array_items(&located.operation["security"]).count() > 0;
    if example.session {
        command += " \\\n  -b \"strata_session=$SESSION\"";
    } else if is_owner {
        command += " \\\n  -H \"Authorization: Bearer $TOKEN\"";
    }
    if let Some(body) = &example.body {
        let compact = body.to_string();
        let body = if compact.len() <= 90 { compact } else { CodeSample::from_json(body).text };
        command += &format!(" \\\n  --json '{body}'");
    }
    command
}

impl CodeSample {
    fn from_json(value: &Value) -> CodeSample {
        CodeSample { language: "json", text: serde_json::to_string_pretty(value).unwrap_or_default() }
    }
}
