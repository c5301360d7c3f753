//! The paths of a version's profile as a tree. Each path has links that add a condition or a sort to the query.

use askama::Template;
use askama::filters::HtmlSafe;
use serde_json::Value;
use strata_format::profile::{ProfilePathRecord, TypeCounts, ValueRecord};
use strata_types::field_path::FieldPath;
use strata_types::read_request::RangeBound;
use strata_types::version::VersionSelector;

use super::links::BrowseLinks;
use crate::context::VersionContext;
use crate::format;
use crate::page_request::PageRequest;
use crate::safe_text::SafeText;

const MAX_FIELD_VALUES: usize = 5;
const MAX_LABEL_CHARACTERS: usize = 80;

pub(super) struct FieldTree {
    pub(super) tree: Vec<FieldNode>,
    pub(super) path_count_text: String,
    pub(super) omitted_count: usize,
    pub(super) path_names: Vec<String>,
}

#[derive(Template)]
#[template(path = "field.html")]
pub(super) struct FieldNode {
    key: String,
    name: SafeText,
    field: Option<FieldDetails>,
    children: Vec<FieldNode>,
}

impl HtmlSafe for FieldNode {}

struct FieldDetails {
    types: String,
    presence: String,
    values: Vec<FieldValue>,
    no_values_reason: &'static str,
    condition_links: Vec<(&'static str, String)>,
    /// The text and the URL of a link that adds a filter for null, which also matches the string `null`.
    null_link: Option<(&'static str, String)>,
    ascending: Option<String>,
    descending: Option<String>,
}

struct FieldValue {
    text: SafeText,
    href: Option<String>,
    is_current: bool,
    count: String,
}

/// Loads the fields of a version from its profile; `None` if the profile is unavailable.
pub(super) async fn load_field_tree(
    req: &PageRequest,
    context: &VersionContext,
    links: &BrowseLinks<'_>,
) -> Option<FieldTree> {
    let version = VersionSelector::Number(context.version.number);
    let request = req.profile_request(context.dataset.id, version, context.authorized_target.variant);
    let summary = req.services.reads.profile_summary(request).await.ok()?;
    let mut tree = Vec::new();
    for record in &summary.paths {
        // A path that cannot be parsed belongs to the field whose name is empty.
        let keys = FieldPath::parse(&record.path).map_or_else(|_| vec![String::new()], |path| path.keys().to_vec());
        insert_field(&mut tree, &keys, build_field(record, summary.entities, links));
    }
    Some(FieldTree {
        tree,
        path_count_text: format::group_thousands(summary.path_count as u64),
        omitted_count: summary.path_count - summary.paths.len(),
        path_names: summary.names.clone(),
    })
}

/// The recursion of this function is as deep as the nesting of entities, which is limited.
fn insert_field(nodes: &mut Vec<FieldNode>, keys: &[String], field: FieldDetails) {
    let Some((key, rest)) = keys.split_first() else { return };
    let index = nodes.iter().position(|node| node.key == *key).unwrap_or_else(|| {
        let name = SafeText::from_prefix(key, MAX_LABEL_CHARACTERS, false);
        nodes.push(FieldNode { key: key.clone(), name, field: None, children: Vec::new() });
        nodes.len() - 1
    });
    match rest {
        [] => nodes[index].field = Some(field),
        rest => insert_field(&mut nodes[index].children, rest, field),
    }
}

fn build_field(record: &ProfilePathRecord, entities: u64, links: &BrowseLinks<'_>) -> FieldDetails {
    let path = &record.path;
    let parsed = FieldPath::parse(path).ok();
    let is_active = |value: &str| parsed.as_ref().is_some_and(|path| links.has_filter(path, value));
    // Outside arrays, an entity has only one value at a path, so a new filter must replace the old one.
    let condition = |value: &str| match &parsed {
        Some(path) if !record.fans_out => links.url_with_replaced_filter(path, value),
        Some(_) if !is_active(value) => links.condition_url("filter", &format!("{path}:{value}")),
        _ => None,
    };
    let values = record.top.iter().take(MAX_FIELD_VALUES).map(|top| {
        let text = filter_value_text(&top.value);
        let is_current = !top.cut && is_active(&text);
        let href = (!top.cut && !is_current).then(|| condition(&text)).flatten();
        // A value inside an array can occur in an entity more than once, so the count is the number of occurrences.
        let count = match record.fans_out {
            false => format::group_thousands(top.count),
            true => format::pluralize(top.count, "time", "times"),
        };
        FieldValue { text: SafeText::from_prefix(&text, MAX_LABEL_CHARACTERS, top.cut), href, is_current, count }
    });
    let sorted = |direction| sortable_field(record).and_then(|field| links.sort_url(&field, direction));
    let TypeCounts { null, boolean, number, string, .. } = record.types;
    let null = (null > 0).then(|| condition("null")).flatten();
    let finds = if string > 0 { "is null (or the string “null”)" } else { "is null" };
    let has_scalars = boolean + number + string > 0 && !path.is_empty();
    let is_ordered = has_scalars && (number > 0 || has_date_strings(record));
    let operators = [
        ("is…", "filter", has_scalars),
        ("contains…", "filter_contains", has_scalars),
        ("at least…", RangeBound::GreaterOrEqual.parameter_name(), is_ordered),
        ("at most…", RangeBound::LessOrEqual.parameter_name(), is_ordered),
    ];
    let operators = operators.into_iter().filter(|(_, _, is_shown)| *is_shown);
    FieldDetails {
        condition_links: operators
            .filter_map(|(name, operator, _)| Some((name, links.draft_condition_url(path, operator)?)))
            .collect(),
        types: describe_types(&record.types),
        presence: format::percent(record.entities, entities),
        values: values.collect(),
        no_values_reason: match record.distinct.estimated {
            true => "The profile contains no frequent values.",
            false => "No value occurs more than once.",
        },
        null_link: null.map(|href| (finds, href)),
        ascending: sorted("asc"),
        descending: sorted("desc"),
    }
}

/// Returns whether the smallest and the largest string begin with a date (`YYYY-MM-DD`).
fn has_date_strings(record: &ProfilePathRecord) -> bool {
    let is_date = |value: &Option<ValueRecord>| {
        let text = value.as_ref().and_then(|value| value.value.as_str()).unwrap_or_default().as_bytes();
        let mut pairs = text.iter().zip(b"0000-00-00");
        text.len() >= 10 && pairs.all(|(byte, shape)| byte == shape || (*shape == b'0' && byte.is_ascii_digit()))
    };
    is_date(&record.string_min) && is_date(&record.string_max)
}

/// Returns the field if reads can be sorted by this path: a top-level field with scalars outside arrays.
fn sortable_field(record: &ProfilePathRecord) -> Option<String> {
    let TypeCounts { boolean, number, string, .. } = record.types;
    let path = FieldPath::parse(&record.path).ok().filter(|_| boolean + number + string > 0 && !record.fans_out)?;
    match path.keys() {
        [field] => Some(field.clone()),
        _ => None,
    }
}

/// Lists the types at a path, the most frequent first: `string, null`.
pub(crate) fn describe_types(counts: &TypeCounts) -> String {
    let TypeCounts { null, boolean, number, string, object, array } = *counts;
    let names = ["string", "number", "boolean", "object", "array", "null"];
    let mut types: Vec<(u64, &str)> = [string, number, boolean, object, array, null].into_iter().zip(names).collect();
    types.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    types.iter().filter(|(count, _)| *count > 0).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

pub(crate) fn filter_value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
