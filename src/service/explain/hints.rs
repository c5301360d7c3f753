//! What could make a read cheaper, and what its owner should know: a sentence each.

use std::collections::HashSet;

use strata_format::profile::{PathIndex, StoredProfile};
use strata_format::reader::VersionReader;
use strata_query::cost;
use strata_query::fetch::reshape::Reshape;
use strata_query::scan::predicate::Predicate;
use strata_query::scan::report::AccessName;
use strata_types::path::Path;
use strata_types::request::{PathValue, RangeBound, ReadRequest};
use strata_types::similar;
use strata_types::source::foreign_delimiter;

use super::text::size;
use super::{Explanation, IgnoredParameter};
use crate::read::hints::{self, Comparable, deep_sort_hint};

/// How a path gets a shredded column. The dashboard puts a link behind it.
const INDEX: &str = "To index the path in later versions, list it in `index.always`";

/// Absent paths for which the nearest one that exists is looked for.
const SUGGESTED: usize = 5;

pub(super) fn hints(
    explanation: &Explanation,
    request: &ReadRequest,
    reader: &VersionReader,
    profile: Option<&StoredProfile>,
    paths: Option<&PathIndex>,
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
    hints.extend(profile.and_then(one_column));
    let absent = absent(request, profile, &mut hints);
    let types = |path: &Path| paths.filter(|_| !absent.contains(path)).and_then(|paths| hints::comparable(paths, path));
    // No index helps a condition on objects.
    let is_nested_alone = |paths: &PathIndex, path: &Path| {
        paths.get(&path.to_string()).and_then(Comparable::from_facts).is_some_and(|held| held.is_nested_alone())
    };
    let is_pointless = |path: &Path| absent.contains(path) || paths.is_some_and(|paths| is_nested_alone(paths, path));
    predicates(explanation, request, reader, is_pointless, &mut hints);
    let finds_nothing = explanation.answer.total == 0;
    hints.extend(hints::of_conditions(request, finds_nothing, types));
    keys(explanation, reader, is_pointless, &mut hints);
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
            size(operator.spilled_bytes)
        ));
    }
    if let Some(bytes) = explanation.documents.spilled_bytes {
        let enough = size(reader.layout().document_bytes.saturating_mul(2));
        hints.push(format!(
            "The documents were sorted on disk ({}). To avoid this, use a smaller `limit`, or set \
             `cache.memory_bytes` to {enough} or more.",
            size(bytes)
        ));
    }
    hints
}

/// What is said of a version whose only field has the name of a header with another delimiter.
fn one_column(profile: &StoredProfile) -> Option<String> {
    let mut fields = profile.paths.iter().filter(|record| record.path != "_source");
    let (field, None) = (fields.next()?, fields.next()) else { return None };
    let name = Path::parse(&field.path).ok()?.keys().concat();
    let delimiter = foreign_delimiter(&name)?;
    Some(format!(
        "The only field is named `{name}`, so the source might be a table whose cells are separated by {delimiter}. \
         csv requires commas, and tsv requires tabs."
    ))
}

