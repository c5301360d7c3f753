//! The results of all checks of a list, and their texts.

use serde::{Deserialize, Serialize};

use crate::excerpt::truncate;

/// Maximum characters of [`CheckReport::failure_text`]. The metadata database stores 2,000 characters of an error.
pub const MAX_REPORT_CHARACTERS: usize = 1_900;

/// Maximum characters of the text of one check.
const MAX_RESULT_CHARACTERS: usize = 260;

/// Failing entities of a check that a report contains, and the bytes of each of them.
pub(crate) const MAX_REPORTED_ENTITIES: usize = 3;
pub(crate) const MAX_REPORTED_ENTITY_BYTES: usize = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckName {
    MinEntities,
    MaxEntities,
    MaxDropPercent,
    Required,
    Unique,
    Types,
    JsonSchema,
}

impl CheckName {
    pub const ALL: [CheckName; 7] = [
        CheckName::MinEntities,
        CheckName::MaxEntities,
        CheckName::MaxDropPercent,
        CheckName::Required,
        CheckName::Unique,
        CheckName::Types,
        CheckName::JsonSchema,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            CheckName::MinEntities => "min_entities",
            CheckName::MaxEntities => "max_entities",
            CheckName::MaxDropPercent => "max_drop_percent",
            CheckName::Required => "required",
            CheckName::Unique => "unique",
            CheckName::Types => "types",
            CheckName::JsonSchema => "json_schema",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<CheckName> {
        CheckName::ALL.into_iter().find(|check| check.as_str() == name)
    }
}

/// The beginning of the first entities that fail a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedEntities {
    pub count: u64,
    pub first: Vec<FailedEntity>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedEntity {
    pub position: u64,
    /// The entity as JSON, truncated to [`MAX_REPORTED_ENTITY_BYTES`].
    pub json: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    pub check: CheckName,
    /// Why the check failed; `None` if it passed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
    /// The failing entities; `None` if the check passed or does not examine single entities.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub entities: Option<FailedEntities>,
}

impl CheckResult {
    pub(crate) fn new(check: CheckName, problem: Option<String>) -> CheckResult {
        let text = problem.map(|problem| truncate(&format!("{}: {problem}", check.as_str()), MAX_RESULT_CHARACTERS));
        CheckResult { check, text, entities: None }
    }

    pub fn has_passed(&self) -> bool {
        self.text.is_none()
    }
}

/// One result for each check of the settings, in the order of [`CheckName::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    pub results: Vec<CheckResult>,
}

impl CheckReport {
    pub fn has_passed(&self) -> bool {
        self.results.iter().all(CheckResult::has_passed)
    }

    /// Returns the texts of all failed checks on one line.
    pub fn failure_text(&self) -> String {
        let texts: Vec<&str> = self.results.iter().filter_map(|result| result.text.as_deref()).collect();
        texts.join("; ")
    }
}
