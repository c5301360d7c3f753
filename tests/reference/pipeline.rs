//! A complete read over trees: the steps of docs/reference/query-semantics.md in order, then the body in each format.

use std::cmp::Ordering;

use bytes::Bytes;
use strata_types::read_request::{KeywordsMode, PathValue, RangeBound, ReadRequest, ResponseFormat, SortField};

use super::value::Value;
use super::{formats, number, parquet, rules, sample, types};

/// The position of an entity in the version, and the entity.
type Placed = (u64, Value);

/// The decoded contents of a body.
#[derive(Debug, PartialEq)]
pub enum Body {
    /// All bytes of a text format.
    Text(String),
    /// The columns and cells of a Parquet file.
    Cells(Vec<String>, Vec<Vec<Option<String>>>),
    /// The columns and types of a typed Parquet file, and its cells.
    Typed(Vec<(String, String)>, Vec<Vec<Option<String>>>),
}

impl Body {
    /// Decodes the body of the response to a request.
    pub fn decode(body: &Bytes, request: &ReadRequest) -> Body {
        if request.format == ResponseFormat::Parquet && request.typed && !request.count {
            let (columns, rows) = parquet::typed_cells(body);
            return Body::Typed(columns, rows);
        }
        Body::read(body, if request.count { ResponseFormat::Json } else { request.format })
    }

    /// Decodes the body of a response in this format, without types.
    pub fn read(body: &Bytes, format: ResponseFormat) -> Body {
        if format == ResponseFormat::Parquet {
            let (names, rows) = parquet::cells(body);
            return Body::Cells(names, rows);
        }
        Body::Text(String::from_utf8(body.to_vec()).expect("invalid UTF-8"))
    }
}

/// Returns the number of entities of a response and its body, for a request without `sample` or with a `seed`.
pub fn answer(entities: &[Value], request: &ReadRequest, dataset_id: u64, version: u64) -> (u64, Body) {
    let mut list = selected_places(entities, request);
    if let Some(number) = request.sample {
        list = sample::draw(list, number, request.seed.expect("missing seed"));
    }
    let result = window(list.into_iter().map(|(_, entity)| entity).collect(), request);
    let total = result.len() as u64;
    (total, if request.count { count(total, request, dataset_id, version) } else { body(entities, &result, request) })
}

/// Applies steps 2 to 5, which reshape each entity before the selection.
pub fn reshaped(entities: &[Value], request: &ReadRequest) -> Vec<Value> {
    entities.iter().map(|entity| reshape(entity, request)).collect()
}

fn reshape(entity: &Value, request: &ReadRequest) -> Value {
    let keys = |paths: &[strata_types::field_path::FieldPath]| {
        paths.iter().map(|path| path.keys().to_vec()).collect::<Vec<_>>()
    };
    let mut entity = entity.clone();
    if !request.include_source {
        entity = rules::strip_source(&entity);
    }
    if request.denull {
        entity = rules::denull(&entity);
    }
    if !request.keep_fields.is_empty() {
        entity = rules::keep(&entity, &keys(&request.keep_fields));
    }
    if !request.drop_fields.is_empty() {
        entity = rules::drop(&entity, &keys(&request.drop_fields));
    }
    entity
}

/// Applies steps 2 to 10, which precede `sample`.
pub fn selected(entities: &[Value], request: &ReadRequest) -> Vec<Value> {
    selected_places(entities, request).into_iter().map(|(_, entity)| entity).collect()
}

/// Returns the positions in the version after steps 2 to 14 except `sample`.
pub fn selected_positions(entities: &[Value], request: &ReadRequest) -> Vec<u64> {
    let to_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let places = selected_places(entities, request).into_iter().skip(to_usize(request.offset));
    places.take(request.limit.map_or(usize::MAX, to_usize)).map(|(position, _)| position).collect()
}

/// Returns the selected entities with their positions in the version.
fn selected_places(entities: &[Value], request: &ReadRequest) -> Vec<Placed> {
    let mut entities: Vec<Placed> = (0..).zip(reshaped(entities, request)).collect();
    entities.retain(|(_, entity)| {
        request.filters.iter().all(|filter| reaches(entity, filter, rules::matches_equal))
            && request.contains_filters.iter().all(|filter| reaches(entity, filter, rules::matches_contains))
            && request.range_filters().all(|(bound, condition)| lies_in(entity, bound, condition))
            && holds_keywords(entity, request)
    });
    if let Some(order) = &request.sort {
        entities = sort(entities, order);
    }
    if request.dedup {
        entities = dedup(entities, request);
    }
    entities
}

/// Applies steps 12 and 13.
pub fn window(entities: Vec<Value>, request: &ReadRequest) -> Vec<Value> {
    let to_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    entities.into_iter().skip(to_usize(request.offset)).take(request.limit.map_or(usize::MAX, to_usize)).collect()
}

fn reaches(entity: &Value, filter: &PathValue, rule: fn(&Value, &str) -> bool) -> bool {
    rules::reach(entity, filter.path.keys()).into_iter().any(|scalar| rule(scalar, &filter.value))
}

