//! Limits the work and the stack that a JSON Schema can cause for one entity, before the schema is compiled.
//!
//! Problem: the validator evaluates a subschema once for each path of references that leads to it. For example, this
//! schema of three definitions evaluates `d2` four times, and one of 60 definitions would take centuries:
//!
//! ```json
//! {"$ref":"#/$defs/d0","$defs":{"d0":{"allOf":[{"$ref":"#/$defs/d1"},{"$ref":"#/$defs/d1"}]},
//!  "d1":{"allOf":[{"$ref":"#/$defs/d2"},{"$ref":"#/$defs/d2"}]},"d2":{"type":"object"}}}
//! ```
//!
//! Therefore, the subschemas become a graph with two kinds of edges:
//!
//! - *In place*: the subschema applies to the same value (`allOf`, `$ref`, `if`). These edges must not form a cycle.
//! - *Child*: the subschema applies to a part of the value (`properties`, `items`). Cycles are valid, because a value
//!   is finite. The validator caches the results of references in a cycle, so that each value is evaluated once.
//!
//! The graph can contain edges that do not exist, because references are resolved generously. Then a limit is lower
//! than it could be, but never exceeded.

use std::collections::HashMap;

use serde_json::{Map, Value};
use strata_json::MAX_NESTING_DEPTH;
use strata_types::limits::MAX_SCHEMA_PATTERNS;

use crate::excerpt::quote_name;

/// Maximum evaluations of subschemas for one value.
const MAX_EVALUATIONS: u64 = 100_000;

/// Maximum nested evaluations for a value of the maximum depth, each of which takes a few hundred bytes of stack.
const MAX_EVALUATION_DEPTH: u32 = 1_024;

const IN_PLACE_SCHEMAS: [&str; 4] = ["not", "if", "then", "else"];
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const IN_PLACE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SchemaBounds {
    /// The maximum evaluations of subschemas for one value, at least 1.
    pub evaluations: u64,
    /// Whether the validator, without a cache, can look for the problem of an invalid entity in bounded time.
    pub can_explain: bool,
}

impl SchemaBounds {
    /// # Errors
    /// Returns a text for the owner if the schema exceeds a limit, or has a reference that is not in the schema.
    pub(crate) fn measure(schema: &Value) -> Result<SchemaBounds, String> {
        let graph = SchemaGraph::build(schema)?;
        let order = graph.order_in_place()?;
        let components = graph.components();
        let evaluations = graph.count_evaluations(&order, &components);
        if evaluations > MAX_EVALUATIONS {
            return Err(format!(
                "the references of the schema expand to {evaluations} or more subschemas for one value; valid: at most \
                 {MAX_EVALUATIONS}"
            ));
        }
        if graph.evaluation_depth(&order) > MAX_EVALUATION_DEPTH {
            return Err(format!(
                "the schema nests more than {MAX_EVALUATION_DEPTH} levels for a value of {MAX_NESTING_DEPTH} levels"
            ));
        }
        Ok(SchemaBounds { evaluations, can_explain: graph.has_linear_cycles(&components) })
    }
}

#[derive(Default)]
struct SchemaNode {
    in_place: Vec<usize>,
    /// Subschemas of parts of the value. At most one subschema of a group applies to the same part.
    child_groups: Vec<Vec<usize>>,
    /// Whether `unevaluatedProperties` or `unevaluatedItems` evaluates the subschemas in place a second time.
    is_evaluated_twice: bool,
}

impl SchemaNode {
    fn edges(&self) -> impl Iterator<Item = usize> + '_ {
        self.in_place.iter().chain(self.child_groups.iter().flatten()).copied()
    }
}

struct SchemaGraph {
    /// The subschemas that are reachable from the root, which is the first node.
    nodes: Vec<SchemaNode>,
}

/// A subschema, and the resource that its references are relative to.
#[derive(Clone, Copy)]
struct Subschema<'s> {
    value: &'s Value,
    resource: &'s Value,
}

impl<'s> Subschema<'s> {
    fn new(value: &'s Value, resource: &'s Value) -> Subschema<'s> {
        let is_resource = value.get("$id").is_some_and(Value::is_string);
        Subschema { value, resource: if is_resource { value } else { resource } }
    }
}

struct GraphBuilder<'s> {
    /// All objects of the schema with an identifier or an anchor, even if they are not subschemas.
    named: Vec<Subschema<'s>>,
    numbers: HashMap<*const Value, usize>,
    found: Vec<Subschema<'s>>,
    patterns: usize,
}

impl SchemaGraph {
    fn build(schema: &Value) -> Result<SchemaGraph, String> {
        let mut builder = GraphBuilder { named: Vec::new(), numbers: HashMap::new(), found: Vec::new(), patterns: 0 };
        builder.collect_named(Subschema::new(schema, schema));
        builder.add(Subschema::new(schema, schema));
        let mut nodes = Vec::new();
        while let Some(subschema) = builder.found.get(nodes.len()) {
            nodes.push(builder.read_node(*subschema)?);
        }
        match builder.patterns {
            0..=MAX_SCHEMA_PATTERNS => Ok(SchemaGraph { nodes }),
            more => Err(format!("the schema has {more} patterns; valid: at most {MAX_SCHEMA_PATTERNS}")),
        }
    }
}

