//! The paths of a version from its profile as a tree, each with links that add a condition or an order to the query.

use askama::Template;
use askama::filters::HtmlSafe;
use serde_json::Value;
use strata_format::profile::{PathRecord, TypeCounts, ValueRecord};
use strata_types::path::Path;
use strata_types::request::RangeBound;
use strata_types::version::VersionSelector;

use super::links::Links;
use crate::context::Opened;
use crate::format;
use crate::safe_text::SafeText;
use crate::visit::Visit;

const VALUES: usize = 5;

/// Characters of a path and of a value.
const CHARACTERS: usize = 80;

pub(super) struct Fields {
    pub(super) tree: Vec<Node>,
    pub(super) all: String,
    pub(super) left_out: usize,
    /// The paths that the form completes.
    pub(super) names: Vec<String>,
}

/// A path, and the paths that begin with it.
#[derive(Template)]
#[template(path = "field.html")]
pub(super) struct Node {
    key: String,
    name: SafeText,
    /// `None` if only paths below it are shown.
    field: Option<Field>,
    below: Vec<Node>,
}

impl HtmlSafe for Node {}

struct Field {
    types: String,
    presence: String,
    values: Vec<FieldValue>,
    /// Why there are no values.
    without_values: &'static str,
    /// Links to the form with a condition begun.
    begun: Vec<(&'static str, String)>,
    /// Adds a filter for null, which also finds the string `null`.
    null: Option<(&'static str, String)>,
    ascending: Option<String>,
    descending: Option<String>,
}

struct FieldValue {
    text: SafeText,
    href: Option<String>,
    is_current: bool,
    count: String,
}

/// The fields of a version; `None` if the profile is unavailable.
pub(super) async fn load(visit: &Visit, opened: &Opened, links: &Links<'_>) -> Option<Fields> {
    let version = VersionSelector::Number(opened.version.number);
    let request = visit.profile(opened.dataset.id, version, opened.admitted.alt);
    let summary = visit.services.reads.profile_summary(request).await.ok()?;
    let mut tree = Vec::new();
    for record in &summary.paths {
        // No path names the field with the empty name.
        let keys = Path::parse(&record.path).map_or_else(|_| vec![String::new()], |path| path.keys().to_vec());
        insert(&mut tree, &keys, field(record, summary.entities, links));
    }
    Some(Fields {
        tree,
        all: format::grouped(summary.path_count as u64),
        left_out: summary.path_count - summary.paths.len(),
        names: summary.names.clone(),
    })
}

/// Recurses at most as deep as entities nest.
fn insert(nodes: &mut Vec<Node>, keys: &[String], field: Field) {
    let Some((key, rest)) = keys.split_first() else { return };
    let at = nodes.iter().position(|node| node.key == *key).unwrap_or_else(|| {
        let name = SafeText::beginning(key, CHARACTERS, false);
        nodes.push(Node { key: key.clone(), name, field: None, below: Vec::new() });
        nodes.len() - 1
    });
    match rest {
        [] => nodes[at].field = Some(field),
        rest => insert(&mut nodes[at].below, rest, field),
    }
}

fn field(record: &PathRecord, entities: u64, links: &Links<'_>) -> Field {
    let path = &record.path;
    let parsed = Path::parse(path).ok();
    let is_in_force = |value: &str| parsed.as_ref().is_some_and(|path| links.has_filter(path, value));
    // Outside of arrays, an entity has one value at a path: two filters find nothing.
    let condition = |value: &str| match &parsed {
        Some(path) if !record.fans_out => links.with_filter_alone(path, value),
        Some(_) if !is_in_force(value) => links.with_condition("filter", &format!("{path}:{value}")),
        _ => None,
    };
    let values = record.top.iter().take(VALUES).map(|top| {
        let text = text(&top.value);
        let is_current = !top.cut && is_in_force(&text);
        let href = (!top.cut && !is_current).then(|| condition(&text)).flatten();
        // In arrays, an entity can have a value several times.
        let count = match record.fans_out {
            false => format::grouped(top.count),
            true => format::counted(top.count, "time", "times"),
        };
        FieldValue { text: SafeText::beginning(&text, CHARACTERS, top.cut), href, is_current, count }
    });
    let sorted = |direction| sort_field(record).and_then(|field| links.sorted(&field, direction));
    let TypeCounts { null, boolean, number, string, .. } = record.types;
    let null = (null > 0).then(|| condition("null")).flatten();
    let finds = if string > 0 { "is null (or the string “null”)" } else { "is null" };
    let has_scalars = boolean + number + string > 0 && !path.is_empty();
    let is_ordered = has_scalars && (number > 0 || holds_dates(record));
    let begun = [
        ("is…", "filter", has_scalars),
        ("contains…", "filter_contains", has_scalars),
        ("at least…", RangeBound::GreaterOrEqual.parameter(), is_ordered),
        ("at most…", RangeBound::LessOrEqual.parameter(), is_ordered),
    ];
    let begun = begun.into_iter().filter(|(_, _, is_there)| *is_there);
    Field {
        begun: begun.filter_map(|(name, operator, _)| Some((name, links.with_begun(path, operator)?))).collect(),
        types: types(&record.types),
        presence: format::percent(record.entities, entities),
        values: values.collect(),
        without_values: match record.distinct.estimated {
            true => "The profile contains no frequent values.",
            false => "No value occurs more than once.",
        },
        null: null.map(|href| (finds, href)),
        ascending: sorted("asc"),
        descending: sorted("desc"),
    }
}

/// Whether the smallest and the largest string of a path begin with a date.
fn holds_dates(record: &PathRecord) -> bool {
    let is_date = |value: &Option<ValueRecord>| {
        let text = value.as_ref().and_then(|value| value.value.as_str()).unwrap_or_default().as_bytes();
        let mut pairs = text.iter().zip(b"0000-00-00");
        text.len() >= 10 && pairs.all(|(byte, shape)| byte == shape || (*shape == b'0' && byte.is_ascii_digit()))
    };
    is_date(&record.string_min) && is_date(&record.string_max)
}

/// The top-level field with scalars by which a read can be sorted.
fn sort_field(record: &PathRecord) -> Option<String> {
    let TypeCounts { boolean, number, string, .. } = record.types;
    let path = Path::parse(&record.path).ok().filter(|_| boolean + number + string > 0 && !record.fans_out)?;
    match path.keys() {
        [field] => Some(field.clone()),
        _ => None,
    }
}

/// The types at a path, the most frequent first.
pub(crate) fn types(counts: &TypeCounts) -> String {
    let TypeCounts { null, boolean, number, string, object, array } = *counts;
    let mut found = [
        (string, "string"),
        (number, "number"),
        (boolean, "boolean"),
        (object, "object"),
        (array, "array"),
        (null, "null"),
    ];
    found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    found.iter().filter(|(count, _)| *count > 0).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

/// A value of a profile as the value of a filter.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
