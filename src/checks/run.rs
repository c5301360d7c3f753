//! Runs the checks on a list of entities, in one pass.
//!
//! 1. [`CheckRun::add_entity`] examines each entity, and walks it once for the paths of all checks.
//! 2. [`CheckRun::sort_keys`] finds repeated keys. [`SortedCheckRun::positions`] are the entities that the report needs
//!    again, because the pass did not know that they would fail.
//! 3. [`SortedCheckRun::into_report`] describes all results.

use std::path::Path;

use sha2::{Digest, Sha256};
use strata_json::{CanonicalFormWriter, JsonCursor, PathTrie, truncate_sha256, visit_values_at};
use strata_store::StorageError;
use strata_store::spool_quota::SpoolReservation;
use strata_types::field_path::FieldPath;
use strata_types::version::VersionNumber;

use crate::entity_checks::{JsonTypeSet, describe_missing, describe_other_type, find_other_type, reaches_value};
use crate::entity_schema::Explain;
use crate::excerpt::{quote_path, quote_value};
use crate::report::{
    CheckName, CheckReport, CheckResult, FailedEntities, FailedEntity, MAX_REPORTED_ENTITIES, MAX_REPORTED_ENTITY_BYTES,
};
use crate::settings::CheckSettings;
use crate::unique_keys::{KeySorter, RepeatedKey, RepeatedKeys, find_repeated, push_key};

/// The active version of the dataset, with which the new list is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveVersion {
    pub number: VersionNumber,
    pub entity_count: u64,
}

pub struct CheckRun {
    settings: CheckSettings,
    paths: CheckedPaths,
    keys: Option<KeySorter>,
    entity_count: u64,
    required: FailingEntities,
    types: FailingEntities,
    json_schema: FailingEntities,
}

/// The entities that fail a check: their number, the problem of the first of them, and the first of them.
#[derive(Default)]
struct FailingEntities {
    count: u64,
    first_problem: Option<String>,
    first: Vec<FailedEntity>,
}

impl FailingEntities {
    fn push(&mut self, position: u64, entity: &[u8], describe: impl FnOnce() -> String) {
        self.count += 1;
        if self.first_problem.is_none() {
            self.first_problem = Some(describe());
        }
        if self.first.len() < MAX_REPORTED_ENTITIES {
            self.first.push(FailedEntity { position, json: beginning_of(entity) });
        }
    }

    fn into_result(self, check: CheckName, entity_count: u64) -> CheckResult {
        let (Some(problem), Some(first)) = (self.first_problem, self.first.first()) else {
            return CheckResult::new(check, None);
        };
        let verb = if self.count == 1 { "fails" } else { "fail" };
        let position = first.position;
        let text = format!("{} of {entity_count} entities {verb}; first at position {position}: {problem}", self.count);
        let entities = Some(FailedEntities { count: self.count, first: self.first });
        CheckResult { entities, ..CheckResult::new(check, Some(text)) }
    }
}

fn beginning_of(entity: &[u8]) -> String {
    let text = String::from_utf8_lossy(&entity[..entity.len().min(MAX_REPORTED_ENTITY_BYTES)]);
    if entity.len() > MAX_REPORTED_ENTITY_BYTES { format!("{text}…") } else { text.into_owned() }
}

impl CheckRun {
    /// `unique` spills hashes of keys to `directory`, charged to `reservation`.
    pub fn new(settings: CheckSettings, directory: &Path, reservation: SpoolReservation) -> CheckRun {
        CheckRun::with_sorter(settings, KeySorter::new(directory, reservation))
    }

    /// Like [`CheckRun::new`], with a sorter for the hashes of keys.
    pub fn with_sorter(settings: CheckSettings, sorter: KeySorter) -> CheckRun {
        let keys = settings.unique.as_ref().is_some_and(|lists| !lists.is_empty()).then_some(sorter);
        CheckRun {
            paths: CheckedPaths::new(&settings),
            settings,
            keys,
            entity_count: 0,
            required: FailingEntities::default(),
            types: FailingEntities::default(),
            json_schema: FailingEntities::default(),
        }
    }

    /// Examines the next entity, which must be canonical text.
    pub fn add_entity(&mut self, entity: &[u8]) -> Result<(), StorageError> {
        let position = self.entity_count;
        self.entity_count += 1;
        if !self.paths.nodes.is_empty() {
            self.paths.visit(entity);
            self.check_paths(position, entity)?;
        }
        if let Some(schema) = &self.settings.json_schema {
            let explain = if self.json_schema.count == 0 { Explain::Yes } else { Explain::No };
            if let Some(problem) = schema.find_problem(entity, explain) {
                self.json_schema.push(position, entity, || problem);
            }
        }
        Ok(())
    }

