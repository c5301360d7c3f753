//! The API reference: the document as pages, one for each resource.
//!
//! [`Resource`] is what a page shows, in any language of markup: `docs/reference/api/` has the pages as Markdown
//! ([`Resource::markdown`]), the dashboard as HTML. Both are made of the document itself, so a page cannot differ from
//! what `GET /openapi.json` returns.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::LazyLock;

use askama::Template;
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

    pub fn markdown(&self) -> String {
        #[derive(Template)]
        #[template(path = "api_resource.md", whitespace = "preserve")]
        struct Page<'a> {
            resource: &'a Resource,
        }
        // The template writes into a string, which cannot fail.
        Page { resource: self }.render().unwrap_or_default() + "\n"
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
        Prose(text.split('`').enumerate().map(part).filter(|part| !part.is_empty()).collect())
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

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for part in &self.0 {
            // Writing into a string cannot fail.
            let _ = match part {
                // A vertical bar would end a cell.
                Inline::Text(part) => write!(text, "{}", part.replace('|', "\\|")),
                Inline::Code(part) => write!(text, "`{}`", part.replace('|', "\\|")),
                Inline::Link(link) => write!(text, "{}", link.markdown()),
            };
        }
        text
    }
}

impl Inline {
    fn is_empty(&self) -> bool {
        matches!(self, Inline::Text(text) | Inline::Code(text) if text.is_empty())
    }
}

impl Link {
    pub fn markdown(&self) -> String {
        let page = self.page.as_ref().map(|page| format!("{page}.md")).unwrap_or_default();
        format!("[`{}`]({page}#{})", self.text, self.anchor)
    }
}

static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let document = serde_json::to_value(document()).unwrap_or_default();
    Reader { document: &document }.resources()
});

/// The pages, in the order of the document's tags.
pub fn resources() -> &'static [Resource] {
    &RESOURCES
}

/// The operations of all pages as rows of a Markdown table.
pub fn markdown_index() -> String {
    let mut rows = "| Operation | What it does |\n|---|---|\n".to_owned();
    for resource in resources() {
        for operation in &resource.operations {
            let link =
                Link { text: operation.title.clone(), page: Some(resource.name.clone()), anchor: operation.anchor() };
            let _ = writeln!(rows, "| {} | {} |", link.markdown(), operation.summary.markdown());
        }
    }
    rows
}

struct Reader<'a> {
    document: &'a Value,
}

struct Located<'a> {
    method: &'a str,
    path: &'a str,
    operation: &'a Value,
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

impl<'a> Reader<'a> {
    fn resources(&self) -> Vec<Resource> {
        items(&self.document["tags"]).map(|tag| self.resource(text(&tag["name"]), text(&tag["description"]))).collect()
    }

