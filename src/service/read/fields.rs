//! Finds the unknown fields of a request (docs/reference/query-semantics.md, Unknown fields).
//!
//! A path is unknown if no entity of the version has it, or if an earlier one of the steps 2 to 5 has removed it from
//! all of them. The first of these sources that knows a path decides:
//! 1. the indexed columns, which the footer lists: most paths of most requests, at no cost;
//! 2. the paths of the profile, which are cached;
//! 3. for `strict` only, the documents: if the profile does not list all paths, or `denull` may have removed arrays.

use std::collections::HashSet;
use std::sync::Arc;

use strata_format::profile::{PathFacts, PathIndex};
use strata_format::reader::VersionReader;
use strata_json::PathTree;
use strata_query::fetch::reshape::{Reshape, ReshapeScratch};
use strata_store::StorageError;
use strata_types::path::Path;
use strata_types::request::ReadRequest;
use strata_types::similar;

use crate::admission::capacity::Capacity;
use crate::read::Reads;
use crate::read::body::within_time;
use crate::{Admitted, Principal, ReadError, UnknownCause, UnknownField, Weight};

/// Unknown fields for which an error names the nearest path. Each is compared with all paths.
const EXPLAINED: usize = 3;

/// The steps that can remove a field, in their order.
const TAKERS: [&str; 4] = ["include_source", "denull", "keep_field", "drop_field"];

#[derive(Clone, Copy, Debug)]
enum Knowledge {
    Absent,
    There(PathFacts),
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    There,
    Unknown(UnknownCause),
    Undecided,
}

#[derive(Clone, Debug)]
struct Named {
    parameter: &'static str,
    path: Path,
    steps: usize,
}

impl Reads {
    /// The unknown fields of a request, each once, in the order of the steps, but not those that only the documents can
    /// tell. Reads at most the paths of the profile, and nothing if all paths have indexed columns. Waits for no permit
    /// unless the request is strict.
    pub async fn unknown_fields(
        &self,
        admitted: &Admitted,
        request: &ReadRequest,
    ) -> Result<Vec<UnknownField>, ReadError> {
        let fields = self.look_for_fields(admitted, request).await?;
        Ok(fields.map(|fields| fields.unknown).unwrap_or_default())
    }

