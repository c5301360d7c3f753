//! Finds the unknown fields of a request (docs/reference/query-semantics.md, Unknown fields).
//!
//! A path is unknown if no entity of the version has it, or if an earlier step (`include_source`, `denull`,
//! `keep_field`, or `drop_field`) has removed it from all entities. The first source with the path decides:
//! 1. the indexed columns, which the footer lists: most paths of most requests, at no cost;
//! 2. the paths of the profile, which are cached;
//! 3. for `strict` only, the documents: if the profile does not list all paths, or `denull` may have removed arrays.

use std::collections::HashSet;
use std::sync::Arc;

use strata_format::profile::{PathFacts, ProfilePaths};
use strata_format::reader::VersionReader;
use strata_json::PathTrie;
use strata_query::fetch::entity_projection::{EntityProjection, EntityProjectionScratch};
use strata_store::StorageError;
use strata_types::field_path::FieldPath;
use strata_types::read_request::ReadRequest;
use strata_types::suggest;

use crate::admission::resource_context::ResourceContext;
use crate::lookup::error::Result;
use crate::read::ReadService;
use crate::read::text_body::with_query_timeout;
use crate::{AuthorizedTarget, CostClass, Principal, ReadError, UnknownField, UnknownFieldCause};

/// Maximum number of unknown fields for which an error suggests the nearest path; each is compared with all paths.
const MAX_EXPLAINED_FIELDS: usize = 3;

/// The steps that can remove a field, in the order in which they run.
const REMOVING_STEPS: [&str; 4] = ["include_source", "denull", "keep_field", "drop_field"];

/// What happens if no permit for reading the profile is free.
#[derive(Clone, Copy, Debug)]
pub(super) enum PermitWait {
    Wait,
    Skip,
}

#[derive(Clone, Copy, Debug)]
enum PathKnowledge {
    Absent,
    Exists(PathFacts),
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldStatus {
    Known,
    Unknown(UnknownFieldCause),
    Undecided,
}

#[derive(Clone, Debug)]
struct FieldReference {
    parameter: &'static str,
    path: FieldPath,
    preceding_steps: usize,
}

impl ReadService {
    /// Returns the unknown fields of a request, each once, in the order of the steps. Reads at most the paths of the
    /// profile, so fields for which only the documents can decide are omitted.
    pub async fn unknown_fields(&self, target: &AuthorizedTarget, request: &ReadRequest) -> Result<Vec<UnknownField>> {
        let fields = self.find_unknown_fields_with_timeout(target, request).await?;
        Ok(fields.map(|fields| fields.unknown).unwrap_or_default())
    }

