//! The number of modified entities of a diff that differ at each path. Only the first `MAX_DIFF_SUMMARY_ENTITIES`
//! entities are counted, up to [`MAX_SUMMARY_BYTES`].

use std::collections::{HashMap, HashSet};

use strata_diff::{ChangeType, DiffPage};
use strata_encode::ContentCoding;
use strata_http::error::HttpError;
use strata_service::{DiffError, DiffFormat, VersionDiff};
use strata_types::limits::MAX_DIFF_SUMMARY_ENTITIES;

use super::records::DiffRecord;
use crate::browse::PageEntities;
use crate::entity_diff::{LeafEquality, PathStep, path_without_indexes, visit_leaves};
use crate::format;
use crate::safe_text::SafeText;

const MAX_SUMMARY_BYTES: usize = 4 << 20;
const MAX_COUNTED_PATHS: usize = 5_000;
const MAX_SHOWN_PATHS: usize = 50;
const MAX_PATH_CHARACTERS: usize = 200;

pub(super) struct PathSummary {
    pub(super) paths: Vec<PathCount>,
    pub(super) omitted_paths: usize,
    pub(super) coverage_note: Option<String>,
}

pub(super) struct PathCount {
    pub(super) path: SafeText,
    pub(super) entities: String,
    /// Number of modified entities that differ at the path, in percent of this number for the most frequent path.
    pub(super) share: u64,
}

pub(super) async fn summarize_paths(diff: &VersionDiff) -> Result<Option<PathSummary>, HttpError> {
    let modified = diff.change_count(Some(ChangeType::Modified));
    if modified == 0 {
        return Ok(None);
    }
    let limit = Some(MAX_DIFF_SUMMARY_ENTITIES as u64);
    let page = DiffPage { change_type: Some(ChangeType::Modified), offset: 0, limit };
    let response =
        diff.page_response(&page, DiffFormat::Jsonl, ContentCoding::Identity).await.map_err(DiffError::from)?;
    let records = PageEntities::read_from_body(response.body, MAX_SUMMARY_BYTES).await?;
    // The paths are counted on a blocking thread, because a connection thread must not be blocked.
    let counting = tokio::task::spawn_blocking(move || count_differing_paths(records.iter()));
    let Ok(DifferingPathCounts { seen, counts, is_full }) = counting.await else { return Ok(None) };
    let of_all = format::pluralize(modified, "changed entity", "changed entities");
    let covered = match (seen < modified, is_full) {
        (true, _) => Some(format!("{} of {of_all}", format::group_thousands(seen))),
        (false, true) => Some(format!("{} paths that differ", format::group_thousands(MAX_COUNTED_PATHS as u64))),
        (false, false) => None,
    };
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    let max_count = counts.first().map_or(1, |(_, count)| *count);
    let paths = counts.iter().take(MAX_SHOWN_PATHS).map(|(path, count)| PathCount {
        path: SafeText::new(path, MAX_PATH_CHARACTERS),
        entities: format::group_thousands(*count),
        share: (count * 100).div_ceil(max_count),
    });
    Ok(Some(PathSummary {
        paths: paths.collect(),
        omitted_paths: counts.len().saturating_sub(MAX_SHOWN_PATHS),
        coverage_note: covered.map(|covered| format!("This table covers only the first {covered}.")),
    }))
}

/// The number of diff records, how many of them differ at each path, and whether paths were omitted.
struct DifferingPathCounts {
    seen: u64,
    counts: HashMap<String, u64>,
    is_full: bool,
}

fn count_differing_paths<'a>(records: impl Iterator<Item = &'a [u8]>) -> DifferingPathCounts {
    let mut seen = 0;
    let mut counts = HashMap::<String, u64>::new();
    let mut is_full = false;
    for line in records {
        seen += 1;
        let Some(record) = DiffRecord::parse(line) else { continue };
        let [old, new] = record.entities;
        let mut record_paths = HashSet::new();
        visit_leaves(old, new, LeafEquality::Value, &mut |steps, leaf| {
            if leaf.is_equal || is_in_source_member(steps) {
                return;
            }
            let path = path_without_indexes(steps);
            if counts.contains_key(&path) || counts.len() + record_paths.len() < MAX_COUNTED_PATHS {
                record_paths.insert(path);
            } else {
                is_full |= !record_paths.contains(&path);
            }
        });
        for path in record_paths {
            *counts.entry(path).or_default() += 1;
        }
    }
    DifferingPathCounts { seen, counts, is_full }
}

/// Returns whether a path is in `_source`. Modified entities have the same source, perhaps in different spellings.
fn is_in_source_member(steps: &[PathStep<'_>]) -> bool {
    matches!(steps.first(), Some(PathStep::Key(key)) if key.eq_str("_source"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_path_count_is_limited() {
        let wide = |from: usize| {
            let members: Vec<String> =
                (from..from + MAX_COUNTED_PATHS).map(|number| format!("\"p{number}\":1")).collect();
            format!(r#"{{"id":"m0-0","v1":{{}},"v2":{{{}}}}}"#, members.join(","))
        };
        let lines = [wide(0), wide(10)];
        let DifferingPathCounts { seen, counts, is_full } =
            count_differing_paths(lines.iter().map(|line| line.as_bytes()));
        assert_eq!((seen, counts.len(), is_full), (2, MAX_COUNTED_PATHS, true));
        assert_eq!((counts["p9"], counts["p10"]), (1, 2));
    }
}
