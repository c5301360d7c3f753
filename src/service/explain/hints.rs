//! Hints in an explanation: how to make a read cheaper, and possible mistakes in the request.

use std::collections::HashSet;

use strata_format::profile::{ProfilePaths, StoredProfile};
use strata_format::reader::VersionReader;
use strata_query::cost;
use strata_query::fetch::entity_projection::EntityProjection;
use strata_query::scan::predicate::Predicate;
use strata_query::scan::scan_report::AccessPath;
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, RangeBound, ReadRequest};
use strata_types::source::guess_delimiter;
use strata_types::suggest;

use super::text::format_size;
use super::{IgnoredParameter, ReadExplanation};
use crate::read::hints::{self, ComparableTypes, nested_sort_hint};

/// Advice in hints. The dashboard adds a link to the index settings after this sentence.
const INDEX_ADVICE: &str = "To index the path in later versions, list it in `index.always`";
const MAX_SUGGESTED_PATHS: usize = 5;

pub(super) fn hints(
    explanation: &ReadExplanation,
    request: &ReadRequest,
    reader: &VersionReader,
    profile: Option<&StoredProfile>,
    paths: Option<&ProfilePaths>,
) -> Vec<String> {
    let mut hints = Vec::new();
    if explanation.frozen {
        hints.push("The dataset is frozen, so requests for it return 410.".to_owned());
    }
    if !explanation.ignored.is_empty() {
        let name = |ignored: &IgnoredParameter| match ignored.nearest {
            Some(nearest) => format!("{} (did you mean `{nearest}`?)", ignored.name),
            None => ignored.name.clone(),
        };
        let names: Vec<String> = explanation.ignored.iter().map(name).collect();
        hints.push(format!("Ignored unknown parameters: {}.", names.join(", ")));
    }
    hints.extend(profile.and_then(wrong_delimiter_hint));
    let absent = push_absent_path_hints(request, profile, &mut hints);
    let types = |path: &FieldPath| {
        paths.filter(|_| !absent.contains(path)).and_then(|paths| hints::comparable_types(paths, path))
    };
    // No index helps a condition on a path that has only objects.
    let is_nested_only = |paths: &ProfilePaths, path: &FieldPath| {
        paths.get(&path.to_string()).and_then(ComparableTypes::from_facts).is_some_and(|types| types.is_nested_only())
    };
    let is_pointless =
        |path: &FieldPath| absent.contains(path) || paths.is_some_and(|paths| is_nested_only(paths, path));
    push_predicate_hints(explanation, request, reader, is_pointless, &mut hints);
    hints.extend(hints::filter_and_sort_hints(request, explanation.answer.total, types));
    push_sort_and_dedup_hints(explanation, reader, is_pointless, &mut hints);
    if explanation.answer.columns.is_some() && explanation.answer.total > 0 && explanation.work.heavy {
        hints.push(format!(
            "With the format {}, strata might fetch documents twice, because it must find the columns first. To avoid \
             this, use json, jsonl, or xml. You can also return all entities in their stored order.",
            request.format.name()
        ));
    }
    for operator in explanation.operators.iter().filter(|operator| operator.spills > 0) {
        let name = operator.operator.split(':').next().unwrap_or_default();
        hints.push(format!(
            "{name} spilled {} to disk. To avoid this, raise `query.memory_bytes` or set a `limit`.",
            format_size(operator.spilled_bytes)
        ));
    }
    if let Some(bytes) = explanation.documents.spilled_bytes {
        let enough = format_size(reader.layout().document_bytes.saturating_mul(2));
        hints.push(format!(
            "The documents were sorted on disk ({}). To avoid this, use a smaller `limit`, or set \
             `cache.memory_bytes` to {enough} or more.",
            format_size(bytes)
        ));
    }
    hints
}

/// Returns a hint if entities have a single field, whose name looks like a header line with a different delimiter.
fn wrong_delimiter_hint(profile: &StoredProfile) -> Option<String> {
    let mut fields = profile.paths.iter().filter(|record| record.path != "_source");
    let (field, None) = (fields.next()?, fields.next()) else { return None };
    let name = FieldPath::parse(&field.path).ok()?.keys().concat();
    let delimiter = guess_delimiter(&name)?;
    Some(format!(
        "The only field is named `{name}`, so the source might be a table whose cells are separated by {delimiter}. \
         csv requires commas, and tsv requires tabs."
    ))
}

