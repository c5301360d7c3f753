//! What is told of a version, and its form in the file: JSON, compressed, between the last row group and the footer.
//! The footer's metadata says where, so that opening a file does not read it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use strata_json::Columns;
use strata_store::{Result, StorageError};
use strata_types::index::{INDEX_PATH_BYTES, INDEX_PATHS, IndexSettings};
use strata_types::path::Path;
use utoipa::ToSchema;

use super::bins::StoredBins;
use super::builder::{PathCounts, PathProfile, ProfileBuilder};
use super::limits::VALUE_BYTES;
use super::min_max::Cut;
use super::shredding::{NotShredded, ShreddingChoice};
use super::values::{Frequent, ScalarType, TypeCounts};
use crate::tree::Node;

/// Where the [`ProfileLocation`] lies in the key-value metadata of the Parquet footer.
pub const PROFILE_KEY: &str = "strata.profile";

/// Bytes of the paths' JSON before it is compressed. What more paths would need is left out, rare ones first.
const PATHS_BYTES: usize = 4 << 20;

/// Most bytes of an index: paths of which every byte is escaped, and each of `always` a second time where it is unmet.
const INDEX_BYTES: usize = 3 * INDEX_PATHS * ("\\u0000".len() * INDEX_PATH_BYTES + 100);

/// Most bytes of the columns' JSON. More are left out.
const COLUMNS_BYTES: usize = 1 << 20;

/// Most bytes of all of it: the paths, an index, the columns, and a few numbers.
const STORED_BYTES: usize = PATHS_BYTES + INDEX_BYTES + COLUMNS_BYTES + 1_024;

/// A description of a version: its paths, their types, and their values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoredProfile {
    /// The number of entities in the version.
    pub entities: u64,
    /// The size of all documents as compact JSON, in bytes.
    pub document_bytes: u64,
    /// Whether `paths` is incomplete. A profile covers at most 10,000 paths of up to 4,096 bytes each, and the total
    /// size of the list is limited.
    pub paths_left_out: bool,
    /// The `index` setting of the dataset when strata wrote the version.
    pub index: IndexRecord,
    /// The paths, in the order of their first occurrence.
    pub paths: Vec<PathRecord>,
}

/// An `index` setting, and the paths that could not be indexed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IndexRecord {
    /// The paths that always get an indexed column.
    pub always: Vec<String>,
    /// The paths that never get an indexed column.
    pub never: Vec<String>,
    /// The paths in `always` that have no indexed column.
    pub unmet: Vec<Unmet>,
}

/// A path that could not get an indexed column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Unmet {
    /// The path.
    pub path: String,
    /// The reason.
    pub why: NotShredded,
}

/// The profile of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PathRecord {
    /// The path as you write it in a filter. Empty for a top-level field with an empty name. A filter cannot specify
    /// such a field.
    pub path: String,
    /// The number of entities that have a value at the path.
    pub entities: u64,
    /// The number of values of each type at the path.
    pub types: TypeCounts,
    /// Whether the path leads through an array, so that an entity can have several values at this path.
    pub fans_out: bool,
    /// The total size in bytes of the numbers and strings at the path, written as JSON without quotes.
    pub text_bytes: u64,
    /// The number of distinct values, excluding null. `1` and `1.0` are two values, and so are `1` and `"1"`.
    pub distinct: Distinct,
    /// The smallest number. Null if there are no numbers.
    pub number_min: Option<ValueRecord>,
    /// The largest number. Null if there are no numbers.
    pub number_max: Option<ValueRecord>,
    /// The first string in code point order. Null if there are no strings.
    pub string_min: Option<ValueRecord>,
    /// The last string in code point order. Null if there are no strings.
    pub string_max: Option<ValueRecord>,
    /// How many strings have 0, 1, 2 to 3, 4 to 7, … characters ([`super::lengths_at`]): as many as the longest needs,
    /// none if there are no strings. For pages; [`StoredProfile::without_spreads`] is what callers get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(ignore)]
    pub string_lengths: Vec<u64>,
    /// How the numbers are spread; none if they are all in one range. For pages, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub number_bins: Option<StoredBins>,
    /// Up to 10 values that occur more than once, with the most frequent first.
    pub top: Vec<TopValue>,
    /// Whether `top` is estimated from a sample of one value in eight. An estimated `top` contains only values that
    /// occur about 128 times or more.
    pub top_estimated: bool,
    /// Whether the path has an indexed column.
    pub shredded: bool,
    /// Why the path has no indexed column. Null if the path has an indexed column.
    pub why_not_shredded: Option<NotShredded>,
}

