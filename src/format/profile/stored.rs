//! The stored profile of a version: compressed JSON between the last row group and the footer. The footer contains only
//! its location, so that opening a file does not read the profile.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use strata_json::TableColumnNames;
use strata_store::{Result, StorageError};
use strata_types::field_path::FieldPath;
use strata_types::index_settings::{IndexSettings, MAX_INDEX_PATH_BYTES, MAX_INDEX_PATHS};
use utoipa::ToSchema;

use super::builder::{PathCounts, PathProfile, ProfileBuilder};
use super::histogram::NumberHistogram;
use super::limits::MAX_SHOWN_VALUE_BYTES;
use super::min_max::TruncatedValue;
use super::shredding::{NotShreddedReason, ShreddingChoice};
use super::value_statistics::{DistinctCount, FrequentValue, ScalarType, TypeCounts};
use crate::path_tree::PathNode;

pub const PROFILE_KEY: &str = "strata.profile";
/// Max JSON size of the paths in a stored profile before compression. Rare paths are omitted first.
const MAX_PATHS_JSON_BYTES: usize = 4 << 20;
/// Max JSON size of the index settings in a profile: all bytes are escaped, and no `always` path could be indexed.
const MAX_INDEX_JSON_BYTES: usize = 3 * MAX_INDEX_PATHS * ("\\u0000".len() * MAX_INDEX_PATH_BYTES + 100);
/// Max JSON size of the table columns in a stored profile. If they are larger, they are omitted.
const MAX_COLUMNS_JSON_BYTES: usize = 1 << 20;
const MAX_PROFILE_JSON_BYTES: usize = MAX_PATHS_JSON_BYTES + MAX_INDEX_JSON_BYTES + MAX_COLUMNS_JSON_BYTES + 1_024;

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
    pub index: ProfileIndexSettings,
    /// The paths, in the order of their first occurrence.
    pub paths: Vec<ProfilePathRecord>,
}

/// An `index` setting, and the paths that could not be indexed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProfileIndexSettings {
    /// The paths that always get an indexed column.
    pub always: Vec<String>,
    /// The paths that never get an indexed column.
    pub never: Vec<String>,
    /// The paths in `always` that have no indexed column.
    pub unmet: Vec<UnmetIndexPath>,
}

/// A path that could not get an indexed column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnmetIndexPath {
    /// The path.
    pub path: String,
    /// The reason.
    pub why: NotShreddedReason,
}

/// The profile of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProfilePathRecord {
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
    pub distinct: DistinctCount,
    /// The smallest number. Null if there are no numbers.
    pub number_min: Option<ValueRecord>,
    /// The largest number. Null if there are no numbers.
    pub number_max: Option<ValueRecord>,
    /// The first string in code point order. Null if there are no strings.
    pub string_min: Option<ValueRecord>,
    /// The last string in code point order. Null if there are no strings.
    pub string_max: Option<ValueRecord>,
    /// Number of strings with 0, 1, 2 to 3, 4 to 7, … characters ([`length_range`](super::length_range)), up to the
    /// longest. Only for the dashboard; [`StoredProfile::without_histograms`] removes it for API clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(ignore)]
    pub string_lengths: Vec<u64>,
    /// Histogram of the numbers, or `None` if they are all in one bin. Only for the dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub number_bins: Option<NumberHistogram>,
    /// Up to 10 values that occur more than once, with the most frequent first.
    pub top: Vec<TopValue>,
    /// Whether `top` is estimated from a sample of one value in eight. An estimated `top` contains only values that
    /// occur about 128 times or more.
    pub top_estimated: bool,
    /// Whether the path has an indexed column.
    pub shredded: bool,
    /// Why the path has no indexed column. Null if the path has an indexed column.
    pub why_not_shredded: Option<NotShreddedReason>,
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

#[derive(Debug)]
pub struct ProfileSummary {
    pub entities: u64,
    pub path_count: usize,
    /// The first 150 paths of the profile, without histograms.
    pub paths: Vec<ProfilePathRecord>,
    /// The names of the first 300 paths whose names have no control characters.
    pub names: Vec<String>,
    pub(crate) memory_bytes: usize,
}

const MAX_SUMMARY_PATHS: usize = 150;
const MAX_SUMMARY_NAMES: usize = 300;

