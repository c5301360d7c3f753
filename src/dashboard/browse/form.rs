//! The query form of a page of entities. Browsers also submit empty fields, and submit a condition as three fields.
//! The page then redirects to the equivalent short URL, which users can share.

use strata_types::field_path::{FieldPath, FieldPathError};

use super::conditions::{
    self, CONDITION_OPERATORS, KEYWORDS_PARAM, MAX_VALUE_CHARACTERS, NULL_OPERATOR, operator_label,
};
use super::links::{ADD_OPERATOR_PARAM, ADD_PATH_PARAM, ADD_VALUE_PARAM, BrowseLinks, FILTER_PARAM};
use super::{COLUMNS_PARAM, VIEW_PARAM};
use crate::query_params::QueryParams;
use crate::safe_text::SafeText;

pub(super) const SUBMITTED_PARAM: &str = "form";
const CONDITION_FIELD: &str = "condition";

const FORM_FIELDS: [&str; 18] = [
    ADD_PATH_PARAM,
    ADD_OPERATOR_PARAM,
    ADD_VALUE_PARAM,
    COLUMNS_PARAM,
    KEYWORDS_PARAM,
    "keywords_mode",
    "sort",
    "limit",
    "keep_field",
    "drop_field",
    "flatten",
    "dedup",
    "dedup_key",
    "denull",
    "include_source",
    "sample",
    "seed",
    "offset",
];

/// A condition from a link that the user completes in the form.
pub(super) struct DraftCondition {
    pub(super) path: String,
    pub(super) operator: &'static str,
    pub(super) value: String,
}

impl DraftCondition {
    pub(super) fn from_query(query: &QueryParams) -> DraftCondition {
        let operator = query.first(ADD_OPERATOR_PARAM).unwrap_or_default();
        let known = CONDITION_OPERATORS.iter().find(|(name, _)| *name == operator);
        let text = |name| query.first(name).unwrap_or_default().to_owned();
        let operator = known.map_or(FILTER_PARAM, |(name, _)| name);
        DraftCondition { path: text(ADD_PATH_PARAM), operator, value: text(ADD_VALUE_PARAM) }
    }
}

pub(super) struct BrowseForm {
    query: QueryParams,
    pub(super) action: String,
    pub(super) can_reset: bool,
    pub(super) conditions: Vec<FormCondition>,
    pub(super) draft_condition: DraftCondition,
    pub(super) used_field_count: usize,
    /// Whether the folded part of the query form is open, because a field in it has a problem or a condition is
    /// incomplete. If it is closed, its empty fields are in `<noscript>`, and a script inserts them after the page has
    /// loaded, because browsers check every field of a form first.
    pub(super) is_unfolded: bool,
    pub(super) hidden: Vec<(String, String)>,
    pub(super) paths: Vec<String>,
    pub(super) problem: Option<String>,
    invalid_field: &'static str,
}