/// A number of distinct values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Distinct {
    /// The number of distinct values.
    pub count: u64,
    /// Whether `count` is an estimate. Estimates have a standard error of 2.3%. Counts of up to 4,096 are exact.
    pub estimated: bool,
}

/// A value: a number, a string, or a boolean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValueRecord {
    /// The value, or its beginning if `cut` is true. A truncated number is a string. The exponent of a number might
    /// have a `+` that the entity does not have.
    #[schema(value_type = Value)]
    pub value: Json,
    /// Whether the value is longer than 80 bytes and therefore truncated.
    pub cut: bool,
    /// Whether the value is only a bound: an edit of the alternate removed the value from an entity, and perhaps no
    /// other entity has it. Omitted if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// A frequent value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopValue {
    /// The value, or its beginning if `cut` is true.
    #[schema(value_type = Value)]
    pub value: Json,
    /// Whether the value is longer than 80 bytes and therefore truncated.
    pub cut: bool,
    /// The number of occurrences.
    pub count: u64,
}

/// The beginning of a profile, which stays in the cache: what a page of entities shows next to them.
#[derive(Debug)]
pub struct ProfileSummary {
    pub entities: u64,
    pub path_count: usize,
    /// The first 150 of them, without spreads.
    pub paths: Vec<PathRecord>,
    /// The first 300 paths that have a name without control characters.
    pub names: Vec<String>,
    pub(crate) memory_bytes: usize,
}

const SUMMARY_PATHS: usize = 150;

const SUMMARY_NAMES: usize = 300;