    /// Examines entities that each end with a line feed.
    pub fn add_lines(&mut self, lines: &[u8]) -> Result<(), StorageError> {
        lines.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| self.add_entity(&line[..line.len() - 1]))
    }

    fn check_paths(&mut self, position: u64, entity: &[u8]) -> Result<(), StorageError> {
        if self.paths.nodes.iter().any(|node| node.is_required && !node.has_value) {
            let missing = || {
                let missing = self.settings.required.iter().flatten().find(|path| !reaches_value(entity, path));
                missing.map_or_else(String::new, |path| describe_missing(entity, path))
            };
            self.required.push(position, entity, missing);
        }
        if self.paths.nodes.iter().any(|node| node.has_other_type) {
            let other_type = || {
                let found = self.settings.types.iter().flatten().find_map(|(path, types)| {
                    let (value, json_type) = find_other_type(entity, path, *types)?;
                    Some(describe_other_type(path, *types, value, json_type))
                });
                found.unwrap_or_default()
            };
            self.types.push(position, entity, other_type);
        }
        if let Some(keys) = &mut self.keys {
            for (list, nodes) in (0_u16..).zip(&self.paths.key_nodes) {
                let mut key = Sha256::new();
                nodes.iter().for_each(|node| key.update(self.paths.nodes[*node].values.clone().finalize()));
                push_key(keys, truncate_sha256(key), list, position)?;
            }
        }
        Ok(())
    }

    pub fn sort_keys(mut self) -> Result<SortedCheckRun, StorageError> {
        let repeated = match self.keys.take() {
            Some(keys) => find_repeated(keys, MAX_REPORTED_ENTITIES)?,
            None => RepeatedKeys::default(),
        };
        let positions = repeated.first.iter().map(|repeat| repeat.position).collect();
        Ok(SortedCheckRun { run: self, repeated, positions })
    }
}

/// All paths of the checks, and what the walk of an entity found at them.
struct CheckedPaths {
    trie: PathTrie,
    nodes: Vec<PathNode>,
    /// The nodes of each list of paths in `unique`.
    key_nodes: Vec<Vec<usize>>,
    canonical: CanonicalFormWriter,
    form: Vec<u8>,
}

#[derive(Clone, Default)]
struct PathNode {
    is_required: bool,
    types: Option<JsonTypeSet>,
    is_key: bool,
    has_value: bool,
    has_other_type: bool,
    /// The hash of the values so far, which is equal exactly if the values are equal for `dedup_key`.
    values: Sha256,
}

impl CheckedPaths {
    fn new(settings: &CheckSettings) -> CheckedPaths {
        let required: Vec<&FieldPath> = settings.required.iter().flatten().collect();
        let typed: Vec<&FieldPath> = settings.types.iter().flatten().map(|(path, _)| path).collect();
        let keys: Vec<&FieldPath> = settings.unique.iter().flatten().flatten().collect();
        let all = required.iter().chain(&typed).chain(&keys).copied();
        let (trie, ends) = PathTrie::from_paths(all);
        let mut nodes = vec![PathNode::default(); if trie.is_empty() { 0 } else { trie.len() }];
        let mut ends = ends.into_iter();
        ends.by_ref().take(required.len()).for_each(|end| nodes[end].is_required = true);
        for (end, (_, types)) in ends.by_ref().take(typed.len()).zip(settings.types.iter().flatten()) {
            let types = nodes[end].types.map_or(*types, |others| others.intersection(*types));
            nodes[end].types = Some(types);
        }
        let lists = settings.unique.iter().flatten();
        let key_nodes: Vec<Vec<usize>> = lists.map(|list| ends.by_ref().take(list.len()).collect()).collect();
        key_nodes.iter().flatten().for_each(|end| nodes[*end].is_key = true);
        CheckedPaths { trie, nodes, key_nodes, canonical: CanonicalFormWriter::default(), form: Vec::new() }
    }

