//! `/openapi.json`, and whether it describes an answer.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{Answer, TestService};

/// Headers of HTTP itself, which a document need not describe.
pub const UNDESCRIBED: [&str; 4] = ["content-type", "content-length", "date", "x-content-type-options"];

/// The path of a read.
pub const READ: &str = "/api/{dataset_id}/{name_slug}/{version}";

/// The tags of what owners do.
pub const MANAGED: [&str; 5] = ["accounts", "datasets", "versions", "alternates", "webhooks"];

/// The document, as the service sends it.
pub struct Document(pub Value);

impl Document {
    pub async fn of(service: &TestService) -> Document {
        let answer = service.get("/openapi.json").await;
        assert_eq!(answer.status, 200);
        Document(serde_json::from_slice(&answer.body).expect("JSON"))
    }

    /// The node, or the component that it refers to.
    fn resolved<'a>(&'a self, node: &'a Value) -> &'a Value {
        match node["$ref"].as_str() {
            Some(reference) => self.0.pointer(reference.trim_start_matches('#')).expect(reference),
            None => node,
        }
    }

    /// The query parameters of a read, in the order of the document.
    pub fn read_parameters(&self) -> Vec<ReadParameter> {
        self.parameters(READ, "query").into_iter().map(ReadParameter::new).collect()
    }

    fn operation(&self, path: &str) -> &Value {
        &self.0["paths"][path]["get"]
    }

    /// The parameters of an operation that are in the query, or elsewhere.
    pub fn parameters(&self, path: &str, place: &str) -> Vec<&Value> {
        let parameters = self.operation(path)["parameters"].as_array().expect(path);
        parameters.iter().map(|parameter| self.resolved(parameter)).filter(|node| node["in"] == place).collect()
    }

    /// The names of the headers that an answer with a status may have.
    pub fn headers(&self, path: &str, status: u16) -> Vec<String> {
        let response = self.resolved(&self.operation(path)["responses"][status.to_string()]);
        response["headers"].as_object().expect("headers").keys().cloned().collect()
    }

    /// That the answer has a status, a content type and headers that the operation describes.
    #[track_caller]
    pub fn describes(&self, path: &str, answer: &Answer) {
        self.describes_call("get", path, answer);
    }

    /// The same of an operation with another method.
    #[track_caller]
    pub fn describes_call(&self, method: &str, path: &str, answer: &Answer) {
        let item = &self.0["paths"][path];
        let operation = &item[method.to_ascii_lowercase()];
        // A method that is not described is refused as every operation of the path says.
        let operation = if operation.is_object() {
            operation
        } else {
            item.as_object().and_then(|item| item.values().next()).expect(path)
        };
        let response = self.resolved(&operation["responses"][answer.status.to_string()]);
        assert!(response.is_object(), "{method} {path} does not describe {}", answer.status);
        let described = response["headers"].as_object().expect("headers");
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

/// A query parameter of a read.
pub struct ReadParameter {
    pub name: String,
    pub kind: ParameterKind,
    pub repetition: Repetition,
    pub example: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    Boolean,
    WholeNumber,
    OneOf(Vec<String>),
    Paths,
    Keywords,
    PathValue,
    Sort,
}

/// How often one request may have a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    Single,
    /// Any number of times.
    Repeat,
    /// Any number of times; lists with commas are joined.
    List,
}

impl ReadParameter {
    fn new(described: &Value) -> ReadParameter {
        let name = described["name"].as_str().expect("a name");
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
            (Some("boolean"), _) => ParameterKind::Boolean,
            (Some("integer"), _) => ParameterKind::WholeNumber,
            (Some("string"), Some(names)) => {
                let names = names.iter().map(|name| name.as_str().expect("a name").to_owned());
                ParameterKind::OneOf(names.collect())
            }
            // The document says in words what such a text is.
            _ => match name {
                "keep_field" | "drop_field" | "dedup_key" => ParameterKind::Paths,
                "keywords" => ParameterKind::Keywords,
                "sort" => ParameterKind::Sort,
                _ if name.starts_with("filter") => ParameterKind::PathValue,
                _ => panic!("{name} is of no known kind"),
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
