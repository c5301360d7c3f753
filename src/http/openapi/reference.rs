//! The API reference: the document as pages, one for each resource.
//!
//! A [`Resource`] is the content of a page, in any language of markup: the dashboard shows it as HTML, and
//! `docs/reference/api/` contains it as Markdown (`tests/http/api_reference.rs`). It comes from the document itself, so
//! a page cannot differ from what `GET /openapi.json` returns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

use super::document;
use super::examples::{Example, example};

/// Where the examples send their requests.
pub const BASE: &str = "http://127.0.0.1:8080";

pub struct Resource {
    /// The tag of its operations, which is also the name of the page.
    pub name: String,
    pub about: Prose,
    pub operations: Vec<Operation>,
    /// The records that its operations accept and return, by name.
    pub records: Vec<Record>,
    pub errors: Vec<ErrorResponse>,
}

pub struct Operation {
    /// The method and the path, such as `GET /dataset/list`; or what a webhook is called.
    pub title: String,
    pub summary: Prose,
    pub description: Prose,
    /// What a caller must send to be allowed to call it.
    pub credentials: &'static str,
    pub parameters: Vec<Member>,
    /// The page and the operation that explain further parameters.
    pub parameters_of: Option<Link>,
    pub body: Vec<Member>,
    /// What the body can be, in addition to JSON with these members.
    pub body_about: Option<Prose>,
    pub request: Option<Code>,
    pub returns: Prose,
    pub record: Option<Prose>,
    pub response: Option<Code>,
    pub statuses: Vec<String>,
}

/// A parameter, a member of a body, or a member of a record.
pub struct Member {
    pub name: String,
    /// Where a parameter is sent: `path`, `query`, or `header`.
    pub place: Option<String>,
    pub kind: Prose,
    pub required: bool,
    pub about: Prose,
    pub default: Option<String>,
}

pub struct Record {
    pub name: String,
    pub about: Prose,
    /// The types of which it is one.
    pub one_of: Option<Prose>,
    pub members: Vec<Member>,
}

pub struct ErrorResponse {
    pub status: String,
    pub when: Prose,
    pub example: String,
}

pub struct Code {
    pub language: &'static str,
    pub text: String,
}

/// A sentence, or a type, with code and links in it.
#[derive(Clone, Default)]
pub struct Prose(pub Vec<Inline>);

#[derive(Clone)]
pub enum Inline {
    Text(String),
    Code(String),
    Link(Link),
}

#[derive(Clone)]
pub struct Link {
    pub text: String,
    /// Another page; none for the same one.
    pub page: Option<String>,
    pub anchor: String,
}

impl Operation {
    pub fn anchor(&self) -> String {
        anchor(&self.title)
    }
}

impl Record {
    pub fn anchor(&self) -> String {
        anchor(&self.name)
    }
}

impl Resource {
    pub fn title(&self) -> String {
        let mut letters = self.name.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        format!("{}{} API", first.map(String::from).unwrap_or_default(), letters.as_str())
    }
}

/// The anchor of a heading, as Markdown processors make it.
fn anchor(heading: &str) -> String {
    let kept = |character: char| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_');
    heading.chars().filter(|character| kept(*character)).collect::<String>().to_lowercase().replace(' ', "-")
}

impl Prose {
    /// Text with code between backticks.
    pub fn new(text: &str) -> Prose {
        let part = |(number, part): (usize, &str)| match number % 2 {
            0 => Inline::Text(part.to_owned()),
            _ => Inline::Code(part.to_owned()),
        };
        let text = text.replace('\n', " ");
        Prose(text.split('`').enumerate().filter(|(_, part)| !part.is_empty()).map(part).collect())
    }

    /// The parts with a text between any two of them.
    fn joined(parts: Vec<Prose>, between: &str) -> Prose {
        let mut joined = Prose::default();
        for part in parts {
            if !joined.0.is_empty() {
                joined.0.push(Inline::Text(between.to_owned()));
            }
            joined.0.extend(part.0);
        }
        joined
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(document()).unwrap_or_default());

static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    items(&DOCUMENT["tags"]).map(|tag| resource(text(&tag["name"]), text(&tag["description"]))).collect()
});

/// The pages, in the order of the document's tags.
pub fn resources() -> &'static [Resource] {
    &RESOURCES
}

struct Located {
    method: &'static str,
    path: &'static str,
    operation: &'static Value,
}

