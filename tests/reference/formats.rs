//! The rules of docs/reference/formats.md for complete response bodies. Entities are the result of the steps before
//! serialization and are not flattened.

use super::rules;
use super::value::{Value, set};

// The tables come from the XML standard. The rules are written independently of the service.
#[path = "../../src/encode/xml_names.rs"]
mod xml_names;

/// Returns the columns of a table with these entities.
pub fn columns(entities: &[Value]) -> Vec<String> {
    let mut union = Vec::new();
    for entity in entities {
        let Value::Object(members) = rules::flatten(entity) else { unreachable!("flattened is an object") };
        for (key, _) in members {
            set(&mut union, key, Value::Null);
        }
    }
    if union.is_empty() {
        return vec!["_source".to_owned()];
    }
    union.into_iter().map(|(name, _)| name).collect()
}

/// Returns the cells of a Parquet file: for each entity and column, a text or null.
pub fn cells(entities: &[Value], columns: &[String]) -> Vec<Vec<Option<String>>> {
    let row = |entity: &Value| {
        let flattened = rules::flatten(entity);
        columns.iter().map(|name| flattened.get(name).and_then(Value::text)).collect()
    };
    entities.iter().map(row).collect()
}

/// Returns a complete CSV body.
pub fn csv(entities: &[Value], columns: &[String]) -> String {
    delimited(entities, columns, ',')
}

/// Returns a complete TSV body.
pub fn tsv(entities: &[Value], columns: &[String]) -> String {
    delimited(entities, columns, '\t')
}

fn delimited(entities: &[Value], columns: &[String], delimiter: char) -> String {
    let header = columns.iter().cloned().map(Some).collect();
    let records = std::iter::once(header).chain(cells(entities, columns));
    let lines = records.map(|record: Vec<Option<String>>| {
        let cells: Vec<String> = record
            .into_iter()
            .map(|cell| match cell.unwrap_or_default() {
                cell if cell.contains([delimiter, '"', '\r', '\n']) => format!("\"{}\"", cell.replace('"', "\"\"")),
                cell => cell,
            })
            .collect();
        match cells.join(&delimiter.to_string()).as_str() {
            "" => "\"\"\n".to_owned(),
            line => format!("{line}\n"),
        }
    });
    lines.collect()
}

/// Returns a complete XML body. An empty element is `<tag/>`.
pub fn xml(entities: &[Value]) -> String {
    let entities: String = entities.iter().map(|entity| element("entity", content(entity, "item"))).collect();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{}", element("dataset", entities))
}

fn element(tag: &str, content: String) -> String {
    match content.as_str() {
        "" => format!("<{tag}/>"),
        content => format!("<{tag}>{content}</{tag}>"),
    }
}

/// Returns the content of an element with this value. The elements of an array are called `item`.
fn content(value: &Value, item: &str) -> String {
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| field(name, value)).collect(),
        Value::Array(elements) => elements.iter().map(|value| element(item, content(value, "item"))).collect(),
        scalar => scalar.text().map(|text| text.chars().map(escape).collect()).unwrap_or_default(),
    }
}

fn field(name: &str, value: &Value) -> String {
    if !matches!(value, Value::Array(_)) {
        return element(&tag(name), content(value, "item"));
    }
    let singular = tag(&pluralizer::pluralize(name, 1, false));
    let mut plural = tag(&pluralizer::pluralize(name, 2, false));
    if plural == singular {
        plural.push('s');
    }
    element(&plural, content(value, &singular))
}

fn tag(name: &str) -> String {
    let allowed = |character: char| character.is_alphanumeric() && xml_names::is_alphanumeric(character);
    let tag: String = name.chars().map(|character| if allowed(character) { character } else { '_' }).collect();
    match tag.chars().next() {
        Some(first) if first == '_' || xml_names::is_letter(first) => tag,
        _ => format!("_{tag}"),
    }
}

fn escape(character: char) -> String {
    match character {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '\r' => "&#13;".to_owned(),
        '\t' | '\n' | ' '..='\u{fffd}' | '\u{10000}'.. => character.to_string(),
        _ => "\u{fffd}".to_owned(),
    }
}