fn lies_in(entity: &Value, bound: RangeBound, PathValue { path, value }: &PathValue) -> bool {
    rules::reach(entity, path.keys()).into_iter().any(|scalar| rules::matches_range(scalar, bound, value))
}

/// Rule 7.
fn holds_keywords(entity: &Value, request: &ReadRequest) -> bool {
    let holds = |word: &String| rules::scalars(entity).into_iter().any(|scalar| rules::matches_contains(scalar, word));
    match request.keywords_mode {
        _ if request.keywords.is_empty() => true,
        KeywordsMode::Or => request.keywords.iter().any(holds),
        KeywordsMode::And => request.keywords.iter().all(holds),
    }
}

/// Rule 8.
fn sort(entities: Vec<Placed>, order: &SortField) -> Vec<Placed> {
    let sortable = |(_, entity): &Placed| entity.get(&order.field).is_some_and(|value| class(value).is_some());
    let (mut first, last): (Vec<Placed>, Vec<Placed>) = entities.into_iter().partition(sortable);
    // The sort is stable in both directions.
    first.sort_by(|(_, one), (_, other)| {
        let ordering = match (one.get(&order.field), other.get(&order.field)) {
            (Some(one), Some(other)) => ascending(one, other),
            _ => unreachable!("both are sortable"),
        };
        if order.descending { ordering.reverse() } else { ordering }
    });
    first.extend(last);
    first
}

/// Returns the rank of the type: number, string, false, true; `None` for values that cannot be sorted.
fn class(value: &Value) -> Option<u8> {
    match value {
        Value::Number(_) => Some(0),
        Value::String(_) => Some(1),
        Value::Bool(false) => Some(2),
        Value::Bool(true) => Some(3),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn ascending(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => number::compare(one, other),
        (Value::String(one), Value::String(other)) => one.chars().cmp(other.chars()),
        _ => class(one).cmp(&class(other)),
    }
}

/// Rule 9.
fn dedup(entities: Vec<Placed>, request: &ReadRequest) -> Vec<Placed> {
    // A value that is equal exactly if the entities are equal.
    let key = |entity: &Value| match request.dedup_key.as_slice() {
        [] => rules::strip_source(entity),
        paths => {
            let reached = paths
                .iter()
                .map(|path| Value::Array(rules::reach_values(entity, path.keys()).into_iter().cloned().collect()));
            Value::Array(reached.collect())
        }
    };
    let mut seen: Vec<Value> = Vec::new();
    let mut firsts = Vec::new();
    for (position, entity) in entities {
        let key = key(&entity);
        if !seen.iter().any(|other| rules::equal(other, &key)) {
            seen.push(key);
            firsts.push((position, entity));
        }
    }
    firsts
}

/// Rule 13.
fn count(total: u64, request: &ReadRequest, dataset_id: u64, version: u64) -> Body {
    let number = |number: u64| Value::Number(number.to_string());
    let members = [
        ("count", number(total)),
        ("dataset_id", number(dataset_id)),
        ("version", number(version)),
        ("alt", Value::Bool(request.alt)),
    ];
    let object = Value::Object(members.map(|(name, value)| (name.to_owned(), value)).into());
    Body::Text(if request.pretty { object.write_pretty(0) } else { object.write() })
}

/// Returns the body with `result` from a version with these entities (section 4).
pub fn body(entities: &[Value], result: &[Value], request: &ReadRequest) -> Body {
    let flattened: Vec<Value>;
    let shown = if request.flatten {
        flattened = result.iter().map(rules::flatten).collect();
        &flattened
    } else {
        result
    };
    // Computed only if necessary, because it is slow.
    let columns = || match result {
        [] => formats::columns(&reshaped(entities, request)),
        _ => formats::columns(result),
    };
    match request.format {
        ResponseFormat::Json if request.pretty => Body::Text(Value::Array(shown.to_vec()).write_pretty(0)),
        ResponseFormat::Json => Body::Text(Value::Array(shown.to_vec()).write()),
        ResponseFormat::Jsonl => Body::Text(shown.iter().map(|entity| format!("{}\n", entity.write())).collect()),
        ResponseFormat::Csv => Body::Text(formats::csv(result, &columns())),
        ResponseFormat::Tsv => Body::Text(formats::tsv(result, &columns())),
        ResponseFormat::Xml => Body::Text(formats::xml(shown)),
        ResponseFormat::Parquet | ResponseFormat::Arrow => {
            let columns = columns();
            let cells = formats::cells(result, &columns);
            if !request.typed {
                return Body::Cells(columns, cells);
            }
            let types: Vec<&str> = columns.iter().map(|name| types::type_of(result, name)).collect();
            let row = |row: Vec<Option<String>>| {
                row.into_iter().zip(&types).map(|(cell, column)| Some(types::cell(&cell?, column))).collect()
            };
            let columns = columns.into_iter().zip(types.iter().map(|column| (*column).to_owned())).collect();
            Body::Typed(columns, cells.into_iter().map(row).collect())
        }
    }
}