    /// Like [`ReadService::unknown_fields`], with the nearest existing paths. Empty if finding them fails.
    pub async fn unknown_fields_with_nearest(
        &self,
        target: &AuthorizedTarget,
        request: &ReadRequest,
    ) -> Vec<UnknownField> {
        match self.find_unknown_fields_with_timeout(target, request).await {
            Ok(Some(ClassifiedFields { index, unknown, .. })) if !unknown.is_empty() => {
                self.add_nearest_paths(unknown, index).await.unwrap_or_default()
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// Rejects a request with unknown fields. Reads all documents if neither the columns nor the profile decides.
    pub async fn reject_unknown_fields(&self, target: &AuthorizedTarget, request: &ReadRequest) -> Result<()> {
        let fields = self.find_unknown_fields_with_timeout(target, request).await?;
        let Some(ClassifiedFields { reader, index, mut unknown, undecided }) = fields else { return Ok(()) };
        if !undecided.is_empty() {
            let resources = self.resources.for_principal(target.principal);
            unknown.extend(self.search_documents(&resources, &reader, request, undecided).await?);
        }
        if unknown.is_empty() {
            return Ok(());
        }
        Err(ReadError::UnknownFields(self.add_nearest_paths(unknown, index).await?.into()))
    }

    async fn add_nearest_paths(
        &self,
        mut unknown: Vec<UnknownField>,
        index: Option<Arc<ProfilePaths>>,
    ) -> Result<Vec<UnknownField>> {
        let search = self.resources.engine.spawn(async move {
            // The paths are sorted, so that the first by name is suggested if several paths are equally near.
            let mut known: Vec<&str> = index.iter().flat_map(|index| index.paths()).collect();
            known.sort_unstable();
            for field in unknown.iter_mut().take(MAX_EXPLAINED_FIELDS) {
                if let UnknownFieldCause::Absent { nearest } = &mut field.cause {
                    let nearest_path = suggest::find_similar_name(&field.path.to_string(), known.iter().copied());
                    *nearest = nearest_path.map(str::to_owned);
                }
            }
            unknown
        });
        search.await.map_err(|_| ReadError::from(StorageError::WorkerStopped))
    }

    /// Returns the fields that are unknown according to the indexed columns and the profile, and the fields that
    /// neither decides; `None` if all fields exist.
    async fn find_unknown_fields_with_timeout(
        &self,
        target: &AuthorizedTarget,
        request: &ReadRequest,
    ) -> Result<Option<ClassifiedFields>> {
        let references = referenced_fields(request);
        if references.is_empty() || target.file.entity_count == 0 {
            return Ok(None);
        }
        with_query_timeout(&self.resources.engine, self.find_unknown_fields(target, request, references)).await
    }

    async fn find_unknown_fields(
        &self,
        target: &AuthorizedTarget,
        request: &ReadRequest,
        mut references: Vec<FieldReference>,
    ) -> Result<Option<ClassifiedFields>> {
        let reader = VersionReader::open_recorded(&self.store, &target.file, &self.cache).await?;
        references.retain(|reference| {
            field_status(reference, request, knowledge_from_footer(&reader, &reference.path)) != FieldStatus::Known
        });
        if references.is_empty() {
            return Ok(None);
        }
        let wait = if request.strict { PermitWait::Wait } else { PermitWait::Skip };
        let index = self.load_path_index(&reader, target.principal, wait).await?;
        let mut fields = ClassifiedFields { reader, index, unknown: Vec::new(), undecided: Vec::new() };
        for reference in references {
            let knowledge = match &fields.index {
                None => knowledge_from_footer(&fields.reader, &reference.path),
                Some(index) => match index.get(&reference.path.to_string()) {
                    Some(facts) => PathKnowledge::Exists(facts),
                    None if index.is_complete() => PathKnowledge::Absent,
                    None => knowledge_from_footer(&fields.reader, &reference.path),
                },
            };
            match field_status(&reference, request, knowledge) {
                FieldStatus::Known => {}
                FieldStatus::Undecided => fields.undecided.push(reference),
                FieldStatus::Unknown(cause) => {
                    let FieldReference { parameter, path, .. } = reference;
                    if fields.unknown.iter().all(|unknown| unknown.path != path) {
                        fields.unknown.push(UnknownField { parameter, path, cause });
                    }
                }
            }
        }
        Ok((!fields.unknown.is_empty() || !fields.undecided.is_empty()).then_some(fields))
    }

    /// Returns the paths of the profile; `None` if it is damaged, or with [`PermitWait::Skip`] if no permit is free.
    pub(super) async fn load_path_index(
        &self,
        reader: &VersionReader,
        principal: Principal,
        wait: PermitWait,
    ) -> Result<Option<Arc<ProfilePaths>>> {
        if let Some(paths) = reader.cached_profile_paths().await {
            return Ok(Some(paths));
        }
        let admission = self.resources.admission.for_principal(principal);
        let permit = match wait {
            PermitWait::Wait => Some(admission.acquire_query(CostClass::Light).await?),
            PermitWait::Skip => admission.try_acquire_query(CostClass::Light),
        };
        let Some(_permit) = permit else { return Ok(None) };
        match reader.profile_paths().await {
            Err(error) if error.is_file_damage() => Ok(None),
            paths => Ok(Some(paths?)),
        }
    }

    async fn search_documents(
        &self,
        resources: &ResourceContext,
        reader: &VersionReader,
        request: &ReadRequest,
        undecided: Vec<FieldReference>,
    ) -> Result<Vec<UnknownField>> {
        let class = CostClass::from_work_bytes(reader.layout().document_bytes, &self.config.query);
        let _permit = resources.admission.acquire_query(class).await?;
        let reader = reader.clone();
        let projections = projections_after_each_step(request);
        let search = resources.engine.with_priority(class.priority()).spawn(async move {
            let mut search = FieldSearch::new(projections, undecided);
            for row_group in 0..reader.row_groups().len() {
                for page in 0..reader.page_count(row_group) {
                    if search.is_done() {
                        return Ok(search.into_unknown_fields());
                    }
                    let documents = reader.read_document_page(row_group, page).await?;
                    documents.rows().for_each(|row| search.scan_document(documents.document(row)));
                    tokio::task::yield_now().await;
                }
            }
            Ok::<_, StorageError>(search.into_unknown_fields())
        });
        let unknown = async { Ok(search.await.map_err(|_| StorageError::WorkerStopped)??) };
        with_query_timeout(&resources.engine, unknown).await
    }
}

struct ClassifiedFields {
    reader: VersionReader,
    index: Option<Arc<ProfilePaths>>,
    unknown: Vec<UnknownField>,
    undecided: Vec<FieldReference>,
}

fn knowledge_from_footer(reader: &VersionReader, path: &FieldPath) -> PathKnowledge {
    let layout = reader.layout();
    match layout.find_shredded(path.keys()) {
        // A delta file has the indexed columns of its bases, whose entities may have been removed.
        Some(_) if layout.overlay.is_none() => PathKnowledge::Exists(PathFacts::default()),
        _ => PathKnowledge::Unknown,
    }
}

fn referenced_fields(request: &ReadRequest) -> Vec<FieldReference> {
    let paths = request.paths_by_parameter().into_iter();
    paths
        .map(|(parameter, path)| FieldReference { parameter, path, preceding_steps: removing_steps_before(parameter) })
        .collect()
}

fn removing_steps_before(parameter: &str) -> usize {
    match parameter {
        "keep_field" => 2,
        "drop_field" => 3,
        _ => 4,
    }
}

impl UnknownField {
    /// Returns whether the field is also unknown to `parameter`: this parameter is evaluated after at least as many
    /// steps that can remove fields, and no step restores a removed field.
    pub fn is_also_unknown_for(&self, parameter: &str) -> bool {
        removing_steps_before(parameter) >= removing_steps_before(self.parameter)
    }
}

fn field_status(reference: &FieldReference, request: &ReadRequest, knowledge: PathKnowledge) -> FieldStatus {
    let (facts, mut is_decided) = match knowledge {
        PathKnowledge::Absent => return FieldStatus::Unknown(UnknownFieldCause::Absent { nearest: None }),
        PathKnowledge::Exists(facts) => (facts, true),
        PathKnowledge::Unknown => (PathFacts::default(), false),
    };
    let keys = reference.path.keys();
    let removed_by = |step: usize| FieldStatus::Unknown(UnknownFieldCause::Removed { step: REMOVING_STEPS[step] });
    if reference.preceding_steps > 0 && !request.include_source && keys[0] == "_source" {
        return removed_by(0);
    }
    if reference.preceding_steps > 1 && request.denull {
        match facts.survives_denull {
            Some(true) => {}
            Some(false) => return removed_by(1),
            None => is_decided = false,
        }
    }
    // The error of a `strict` request must name the first step that removed the field.
    let removed_by_or_before = |step: usize, is_first: bool| match is_first || !request.strict {
        true => removed_by(step),
        false => FieldStatus::Undecided,
    };
    let is_below = |path: &FieldPath| keys.starts_with(path.keys());
    if reference.preceding_steps > 2 && !request.keep_fields.is_empty() && !request.keep_fields.iter().any(is_below) {
        if !request.keep_fields.iter().any(|path| path.keys().starts_with(keys)) {
            return removed_by_or_before(2, is_decided);
        }
        // The field is a parent of a path that `keep_field` retains: scalars are removed, objects and arrays stay.
        match (facts.has_object, facts.has_array) {
            (Some(true), _) => {}
            (_, Some(true)) if !request.denull => {}
            (Some(false), Some(false)) => return removed_by_or_before(2, is_decided),
            _ => is_decided = false,
        }
    }
    if reference.preceding_steps > 3 && request.drop_fields.iter().any(is_below) {
        return removed_by_or_before(3, is_decided);
    }
    if is_decided { FieldStatus::Known } else { FieldStatus::Undecided }
}

/// Returns the projections of an entity after the first 0, 1, … 4 of [`REMOVING_STEPS`].
fn projections_after_each_step(request: &ReadRequest) -> [EntityProjection; 5] {
    let ReadRequest { include_source, denull, .. } = *request;
    let keep_fields = || request.keep_fields.clone();
    let drop_fields = || request.drop_fields.clone();
    let rest = ReadRequest::default;
    [
        rest(),
        ReadRequest { include_source, ..rest() },
        ReadRequest { include_source, denull, ..rest() },
        ReadRequest { include_source, denull, keep_fields: keep_fields(), ..rest() },
        ReadRequest { include_source, denull, keep_fields: keep_fields(), drop_fields: drop_fields(), ..rest() },
    ]
    .map(|request| EntityProjection::from_request(&request))
}

/// Searches the documents for paths after each step that can remove fields. Scans a document at most once per step.
struct FieldSearch {
    projections: [EntityProjection; 5],
    /// Each searched path with the maximum number of steps after which an entity still has it; `None` if none has it.
    searched: Vec<(FieldReference, Option<usize>)>,
    tree: PathTrie,
    paths_by_node: Vec<Vec<usize>>,
    scratch: EntityProjectionScratch,
}

impl FieldSearch {
    fn new(projections: [EntityProjection; 5], mut undecided: Vec<FieldReference>) -> FieldSearch {
        // A path that several parameters use after the same steps is searched only once.
        let mut seen = HashSet::new();
        undecided.retain(|reference| seen.insert((reference.path.clone(), reference.preceding_steps)));
        let (tree, ends) = PathTrie::from_paths(undecided.iter().map(|reference| &reference.path));
        let mut paths_by_node = vec![Vec::new(); tree.len()];
        for (number, end) in ends.into_iter().enumerate() {
            paths_by_node[end].push(number);
        }
        let searched = undecided.into_iter().map(|reference| (reference, None)).collect();
        FieldSearch { projections, searched, tree, paths_by_node, scratch: EntityProjectionScratch::default() }
    }

    fn is_done(&self) -> bool {
        self.searched.iter().all(|(reference, survived)| *survived == Some(reference.preceding_steps))
    }

    fn scan_document(&mut self, document: &[u8]) {
        let FieldSearch { projections, searched, tree, paths_by_node, scratch } = self;
        for (steps, projection) in projections.iter().enumerate() {
            let is_open = |(reference, survived): &(FieldReference, Option<usize>)| {
                reference.preceding_steps >= steps && *survived < Some(steps)
            };
            if !searched.iter().any(is_open) {
                continue;
            }
            let mut has_more = false;
            tree.visit_values(projection.apply(document, scratch), |node, _| {
                for number in &paths_by_node[node] {
                    let (reference, survived) = &mut searched[*number];
                    *survived = (*survived).max(Some(steps.min(reference.preceding_steps)));
                    has_more |= *survived < Some(reference.preceding_steps);
                }
            });
            // The search of the document ends, because no later step restores a removed path.
            if !has_more {
                break;
            }
        }
    }

    fn into_unknown_fields(self) -> Vec<UnknownField> {
        let mut unknown: Vec<UnknownField> = Vec::new();
        for (FieldReference { parameter, path, preceding_steps: steps }, survived) in self.searched {
            let cause = match survived {
                Some(survived) if survived == steps => continue,
                Some(survived) => UnknownFieldCause::Removed { step: REMOVING_STEPS[survived] },
                None => UnknownFieldCause::Absent { nearest: None },
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

    fn paths(list: &str) -> Vec<FieldPath> {
        FieldPath::parse_list(list)
    }

    fn search_fixture(request: &ReadRequest) -> Vec<(&'static str, String, Option<&'static str>)> {
        let mut search = FieldSearch::new(projections_after_each_step(request), referenced_fields(request));
        ENTITIES.iter().for_each(|entity| search.scan_document(entity.as_bytes()));
        let to_tuple = |field: UnknownField| {
            let step = match field.cause {
                UnknownFieldCause::Absent { .. } => None,
                UnknownFieldCause::Removed { step } => Some(step),
            };
            (field.parameter, field.path.to_string(), step)
        };
        search.into_unknown_fields().into_iter().map(to_tuple).collect()
    }

    fn index() -> ProfilePaths {
        use strata_format::profile::{ProfileBuilder, ShreddingLimits};
        use strata_types::index_settings::IndexSettings;

        let mut profile = ProfileBuilder::default();
        ENTITIES.iter().for_each(|entity| profile.add(entity.as_bytes()));
        let settings = IndexSettings::default();
        let described = profile.to_stored(&profile.choose_shredded(&ShreddingLimits::default(), &settings), &settings);
        ProfilePaths::decode(&described.encode(None).expect("a profile")).expect("an index")
    }

    #[test]
    fn search_finds_step_that_removed_field() {
        let request = ReadRequest {
            include_source: false,
            denull: true,
            keep_fields: paths("a.b,n,nope"),
            drop_fields: paths("a.b,_source"),
            dedup_key: paths("a,a.b,o,e"),
            ..ReadRequest::default()
        };
        assert_eq!(
            search_fixture(&request),
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
    fn profile_and_documents_decide_alike() {
        let index = index();
        let names = "_source,a,a.b,a.c,n,e,l,m,o,deep,deep.x,both,both.y,nope,a.nope";
        let lists = ["", "a", "a.b", "a.b,n,e", "deep.x,both.y,l", "o,m,_source", "a.nope", "l.x,e.x,m.x,both.x,o.x"];
        let mut undecided = 0;
        for keep in lists {
            for drop in lists {
                for (include_source, denull) in [(true, false), (false, false), (true, true), (false, true)] {
                    let keep_fields = paths(keep);
                    let drop_fields = paths(drop);
                    let dedup_key = paths(names);
                    let strict = drop_fields.len().is_multiple_of(2);
                    let request = ReadRequest {
                        include_source,
                        denull,
                        keep_fields,
                        drop_fields,
                        dedup_key,
                        strict,
                        ..ReadRequest::default()
                    };
                    let expected = search_fixture(&request);
                    for reference in referenced_fields(&request) {
                        let text = reference.path.to_string();
                        let knowledge = index.get(&text).map_or(PathKnowledge::Absent, PathKnowledge::Exists);
                        let is_unknown = expected.iter().any(|(_, path, _)| *path == text);
                        let found = expected
                            .iter()
                            .find(|(parameter, path, _)| *path == text && *parameter == reference.parameter);
                        match field_status(&reference, &request, knowledge) {
                            FieldStatus::Known => assert_eq!(found, None, "{request:?}"),
                            FieldStatus::Undecided => undecided += 1,
                            FieldStatus::Unknown(UnknownFieldCause::Absent { .. }) => {
                                assert!(is_unknown, "{text} {request:?}")
                            }
                            FieldStatus::Unknown(UnknownFieldCause::Removed { step }) => {
                                assert!(is_unknown, "{text} {request:?}");
                                let is_first = found.is_none_or(|found| found.2 == Some(step));
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