    fn located(&self) -> impl Iterator<Item = Located<'a>> {
        let sections = [&self.document["paths"], &self.document["webhooks"]];
        sections
            .into_iter()
            .flat_map(members)
            .flat_map(|(path, item)| members(item).map(move |(method, operation)| Located { method, path, operation }))
    }

    fn resource(&self, name: &str, about: &str) -> Resource {
        let mut referenced = BTreeSet::new();
        let mut errors = BTreeMap::new();
        let mut operations = Vec::new();
        for located in self.located().filter(|located| items(&located.operation["tags"]).any(|tag| tag == name)) {
            self.collect_records(&located.operation["requestBody"], &mut referenced);
            for (status, response) in members(&located.operation["responses"]) {
                self.collect_records(response, &mut referenced);
                if is_error(status) && located.path.starts_with('/') {
                    errors.entry((status, text(&response["$ref"]))).or_insert_with(|| self.resolved(response));
                }
            }
            operations.push(self.operation(&located));
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
            records: referenced.iter().map(|name| self.record(name)).collect(),
            errors: errors.into_iter().map(error).collect(),
        }
    }

    fn operation(&self, located: &Located) -> Operation {
        let Located { method, path, operation } = *located;
        let id = text(&operation["operationId"]);
        let is_webhook = !path.starts_with('/');
        let example = example(id);
        // Parameters that several operations share are explained at the first of them.
        let first = self.located().find(|other| items(&other.operation["parameters"]).any(is_shared));
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
        let success = success.map(|(_, response)| self.resolved(response)).unwrap_or(&Value::Null);
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
                false => credentials(method, operation, self.document),
            },
            parameters: own.into_iter().map(|parameter| self.parameter(self.resolved(parameter))).collect(),
            parameters_of,
            body: self.members_of(match is_webhook {
                true => self.resolved(&json["schema"]),
                false => &json["schema"],
            }),
            body_about: operation["requestBody"]["description"].as_str().map(Prose::new),
            request,
            returns: Prose::new(text(&success["description"])),
            record: record.is_object().then(|| self.kind(record)),
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

    fn parameter(&self, parameter: &Value) -> Member {
        let schema = &parameter["schema"];
        Member {
            name: text(&parameter["name"]).to_owned(),
            place: Some(text(&parameter["in"]).to_owned()),
            kind: self.kind(schema),
            required: parameter["required"] == true,
            about: Prose::new(text(&parameter["description"])),
            default: default(schema),
        }
    }

    fn record(&self, name: &str) -> Record {
        let schema = &self.document["components"]["schemas"][name];
        Record {
            name: name.to_owned(),
            about: Prose::new(text(&schema["description"])),
            one_of: schema["oneOf"].is_array().then(|| self.kind(schema)),
            members: self.members_of(schema),
        }
    }

    /// The members of an object, those of the parts of a composed one.
    fn members_of(&self, schema: &Value) -> Vec<Member> {
        let required: BTreeSet<&str> = items(&schema["required"]).map(text).collect();
        let own = members(&schema["properties"]).map(|(name, property)| Member {
            name: name.to_owned(),
            place: None,
            kind: self.kind(property),
            required: required.contains(name),
            about: Prose::new(description(property)),
            default: default(property),
        });
        let parts = items(&schema["allOf"]).flat_map(|part| self.members_of(self.resolved(part)));
        own.chain(parts).collect()
    }

    fn kind(&self, schema: &Value) -> Prose {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = name_of(reference);
            return Prose(vec![Inline::Link(Link { text: name.to_owned(), page: None, anchor: anchor(name) })]);
        }
        for composed in ["oneOf", "anyOf", "allOf"] {
            if schema[composed].is_array() {
                return Prose::joined(items(&schema[composed]).map(|part| self.kind(part)).collect(), " or ");
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
            "array" => Prose::joined(vec![Prose::new("array of "), self.kind(&schema["items"])], ""),
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
    fn collect_records(&self, node: &Value, found: &mut BTreeSet<&'a str>) {
        match node {
            Value::Object(object) => {
                if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
                    let target = self.document.pointer(reference.trim_start_matches('#'));
                    let schemas = self.document["components"]["schemas"].as_object();
                    let key = schemas.and_then(|schemas| schemas.get_key_value(name_of(reference)));
                    let is_new = match key {
                        Some((name, _)) if reference.contains("/schemas/") => found.insert(name),
                        _ => true,
                    };
                    if let Some(target) = target.filter(|_| is_new) {
                        self.collect_records(target, found);
                    }
                }
                object.values().for_each(|value| self.collect_records(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| self.collect_records(value, found)),
            _ => {}
        }
    }

    /// The node, or the component that it refers to.
    fn resolved(&self, node: &'a Value) -> &'a Value {
        let target =
            node["$ref"].as_str().and_then(|reference| self.document.pointer(reference.trim_start_matches('#')));
        target.unwrap_or(node)
    }
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

fn credentials(method: &str, operation: &Value, document: &Value) -> &'static str {
    let own = !operation["security"].is_null();
    let security = if own { &operation["security"] } else { &document["security"] };
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
    let document = serde_json::to_value(document()).unwrap_or_default();
    let reader = Reader { document: &document };
    let located = reader.located().find(|located| located.operation["operationId"] == example.operation);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchor_matches_markdown_processors() {
        assert_eq!(anchor("POST /dataset/rotate_key"), "post-datasetrotate_key");
        assert_eq!(anchor("GET /ping/{token}"), "get-pingtoken");
    }

    #[test]
    fn prose_alternates_text_and_code() {
        assert_eq!(Prose::new("`a` or `b|c`").markdown(), "`a` or `b\\|c`");
        assert_eq!(Prose::new("plain | text").markdown(), "plain \\| text");
    }

    #[test]
    fn every_operation_has_an_example() {
        for operation in resources().iter().flat_map(|resource| &resource.operations) {
            assert!(operation.request.is_some(), "{}: no request", operation.title);
            let is_webhook = operation.statuses.is_empty();
            assert_eq!(operation.response.is_some(), !is_webhook, "{}: response", operation.title);
            assert!(!operation.summary.is_empty() && !operation.description.is_empty(), "{}", operation.title);
        }
    }
}
