//! The checks of a dataset: the form on the settings page with suggestions from the profile, and the results of a
//! failed refresh attempt.
//!
//! The form has one line for each path of `required`, list of `unique`, and path of `types`:
//!
//! ```text
//! required:  name            unique:  country,code        types:  price: number, null
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};
use strata_checks::{CheckReport, CheckResult};
use strata_format::profile::{ProfilePathRecord, StoredProfile, TypeCounts};
use strata_http::error::HttpError;
use strata_types::dataset::DatasetChange;
use strata_types::field_path::FieldPath;

use super::form_handling::{SubmittedForm, invalid_field_error};
use super::safe_text::SafeText;

pub(super) const FORM_NAME: &str = "checks";

/// Paths for which the form suggests a check, so that the suggestions remain readable.
const MAX_SUGGESTED_PATHS: usize = 30;
const SUGGESTED_MAX_DROP_PERCENT: &str = "20";

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ChecksForm {
    pub(super) min_entities: String,
    pub(super) max_entities: String,
    pub(super) max_drop_percent: String,
    pub(super) required: String,
    pub(super) unique: String,
    pub(super) types: String,
    pub(super) json_schema: String,
}

impl ChecksForm {
    pub(super) const FIELDS: [&str; 7] =
        ["min_entities", "max_entities", "max_drop_percent", "required", "unique", "types", "json_schema"];

    /// Creates the form of stored checks.
    pub(super) fn new(checks: Option<&str>) -> ChecksForm {
        let checks: Map<String, Value> = checks.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        let number = |name: &str| checks.get(name).map(Value::to_string).unwrap_or_default();
        let lists = |name: &str| checks.get(name).and_then(Value::as_array).into_iter().flatten();
        let types = checks.get("types").and_then(Value::as_object).into_iter().flatten();
        let schema = checks.get("json_schema").map(serde_json::to_string_pretty);
        ChecksForm {
            min_entities: number("min_entities"),
            max_entities: number("max_entities"),
            max_drop_percent: number("max_drop_percent"),
            required: to_lines(lists("required").map(path_text)),
            unique: to_lines(lists("unique").map(|list| join_texts(list, ",", path_text))),
            types: to_lines(types.map(|(path, names)| {
                let names = join_texts(names, ", ", |name| name.as_str().unwrap_or_default().to_owned());
                format!("{}: {names}", path_text(&json!(path)))
            })),
            json_schema: schema.and_then(Result::ok).unwrap_or_default(),
        }
    }

    pub(super) fn from_form(form: &SubmittedForm) -> ChecksForm {
        let text = |name: &'static str| form.trimmed_value(name).replace("\r\n", "\n");
        ChecksForm {
            min_entities: text("min_entities"),
            max_entities: text("max_entities"),
            max_drop_percent: text("max_drop_percent"),
            required: text("required"),
            unique: text("unique"),
            types: text("types"),
            json_schema: text("json_schema"),
        }
    }

    /// Suggests checks that the profiled version passes.
    pub(super) fn from_profile(profile: &StoredProfile) -> ChecksForm {
        let is_checkable = |record: &&ProfilePathRecord| FieldPath::parse(&record.path).is_ok();
        let paths = || profile.paths.iter().filter(is_checkable);
        let in_all = |record: &&ProfilePathRecord| record.entities == profile.entities && record.types.null == 0;
        let has_own_values = |record: &&ProfilePathRecord| {
            let types = record.types;
            let scalars = types.number + types.string;
            scalars == record.entities && record.distinct.count == scalars && !record.distinct.estimated
        };
        let is_key =
            |record: &&ProfilePathRecord| !record.fans_out && record.path != "_source" && has_own_values(record);
        ChecksForm {
            min_entities: if profile.entities > 0 { "1".to_owned() } else { String::new() },
            max_drop_percent: SUGGESTED_MAX_DROP_PERCENT.to_owned(),
            required: to_lines(paths().filter(in_all).take(MAX_SUGGESTED_PATHS).map(|record| record.path.clone())),
            unique: to_lines(paths().filter(in_all).filter(is_key).take(1).map(|record| record.path.clone())),
            types: to_lines(
                paths()
                    .take(MAX_SUGGESTED_PATHS)
                    .map(|record| format!("{}: {}", record.path, type_names(&record.types).join(", "))),
            ),
            ..ChecksForm::default()
        }
    }

