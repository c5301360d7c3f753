//! The member `checks` of a dataset: validated, with its JSON Schema compiled.

use serde_json::{Map, Value};
use strata_json::NumericValue;
use strata_types::field_path::FieldPath;
use strata_types::limits::{MAX_CHECK_PATH_BYTES, MAX_CHECK_PATHS};
use strata_types::suggest;

use crate::drop_percent::DropPercent;
use crate::entity_checks::JsonTypeSet;
use crate::entity_schema::EntitySchema;
use crate::excerpt::{quote_name, truncate};
use crate::report::CheckName;

const COUNT_FORM: &str = "an integer from 0";
const REQUIRED_FORM: &str = "a list of paths, such as [\"name\"]";
const UNIQUE_FORM: &str = "a list of lists of paths, such as [[\"id\"],[\"country\",\"code\"]]";
const TYPES_FORM: &str = "an object that maps paths to lists of null, boolean, number, string, object, and array, such \
                          as {\"price\":[\"number\",\"null\"]}";
const SCHEMA_FORM: &str = "a JSON Schema (an object or a boolean)";

const MAX_DISPLAYED_CHARACTERS: usize = 60;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidChecks {
    #[error("{0} is not valid; valid: a JSON object, such as {{\"required\":[\"name\"]}}, or null")]
    NotAnObject(String),
    #[error("unknown check {name};{meant} valid: {}", CheckName::ALL.map(CheckName::as_str).join(", "))]
    UnknownCheck { name: String, meant: String },
    #[error("`{}`: {problem}", .check.as_str())]
    InvalidValue { check: CheckName, problem: String },
    #[error("the checks contain {0} paths; valid: at most {MAX_CHECK_PATHS} in total")]
    TooManyPaths(usize),
}

/// Valid checks. A check that is `None` does not run. Empty lists are valid and always pass.
///
/// - All paths together are at most [`MAX_CHECK_PATHS`], each with at most [`MAX_CHECK_PATH_BYTES`].
/// - Every list of paths in `unique`, and every list of types, has an element.
#[derive(Debug, Default)]
pub struct CheckSettings {
    pub(crate) min_entities: Option<u64>,
    pub(crate) max_entities: Option<u64>,
    pub(crate) max_drop_percent: Option<DropPercent>,
    pub(crate) required: Option<Vec<FieldPath>>,
    pub(crate) unique: Option<Vec<Vec<FieldPath>>>,
    pub(crate) types: Option<Vec<(FieldPath, JsonTypeSet)>>,
    pub(crate) json_schema: Option<EntitySchema>,
}

impl CheckSettings {
    /// Compiles a JSON Schema, which can take seconds for a hostile one, so do not call this function on an executor.
    pub fn parse(checks: &Value) -> Result<CheckSettings, InvalidChecks> {
        let Value::Object(checks) = checks else { return Err(InvalidChecks::NotAnObject(describe(checks))) };
        if let Some(name) = checks.keys().find(|name| CheckName::parse(name).is_none()) {
            let meant = suggest::did_you_mean(name, CheckName::ALL.map(CheckName::as_str));
            return Err(InvalidChecks::UnknownCheck { name: quote_name(name), meant });
        }
        let settings = CheckSettings {
            min_entities: parse_check(checks, CheckName::MinEntities, parse_count)?,
            max_entities: parse_check(checks, CheckName::MaxEntities, parse_count)?,
            max_drop_percent: parse_check(checks, CheckName::MaxDropPercent, parse_percent)?,
            required: parse_check(checks, CheckName::Required, |value| parse_paths(value, REQUIRED_FORM))?,
            unique: parse_check(checks, CheckName::Unique, parse_unique)?,
            types: parse_check(checks, CheckName::Types, parse_types)?,
            json_schema: None,
        };
        match settings.path_count() {
            0..=MAX_CHECK_PATHS => {}
            more => return Err(InvalidChecks::TooManyPaths(more)),
        }
        let json_schema = parse_check(checks, CheckName::JsonSchema, parse_schema)?;
        Ok(CheckSettings { json_schema, ..settings })
    }

    pub fn parse_text(json: &str) -> Result<CheckSettings, InvalidChecks> {
        let checks = serde_json::from_str(json).map_err(|_| InvalidChecks::NotAnObject("text".to_owned()))?;
        CheckSettings::parse(&checks)
    }