/// What is said of the paths that the request names and that are not there, and which those are.
fn absent(request: &ReadRequest, profile: Option<&StoredProfile>, hints: &mut Vec<String>) -> Vec<Path> {
    // Without a profile of all paths nothing is known of one that it does not list.
    let profile = profile.filter(|profile| profile.entities > 0 && !profile.paths_left_out);
    let reshape = Reshape::of(request);
    let sort = request.sort.as_ref().and_then(|sort| Path::from_keys([sort.field.as_str()]).ok());
    let conditions =
        |conditions: &[PathValue]| -> Vec<Path> { conditions.iter().map(|condition| condition.path.clone()).collect() };
    let ranges = |bound: RangeBound| conditions(&request.ranges[bound as usize]);
    let steps = [
        ("keep_field", request.keep.clone(), "keeps nothing for this path"),
        ("drop_field", request.drop.clone(), "removes nothing for this path"),
        ("filter", conditions(&request.filters), "finds nothing"),
        ("filter_contains", conditions(&request.filters_contain), "finds nothing"),
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
    // What is left of an object is compared.
    let is_partly_kept = |path: &Path| reshape.keep.iter().any(|kept| kept.keys().starts_with(path.keys()));
    let there: Option<HashSet<&str>> =
        profile.map(|profile| profile.paths.iter().map(|record| record.path.as_str()).collect());
    let mut absent = Vec::new();
    for (step, paths, consequence) in steps {
        let is_later = !matches!(step, "keep_field" | "drop_field");
        for path in paths {
            let text = path.to_string();
            if there.as_ref().is_some_and(|there| !there.contains(text.as_str())) {
                // Every comparison costs time, and nobody reads a hundred suggestions.
                let known = profile.filter(|_| absent.len() < SUGGESTED).into_iter().flat_map(|profile| &profile.paths);
                let nearest = similar::nearest(&text, known.map(|record| record.path.as_str()));
                let instead = match nearest {
                    None => "The profile lists the existing paths.".to_owned(),
                    Some(nearest) if step == "sort" && Path::is_deep(nearest) => {
                        deep_sort_hint(format_args!("`{nearest}`"))
                    }
                    Some(nearest) => format!("Did you mean `{nearest}`?"),
                };
                hints.push(format!("No entity in this version has `{text}`, so `{step}` {consequence}. {instead}"));
            } else if is_later && !reshape.sees(path.keys()) && !(step == "dedup_key" && is_partly_kept(&path)) {
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
    if !request.keywords.is_empty() && reshape.hides_fields() {
        hints
            .push("`keywords` does not search fields removed by include_source, keep_field, or drop_field.".to_owned());
    }
    absent
}

fn predicates(
    explanation: &Explanation,
    request: &ReadRequest,
    reader: &VersionReader,
    is_pointless: impl Fn(&Path) -> bool,
    hints: &mut Vec<String>,
) {
    for condition in cost::conditions(reader, request) {
        let compare = match &condition.predicate {
            Predicate::Compare(compare) => compare,
            Predicate::Keywords(keywords) => {
                if !keywords.sees_everything() && condition.reads_documents() && explanation.scan.is_some() {
                    hints.push(
                        "`keywords` reads the documents that might match, because an earlier step removes fields. \
                         Without include_source=false, keep_field, or drop_field, `keywords` reads only the full-text \
                         column."
                            .to_owned(),
                    );
                }
                continue;
            }
        };
        let name = compare.comparison.parameter();
        let path = &compare.path;
        if is_pointless(path) {
            continue;
        }
        let what = match condition.access {
            // The path index finds strings without an indexed column.
            AccessName::SearchTextAndShapes if condition.predicate.searched().is_some() => continue,
            AccessName::SearchTextAndShapes if compare.needs_exact_text() => {
                "reads the documents of the entities that have the path"
            }
            AccessName::SearchTextAndShapes => "reads the full-text column of the entities that have the path",
            AccessName::SearchTextThenDocuments => {
                "scans the full-text column, then reads the documents of its matches"
            }
            AccessName::Documents => "reads documents",
            _ => continue,
        };
        if explanation.scan.is_some() {
            hints.push(format!("`{path}` has no indexed column, so `{name}` {what}. {INDEX}."));
        }
    }
}

fn keys(
    explanation: &Explanation,
    reader: &VersionReader,
    is_pointless: impl Fn(&Path) -> bool,
    hints: &mut Vec<String>,
) {
    let Some(scan) = &explanation.scan else { return };
    if let Some(sort) = scan.sort.as_ref().filter(|sort| sort.access == AccessName::Documents) {
        let field = &sort.by;
        let is_pointless = Path::from_keys([field.as_str()]).is_ok_and(|path| is_pointless(&path));
        hints.extend((!is_pointless).then(|| match reader.layout().shredded(std::slice::from_ref(field)) {
            Some(_) => {
                format!("`{field}` is an array in some entities, so sorting by it always requires reading documents.")
            }
            None => format!(
                "`{field}` has no indexed column, so sorting by it requires reading documents. {INDEX}. Indexing \
                 helps if the field contains only scalars."
            ),
        }));
    }
    if scan.dedup.as_ref().is_some_and(|dedup| dedup.access == AccessName::Documents) {
        hints.push(
            "This `dedup` requires reading documents. strata stores hashes only for whole entities, not for entities \
             changed by denull, keep_field, or drop_field. To avoid reading documents, set `dedup_key`, or set \
             `keep_field` to top-level fields that have indexed columns and contain only scalars."
                .to_owned(),
        );
    }
}