    pub(super) fn to_dataset_change(&self, was: Option<&ChecksForm>) -> Result<DatasetChange, HttpError> {
        let mut checks = Map::new();
        for (name, text) in [
            ("min_entities", &self.min_entities),
            ("max_entities", &self.max_entities),
            ("max_drop_percent", &self.max_drop_percent),
        ] {
            if !text.is_empty() {
                let number: Option<Number> = text.parse().ok();
                checks.insert(name.to_owned(), number.map_or_else(|| json!(text), Value::Number));
            }
        }
        let required: Vec<&str> = lines(&self.required).collect();
        if !required.is_empty() {
            checks.insert("required".to_owned(), json!(required));
        }
        let texts = |paths: Vec<FieldPath>| paths.iter().map(FieldPath::to_string).collect::<Vec<_>>();
        let unique: Vec<Vec<String>> = lines(&self.unique).map(|line| texts(FieldPath::parse_list(line))).collect();
        if !unique.is_empty() {
            checks.insert("unique".to_owned(), json!(unique));
        }
        let types = lines(&self.types).map(parse_types_line).collect::<Result<Map<_, _>, _>>()?;
        if !types.is_empty() {
            checks.insert("types".to_owned(), Value::Object(types));
        }
        if !self.json_schema.is_empty() {
            let schema = serde_json::from_str(&self.json_schema)
                .map_err(|error| invalid_field_error(FORM_NAME, format!("`json_schema`: it is not JSON: {error}")))?;
            checks.insert("json_schema".to_owned(), schema);
        }
        let checks = (!checks.is_empty()).then(|| Value::Object(checks).to_string());
        let checks = Some(checks).filter(|_| was != Some(self));
        Ok(DatasetChange { checks, ..DatasetChange::default() })
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

fn to_lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns a stored path in the form that a list of paths needs, with all escapes.
fn path_text(path: &Value) -> String {
    let text = path.as_str().unwrap_or_default();
    FieldPath::parse(text).map_or_else(|_| text.to_owned(), |path| path.to_string())
}

fn join_texts(list: &Value, separator: &str, text_of: impl Fn(&Value) -> String) -> String {
    list.as_array().into_iter().flatten().map(text_of).collect::<Vec<_>>().join(separator)
}

fn parse_types_line(line: &str) -> Result<(String, Value), HttpError> {
    let (path, names) = FieldPath::parse_path_value(line)
        .map_err(|error| invalid_field_error(FORM_NAME, format!("`types`: in the line {line:?}, {error}")))?;
    let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    Ok((path.to_string(), json!(names)))
}

fn type_names(types: &TypeCounts) -> Vec<&'static str> {
    let TypeCounts { null, boolean, number, string, object, array } = *types;
    let counts = [
        ("null", null),
        ("boolean", boolean),
        ("number", number),
        ("string", string),
        ("object", object),
        ("array", array),
    ];
    counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect()
}

/// The results of the checks of a failed attempt, as the refresh page shows them.
pub(super) struct FailedChecks {
    pub(super) results: Vec<ShownResult>,
}

pub(super) struct ShownResult {
    pub(super) check: &'static str,
    pub(super) text: Option<SafeText>,
    pub(super) entities: Vec<ShownEntity>,
    /// The number of failing entities that are not in `entities`.
    pub(super) omitted_count: u64,
}

pub(super) struct ShownEntity {
    pub(super) position: u64,
    pub(super) json: SafeText,
}

impl FailedChecks {
    pub(super) fn new(report: &CheckReport) -> FailedChecks {
        FailedChecks { results: report.results.iter().map(ShownResult::new).collect() }
    }
}

impl ShownResult {
    fn new(result: &CheckResult) -> ShownResult {
        let safe = |text: &str| SafeText::from_text(&strata_types::invisible_text::format_escapes_as_code_points(text));
        let first = result.entities.iter().flat_map(|entities| &entities.first);
        let entities: Vec<ShownEntity> = first
            .map(|entity| ShownEntity { position: entity.position, json: SafeText::from_text(&entity.json) })
            .collect();
        let count = result.entities.as_ref().map_or(0, |entities| entities.count);
        ShownResult {
            check: result.check.as_str(),
            text: result.text.as_deref().map(safe),
            omitted_count: count - entities.len() as u64,
            entities,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_keeps_stored_checks() {
        for checks in [
            r#"{"min_entities":1,"max_entities":2,"max_drop_percent":0.5}"#,
            r#"{"required":["a","b\\.c"],"unique":[["a","b\\,c"],["d\\:"]],"types":{"a\\:b":["null","number"]}}"#,
            r#"{"json_schema":{"type":"object"}}"#,
            r#"{"json_schema":false}"#,
        ] {
            let form = ChecksForm::new(Some(checks));
            let change = form.to_dataset_change(None).unwrap_or_else(|error| panic!("{checks}: {error:?}"));
            assert_eq!(change.checks, Some(Some(checks.to_owned())));
            assert_eq!(form.to_dataset_change(Some(&form)).map(|change| change.checks).ok(), Some(None));
        }
        let empty = ChecksForm::new(None);
        assert_eq!(empty.to_dataset_change(None).map(|change| change.checks).ok(), Some(Some(None)));
    }
}