impl ProfileSummary {
    /// Decodes a whole profile ([`StoredProfile::decode`]): tens of milliseconds for one of thousands of paths.
    pub fn decode(bytes: &[u8]) -> Result<ProfileSummary> {
        let StoredProfile { entities, mut paths, .. } = StoredProfile::decode(bytes)?.without_spreads();
        let is_name = |path: &str| !path.is_empty() && !path.contains(char::is_control);
        let names = paths.iter().map(|record| &record.path).filter(|path| is_name(path));
        let names: Vec<String> = names.take(SUMMARY_NAMES).cloned().collect();
        let path_count = paths.len();
        paths.truncate(SUMMARY_PATHS);
        paths.shrink_to_fit();
        let name_bytes = |name: &String| size_of::<String>() + name.len();
        let record_bytes = |record: &PathRecord| {
            size_of::<PathRecord>() + record.path.len() + record.top.len() * (size_of::<TopValue>() + VALUE_BYTES)
        };
        let memory_bytes = names.iter().map(name_bytes).sum::<usize>() + paths.iter().map(record_bytes).sum::<usize>();
        Ok(ProfileSummary { entities, path_count, paths, names, memory_bytes })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileLocation {
    pub offset: u64,
    pub length: u64,
    pub sha256: String,
}

impl ProfileBuilder {
    /// What is told of the version, with the shredded columns that were chosen for it.
    pub fn describe(&self, choice: &ShreddingChoice, index: &IndexSettings) -> StoredProfile {
        let texts = |paths: &[Path]| paths.iter().map(Path::to_string).collect();
        let unmet = choice.unmet.iter().map(|(path, why)| Unmet { path: path.to_string(), why: *why });
        StoredProfile {
            entities: self.entities,
            document_bytes: self.document_bytes,
            paths_left_out: self.paths_left_out,
            index: IndexRecord { always: texts(index.always()), never: texts(index.never()), unmet: unmet.collect() },
            paths: self.nodes().map(|(node, path)| self.record(node, path, choice)).collect(),
        }
    }

    fn record(&self, node: Node, path: &PathProfile, choice: &ShreddingChoice) -> PathRecord {
        let PathCounts { entities, types, text_bytes, fans_out, ref string_lengths, .. } = path.counts;
        let (count, estimated) = path.values.distinct(types.scalars() - types.null);
        let (frequent, top_estimated) = path.values.frequent();
        let numbers = path.values.numbers.min_max.as_ref();
        let number = |end: usize| numbers.map(|min_max| value(ScalarType::Number, &min_max[end].1));
        let strings = path.values.strings.min_max.as_ref();
        let string = |end: usize| strings.map(|min_max| value(ScalarType::String, &min_max[end]));
        let why_not_shredded = choice.none[node as usize];
        PathRecord {
            path: Path::from_keys(self.tree.keys(node)).map_or_else(|_| String::new(), |path| path.to_string()),
            entities,
            types,
            fans_out,
            text_bytes,
            distinct: Distinct { count, estimated },
            number_min: number(0),
            number_max: number(1),
            string_min: string(0),
            string_max: string(1),
            string_lengths: string_lengths.clone(),
            number_bins: path.bins.stored(),
            top: top_values(frequent),
            top_estimated,
            shredded: why_not_shredded.is_none(),
            why_not_shredded,
        }
    }
}

pub(super) fn value(scalar_type: ScalarType, cut: &Cut) -> ValueRecord {
    let text = cut.shown();
    let whole = match scalar_type {
        // The text of a number that is whole, or of a boolean, is JSON.
        ScalarType::Number | ScalarType::Boolean if !cut.cut => serde_json::from_str(text).ok(),
        ScalarType::Number | ScalarType::Boolean | ScalarType::String => None,
    };
    ValueRecord { value: whole.unwrap_or_else(|| Json::from(text)), cut: cut.cut, estimated: false }
}

pub(super) fn top_values(frequent: Vec<Frequent>) -> Vec<TopValue> {
    let top = frequent.into_iter().map(|Frequent { shown, count }| {
        let ValueRecord { value, cut, .. } = value(shown.scalar_type, &shown.value);
        TopValue { value, cut, count }
    });
    top.collect()
}

impl StoredProfile {
    /// As `/openapi.json` describes it.
    pub fn without_spreads(mut self) -> StoredProfile {
        for path in &mut self.paths {
            path.string_lengths = Vec::new();
            path.number_bins = None;
        }
        self
    }

    /// Its form in the file, beside the columns of the version as a table. Leaves the rarest paths out, and says so,
    /// where it would be too large; and the columns where they are.
    pub fn encode(&self, columns: Option<&Columns>) -> Result<Vec<u8>> {
        let invalid = |error: serde_json::Error| StorageError::Layout(format!("failed to encode its profile: {error}"));
        let sizes = self.paths.iter().map(|path| serde_json::to_vec(path).map(|json| json.len() + 1));
        let sizes: Vec<usize> = sizes.collect::<Result<_, _>>().map_err(invalid)?;
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|path| std::cmp::Reverse(self.paths[*path].entities));
        let mut kept = vec![false; sizes.len()];
        let mut room = PATHS_BYTES;
        for path in order {
            kept[path] = sizes[path] <= room;
            room -= if kept[path] { sizes[path] } else { 0 };
        }
        let mut stored = self.clone();
        stored.paths_left_out |= kept.contains(&false);
        let mut kept = kept.into_iter();
        stored.paths.retain(|_| kept.next().unwrap_or(false));
        let mut json = serde_json::to_vec(&stored).map_err(invalid)?;
        if let Some(columns) = columns {
            let names = serde_json::to_vec(columns.names()).map_err(invalid)?;
            // Beside the profile, not in it: nobody who is told of a version is told its columns.
            if names.len() <= COLUMNS_BYTES && json.pop() == Some(b'}') {
                json.extend_from_slice(b",\"columns\":");
                json.extend_from_slice(&names);
                json.push(b'}');
            }
        }
        Ok(zstd::bulk::compress(&json, 3)?)
    }

    pub fn decode(bytes: &[u8]) -> Result<StoredProfile> {
        decode(bytes)
    }
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let json = zstd::bulk::decompress(bytes, STORED_BYTES).ok();
    let decoded = json.and_then(|json| serde_json::from_slice(&json).ok());
    decoded.ok_or_else(|| StorageError::Layout("its profile is damaged".to_owned()))
}

impl ProfileLocation {
    pub fn new(offset: u64, bytes: &[u8]) -> ProfileLocation {
        ProfileLocation { offset, length: bytes.len() as u64, sha256: hex::encode(Sha256::digest(bytes)) }
    }

    pub fn is_of(&self, bytes: &[u8]) -> bool {
        *self == ProfileLocation::new(self.offset, bytes)
    }

    /// Whether it lies in a file of this size, and is no larger than a profile can be.
    pub fn is_within(&self, size_bytes: u64) -> bool {
        let end = self.offset.checked_add(self.length);
        end.is_some_and(|end| end <= size_bytes) && self.length <= STORED_BYTES as u64
    }
}
