//! The check `json_schema`: a compiled JSON Schema (2020-12) without remote references.
//!
//! Validating one entity is bounded: [`schema_bounds`](crate::schema_bounds) limits the schema, patterns are limited
//! here, and [`MAX_SCHEMA_EVALUATIONS`] limits the values of an entity times the evaluations of a value.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};
use strata_json::{JsonCursor, JsonScalar, JsonToken, JsonType};
use strata_types::limits::{MAX_CHECK_SCHEMA_BYTES, MAX_SCHEMA_EVALUATIONS};

use crate::excerpt::{quote_name, quote_value, truncate};
use crate::schema_bounds::SchemaBounds;

const DRAFT_URI: &str = "https://json-schema.org/draft/2020-12/schema";

/// Maximum size of a compiled pattern. The engine takes linear time, so it has no lookaround and no backreferences. An
/// engine that has them expands repetitions without a limit when it compiles a pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;

const MAX_PROBLEM_CHARACTERS: usize = 160;

#[derive(Debug)]
pub(crate) struct EntitySchema {
    validator: Validator,
    bounds: SchemaBounds,
}

impl EntitySchema {
    pub(crate) fn compile(schema: &Value) -> Result<EntitySchema, String> {
        let length = schema.to_string().len();
        if length > MAX_CHECK_SCHEMA_BYTES {
            return Err(format!("the schema has {length} bytes; valid: at most {MAX_CHECK_SCHEMA_BYTES} bytes"));
        }
        check_draft(schema)?;
        let bounds = SchemaBounds::measure(schema)?;
        let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
        let options = jsonschema::options().with_draft(Draft::Draft202012).offline().with_pattern_options(patterns);
        let validator =
            options.build(schema).map_err(|error| format!("not a valid JSON Schema: {}", describe(&error)))?;
        Ok(EntitySchema { validator, bounds })
    }

    /// Returns why an entity is invalid; `None` if it is valid. `explain` limits the work for further invalid entities.
    pub(crate) fn find_problem(&self, entity: &[u8], explain: Explain) -> Option<String> {
        let max_values = MAX_SCHEMA_EVALUATIONS as u64 / self.bounds.evaluations.max(1);
        if count_values(entity) > max_values {
            return Some(format!("the entity has more than {max_values} values, the maximum for this schema"));
        }
        let value = read_value(&mut JsonCursor::new(entity));
        if self.validator.is_valid(&value) {
            return None;
        }
        match explain {
            Explain::Yes if self.bounds.can_explain => Some(match self.validator.validate(&value) {
                Err(error) => describe(&error),
                Ok(()) => "the entity does not match the schema".to_owned(),
            }),
            _ => Some("the entity does not match the schema".to_owned()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Explain {
    Yes,
    No,
}

fn check_draft(schema: &Value) -> Result<(), String> {
    match schema.get("$schema") {
        None => Ok(()),
        Some(Value::String(uri)) if uri.trim_end_matches('#') == DRAFT_URI => Ok(()),
        Some(Value::String(uri)) => Err(format!("$schema: {} is not valid; valid: {DRAFT_URI}", quote_name(uri))),
        Some(_) => Err(format!("$schema must be a string; valid: {DRAFT_URI}")),
    }
}

/// Describes an error by the place in the document and the problem. The value, which can be large, is truncated.
fn describe(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let value = quote_value(error.instance().to_string().as_bytes());
    let problem = match error.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => {
            format!("{value} is not a pattern, is too large, or has lookaround or backreferences")
        }
        _ => truncate(&error.masked_with(value).to_string(), MAX_PROBLEM_CHARACTERS),
    };
    if place.is_empty() { problem } else { format!("{}: {problem}", quote_name(&place)) }
}

/// Returns the number of values of canonical text, counting each object and array twice.
fn count_values(entity: &[u8]) -> u64 {
    JsonCursor::new(entity).filter(|token| !matches!(token, JsonToken::Key(_))).count() as u64
}

/// Reads a value of canonical text. The parser of `serde_json` does not accept the maximum depth of entities.
fn read_value(cursor: &mut JsonCursor<'_>) -> Value {
    match cursor.peek_type() {
        Some(JsonType::Object) => {
            cursor.enter();
            let mut members = Map::new();
            while let Some(key) = cursor.next_key() {
                members.insert(key.unescape().into_owned(), read_value(cursor));
            }
            Value::Object(members)
        }
        Some(JsonType::Array) => {
            cursor.enter();
            let mut elements = Vec::new();
            while cursor.next_element() {
                elements.push(read_value(cursor));
            }
            Value::Array(elements)
        }
        _ => match cursor.next_scalar() {
            None | Some(JsonScalar::Null) => Value::Null,
            Some(JsonScalar::Bool(value)) => Value::Bool(value),
            Some(JsonScalar::Number(text)) => text.parse().map_or(Value::Null, Value::Number),
            Some(JsonScalar::String(text)) => Value::String(text.unescape().into_owned()),
        },
    }
}
