//! The OpenAPI document, and checks of responses against it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{Answer, TestService};

/// Headers of HTTP itself, which the document need not describe.
pub const UNDESCRIBED: [&str; 4] = ["content-type", "content-length", "date", "x-content-type-options"];

pub const READ: &str = "/api/{dataset_id}/{name_slug}/{version}";

/// The tags of management operations.
pub const MANAGED: [&str; 5] = ["accounts", "datasets", "versions", "alternates", "webhooks"];

pub struct Document(pub Value);

impl Document {
    pub async fn fetch(service: &TestService) -> Document {
        let answer = service.get("/openapi.json").await;
        assert_eq!(answer.status, 200);
        Document(serde_json::from_slice(&answer.body).expect("failed to parse JSON"))
    }

    /// Resolves the reference of a node.
    fn resolved<'a>(&'a self, node: &'a Value) -> &'a Value {
        match node["$ref"].as_str() {
            Some(reference) => self.0.pointer(reference.trim_start_matches('#')).expect(reference),
            None => node,
        }
    }

    /// Returns the query parameters of a read, in document order.
    pub fn read_parameters(&self) -> Vec<ReadParameter> {
        self.parameters(READ, "query").into_iter().map(ReadParameter::new).collect()
    }

    fn operation(&self, path: &str) -> &Value {
        &self.0["paths"][path]["get"]
    }

    /// Returns the parameters of an operation in the query or in another place.
    pub fn parameters(&self, path: &str, place: &str) -> Vec<&Value> {
        let parameters = self.operation(path)["parameters"].as_array().expect(path);
        parameters.iter().map(|parameter| self.resolved(parameter)).filter(|node| node["in"] == place).collect()
    }

    /// Returns the names of the described headers of a response.
    pub fn headers(&self, path: &str, status: u16) -> Vec<String> {
        let response = self.resolved(&self.operation(path)["responses"][status.to_string()]);
        response["headers"].as_object().expect("missing headers").keys().cloned().collect()
    }

    /// Checks that the operation describes the status, content type and headers of a response.
    #[track_caller]
    pub fn describes(&self, path: &str, answer: &Answer) {
        self.describes_call("get", path, answer);
    }

    /// Like [`Document::describes`], for another method.
    #[track_caller]
    pub fn describes_call(&self, method: &str, path: &str, answer: &Answer) {
        let item = &self.0["paths"][path];
        let operation = &item[method.to_ascii_lowercase()];
        // An undescribed method is rejected like every operation of the path.
        let operation = if operation.is_object() {
            operation
        } else {
            item.as_object().and_then(|item| item.values().next()).expect(path)
        };
        let response = self.resolved(&operation["responses"][answer.status.to_string()]);
        assert!(response.is_object(), "{method} {path} does not describe {}", answer.status);
        let described = response["headers"].as_object().expect("missing headers");
        let described: BTreeSet<String> = described.keys().map(|name| name.to_ascii_lowercase()).collect();
        for name in answer.headers.keys().map(|name| name.as_str()) {
            let known = described.contains(name) || UNDESCRIBED.contains(&name);
            assert!(known, "{path}, {}: {name} is not described", answer.status);
        }
        if let Some(content_type) = answer.header("content-type") {
            assert!(response["content"][content_type].is_object(), "{path}, {}: {content_type}", answer.status);
        }
    }
}

pub struct ReadParameter {
    pub name: String,
    pub kind: ReadParameterKind,
    pub repetition: Repetition,
    pub example: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadParameterKind {
    Boolean,
    WholeNumber,
    OneOf(Vec<String>),
    Paths,
    Keywords,
    PathValue,
    Sort,
}

/// The allowed number of occurrences of a parameter in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    Single,
    /// Any number of occurrences.
    Repeat,
    /// Any number of occurrences, whose comma-separated lists are joined.
    List,
}

impl ReadParameter {
    fn new(described: &Value) -> ReadParameter {
        let name = described["name"].as_str().expect("missing name");
        let repetition = match described["explode"].as_bool() {
            None => Repetition::Single,
            Some(true) => Repetition::Repeat,
            Some(false) => Repetition::List,
        };
        let schema = match repetition {
            Repetition::Single => &described["schema"],
            Repetition::Repeat | Repetition::List => &described["schema"]["items"],
        };
        let names = schema["enum"].as_array();
        let kind = match (schema["type"].as_str(), names) {
            (Some("boolean"), _) => ReadParameterKind::Boolean,
            (Some("integer"), _) => ReadParameterKind::WholeNumber,
            (Some("string"), Some(names)) => {
                let names = names.iter().map(|name| name.as_str().expect("missing name").to_owned());
                ReadParameterKind::OneOf(names.collect())
            }
            // The document describes the format of such a text only in prose.
            _ => match name {
                "keep_field" | "drop_field" | "dedup_key" => ReadParameterKind::Paths,
                "keywords" => ReadParameterKind::Keywords,
                "sort" => ReadParameterKind::Sort,
                _ if name.starts_with("filter") => ReadParameterKind::PathValue,
                _ => panic!("{name} has an unknown type"),
            },
        };
        let example = match &described["example"] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        ReadParameter { name: name.to_owned(), kind, repetition, example }
    }
}
