//! The owner's choice of shredded columns: the member `index` of a dataset's record. It applies to versions and
//! alternates that are written later. Existing files stay as they are. If a version cannot shred a path of `always`,
//! its profile gives the reason.

use serde::{Deserialize, Serialize};

use super::limits;
use super::path::Path;

pub const INDEX_PATHS: usize = limits::INDEX_PATHS;

/// The longest path in an index, in its escaped form, in bytes.
pub const INDEX_PATH_BYTES: usize = limits::INDEX_PATH_BYTES;

/// Paths that get a shredded column in every version, and paths that get none. The profile of each version decides
/// about all others.
///
/// - No path is in both lists, or twice in one; each list is in the order of the keys.
/// - There are at most [`INDEX_PATHS`] in each, of at most [`INDEX_PATH_BYTES`] each.
/// - A path stands only for itself, not for paths below it.
///
/// As JSON, `{"always":["a.b"],"never":["c"]}`, paths in their escaped form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Lists", into = "Lists")]
pub struct IndexSettings {
    always: Vec<Path>,
    never: Vec<Path>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIndex {
    #[error("{0:?} is not a path: a path must name a field, such as `name` or `stock.berlin`")]
    NoPath(String),
    #[error("a path is {0} bytes long, including its escapes; valid: at most {INDEX_PATH_BYTES} bytes")]
    LongPath(usize),
    #[error("`{0}` is in both `always` and `never`; valid: only one of them")]
    Both(Path),
    #[error("a list contains {0} paths; valid: at most {INDEX_PATHS} in `always` and {INDEX_PATHS} in `never`")]
    TooMany(usize),
}

impl IndexSettings {
    /// The index of these lists, each path in its escaped form. A path that is in one list twice counts once.
    pub fn try_new<S: AsRef<str>>(always: &[S], never: &[S]) -> Result<IndexSettings, InvalidIndex> {
        let most = always.len().max(never.len());
        if most > INDEX_PATHS {
            return Err(InvalidIndex::TooMany(most));
        }
        let parsed = |texts: &[S]| -> Result<Vec<Path>, InvalidIndex> {
            let mut paths = texts.iter().map(|text| parse(text.as_ref())).collect::<Result<Vec<_>, _>>()?;
            paths.sort_unstable();
            paths.dedup();
            Ok(paths)
        };
        let index = IndexSettings { always: parsed(always)?, never: parsed(never)? };
        match index.always.iter().find(|path| index.never.contains(path)) {
            Some(path) => Err(InvalidIndex::Both(path.clone())),
            None => Ok(index),
        }
    }

    pub fn always(&self) -> &[Path] {
        &self.always
    }

    pub fn never(&self) -> &[Path] {
        &self.never
    }

    pub fn is_empty(&self) -> bool {
        self.always.is_empty() && self.never.is_empty()
    }
}

fn parse(text: &str) -> Result<Path, InvalidIndex> {
    let path = Path::parse(text).map_err(|_| InvalidIndex::NoPath(text.to_owned()))?;
    // In the stored form, so that the stored text can be parsed again.
    match path.to_string().len() {
        0..=INDEX_PATH_BYTES => Ok(path),
        longer => Err(InvalidIndex::LongPath(longer)),
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Lists {
    always: Vec<String>,
    never: Vec<String>,
}

impl TryFrom<Lists> for IndexSettings {
    type Error = InvalidIndex;

    fn try_from(lists: Lists) -> Result<Self, InvalidIndex> {
        IndexSettings::try_new(&lists.always, &lists.never)
    }
}

impl From<IndexSettings> for Lists {
    fn from(index: IndexSettings) -> Self {
        let texts = |paths: &[Path]| paths.iter().map(Path::to_string).collect();
        Lists { always: texts(&index.always), never: texts(&index.never) }
    }
}