    /// As [`Reads::unknown_fields`], with the nearest paths that exist. Empty if they cannot be found.
    pub async fn explained_unknown_fields(&self, admitted: &Admitted, request: &ReadRequest) -> Vec<UnknownField> {
        match self.look_for_fields(admitted, request).await {
            Ok(Some(Fields { index, unknown, .. })) if !unknown.is_empty() => {
                self.with_nearest(unknown, index).await.unwrap_or_default()
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// Refuses a request with unknown fields. Reads all documents if no other source knows a path.
    pub async fn check_fields(&self, admitted: &Admitted, request: &ReadRequest) -> Result<(), ReadError> {
        let fields = self.look_for_fields(admitted, request).await?;
        let Some(Fields { reader, index, mut unknown, undecided }) = fields else { return Ok(()) };
        if !undecided.is_empty() {
            let capacity = self.capacity.of(admitted.holder);
            unknown.extend(self.search_documents(&capacity, &reader, request, undecided).await?);
        }
        if unknown.is_empty() {
            return Ok(());
        }
        Err(ReadError::UnknownFields(self.with_nearest(unknown, index).await?.into()))
    }

    async fn with_nearest(
        &self,
        mut unknown: Vec<UnknownField>,
        index: Option<Arc<PathIndex>>,
    ) -> Result<Vec<UnknownField>, ReadError> {
        let explaining = self.capacity.engine.spawn(async move {
            // The index has no order. Of several nearest paths, the first by name is named.
            let mut known: Vec<&str> = index.iter().flat_map(|index| index.paths()).collect();
            known.sort_unstable();
            for field in unknown.iter_mut().take(EXPLAINED) {
                if let UnknownCause::Absent { nearest } = &mut field.cause {
                    let nearest_path = similar::nearest(&field.path.to_string(), known.iter().copied());
                    *nearest = nearest_path.map(str::to_owned);
                }
            }
            unknown
        });
        explaining.await.map_err(|_| ReadError::from(StorageError::Worker))
    }

    /// The unknown and undecided fields, according to indexed columns and profile; `None` if all fields exist.
    async fn look_for_fields(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Option<Fields>, ReadError> {
        let named = named(request);
        if named.is_empty() || admitted.file.entity_count == 0 {
            return Ok(None);
        }
        within_time(&self.capacity.engine, self.told_of_fields(admitted, request, named)).await
    }

    async fn told_of_fields(
        &self,
        admitted: &Admitted,
        request: &ReadRequest,
        mut named: Vec<Named>,
    ) -> Result<Option<Fields>, ReadError> {
        let reader = VersionReader::open_recorded(&self.store, &admitted.file, &self.cache).await?;
        named.retain(|named| fate(named, request, footer_knowledge(&reader, &named.path)) != Fate::There);
        if named.is_empty() {
            return Ok(None);
        }
        let index = self.path_index(&reader, admitted.holder, request.strict).await?;
        let mut fields = Fields { reader, index, unknown: Vec::new(), undecided: Vec::new() };
        for named in named {
            let knowledge = match &fields.index {
                None => footer_knowledge(&fields.reader, &named.path),
                Some(index) => match index.get(&named.path.to_string()) {
                    Some(facts) => Knowledge::There(facts),
                    None if index.is_complete() => Knowledge::Absent,
                    None => footer_knowledge(&fields.reader, &named.path),
                },
            };
            match fate(&named, request, knowledge) {
                Fate::There => {}
                Fate::Undecided => fields.undecided.push(named),
                Fate::Unknown(cause) => {
                    if fields.unknown.iter().all(|unknown| unknown.path != named.path) {
                        fields.unknown.push(UnknownField { parameter: named.parameter, path: named.path, cause });
                    }
                }
            }
        }
        Ok((!fields.unknown.is_empty() || !fields.undecided.is_empty()).then_some(fields))
    }

    /// The paths of the profile if they are cached, or if a permit to read them is free or, if the caller `waits`, gets
    /// free. `None` also if the profile is damaged, which its reader reports.
    pub(super) async fn path_index(
        &self,
        reader: &VersionReader,
        holder: Principal,
        waits: bool,
    ) -> Result<Option<Arc<PathIndex>>, ReadError> {
        if let Some(paths) = reader.cached_paths().await {
            return Ok(Some(paths));
        }
        let admission = self.capacity.admission.of(holder);
        let permit = match waits {
            true => Some(admission.query(Weight::Light).await?),
            false => admission.try_query(Weight::Light),
        };
        let Some(_permit) = permit else { return Ok(None) };
        match reader.paths().await {
            Err(error) if error.is_damage() => Ok(None),
            read => Ok(Some(read?)),
        }
    }

    /// Reads all documents for paths that no other source knows.
    async fn search_documents(
        &self,
        capacity: &Capacity,
        reader: &VersionReader,
        request: &ReadRequest,
        undecided: Vec<Named>,
    ) -> Result<Vec<UnknownField>, ReadError> {
        let weight = Weight::of(reader.layout().document_bytes, &self.config.query);
        let _permit = capacity.admission.query(weight).await?;
        let reader = reader.clone();
        let reshapes = reshapes(request);
        let searching = capacity.engine.with_priority(weight.priority()).spawn(async move {
            let mut search = Search::new(reshapes, undecided);
            for row_group in 0..reader.row_groups().len() {
                for page in 0..reader.page_count(row_group) {
                    if search.is_done() {
                        return Ok(search.unknown());
                    }
                    let documents = reader.documents(row_group, page).await?;
                    documents.rows().for_each(|row| search.add(documents.document(row)));
                    tokio::task::yield_now().await;
                }
            }
            Ok::<_, StorageError>(search.unknown())
        });
        let found = async { Ok(searching.await.map_err(|_| StorageError::Worker)??) };
        within_time(&capacity.engine, found).await
    }
}

struct Fields {
    reader: VersionReader,
    index: Option<Arc<PathIndex>>,
    unknown: Vec<UnknownField>,
    undecided: Vec<Named>,
}

fn footer_knowledge(reader: &VersionReader, path: &Path) -> Knowledge {
    let layout = reader.layout();
    match layout.shredded(path.keys()) {
        // An edited file has the columns of its base, whose entities may have been removed.
        Some(_) if layout.edit.is_none() => Knowledge::There(PathFacts::default()),
        _ => Knowledge::Nothing,
    }
}

fn named(request: &ReadRequest) -> Vec<Named> {
    let named = request.named_paths().into_iter();
    named.map(|(parameter, path)| Named { parameter, path, steps: steps_before(parameter) }).collect()
}

/// How many of [`TAKERS`] run before what a parameter does.
fn steps_before(parameter: &str) -> usize {
    match parameter {
        "keep_field" => 2,
        "drop_field" => 3,
        _ => 4,
    }
}

impl UnknownField {
    /// Whether the field is unknown to this parameter. No step restores a field that an earlier one has removed.
    pub fn is_unknown_to(&self, parameter: &str) -> bool {
        steps_before(parameter) >= steps_before(self.parameter)
    }
}

fn fate(named: &Named, request: &ReadRequest, knowledge: Knowledge) -> Fate {
    let (facts, mut is_decided) = match knowledge {
        Knowledge::Absent => return Fate::Unknown(UnknownCause::Absent { nearest: None }),
        Knowledge::There(facts) => (facts, true),
        Knowledge::Nothing => (PathFacts::default(), false),
    };
    let keys = named.path.keys();
    let taken = |taker: usize| Fate::Unknown(UnknownCause::Taken { step: TAKERS[taker] });
    if named.steps > 0 && !request.include_source && keys[0] == "_source" {
        return taken(0);
    }
    if named.steps > 1 && request.denull {
        match facts.survives_denull {
            Some(true) => {}
            Some(false) => return taken(1),
            None => is_decided = false,
        }
    }
    // The field is removed. The error of a strict request names the first step that did so, perhaps an earlier one.
    let taken_by_now = |taker: usize, is_first: bool| match is_first || !request.strict {
        true => taken(taker),
        false => Fate::Undecided,
    };
    let is_below = |path: &Path| keys.starts_with(path.keys());
    if named.steps > 2 && !request.keep.is_empty() && !request.keep.iter().any(is_below) {
        if !request.keep.iter().any(|kept| kept.keys().starts_with(keys)) {
            return taken_by_now(2, is_decided);
        }
        // A parent of a retained path: scalars are removed, objects and arrays stay.
        match (facts.has_object, facts.has_array) {
            (Some(true), _) => {}
            (_, Some(true)) if !request.denull => {}
            (Some(false), Some(false)) => return taken_by_now(2, is_decided),
            _ => is_decided = false,
        }
    }
    if named.steps > 3 && request.drop.iter().any(is_below) {
        return taken_by_now(3, is_decided);
    }
    if is_decided { Fate::There } else { Fate::Undecided }
}

/// The projections after none, one, … all of [`TAKERS`].
fn reshapes(request: &ReadRequest) -> [Reshape; 5] {
    let ReadRequest { include_source: source, denull, .. } = *request;
    let reshape = |source, denull, keep: &[Path], drop: &[Path]| Reshape::new(source, denull, keep.into(), drop.into());
    [
        reshape(true, false, &[], &[]),
        reshape(source, false, &[], &[]),
        reshape(source, denull, &[], &[]),
        reshape(source, denull, &request.keep, &[]),
        reshape(source, denull, &request.keep, &request.drop),
    ]
}

/// Searches paths in documents after each of the steps. Scans a document at most once for each step.
struct Search {
    reshapes: [Reshape; 5],
    /// Each path, with the number of steps after which an entity still has it; `None` if no entity has it.
    sought: Vec<(Named, Option<usize>)>,
    tree: PathTree,
    /// For each node of the tree, the numbers of the paths that end there.
    at: Vec<Vec<usize>>,
    scratch: ReshapeScratch,
}

impl Search {
    fn new(reshapes: [Reshape; 5], mut undecided: Vec<Named>) -> Search {
        // A path that is named twice after the same steps has one result.
        let mut seen = HashSet::new();
        undecided.retain(|named| seen.insert((named.path.clone(), named.steps)));
        let (tree, ends) = PathTree::of(undecided.iter().map(|named| &named.path));
        let mut at = vec![Vec::new(); tree.len()];
        for (number, end) in ends.into_iter().enumerate() {
            at[end].push(number);
        }
        let sought = undecided.into_iter().map(|named| (named, None)).collect();
        Search { reshapes, sought, tree, at, scratch: ReshapeScratch::default() }
    }

    fn is_done(&self) -> bool {
        self.sought.iter().all(|(named, survived)| *survived == Some(named.steps))
    }

    fn add(&mut self, document: &[u8]) {
        let Search { reshapes, sought, tree, at, scratch } = self;
        for (steps, reshape) in reshapes.iter().enumerate() {
            let is_open = |(named, survived): &(Named, Option<usize>)| named.steps >= steps && *survived < Some(steps);
            if !sought.iter().any(is_open) {
                continue;
            }
            let mut has_more = false;
            tree.reach_values(reshape.apply(document, scratch), |node, _| {
                for number in &at[node] {
                    let (named, survived) = &mut sought[*number];
                    *survived = (*survived).max(Some(steps.min(named.steps)));
                    has_more |= *survived < Some(named.steps);
                }
            });
            // No later step adds a path.
            if !has_more {
                break;
            }
        }
    }

    fn unknown(self) -> Vec<UnknownField> {
        let mut unknown: Vec<UnknownField> = Vec::new();
        for (Named { parameter, path, steps }, survived) in self.sought {
            let cause = match survived {
                Some(survived) if survived == steps => continue,
                Some(survived) => UnknownCause::Taken { step: TAKERS[survived] },
                None => UnknownCause::Absent { nearest: None },
            };
            if unknown.iter().all(|unknown| unknown.path != path) {
                unknown.push(UnknownField { parameter, path, cause });
            }
        }
        unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTITIES: [&str; 3] = [
        r#"{"_source":"s","a":{"b":1,"c":null},"n":null,"e":[""],"l":[[]],"m":[1,null]}"#,
        r#"{"_source":"t","a":5,"n":"","e":[null],"o":{}}"#,
        r#"{"a":[{"b":""}],"deep":[[{"x":1}]],"both":["",{"y":null}]}"#,
    ];

    fn paths(list: &str) -> Vec<Path> {
        Path::parse_list(list)
    }

    /// What the documents tell, which is always right.
    fn searched(request: &ReadRequest) -> Vec<(&'static str, String, Option<&'static str>)> {
        let mut search = Search::new(reshapes(request), named(request));
        ENTITIES.iter().for_each(|entity| search.add(entity.as_bytes()));
        let shown = |field: UnknownField| {
            let step = match field.cause {
                UnknownCause::Absent { .. } => None,
                UnknownCause::Taken { step } => Some(step),
            };
            (field.parameter, field.path.to_string(), step)
        };
        search.unknown().into_iter().map(shown).collect()
    }

    fn index() -> PathIndex {
        use strata_format::profile::{ProfileBuilder, ShreddingBounds};
        use strata_types::index::IndexSettings;

        let mut profile = ProfileBuilder::default();
        ENTITIES.iter().for_each(|entity| profile.add(entity.as_bytes()));
        let settings = IndexSettings::default();
        let described = profile.describe(&profile.choose_shredded(&ShreddingBounds::default(), &settings), &settings);
        PathIndex::decode(&described.encode(None).expect("a profile")).expect("an index")
    }

    #[test]
    fn search_names_the_step() {
        let request = ReadRequest {
            include_source: false,
            denull: true,
            keep: paths("a.b,n,nope"),
            drop: paths("a.b,_source"),
            dedup_key: paths("a,a.b,o,e"),
            ..ReadRequest::default()
        };
        assert_eq!(
            searched(&request),
            [
                ("keep_field", "n".to_owned(), Some("denull")),
                ("keep_field", "nope".to_owned(), None),
                ("drop_field", "_source".to_owned(), Some("include_source")),
                ("dedup_key", "a.b".to_owned(), Some("drop_field")),
                ("dedup_key", "o".to_owned(), Some("keep_field")),
                ("dedup_key", "e".to_owned(), Some("denull")),
            ]
        );
    }

    #[test]
    fn profile_decides_as_documents_do() {
        let index = index();
        let names = "_source,a,a.b,a.c,n,e,l,m,o,deep,deep.x,both,both.y,nope,a.nope";
        let lists = ["", "a", "a.b", "a.b,n,e", "deep.x,both.y,l", "o,m,_source", "a.nope", "l.x,e.x,m.x,both.x,o.x"];
        let mut undecided = 0;
        for keep in lists {
            for drop in lists {
                for (include_source, denull) in [(true, false), (false, false), (true, true), (false, true)] {
                    let keep = paths(keep);
                    let drop = paths(drop);
                    let dedup_key = paths(names);
                    let strict = drop.len().is_multiple_of(2);
                    let request =
                        ReadRequest { include_source, denull, keep, drop, dedup_key, strict, ..ReadRequest::default() };
                    let right = searched(&request);
                    for named in named(&request) {
                        let text = named.path.to_string();
                        let knowledge = index.get(&text).map_or(Knowledge::Absent, Knowledge::There);
                        let is_unknown = right.iter().any(|(_, path, _)| *path == text);
                        let at =
                            right.iter().find(|(parameter, path, _)| *path == text && *parameter == named.parameter);
                        match fate(&named, &request, knowledge) {
                            Fate::There => assert_eq!(at, None, "{request:?}"),
                            Fate::Undecided => undecided += 1,
                            Fate::Unknown(UnknownCause::Absent { .. }) => assert!(is_unknown, "{text} {request:?}"),
                            Fate::Unknown(UnknownCause::Taken { step }) => {
                                assert!(is_unknown, "{text} {request:?}");
                                let is_first = at.is_none_or(|at| at.2 == Some(step));
                                assert!(is_first || !request.strict, "{text} {step} {request:?}");
                            }
                        }
                    }
                }
            }
        }
        assert!((1..500).contains(&undecided), "{undecided}");
    }
}