    fn visit(&mut self, entity: &[u8]) {
        for node in &mut self.nodes {
            node.has_value = false;
            node.has_other_type = false;
            if node.is_key {
                node.values = Sha256::new();
            }
        }
        let CheckedPaths { trie, nodes, canonical, form, .. } = self;
        trie.visit_values(entity, |node, value| {
            let node = &mut nodes[node];
            node.has_value |= value != b"null";
            if let Some(types) = node.types {
                node.has_other_type |= JsonCursor::new(value).peek_type().is_some_and(|found| !types.contains(found));
            }
            if node.is_key {
                form.clear();
                canonical.write(value, form);
                node.values.update((form.len() as u64).to_be_bytes());
                node.values.update(&form);
            }
        });
    }
}

/// A run whose keys are sorted, so that all failing entities are known.
pub struct SortedCheckRun {
    run: CheckRun,
    repeated: RepeatedKeys,
    positions: Vec<u64>,
}

impl SortedCheckRun {
    /// Returns the positions of the entities that [`SortedCheckRun::into_report`] needs, in ascending order.
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// `entities` are the entities at [`SortedCheckRun::positions`].
    pub fn into_report(self, active: Option<ActiveVersion>, entities: &[Vec<u8>]) -> CheckReport {
        let SortedCheckRun { run, repeated, .. } = self;
        let CheckRun { settings, entity_count, required, types, json_schema, .. } = run;
        let mut results = count_results(&settings, entity_count, active);
        if settings.required.is_some() {
            results.push(required.into_result(CheckName::Required, entity_count));
        }
        if let Some(lists) = &settings.unique {
            results.push(unique_result(lists, &repeated, entities, entity_count));
        }
        if settings.types.is_some() {
            results.push(types.into_result(CheckName::Types, entity_count));
        }
        if settings.json_schema.is_some() {
            results.push(json_schema.into_result(CheckName::JsonSchema, entity_count));
        }
        CheckReport { results }
    }
}

/// Returns the results of the checks of the number of entities.
fn count_results(settings: &CheckSettings, entity_count: u64, active: Option<ActiveVersion>) -> Vec<CheckResult> {
    let list = count_text(entity_count);
    let min = settings.min_entities.map(|min| {
        let problem = (entity_count < min).then(|| format!("the list has {list}; valid: at least {min}"));
        CheckResult::new(CheckName::MinEntities, problem)
    });
    let max = settings.max_entities.map(|max| {
        let problem = (entity_count > max).then(|| format!("the list has {list}; valid: at most {max}"));
        CheckResult::new(CheckName::MaxEntities, problem)
    });
    let drop = settings.max_drop_percent.as_ref().map(|percent| {
        let exceeded = active.filter(|active| percent.is_exceeded(active.entity_count, entity_count));
        let problem = exceeded.map(|ActiveVersion { number, entity_count: old }| {
            let dropped = (old - entity_count) as f64 * 100.0 / old as f64;
            let max = percent.as_str();
            format!(
                "the list has {list}, {dropped:.2} % less than the {old} of version {number}; valid: at most {max} % less"
            )
        });
        CheckResult::new(CheckName::MaxDropPercent, problem)
    });
    [min, max, drop].into_iter().flatten().collect()
}

fn count_text(entities: u64) -> String {
    if entities == 1 { "1 entity".to_owned() } else { format!("{entities} entities") }
}

fn unique_result(
    lists: &[Vec<FieldPath>],
    repeated: &RepeatedKeys,
    entities: &[Vec<u8>],
    entity_count: u64,
) -> CheckResult {
    let mut failing = FailingEntities::default();
    for (RepeatedKey { position, list, original }, entity) in repeated.first.iter().zip(entities) {
        let paths = lists.get(usize::from(*list)).map_or(&[][..], Vec::as_slice);
        failing.push(*position, entity, || format!("{}, as at position {original}", describe_key(paths, entity)));
    }
    failing.count = repeated.entity_count;
    failing.into_result(CheckName::Unique, entity_count)
}

fn describe_key(paths: &[FieldPath], entity: &[u8]) -> String {
    const MAX_DESCRIBED_PATHS: usize = 3;
    let describe = |path: &FieldPath| {
        let mut values = Vec::new();
        visit_values_at(entity, path, |value| {
            values.push(quote_value(value));
            match values.len() {
                MAX_DESCRIBED_PATHS => std::ops::ControlFlow::Break(()),
                _ => std::ops::ControlFlow::Continue(()),
            }
        });
        let values = if values.is_empty() { "missing".to_owned() } else { values.join(", ") };
        format!("{} is {values}", quote_path(path))
    };
    paths.iter().take(MAX_DESCRIBED_PATHS).map(describe).collect::<Vec<_>>().join(" and ")
}