impl<'s> GraphBuilder<'s> {
    fn collect_named(&mut self, subschema: Subschema<'s>) {
        match subschema.value {
            Value::Object(members) => {
                if ["$id", "$anchor", "$dynamicAnchor"].iter().any(|name| members.contains_key(*name)) {
                    self.named.push(subschema);
                }
                members.values().for_each(|member| self.collect_named(Subschema::new(member, subschema.resource)));
            }
            Value::Array(items) => {
                items.iter().for_each(|item| self.collect_named(Subschema::new(item, subschema.resource)));
            }
            _ => {}
        }
    }

    fn add(&mut self, subschema: Subschema<'s>) -> usize {
        let number = self.found.len();
        match self.numbers.insert(subschema.value, number) {
            Some(known) => {
                self.numbers.insert(subschema.value, known);
                known
            }
            None => {
                self.found.push(subschema);
                number
            }
        }
    }

    fn add_all(&mut self, schemas: impl IntoIterator<Item = &'s Value>, parent: Subschema<'s>) -> Vec<usize> {
        schemas.into_iter().map(|schema| self.add(Subschema::new(schema, parent.resource))).collect()
    }

    fn read_node(&mut self, subschema: Subschema<'s>) -> Result<SchemaNode, String> {
        let Value::Object(members) = subschema.value else { return Ok(SchemaNode::default()) };
        let mut node = SchemaNode::default();
        let get = |names: &[&str]| -> Vec<&'s Value> { names.iter().filter_map(|name| members.get(*name)).collect() };
        node.in_place = self.add_all(get(&IN_PLACE_SCHEMAS), subschema);
        let listed = get(&IN_PLACE_LISTS).into_iter().flat_map(items_of).chain(map_values(members, &IN_PLACE_MAPS));
        node.in_place.extend(self.add_all(listed, subschema));
        for keyword in ["$ref", "$dynamicRef"] {
            if let Some(Value::String(reference)) = members.get(keyword) {
                for target in self.resolve(reference, subschema)? {
                    node.in_place.push(self.add(target));
                }
            }
        }
        let named = map_values(members, &["properties"])
            .chain(get(&["additionalProperties", "unevaluatedProperties"]))
            .collect::<Vec<_>>();
        let listed = get(&["prefixItems"]).into_iter().flat_map(items_of);
        let items = listed.chain(get(&["items", "additionalItems", "unevaluatedItems"])).collect::<Vec<_>>();
        let mut groups = vec![named, items];
        groups.extend(map_values(members, &["patternProperties"]).map(|schema| vec![schema]));
        groups.extend(get(&["contains", "propertyNames", "contentSchema"]).into_iter().map(|schema| vec![schema]));
        for group in groups {
            let group = self.add_all(group, subschema);
            node.child_groups.push(group);
        }
        node.is_evaluated_twice = !get(&["unevaluatedProperties", "unevaluatedItems"]).is_empty();
        self.patterns += members.get("pattern").is_some_and(Value::is_string) as usize;
        self.patterns += members.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        Ok(node)
    }

    /// Returns all subschemas that a reference might mean.
    fn resolve(&self, reference: &str, from: Subschema<'s>) -> Result<Vec<Subschema<'s>>, String> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = percent_decode(fragment);
        let resources: Vec<&Value> = match base {
            "" => vec![from.resource],
            base => {
                let has_id = |named: &&Subschema<'s>| {
                    let id = named.value.get("$id").and_then(Value::as_str);
                    id.is_some_and(|id| last_segment(id) == last_segment(base))
                };
                self.named.iter().filter(has_id).map(|named| named.value).collect()
            }
        };
        let targets: Vec<Subschema<'s>> = match fragment.as_str() {
            "" => resources.into_iter().map(|resource| Subschema::new(resource, resource)).collect(),
            pointer if pointer.starts_with('/') => {
                resources.into_iter().filter_map(|resource| follow_pointer(resource, pointer)).collect()
            }
            anchor => {
                let names = ["$anchor", "$dynamicAnchor"];
                let has_anchor = |named: &&Subschema<'s>| {
                    names.iter().any(|name| named.value.get(*name).and_then(Value::as_str) == Some(anchor))
                };
                let is_known = base.is_empty() || !resources.is_empty();
                self.named.iter().filter(has_anchor).filter(|_| is_known).copied().collect()
            }
        };
        match targets.is_empty() {
            true => Err(format!(
                "the reference {} leads to nothing in the schema; strata does not fetch remote references",
                quote_name(reference)
            )),
            false => Ok(targets),
        }
    }
}

fn items_of(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn map_values<'s>(members: &'s Map<String, Value>, names: &[&str]) -> impl Iterator<Item = &'s Value> + use<'s> {
    let maps: Vec<_> = names.iter().filter_map(|name| members.get(*name)?.as_object()).collect();
    maps.into_iter().flat_map(Map::values)
}