/// Adds a hint for each path in the request that no entity has in the step that uses the path. Returns these paths.
fn push_absent_path_hints(
    request: &ReadRequest,
    profile: Option<&StoredProfile>,
    hints: &mut Vec<String>,
) -> Vec<FieldPath> {
    // A profile that omits paths does not prove that a path is absent.
    let profile = profile.filter(|profile| profile.entities > 0 && !profile.paths_left_out);
    let projection = EntityProjection::from_request(request);
    let sort = request.sort.as_ref().and_then(|sort| FieldPath::from_keys([sort.field.as_str()]).ok());
    let conditions = |conditions: &[PathValue]| -> Vec<FieldPath> {
        conditions.iter().map(|condition| condition.path.clone()).collect()
    };
    let ranges = |bound: RangeBound| conditions(&request.range_filters[bound as usize]);
    let steps = [
        ("keep_field", request.keep_fields.clone(), "keeps nothing for this path"),
        ("drop_field", request.drop_fields.clone(), "removes nothing for this path"),
        ("filter", conditions(&request.filters), "finds nothing"),
        ("filter_contains", conditions(&request.contains_filters), "finds nothing"),
        ("filter_gt", ranges(RangeBound::Greater), "finds nothing"),
        ("filter_gte", ranges(RangeBound::GreaterOrEqual), "finds nothing"),
        ("filter_lt", ranges(RangeBound::Less), "finds nothing"),
        ("filter_lte", ranges(RangeBound::LessOrEqual), "finds nothing"),
        ("sort", sort.into_iter().collect(), "changes nothing"),
        (
            "dedup_key",
            if request.dedup { request.dedup_key.clone() } else { Vec::new() },
            "treats all entities as equal at this path",
        ),
    ];
    // If `keep_field` keeps only a part of an object, `dedup_key` compares this part.
    let is_partly_kept = |path: &FieldPath| projection.keep.iter().any(|keep| keep.keys().starts_with(path.keys()));
    let existing: Option<HashSet<&str>> =
        profile.map(|profile| profile.paths.iter().map(|record| record.path.as_str()).collect());
    let mut absent = Vec::new();
    for (step, paths, consequence) in steps {
        let is_later = !matches!(step, "keep_field" | "drop_field");
        for path in paths {
            let text = path.to_string();
            if existing.as_ref().is_some_and(|existing| !existing.contains(text.as_str())) {
                // Suggestions are limited: each compares a path with all paths, and a hundred would not help.
                let searched = profile.filter(|_| absent.len() < MAX_SUGGESTED_PATHS);
                let known = searched.into_iter().flat_map(|profile| &profile.paths);
                let nearest = suggest::find_similar_name(&text, known.map(|record| record.path.as_str()));
                let instead = match nearest {
                    None => "The profile lists the existing paths.".to_owned(),
                    Some(nearest) if step == "sort" && FieldPath::is_nested_path(nearest) => {
                        nested_sort_hint(format_args!("`{nearest}`"))
                    }
                    Some(nearest) => format!("Did you mean `{nearest}`?"),
                };
                hints.push(format!("No entity in this version has `{text}`, so `{step}` {consequence}. {instead}"));
            } else if is_later
                && !projection.is_path_included(path.keys())
                && !(step == "dedup_key" && is_partly_kept(&path))
            {
                hints.push(format!(
                    "include_source, keep_field, or drop_field removes `{text}` before `{step}` runs, so `{step}` \
                     {consequence}."
                ));
            } else {
                continue;
            }
            absent.push(path);
        }
    }
    if request.strict && !absent.is_empty() {
        hints.push("With `strict=true`, this request returns 400, because it contains unknown fields.".to_owned());
    }
    if !request.keywords.is_empty() && projection.has_hidden_fields() {
        hints
            .push("`keywords` does not search fields removed by include_source, keep_field, or drop_field.".to_owned());
    }
    absent
}

fn push_predicate_hints(
    explanation: &ReadExplanation,
    request: &ReadRequest,
    reader: &VersionReader,
    is_pointless: impl Fn(&FieldPath) -> bool,
    hints: &mut Vec<String>,
) {
    for condition in cost::plan_predicates(reader, request) {
        let Predicate::Comparison(comparison) = &condition.predicate else { continue };
        let path = &comparison.path;
        if condition.access_path == AccessPath::Documents && explanation.scan.is_some() && !is_pointless(path) {
            let name = comparison.operator.parameter_name();
            hints.push(format!("`{path}` has no indexed column, so `{name}` reads documents. {INDEX_ADVICE}."));
        }
    }
}

fn push_sort_and_dedup_hints(
    explanation: &ReadExplanation,
    reader: &VersionReader,
    is_pointless: impl Fn(&FieldPath) -> bool,
    hints: &mut Vec<String>,
) {
    let Some(scan) = &explanation.scan else { return };
    if let Some(sort) = scan.sort.as_ref().filter(|sort| sort.access == AccessPath::Documents) {
        let field = &sort.by;
        let is_pointless = FieldPath::from_keys([field.as_str()]).is_ok_and(|path| is_pointless(&path));
        hints.extend((!is_pointless).then(|| match reader.layout().find_shredded(std::slice::from_ref(field)) {
            Some(_) => {
                format!("`{field}` is an array in some entities, so sorting by it always requires reading documents.")
            }
            None => format!(
                "`{field}` has no indexed column, so sorting by it requires reading documents. {INDEX_ADVICE}. Indexing \
                 helps if the field contains only scalars."
            ),
        }));
    }
    if scan.dedup.as_ref().is_some_and(|dedup| dedup.access == AccessPath::Documents) {
        hints.push(
            "This `dedup` requires reading documents. strata stores hashes only for whole entities, not for entities \
             changed by denull, keep_field, or drop_field. To avoid reading documents, set `dedup_key`, or set \
             `keep_field` to top-level fields that have indexed columns and contain only scalars."
                .to_owned(),
        );
    }
}
