//! The form of a page of entities. It sends empty fields and a condition in three parts; the page redirects to the
//! address without them, which is a link that can be shared.

use strata_types::path::{Path, PathError};

use super::conditions::{self, IS_NULL, OPERATORS, label};
use super::links::{ADD_OPERATOR, ADD_PATH, ADD_VALUE, FILTER, Links};
use super::{COLUMNS, VIEW};
use crate::query::Query;
use crate::safe_text::SafeText;

pub(super) const SENT: &str = "form";

const KEYWORDS: &str = "keywords";

/// Characters of the value of a condition in words.
const CHARACTERS: usize = 60;

/// Stands for a condition in place of the name of a field.
const CONDITION: &str = "condition";

/// Parameters that have a field.
const FIELDS: [&str; 18] = [
    ADD_PATH,
    ADD_OPERATOR,
    ADD_VALUE,
    COLUMNS,
    KEYWORDS,
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

/// A condition that a link has begun, to be finished in the form.
pub(super) struct Added {
    pub(super) path: String,
    pub(super) operator: &'static str,
    pub(super) value: String,
}

impl Added {
    pub(super) fn new(query: &Query) -> Added {
        let asked = query.first(ADD_OPERATOR).unwrap_or_default();
        let known = OPERATORS.iter().find(|(name, _)| *name == asked);
        let text = |name| query.first(name).unwrap_or_default().to_owned();
        Added { path: text(ADD_PATH), operator: known.map_or(FILTER, |(name, _)| name), value: text(ADD_VALUE) }
    }
}

pub(super) struct Form {
    query: Query,
    pub(super) action: String,
    pub(super) can_reset: bool,
    pub(super) conditions: Vec<Condition>,
    pub(super) added: Added,
    /// How many of the folded fields are used.
    pub(super) used: usize,
    /// Whether they are unfolded: one has a problem, or a condition is begun. Folded empty fields are only for browsers
    /// without scripts: the script inserts them once the page is ready, because a browser checks each field before
    /// that.
    pub(super) open: bool,
    pub(super) hidden: Vec<(String, String)>,
    pub(super) paths: Vec<String>,
    pub(super) problem: Option<String>,
    /// The field that has the problem; empty if there is none.
    wrong: &'static str,
}

/// A parameter that was refused, and its value.
pub(super) type Refused = (&'static str, String);

pub(super) struct Condition {
    pub(super) id: usize,
    pub(super) name: String,
    pub(super) label: &'static str,
    pub(super) value: String,
    pub(super) shown: SafeText,
    /// The page without it; `None` if the query is too long to be repeated for each.
    pub(super) remove: Option<String>,
    /// Whether it was refused.
    pub(super) wrong: bool,
}

impl Form {
    pub(super) fn new(
        links: &Links<'_>,
        paths: Vec<String>,
        added: Added,
        problem: Option<String>,
        refused: Option<&Refused>,
    ) -> Form {
        let query = &links.query;
        let given = query.pairs().iter().enumerate();
        let given = given.filter_map(|(place, (name, value))| Some((place, name, label(name)?, value)));
        let conditions = given.enumerate().map(|(count, (id, name, label, value))| {
            let remove = (count < conditions::PARTS).then(|| links.beginning_of(&query.without_place(id))).flatten();
            let shown = SafeText::short(value, CHARACTERS);
            Condition { id, name: name.clone(), label, value: value.clone(), shown, remove, wrong: false }
        });
        let mut conditions: Vec<Condition> = conditions.collect();
        let is_refused =
            |one: &Condition| refused.is_some_and(|(name, value)| one.name == *name && one.value == *value);
        let refused_condition = conditions.iter_mut().find(|one| is_refused(one));
        let problem = match (&refused_condition, problem) {
            (Some(one), Some(_)) if matches!(Path::parse_prefix(&one.value), Err(PathError::Empty)) => {
                Some("Enter a field name. This condition has only a value.".to_owned())
            }
            (_, problem) => problem,
        };
        let wrong = match (refused_condition, refused) {
            (Some(condition), _) => {
                condition.wrong = true;
                CONDITION
            }
            (None, Some((name, _))) if FIELDS.contains(name) && *name != "offset" => *name,
            _ => "",
        };
        // An invalid view is not sent again.
        let is_refused = |name: &str| name == VIEW && refused.is_some_and(|(refused, _)| *refused == VIEW);
        let is_kept = |name: &str| !FIELDS.contains(&name) && label(name).is_none() && !is_refused(name);
        let hidden = query.pairs().iter().filter(|(name, _)| is_kept(name));
        let plain = query.without(&[VIEW]).pairs().is_empty();
        let folded =
            |name: &str| label(name).is_some() || (FIELDS.contains(&name) && !matches!(name, KEYWORDS | "offset"));
        let used = query.pairs().iter().filter(|(name, _)| folded(name)).count();
        let open = !added.path.is_empty() || (problem.is_some() && !matches!(wrong, "" | KEYWORDS));
        Form {
            action: links.place.browse(),
            can_reset: !plain,
            conditions,
            added,
            used,
            open,
            hidden: hidden.cloned().collect(),
            paths,
            problem,
            wrong,
            query: query.clone(),
        }
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.query.first(name).unwrap_or_default()
    }

    pub(super) fn list(&self, name: &str) -> String {
        self.query.all(name).collect::<Vec<_>>().join(",")
    }

    /// Whether a boolean has this value.
    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        let given = self.text(name);
        given.eq_ignore_ascii_case(value) || given == if value == "true" { "1" } else { "0" }
    }

    pub(super) fn is_wrong(&self, name: &str) -> bool {
        self.problem.is_some() && self.wrong == name
    }
}

/// The query string that a sent form stands for; `None` if no form was sent.
pub(super) fn cleaned(query: &Query) -> Option<Query> {
    query.first(SENT)?;
    let added = |name| query.first(name).unwrap_or_default();
    let [path, operator, value] = [ADD_PATH, ADD_OPERATOR, ADD_VALUE].map(added);
    // A colon in the name of the field would end it.
    let path = Path::parse(path).map_or(path.to_owned(), |path| path.to_string());
    let condition = match operator {
        _ if path.is_empty() && value.is_empty() => None,
        IS_NULL => Some((FILTER, format!("{path}:null"))),
        name => {
            let known = OPERATORS.iter().find(|(parameter, _)| *parameter == name);
            Some((known.map_or(FILTER, |(parameter, _)| parameter), format!("{path}:{value}")))
        }
    };
    let given = query.without(&[SENT, ADD_PATH, ADD_OPERATOR, ADD_VALUE]);
    let given = given.pairs().iter().filter(|(_, value)| !value.is_empty()).cloned();
    Some(given.chain(condition.map(|(name, value)| (name.to_owned(), value))).collect())
}