impl ProfileSummary {
    /// Decodes the whole profile, which takes tens of milliseconds for thousands of paths.
    pub fn decode(bytes: &[u8]) -> Result<ProfileSummary> {
        let StoredProfile { entities, mut paths, .. } = StoredProfile::decode(bytes)?.without_histograms();
        let is_name = |path: &str| !path.is_empty() && !path.contains(char::is_control);
        let names = paths.iter().map(|record| &record.path).filter(|path| is_name(path));
        let names: Vec<String> = names.take(MAX_SUMMARY_NAMES).cloned().collect();
        let path_count = paths.len();
        paths.truncate(MAX_SUMMARY_PATHS);
        paths.shrink_to_fit();
        let name_bytes = |name: &String| size_of::<String>() + name.len();
        let record_bytes = |record: &ProfilePathRecord| {
            size_of::<ProfilePathRecord>()
                + record.path.len()
                + record.top.len() * (size_of::<TopValue>() + MAX_SHOWN_VALUE_BYTES)
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
    pub fn to_stored(&self, choice: &ShreddingChoice, index: &IndexSettings) -> StoredProfile {
        let to_strings = |paths: &[FieldPath]| paths.iter().map(FieldPath::to_string).collect();
        let unmet = choice.unmet_paths.iter().map(|(path, why)| UnmetIndexPath { path: path.to_string(), why: *why });
        StoredProfile {
            entities: self.entities,
            document_bytes: self.document_bytes,
            paths_left_out: self.paths_left_out,
            index: ProfileIndexSettings {
                always: to_strings(index.always_indexed()),
                never: to_strings(index.never_indexed()),
                unmet: unmet.collect(),
            },
            paths: self.path_nodes().map(|(node, path)| self.path_record(node, path, choice)).collect(),
        }
    }

    fn path_record(&self, node: PathNode, path: &PathProfile, choice: &ShreddingChoice) -> ProfilePathRecord {
        let PathCounts { entities, types, text_bytes, fans_out, ref string_lengths, .. } = path.counts;
        let (frequent, top_estimated) = path.values.frequent_values_and_is_estimated();
        let numbers = path.values.numbers.min_max.as_ref();
        let number = |end: usize| numbers.map(|min_max| value_record(ScalarType::Number, &min_max[end].1));
        let strings = path.values.strings.min_max.as_ref();
        let string = |end: usize| strings.map(|min_max| value_record(ScalarType::String, &min_max[end]));
        let why_not_shredded = choice.not_shredded[node as usize];
        ProfilePathRecord {
            path: FieldPath::from_keys(self.tree.keys(node)).map_or_else(|_| String::new(), |path| path.to_string()),
            entities,
            types,
            fans_out,
            text_bytes,
            distinct: path.values.distinct_count(types.scalars() - types.null),
            number_min: number(0),
            number_max: number(1),
            string_min: string(0),
            string_max: string(1),
            string_lengths: string_lengths.clone(),
            number_bins: path.number_histogram.to_stored(),
            top: to_top_values(frequent),
            top_estimated,
            shredded: why_not_shredded.is_none(),
            why_not_shredded,
        }
    }
}

pub(super) fn value_record(scalar_type: ScalarType, truncated: &TruncatedValue) -> ValueRecord {
    let text = truncated.as_str();
    let whole = match scalar_type {
        ScalarType::Number | ScalarType::Boolean if !truncated.is_truncated => serde_json::from_str(text).ok(),
        ScalarType::Number | ScalarType::Boolean | ScalarType::String => None,
    };
    ValueRecord { value: whole.unwrap_or_else(|| Json::from(text)), cut: truncated.is_truncated, estimated: false }
}

pub(super) fn to_top_values(frequent: Vec<FrequentValue>) -> Vec<TopValue> {
    let top = frequent.into_iter().map(|FrequentValue { value: shown, count }| {
        let ValueRecord { value, cut, .. } = value_record(shown.scalar_type, &shown.value);
        TopValue { value, cut, count }
    });
    top.collect()
}

impl StoredProfile {
    /// Removes the histograms, which are not part of the public API.
    pub fn without_histograms(mut self) -> StoredProfile {
        for path in &mut self.paths {
            path.string_lengths = Vec::new();
            path.number_bins = None;
        }
        self
    }

    /// Encodes the profile. Omits rare paths if the JSON would be too large, and sets `paths_left_out`. Omits table
    /// columns that are too large, too.
    pub fn encode(&self, columns: Option<&TableColumnNames>) -> Result<Vec<u8>> {
        let invalid =
            |error: serde_json::Error| StorageError::InvalidFile(format!("failed to encode its profile: {error}"));
        let sizes = self.paths.iter().map(|path| serde_json::to_vec(path).map(|json| json.len() + 1));
        let sizes: Vec<usize> = sizes.collect::<Result<_, _>>().map_err(invalid)?;
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|path| std::cmp::Reverse(self.paths[*path].entities));
        let mut is_kept = vec![false; sizes.len()];
        let mut remaining_bytes = MAX_PATHS_JSON_BYTES;
        for path in order {
            is_kept[path] = sizes[path] <= remaining_bytes;
            remaining_bytes -= if is_kept[path] { sizes[path] } else { 0 };
        }
        let mut stored = self.clone();
        stored.paths_left_out |= is_kept.contains(&false);
        let mut is_kept = is_kept.into_iter();
        stored.paths.retain(|_| is_kept.next().unwrap_or(false));
        let mut json = serde_json::to_vec(&stored).map_err(invalid)?;
        if let Some(columns) = columns {
            let names = serde_json::to_vec(columns.names()).map_err(invalid)?;
            // The table columns are stored in the same JSON object, but API clients do not get them.
            if names.len() <= MAX_COLUMNS_JSON_BYTES && json.pop() == Some(b'}') {
                json.extend_from_slice(b",\"columns\":");
                json.extend_from_slice(&names);
                json.push(b'}');
            }
        }
        Ok(zstd::bulk::compress(&json, 3)?)
    }

    pub fn decode(bytes: &[u8]) -> Result<StoredProfile> {
        decode_profile(bytes)
    }
}

pub(super) fn decode_profile<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let json = zstd::bulk::decompress(bytes, MAX_PROFILE_JSON_BYTES).ok();
    let decoded = json.and_then(|json| serde_json::from_slice(&json).ok());
    decoded.ok_or_else(|| StorageError::InvalidFile("its profile is damaged".to_owned()))
}

impl ProfileLocation {
    pub fn new(offset: u64, bytes: &[u8]) -> ProfileLocation {
        ProfileLocation { offset, length: bytes.len() as u64, sha256: hex::encode(Sha256::digest(bytes)) }
    }

    pub fn matches(&self, bytes: &[u8]) -> bool {
        *self == ProfileLocation::new(self.offset, bytes)
    }

    pub fn is_within(&self, size_bytes: u64) -> bool {
        let end = self.offset.checked_add(self.length);
        end.is_some_and(|end| end <= size_bytes) && self.length <= MAX_PROFILE_JSON_BYTES as u64
    }
}
