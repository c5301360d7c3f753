//! What could make a read cheaper, and what its owner should know: a sentence each.

use super::Explanation;
use super::text::size;
use crate::model::request::ReadRequest;
use crate::query::access::{self, Access};
use crate::query::cost;
use crate::query::explain::AccessName;
use crate::query::predicate::{Comparison, Predicate};
use crate::query::reshape::Reshape;
use crate::storage::reader::VersionReader;

/// How a path gets a leaf.
const INDEX: &str =
    "`index` with `always` gives the path a leaf in the versions to come (see docs/performance.md, Tuning)";

/// The hints on a read that has been made.
pub(super) fn hints(explanation: &Explanation, request: &ReadRequest, reader: &VersionReader) -> Vec<String> {
    let mut hints = Vec::new();
    if explanation.frozen {
        hints.push("The dataset is frozen: a read of it is 410.".to_owned());
    }
    if !explanation.ignored.is_empty() {
        hints.push(format!("Ignored, since no read takes them: {}.", explanation.ignored.join(", ")));
    }
    predicates(explanation, request, reader, &mut hints);
    keys(explanation, reader, &mut hints);
    if explanation.answer.columns.is_some() && explanation.answer.total > 0 && explanation.work.heavy {
        hints.push(format!(
            "{} needs its columns first, so that documents are fetched twice: json, jsonl and xml need none.",
            request.format.name()
        ));
    }
    for operator in explanation.operators.iter().filter(|operator| operator.spills > 0) {
        let name = operator.operator.split(':').next().unwrap_or_default();
        hints.push(format!(
            "{name} wrote {} to disk: with more `query.memory_bytes`, or a `limit`, it works in memory.",
            size(operator.spilled_bytes)
        ));
    }
    if let Some(bytes) = explanation.documents.spilled_bytes {
        let enough = size(reader.layout().document_bytes.saturating_mul(2));
        hints.push(format!(
            "The documents were put in order by way of the disk ({}): a smaller `limit`, or a `cache.memory_bytes` of {enough} \
             or more, saves that.",
            size(bytes)
        ));
    }
    hints
}

fn predicates(explanation: &Explanation, request: &ReadRequest, reader: &VersionReader, hints: &mut Vec<String>) {
    let (layout, reshape) = (reader.layout(), Reshape::of(request));
    for predicate in cost::predicates(request) {
        let compare = match &predicate {
            Predicate::Compare(compare) => compare,
            Predicate::Keywords(keywords) => {
                if !keywords.sees_everything() && explanation.scan.is_some() {
                    hints.push(
                        "`keywords` reads the documents that its words are found in, since fields are taken away before: \
                         without include_source=false, keep_field and drop_field the search text decides."
                            .to_owned(),
                    );
                }
                continue;
            }
        };
        let name = match compare.comparison() {
            Comparison::Equal => "filter",
            Comparison::Contains => "filter_contains",
        };
        let path = compare.path();
        if !reshape.sees(path.keys()) {
            hints.push(format!(
                "`{path}` is not there when `{name}` runs: include_source, keep_field or drop_field has taken it away, so that \
                 nothing is found."
            ));
            continue;
        }
        let what = match access::choose(layout, &predicate) {
            Access::Leaf(_) | Access::Search => continue,
            Access::SearchThenDocuments => "goes through the search text and reads the documents that it finds",
            Access::Documents => "reads the documents",
        };
        if explanation.scan.is_some() {
            hints.push(format!("`{path}` has no leaf: `{name}` on it {what}. {INDEX}."));
        }
    }
}

fn keys(explanation: &Explanation, reader: &VersionReader, hints: &mut Vec<String>) {
    let Some(scan) = &explanation.scan else { return };
    if let Some(sort) = scan.sort.as_ref().filter(|sort| sort.access == AccessName::Documents) {
        let field = &sort.by;
        hints.push(match reader.layout().leaf(std::slice::from_ref(field)) {
            Some(_) => {
                format!("`{field}` is an array in some entities: a sort by it reads the documents, leaf or not.")
            }
            None => format!(
                "`{field}` has no leaf: the sort by it reads the documents. {INDEX}, which helps if it holds values and no arrays or objects."
            ),
        });
    }
    if scan.dedup.as_ref().is_some_and(|dedup| dedup.access == AccessName::Documents) {
        hints.push(
            "This dedup reads the documents: only whole entities, without denull, keep_field and drop_field, have a stored \
             hash."
                .to_owned(),
        );
    }
}