pub(super) type RefusedParameter = (&'static str, String);

pub(super) struct FormCondition {
    pub(super) id: usize,
    pub(super) name: String,
    pub(super) label: &'static str,
    pub(super) value: String,
    pub(super) shown: SafeText,
    /// The URL of the page without the condition; `None` if the query is too long to be repeated.
    pub(super) remove: Option<String>,
    pub(super) is_invalid: bool,
}

impl BrowseForm {
    pub(super) fn new(
        links: &BrowseLinks<'_>,
        paths: Vec<String>,
        draft_condition: DraftCondition,
        problem: Option<String>,
        refused: Option<&RefusedParameter>,
    ) -> BrowseForm {
        let query = &links.query;
        let labeled = query.pairs().iter().enumerate();
        let labeled = labeled.filter_map(|(index, (name, value))| Some((index, name, operator_label(name)?, value)));
        let conditions = labeled.enumerate().map(|(count, (id, name, label, value))| {
            let remove =
                (count < conditions::MAX_QUERY_PARTS).then(|| links.first_page_url(&query.without_index(id))).flatten();
            let shown = SafeText::with_ellipsis(value, MAX_VALUE_CHARACTERS);
            FormCondition { id, name: name.clone(), label, value: value.clone(), shown, remove, is_invalid: false }
        });
        let mut conditions: Vec<FormCondition> = conditions.collect();
        let is_refused = |condition: &FormCondition| {
            refused.is_some_and(|(name, value)| condition.name == *name && condition.value == *value)
        };
        let refused_condition = conditions.iter_mut().find(|condition| is_refused(condition));
        let problem = match (&refused_condition, problem) {
            (Some(condition), Some(_))
                if matches!(FieldPath::parse_path_value(&condition.value), Err(FieldPathError::Empty)) =>
            {
                Some("Enter a field name. This condition has only a value.".to_owned())
            }
            (_, problem) => problem,
        };
        let invalid_field = match (refused_condition, refused) {
            (Some(condition), _) => {
                condition.is_invalid = true;
                CONDITION_FIELD
            }
            (None, Some((name, _))) if FORM_FIELDS.contains(name) && *name != "offset" => *name,
            _ => "",
        };
        let is_refused = |name: &str| name == VIEW_PARAM && refused.is_some_and(|(refused, _)| *refused == VIEW_PARAM);
        let is_hidden_field =
            |name: &str| !FORM_FIELDS.contains(&name) && operator_label(name).is_none() && !is_refused(name);
        let folded = |name: &str| {
            operator_label(name).is_some()
                || (FORM_FIELDS.contains(&name) && !matches!(name, KEYWORDS_PARAM | "offset"))
        };
        let is_unfolded =
            !draft_condition.path.is_empty() || (problem.is_some() && !matches!(invalid_field, "" | KEYWORDS_PARAM));
        BrowseForm {
            action: links.urls.browse_url(),
            can_reset: !query.without(&[VIEW_PARAM]).pairs().is_empty(),
            conditions,
            draft_condition,
            used_field_count: query.pairs().iter().filter(|(name, _)| folded(name)).count(),
            is_unfolded,
            hidden: query.pairs().iter().filter(|(name, _)| is_hidden_field(name)).cloned().collect(),
            paths,
            problem,
            invalid_field,
            query: query.clone(),
        }
    }

    pub(super) fn field_value(&self, name: &str) -> &str {
        self.query.first(name).unwrap_or_default()
    }

    pub(super) fn joined_values(&self, name: &str) -> String {
        self.query.values(name).collect::<Vec<_>>().join(",")
    }

    /// Returns whether a boolean parameter has the value `value`, in any of its spellings.
    pub(super) fn has_boolean_value(&self, name: &str, value: &str) -> bool {
        let given = self.field_value(name);
        given.eq_ignore_ascii_case(value) || given == if value == "true" { "1" } else { "0" }
    }

    pub(super) fn is_invalid(&self, name: &str) -> bool {
        self.problem.is_some() && self.invalid_field == name
    }
}

pub(super) fn clean_submitted_query(query: &QueryParams) -> Option<QueryParams> {
    query.first(SUBMITTED_PARAM)?;
    let DraftCondition { path, operator, value } = DraftCondition::from_query(query);
    // The path of the condition is formatted again, because a colon in a field name must be escaped.
    let path = FieldPath::parse(&path).map_or(path, |path| path.to_string());
    let condition = match operator {
        _ if path.is_empty() && value.is_empty() => None,
        NULL_OPERATOR => Some((FILTER_PARAM, format!("{path}:null"))),
        name => Some((name, format!("{path}:{value}"))),
    };
    let rest = query.without(&[SUBMITTED_PARAM, ADD_PATH_PARAM, ADD_OPERATOR_PARAM, ADD_VALUE_PARAM]);
    let rest = rest.pairs().iter().filter(|(_, value)| !value.is_empty()).cloned();
    Some(rest.chain(condition.map(|(name, value)| (name.to_owned(), value))).collect())
}
