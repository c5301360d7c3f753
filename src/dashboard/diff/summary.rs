//! In how many of the modified entities of a diff each path differs. It is exact for the entities that it looks at: the
//! first ones, as many as `SUMMARY_ENTITIES` and as fit into [`BYTES`].

use std::collections::{HashMap, HashSet};

use strata_diff::{ChangeType, DiffPage};
use strata_encode::ContentCoding;
use strata_http::error::HttpError;
use strata_service::{DiffError, DiffForm, VersionDiff};
use strata_types::limits::SUMMARY_ENTITIES;

use super::records::Record;
use crate::browse::Entities;
use crate::compared::{Equality, Step, leaves, path};
use crate::figures;
use crate::shown::Shown;

/// Bytes of records that are looked at.
const BYTES: usize = 4 << 20;

/// Different paths that are counted, and shown.
const PATHS: usize = 5_000;
const SHOWN: usize = 50;

const CHARACTERS: usize = 200;

pub(super) struct Summary {
    pub(super) paths: Vec<PathCount>,
    pub(super) left_out: usize,
    pub(super) bound: Option<String>,
}

pub(super) struct PathCount {
    pub(super) path: Shown,
    pub(super) entities: String,
    /// Of those that differ at the most frequent path, in percent.
    pub(super) share: u64,
}

pub(super) async fn summary(diff: &VersionDiff) -> Result<Option<Summary>, HttpError> {
    let modified = diff.count(Some(ChangeType::Modified));
    if modified == 0 {
        return Ok(None);
    }
    let limit = Some(SUMMARY_ENTITIES as u64);
    let page = DiffPage { change_type: Some(ChangeType::Modified), offset: 0, limit };
    let answer = diff.answer(&page, DiffForm::Lines, ContentCoding::Identity).await.map_err(DiffError::from)?;
    let records = Entities::take(answer.body, BYTES).await?;
    // It is more than the threads that serve requests should wait for.
    let counting = tokio::task::spawn_blocking(move || count(records.iter()));
    let Ok((seen, counts, is_full)) = counting.await else { return Ok(None) };
    let of_all = figures::counted(modified, "changed entity", "changed entities");
    let covered = match (seen < modified, is_full) {
        (true, _) => Some(format!("{} of {of_all}", figures::grouped(seen))),
        (false, true) => Some(format!("{} paths that differ", figures::grouped(PATHS as u64))),
        (false, false) => None,
    };
    let bound = covered.map(|covered| format!("This table covers only the first {covered}."));
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_unstable_by(|(one, count), (other, other_count)| other_count.cmp(count).then_with(|| one.cmp(other)));
    let most = counts.first().map_or(1, |(_, count)| *count);
    let paths = counts.iter().take(SHOWN).map(|(path, count)| PathCount {
        path: Shown::new(path, CHARACTERS),
        entities: figures::grouped(*count),
        share: (count * 100).div_ceil(most),
    });
    Ok(Some(Summary { paths: paths.collect(), left_out: counts.len().saturating_sub(SHOWN), bound }))
}

/// How many records there are, in how many of them each path differs, and whether more paths differ.
fn count<'a>(records: impl Iterator<Item = &'a [u8]>) -> (u64, HashMap<String, u64>, bool) {
    let mut seen = 0;
    let mut counts = HashMap::<String, u64>::new();
    let mut is_full = false;
    for line in records {
        seen += 1;
        let Some(record) = Record::parse(line) else { continue };
        let [old, new] = record.entities;
        let mut here = HashSet::new();
        leaves(old, new, Equality::Value, &mut |steps, leaf| {
            if leaf.is_equal || is_source(steps) {
                return;
            }
            let path = path(steps);
            if counts.contains_key(&path) || counts.len() + here.len() < PATHS {
                here.insert(path);
            } else {
                is_full |= !here.contains(&path);
            }
        });
        for path in here {
            *counts.entry(path).or_default() += 1;
        }
    }
    (seen, counts, is_full)
}

/// `_source` differs in spelling alone, or the entities would not be one.
fn is_source(steps: &[Step<'_>]) -> bool {
    matches!(steps.first(), Some(Step::Key(key)) if key.eq_str("_source"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_counts_once_for_each_path_that_differs() {
        let lines = [
            r#"{"id":"m0-0","v1":{"a":[1,2],"b":1},"v2":{"a":[3,4],"b":1.0}}"#,
            r#"{"id":"m1-1","v1":{"a":[1],"b":{"c":1}},"v2":{"a":[1],"b":{"c":2,"d":3}}}"#,
            r#"{"id":"m2-2","v1":{"a":1,"_source":1},"v2":{"a":2,"_source":1.0}}"#,
        ];
        let (seen, counts, is_full) = count(lines.iter().map(|line| line.as_bytes()));
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort();
        let counts: Vec<_> = counts.iter().map(|(path, count)| (path.as_str(), *count)).collect();
        assert_eq!((seen, counts.as_slice(), is_full), (3, &[("a", 2), ("b.c", 1), ("b.d", 1)][..], false));
    }

    #[test]
    fn no_more_paths_are_kept_than_are_counted() {
        let wide = |from: usize| {
            let members: Vec<String> = (from..from + PATHS).map(|number| format!("\"p{number}\":1")).collect();
            format!(r#"{{"id":"m0-0","v1":{{}},"v2":{{{}}}}}"#, members.join(","))
        };
        let lines = [wide(0), wide(10)];
        let (seen, counts, is_full) = count(lines.iter().map(|line| line.as_bytes()));
        assert_eq!((seen, counts.len(), is_full), (2, PATHS, true));
        assert_eq!((counts["p9"], counts["p10"]), (1, 2));
    }
}