    /// Returns whether a check compares the new list with the active version.
    pub fn needs_active_version(&self) -> bool {
        self.max_drop_percent.is_some()
    }

    fn path_count(&self) -> usize {
        let required = self.required.as_ref().map_or(0, Vec::len);
        let unique: usize = self.unique.iter().flatten().map(Vec::len).sum();
        required + unique + self.types.as_ref().map_or(0, Vec::len)
    }
}

fn parse_check<T>(
    checks: &Map<String, Value>,
    check: CheckName,
    parse: impl FnOnce(&Value) -> Result<T, String>,
) -> Result<Option<T>, InvalidChecks> {
    let Some(value) = checks.get(check.as_str()) else { return Ok(None) };
    parse(value).map(Some).map_err(|problem| InvalidChecks::InvalidValue { check, problem })
}

fn describe(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        scalar => truncate(&scalar.to_string(), MAX_DISPLAYED_CHARACTERS),
    }
}

fn invalid<T>(value: &Value, form: &str) -> Result<T, String> {
    Err(format!("{} is not valid; valid: {form}", describe(value)))
}

/// Parses a whole number in any notation: `7.0` is 7.
fn parse_count(value: &Value) -> Result<u64, String> {
    let Value::Number(number) = value else { return invalid(value, COUNT_FORM) };
    let integer = NumericValue::parse(&number.to_string()).and_then(|number| number.as_i64());
    let count = integer.and_then(|integer| u64::try_from(integer).ok()).or_else(|| number.as_u64());
    count.map_or_else(|| invalid(value, COUNT_FORM), Ok)
}

fn parse_percent(value: &Value) -> Result<DropPercent, String> {
    let percent = match value {
        Value::Number(number) => DropPercent::parse(number),
        _ => None,
    };
    percent.map_or_else(|| invalid(value, "a number from 0 to 100"), Ok)
}

fn parse_path(text: &str) -> Result<FieldPath, String> {
    let path = FieldPath::parse(text).map_err(|error| format!("{} is not valid: {error}", quote_name(text)))?;
    match text.len() {
        0..=MAX_CHECK_PATH_BYTES => Ok(path),
        longer => Err(format!("a path has {longer} bytes; valid: at most {MAX_CHECK_PATH_BYTES} bytes")),
    }
}

fn parse_paths(value: &Value, form: &str) -> Result<Vec<FieldPath>, String> {
    let Value::Array(items) = value else { return invalid(value, form) };
    let parse = |item: &Value| match item {
        Value::String(text) => parse_path(text),
        _ => invalid(item, form),
    };
    items.iter().map(parse).collect()
}

fn parse_unique(value: &Value) -> Result<Vec<Vec<FieldPath>>, String> {
    let Value::Array(lists) = value else { return invalid(value, UNIQUE_FORM) };
    let parse = |list: &Value| match parse_paths(list, UNIQUE_FORM)? {
        paths if paths.is_empty() => Err(format!("a list without paths is not valid; valid: {UNIQUE_FORM}")),
        paths => Ok(paths),
    };
    lists.iter().map(parse).collect()
}

fn parse_types(value: &Value) -> Result<Vec<(FieldPath, JsonTypeSet)>, String> {
    let Value::Object(paths) = value else { return invalid(value, TYPES_FORM) };
    let parse = |(path, names): (&String, &Value)| {
        let path = parse_path(path)?;
        let Value::Array(names) = names else { return invalid(names, TYPES_FORM) };
        let mut types = JsonTypeSet::default();
        for name in names {
            let added = name.as_str().is_some_and(|name| types.insert_name(name));
            if !added {
                return invalid(name, TYPES_FORM);
            }
        }
        match types.is_empty() {
            true => Err(format!("a list without types is not valid; valid: {TYPES_FORM}")),
            false => Ok((path, types)),
        }
    };
    paths.iter().map(parse).collect()
}

fn parse_schema(value: &Value) -> Result<EntitySchema, String> {
    match value {
        Value::Object(_) | Value::Bool(_) => EntitySchema::compile(value),
        _ => invalid(value, SCHEMA_FORM),
    }
}