fn members(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn items(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn all_located() -> impl Iterator<Item = Located> {
    let sections = [&DOCUMENT["paths"], &DOCUMENT["webhooks"]];
    sections
        .into_iter()
        .flat_map(members)
        .flat_map(|(path, item)| members(item).map(move |(method, operation)| Located { method, path, operation }))
}

fn resource(name: &str, about: &str) -> Resource {
    let mut referenced = BTreeSet::new();
    let mut errors = BTreeMap::new();
    let mut operations = Vec::new();
    for located in all_located().filter(|located| items(&located.operation["tags"]).any(|tag| tag == name)) {
        collect_records(&located.operation["requestBody"], &mut referenced);
        for (status, response) in members(&located.operation["responses"]) {
            collect_records(response, &mut referenced);
            if is_error(status) && located.path.starts_with('/') {
                errors.entry((status, text(&response["$ref"]))).or_insert_with(|| resolved(response));
            }
        }
        operations.push(operation(&located));
    }
    let error = |((status, _), response): ((&str, &str), &Value)| ErrorResponse {
        status: status.to_owned(),
        when: Prose::new(text(&response["description"])),
        example: members(&response["content"])
            .next()
            .map(|(_, content)| text(&content["example"]).to_owned())
            .unwrap_or_default(),
    };
    Resource {
        name: name.to_owned(),
        about: Prose::new(about),
        operations,
        records: referenced.iter().map(|name| record(name)).collect(),
        errors: errors.into_iter().map(error).collect(),
    }
}

fn operation(located: &Located) -> Operation {
    let Located { method, path, operation } = *located;
    let id = text(&operation["operationId"]);
    let is_webhook = !path.starts_with('/');
    let example = example(id);
    // Parameters that several operations share are explained at the first of them.
    let first = all_located().find(|other| items(&other.operation["parameters"]).any(is_shared));
    let explained_at = first.filter(|first| !std::ptr::eq(first.operation, operation));
    let (shared, own): (Vec<_>, Vec<_>) =
        items(&operation["parameters"]).partition(|parameter| is_shared(parameter) && explained_at.is_some());
    let parameters_of = explained_at.filter(|_| !shared.is_empty()).map(|first| Link {
        text: title(&first),
        page: Some(text(&first.operation["tags"][0]).to_owned()),
        anchor: anchor(&title(&first)),
    });
    let json = &operation["requestBody"]["content"]["application/json"];
    let success = members(&operation["responses"]).find(|(status, _)| status.starts_with('2'));
    let success = success.map(|(_, response)| resolved(response)).unwrap_or(&Value::Null);
    let response_example = example.and_then(|example| example.response.as_ref());
    let record = &success["content"]["application/json"]["schema"];
    let request = match is_webhook {
        true => example.and_then(|example| example.body.as_ref()).map(Code::json),
        false => example.map(|example| Code { language: "sh", text: curl(located, example) }),
    };
    Operation {
        title: title(located),
        summary: Prose::new(text(&operation["summary"])),
        description: Prose::new(text(&operation["description"])),
        credentials: match is_webhook {
            true => "",
            false => credentials(method, operation),
        },
        parameters: own.into_iter().map(|parameter| parameter_member(resolved(parameter))).collect(),
        parameters_of,
        body: members_of(match is_webhook {
            true => resolved(&json["schema"]),
            false => &json["schema"],
        }),
        body_about: operation["requestBody"]["description"].as_str().map(Prose::new),
        request,
        returns: Prose::new(text(&success["description"])),
        record: record.is_object().then(|| kind(record)),
        response: response_example.map(|response| match response.as_str() {
            Some(text) => Code { language: "text", text: text.trim_end().to_owned() },
            None => Code::json(response),
        }),
        statuses: members(&operation["responses"])
            .map(|(status, _)| status.to_owned())
            .filter(|status| is_error(status) && !is_webhook)
            .collect(),
    }
}

fn parameter_member(parameter: &Value) -> Member {
    let schema = &parameter["schema"];
    Member {
        name: text(&parameter["name"]).to_owned(),
        place: Some(text(&parameter["in"]).to_owned()),
        kind: kind(schema),
        required: parameter["required"] == true,
        about: Prose::new(text(&parameter["description"])),
        default: default(schema),
    }
}

fn record(name: &str) -> Record {
    let schema = &DOCUMENT["components"]["schemas"][name];
    Record {
        name: name.to_owned(),
        about: Prose::new(text(&schema["description"])),
        one_of: schema["oneOf"].is_array().then(|| kind(schema)),
        members: members_of(schema),
    }
}

/// The members of an object, those of the parts of a composed one.
fn members_of(schema: &'static Value) -> Vec<Member> {
    let required: BTreeSet<&str> = items(&schema["required"]).map(text).collect();
    let own = members(&schema["properties"]).map(|(name, property)| Member {
        name: name.to_owned(),
        place: None,
        kind: kind(property),
        required: required.contains(name),
        about: Prose::new(description(property)),
        default: default(property),
    });
    let parts = items(&schema["allOf"]).flat_map(|part| members_of(resolved(part)));
    own.chain(parts).collect()
}

fn kind(schema: &Value) -> Prose {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = name_of(reference);
        return Prose(vec![Inline::Link(Link { text: name.to_owned(), page: None, anchor: anchor(name) })]);
    }
    for composed in ["oneOf", "anyOf", "allOf"] {
        if schema[composed].is_array() {
            return Prose::joined(items(&schema[composed]).map(kind).collect(), " or ");
        }
    }
    if schema["enum"].is_array() {
        let names = items(&schema["enum"]).map(|name| Prose(vec![Inline::Code(plain(name))]));
        return Prose::joined(names.collect(), ", ");
    }
    let names = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        names => items(names).map(text).collect(),
    };
    let named = names.into_iter().map(|name| match name {
        "array" => Prose::joined(vec![Prose::new("array of "), kind(&schema["items"])], ""),
        "string" => Prose::new(match text(&schema["format"]) {
            "date-time" => "time",
            "date" => "date",
            "binary" => "bytes",
            _ => "string",
        }),
        other => Prose::new(other),
    });
    let named: Vec<Prose> = named.collect();
    if named.is_empty() { Prose::new("any value") } else { Prose::joined(named, " or ") }
}

