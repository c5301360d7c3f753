//! The number of modified entities of a diff that differ at each path, among the first `SUMMARY_ENTITIES` that fit into
//! [`BYTES`].

use std::collections::{HashMap, HashSet};

use strata_diff::{ChangeType, DiffPage};
use strata_encode::ContentCoding;
use strata_http::error::HttpError;
use strata_service::{DiffError, DiffForm, VersionDiff};
use strata_types::limits::SUMMARY_ENTITIES;

use super::records::Record;
use crate::browse::Entities;
use crate::entity_diff::{Equality, Step, leaves, path};
use crate::format;
use crate::safe_text::SafeText;

const BYTES: usize = 4 << 20;

/// Paths that are counted, and shown.
const PATHS: usize = 5_000;
const SHOWN: usize = 50;

const CHARACTERS: usize = 200;

pub(super) struct Summary {
    pub(super) paths: Vec<PathCount>,
    pub(super) left_out: usize,
    pub(super) bound: Option<String>,
}

pub(super) struct PathCount {
    pub(super) path: SafeText,
    pub(super) entities: String,
    /// In percent of the entities that differ at the most frequent path.
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
    // The threads that serve requests must not wait for it.
    let counting = tokio::task::spawn_blocking(move || count(records.iter()));
    let Ok((seen, counts, is_full)) = counting.await else { return Ok(None) };
    let of_all = format::counted(modified, "changed entity", "changed entities");
    let covered = match (seen < modified, is_full) {
        (true, _) => Some(format!("{} of {of_all}", format::grouped(seen))),
        (false, true) => Some(format!("{} paths that differ", format::grouped(PATHS as u64))),
        (false, false) => None,
    };
    let bound = covered.map(|covered| format!("This table covers only the first {covered}."));
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_unstable_by(|(one, count), (other, other_count)| other_count.cmp(count).then_with(|| one.cmp(other)));
    let most = counts.first().map_or(1, |(_, count)| *count);
    let paths = counts.iter().take(SHOWN).map(|(path, count)| PathCount {
        path: SafeText::new(path, CHARACTERS),
        entities: format::grouped(*count),
        share: (count * 100).div_ceil(most),
    });
    Ok(Some(Summary { paths: paths.collect(), left_out: counts.len().saturating_sub(SHOWN), bound }))
}

/// The number of records, the number that differ at each path, and whether more paths differ.
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

/// `_source` differs only in spelling, since the records are of one entity.
fn is_source(steps: &[Step<'_>]) -> bool {
    matches!(steps.first(), Some(Step::Key(key)) if key.eq_str("_source"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_number_of_paths_is_limited() {
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
