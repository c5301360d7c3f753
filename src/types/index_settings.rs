//! Owners' settings of indexed columns: the member `index` of a dataset record. The settings apply to versions and
//! alternates that are written later. If a version cannot index a path of `always`, its profile shows the reason.

use serde::{Deserialize, Serialize};

use super::field_path::FieldPath;
pub use super::limits::{MAX_INDEX_PATH_BYTES, MAX_INDEX_PATHS};

/// Paths that always or never have an indexed column. For all other paths, the profile of each version decides.
///
/// - No path is in both lists or twice in one list, and both lists are sorted.
/// - Each list has at most [`MAX_INDEX_PATHS`] paths of at most [`MAX_INDEX_PATH_BYTES`] bytes.
/// - A path does not include the paths below it.
///
/// Serializes as `{"always":["a.b"],"never":["c"]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "IndexSettingsJson", into = "IndexSettingsJson")]
pub struct IndexSettings {
    always_indexed: Vec<FieldPath>,
    never_indexed: Vec<FieldPath>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIndexSettings {
    #[error("{0:?} is not a path: a path must name a field, such as `name` or `stock.berlin`")]
    NotAPath(String),
    #[error("a path is {0} bytes long, including its escapes; valid: at most {MAX_INDEX_PATH_BYTES} bytes")]
    PathTooLong(usize),
    #[error("`{0}` is in both `always` and `never`; valid: only one of them")]
    PathInBothLists(FieldPath),
    #[error("a list contains {0} paths; valid: at most {MAX_INDEX_PATHS} in `always` and {MAX_INDEX_PATHS} in `never`")]
    TooManyPaths(usize),
}

impl IndexSettings {
    /// Parses paths in their escaped form. Ignores duplicates within a list.
    pub fn try_new<S: AsRef<str>>(always: &[S], never: &[S]) -> Result<IndexSettings, InvalidIndexSettings> {
        let path_count = always.len().max(never.len());
        if path_count > MAX_INDEX_PATHS {
            return Err(InvalidIndexSettings::TooManyPaths(path_count));
        }
        let parsed = |texts: &[S]| -> Result<Vec<FieldPath>, InvalidIndexSettings> {
            let mut paths = texts.iter().map(|text| parse_index_path(text.as_ref())).collect::<Result<Vec<_>, _>>()?;
            paths.sort_unstable();
            paths.dedup();
            Ok(paths)
        };
        let index = IndexSettings { always_indexed: parsed(always)?, never_indexed: parsed(never)? };
        match index.always_indexed.iter().find(|path| index.never_indexed.contains(path)) {
            Some(path) => Err(InvalidIndexSettings::PathInBothLists(path.clone())),
            None => Ok(index),
        }
    }

    pub fn always_indexed(&self) -> &[FieldPath] {
        &self.always_indexed
    }

    pub fn never_indexed(&self) -> &[FieldPath] {
        &self.never_indexed
    }

    pub fn is_empty(&self) -> bool {
        self.always_indexed.is_empty() && self.never_indexed.is_empty()
    }
}

fn parse_index_path(text: &str) -> Result<FieldPath, InvalidIndexSettings> {
    let path = FieldPath::parse(text).map_err(|_| InvalidIndexSettings::NotAPath(text.to_owned()))?;
    // The limit applies to the escaped form of an index path, which is stored.
    match path.to_string().len() {
        0..=MAX_INDEX_PATH_BYTES => Ok(path),
        longer => Err(InvalidIndexSettings::PathTooLong(longer)),
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct IndexSettingsJson {
    always: Vec<String>,
    never: Vec<String>,
}

impl TryFrom<IndexSettingsJson> for IndexSettings {
    type Error = InvalidIndexSettings;

    fn try_from(lists: IndexSettingsJson) -> Result<Self, InvalidIndexSettings> {
        IndexSettings::try_new(&lists.always, &lists.never)
    }
}

impl From<IndexSettings> for IndexSettingsJson {
    fn from(index: IndexSettings) -> Self {
        let texts = |paths: &[FieldPath]| paths.iter().map(FieldPath::to_string).collect();
        IndexSettingsJson { always: texts(&index.always_indexed), never: texts(&index.never_indexed) }
    }
}