fn last_segment(uri: &str) -> &str {
    let uri = uri.split('#').next().unwrap_or_default();
    uri.rsplit(['/', ':']).next().unwrap_or_default()
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        let digits = bytes.get(index + 1..index + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.filter(|_| byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(escaped.unwrap_or(byte));
        index += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Follows a JSON Pointer (RFC 6901) that starts with `/`.
fn follow_pointer<'s>(resource: &'s Value, pointer: &str) -> Option<Subschema<'s>> {
    let mut found = Subschema::new(resource, resource);
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let next = match found.value {
            Value::Object(members) => members.get(&token),
            Value::Array(items) => items.get(token.parse::<usize>().ok()?),
            _ => None,
        };
        found = Subschema::new(next?, found.resource);
    }
    Some(found)
}

impl SchemaGraph {
    /// Orders the nodes so that each one follows its subschemas in place.
    fn order_in_place(&self) -> Result<Vec<usize>, String> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let mut states = vec![State::New; self.nodes.len()];
        let mut order = Vec::new();
        for start in 0..self.nodes.len() {
            let mut stack = vec![(start, 0)];
            while let Some((node, next)) = stack.pop() {
                if next == 0 && states[node] == State::Done {
                    continue;
                }
                states[node] = State::Open;
                match self.nodes[node].in_place.get(next) {
                    None => {
                        states[node] = State::Done;
                        order.push(node);
                    }
                    Some(target) if states[*target] == State::Open => {
                        return Err("a reference leads back to its own schema for the same value".to_owned());
                    }
                    Some(target) => stack.extend([(node, next + 1), (*target, 0)]),
                }
            }
        }
        Ok(order)
    }

    /// Returns the strongly connected component of each node (Tarjan). A component has a greater number than the
    /// components that it refers to.
    fn components(&self) -> Vec<usize> {
        const UNSEEN: usize = usize::MAX;
        let edges: Vec<Vec<usize>> = self.nodes.iter().map(|node| node.edges().collect()).collect();
        let mut components = vec![UNSEEN; self.nodes.len()];
        let mut index = vec![UNSEEN; self.nodes.len()];
        let mut low = vec![0; self.nodes.len()];
        let mut open = Vec::new();
        let mut count = 0;
        let mut visited = 0;
        // All nodes are reachable from the root.
        let mut stack = vec![(0, 0)];
        while let Some((node, next)) = stack.pop() {
            if next == 0 {
                if index[node] != UNSEEN {
                    continue;
                }
                index[node] = visited;
                low[node] = visited;
                visited += 1;
                open.push(node);
            }
            if let Some(&target) = edges[node].get(next) {
                stack.push((node, next + 1));
                match index[target] {
                    UNSEEN => stack.push((target, 0)),
                    _ if components[target] == UNSEEN => low[node] = low[node].min(index[target]),
                    _ => {}
                }
                continue;
            }
            if low[node] == index[node] {
                while let Some(member) = open.pop() {
                    components[member] = count;
                    if member == node {
                        break;
                    }
                }
                count += 1;
            }
            if let Some((parent, _)) = stack.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
        }
        components
    }

    fn count_evaluations(&self, order: &[usize], components: &[usize]) -> u64 {
        let mut order = order.to_vec();
        order.sort_by_key(|node| components[*node]);
        let mut counts = vec![0_u64; self.nodes.len()];
        for number in order {
            let node = &self.nodes[number];
            let in_place = node.in_place.iter().fold(0, |sum: u64, target| sum.saturating_add(counts[*target]));
            let in_place = if node.is_evaluated_twice { in_place.saturating_mul(2) } else { in_place };
            counts[number] = node.child_groups.iter().flatten().fold(in_place.saturating_add(1), |sum, target| {
                let is_cached = components[*target] == components[number];
                sum.saturating_add(if is_cached { 1 } else { counts[*target] })
            });
        }
        counts[0]
    }

    fn evaluation_depth(&self, order: &[usize]) -> u32 {
        let mut below = vec![0; self.nodes.len()];
        for _ in 0..=MAX_NESTING_DEPTH {
            let mut depths = vec![0; self.nodes.len()];
            for &number in order {
                let node = &self.nodes[number];
                let in_place = node.in_place.iter().map(|target| depths[*target]).max().unwrap_or(0);
                let children = node.child_groups.iter().flatten().map(|target| below[*target]).max().unwrap_or(0);
                depths[number] = 1 + in_place.max(children);
            }
            below = depths;
        }
        below[0]
    }

    /// Returns whether each node leads back to itself in at most one way for each part of a value.
    fn has_linear_cycles(&self, components: &[usize]) -> bool {
        self.nodes.iter().enumerate().all(|(number, node)| {
            let is_cyclic = |target: &usize| components[*target] == components[number];
            let in_place = node.in_place.iter().filter(|target| is_cyclic(target)).count();
            let children = node.child_groups.iter().filter(|group| group.iter().any(is_cyclic)).count();
            in_place + children <= usize::from(!node.is_evaluated_twice)
        })
    }
}