/// Adds the names of the records that are referred to below a node, and below these records.
fn collect_records(node: &Value, found: &mut BTreeSet<&'static str>) {
    match node {
        Value::Object(object) => {
            if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
                let target = DOCUMENT.pointer(reference.trim_start_matches('#'));
                let schemas = DOCUMENT["components"]["schemas"].as_object();
                let key = schemas.and_then(|schemas| schemas.get_key_value(name_of(reference)));
                let is_new = match key {
                    Some((name, _)) if reference.contains("/schemas/") => found.insert(name),
                    _ => true,
                };
                if let Some(target) = target.filter(|_| is_new) {
                    collect_records(target, found);
                }
            }
            object.values().for_each(|value| collect_records(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_records(value, found)),
        _ => {}
    }
}

/// The node, or the component that it refers to.
fn resolved(node: &'static Value) -> &'static Value {
    let target = node["$ref"].as_str().and_then(|reference| DOCUMENT.pointer(reference.trim_start_matches('#')));
    target.unwrap_or(node)
}

/// What a schema says of its values. The reference in a nullable one says it in its place.
fn description(schema: &Value) -> &str {
    let mut schemas = std::iter::once(schema).chain(items(&schema["oneOf"]));
    schemas.find_map(|schema| schema["description"].as_str()).unwrap_or_default()
}

fn is_shared(parameter: &Value) -> bool {
    parameter["$ref"].is_string()
}

fn is_error(status: &str) -> bool {
    status.starts_with(['4', '5'])
}

fn name_of(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or_default()
}

fn default(schema: &Value) -> Option<String> {
    schema.get("default").filter(|default| !default.is_null()).map(plain)
}

/// A string without its quotes, or another value as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn title(located: &Located) -> String {
    match located.path.starts_with('/') {
        true => format!("{} {}", located.method.to_ascii_uppercase(), located.path),
        false => "The webhook request".to_owned(),
    }
}

fn credentials(method: &str, operation: &Value) -> &'static str {
    let own = !operation["security"].is_null();
    let security = if own { &operation["security"] } else { &DOCUMENT["security"] };
    let is_optional = items(security).any(|need| need.as_object().is_some_and(serde_json::Map::is_empty));
    match (own, items(security).count(), is_optional) {
        (true, 0, _) => "none",
        (true, _, true) => "for your own datasets, a session cookie or an API token; for public datasets, none",
        (true, _, false) if method == "get" => "a session cookie or an API token with any scope",
        (true, _, false) => "a session cookie or an API token with the scope `write`",
        (false, ..) => "for a public dataset, none; for a private dataset, its private key",
    }
}

/// The command that sends an example.
pub fn curl_of(example: &Example) -> Option<String> {
    let located = all_located().find(|located| located.operation["operationId"] == example.operation);
    located.filter(|located| located.path.starts_with('/')).map(|located| curl(&located, example))
}

fn curl(located: &Located, example: &Example) -> String {
    let mut path = located.path.to_owned();
    for (name, value) in &example.path {
        path = path.replace(&format!("{{{name}}}"), &plain(value));
    }
    let mut command = match example.query.as_str() {
        "" => format!("curl {BASE}{path}"),
        query => format!("curl '{BASE}{path}?{query}'"),
    };
    match (located.method, &example.body) {
        ("get", _) | ("post", Some(_)) => {}
        (method, _) => command += &format!(" -X {}", method.to_ascii_uppercase()),
    }
    let is_owner = !located.operation["security"].is_null() && items(&located.operation["security"]).count() > 0;
    if example.session {
        command += " \\\n  -b \"strata_session=$SESSION\"";
    } else if is_owner {
        command += " \\\n  -H \"Authorization: Bearer $TOKEN\"";
    }
    if let Some(body) = &example.body {
        let compact = body.to_string();
        let body = if compact.len() <= 90 { compact } else { Code::json(body).text };
        command += &format!(" \\\n  --json '{body}'");
    }
    command
}

impl Code {
    fn json(value: &Value) -> Code {
        Code { language: "json", text: serde_json::to_string_pretty(value).unwrap_or_default() }
    }
}
