//! Dataset records, and the values that create, change, or clone a dataset.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::ids::{DatasetId, UserId};
use super::index_settings::IndexSettings;
use super::limits;
use super::secret::Secret;
use super::slug::slugify;
use super::source::SourceFormat;
use super::version::VersionNumber;

/// The default schedule of refreshes: every night at 2:00 UTC.
pub const DEFAULT_CRON_SCHEDULE: &str = "0 2 * * *";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetMetadata {
    pub description: Option<String>,
    pub license: Option<String>,
    /// Whether the dataset list shows the dataset while it is public, not frozen, and has a version.
    pub listed: bool,
}

impl DatasetMetadata {
    pub fn invalid_field(description: Option<&str>, licence: Option<&str>) -> Option<(&'static str, String)> {
        [
            ("description", description, limits::MAX_DESCRIPTION_CHARACTERS),
            ("licence", licence, limits::MAX_LICENSE_CHARACTERS),
        ]
        .into_iter()
        .find_map(|(field, text, characters)| match text {
            Some(text) if text.contains('\0') => Some((field, "it must not contain the character U+0000".to_owned())),
            Some(text) if text.chars().nth(characters).is_some() => {
                Some((field, format!("it is longer than {characters} characters")))
            }
            _ => None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    pub id: DatasetId,
    pub owner: UserId,
    /// The name of the dataset, unique among its owner's datasets.
    pub name: DatasetName,
    pub metadata: DatasetMetadata,
    /// The key that grants read access to a private dataset; `None` for a public dataset.
    pub private_key: Option<Secret>,
    pub source: DatasetSource,
    /// The format of the source. `None` means that strata detects it.
    pub format: Option<SourceFormat>,
    /// The path of the records in the source document; `None` if the document itself contains them.
    pub records_path: Option<String>,
    /// Whether `_source` includes the query string of the source URL.
    pub publish_query: bool,
    /// Whether csv and tsv cells are converted to numbers, booleans, and null.
    pub infer_types: bool,
    pub schedule: Option<String>,
    pub index: IndexSettings,
    pub ping_token: Secret,
    pub latest_version: Option<VersionNumber>,
    pub pinned_version: Option<VersionNumber>,
    /// Frozen datasets are not refreshed, and queries return 410.
    pub frozen: bool,
    pub created_at: DateTime<Utc>,
}

impl Dataset {
    pub fn active_version(&self) -> Option<VersionNumber> {
        self.pinned_version.or(self.latest_version)
    }

    pub fn is_private(&self) -> bool {
        self.private_key.is_some()
    }
}

#[derive(Clone, Debug)]
pub struct NewDataset {
    pub owner: UserId,
    pub name: DatasetName,
    pub metadata: DatasetMetadata,
    pub private_key: Option<Secret>,
    pub source: DatasetSource,
    pub format: Option<SourceFormat>,
    pub records_path: Option<String>,
    pub publish_query: bool,
    pub infer_types: bool,
    pub schedule: Option<String>,
    pub index: IndexSettings,
    /// The checks of new versions as JSON, validated by `strata-checks`.
    pub checks: Option<String>,
    pub ping_token: Secret,
}

/// The changes to a dataset. `None` leaves a field unchanged, and `Some(None)` clears it.
#[derive(Clone, Debug, Default)]
pub struct DatasetChange {
    /// A new name of a dataset also changes the slug.
    pub name: Option<DatasetName>,
    pub description: Option<Option<String>>,
    pub licence: Option<Option<String>>,
    pub listed: Option<bool>,
    pub visibility: Option<DatasetVisibility>,
    pub source: Option<DatasetSource>,
    pub format: Option<Option<SourceFormat>>,
    pub records_path: Option<Option<String>>,
    pub publish_query: Option<bool>,
    pub infer_types: Option<bool>,
    pub schedule: Option<Option<String>>,
    pub index: Option<IndexSettings>,
    /// The checks of new versions as JSON, validated by `strata-checks`.
    pub checks: Option<Option<String>>,
}

#[derive(Clone, Debug)]
pub enum DatasetVisibility {
    Public,
    Private {
        /// A new key, used only if the dataset was public. A private dataset keeps its key.
        new_private_key: Secret,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollbackMode {
    /// Pins the version. A frozen dataset remains frozen.
    Pin,
    PinAndFreeze,
}

impl RollbackMode {
    /// Returns the mode for the value of `freeze` in a rollback request.
    pub fn from_freeze(freeze: bool) -> RollbackMode {
        if freeze { RollbackMode::PinAndFreeze } else { RollbackMode::Pin }
    }
}

#[derive(Clone, Debug)]
pub struct NewDatasetClone {
    pub source: DatasetId,
    pub owner: UserId,
    pub name: DatasetName,
    /// The key of the clone, used only if the original dataset is private.
    pub private_key: Secret,
    /// A cron expression in UTC, used once the clone has a source to fetch.
    pub schedule: Option<String>,
    pub ping_token: Secret,
}

/// A dataset's name and slug. The name has 1 to [`DatasetName::MAX_CHARACTERS`] characters and no NUL. The slug was
/// derived by [`slugify`] when the name was set, and is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetName {
    name: String,
    slug: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDatasetName {
    #[error("it must contain at least one letter or digit")]
    NoLetterOrDigit,
    #[error("it must have at most {} characters", DatasetName::MAX_CHARACTERS)]
    TooLong,
    /// The name contains U+0000, which databases cannot store.
    #[error("it must not contain the character U+0000")]
    ContainsNul,
}

impl DatasetName {
    /// The size of PostgreSQL index entries limits the length of dataset names.
    pub const MAX_CHARACTERS: usize = limits::MAX_DATASET_NAME_CHARACTERS;

    pub fn from_stored(name: String, slug: String) -> DatasetName {
        DatasetName { name, slug }
    }

    pub fn as_str(&self) -> &str {
        &self.name
    }

    pub fn slug(&self) -> &str {
        &self.slug
    }
}

impl FromStr for DatasetName {
    type Err = InvalidDatasetName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name.contains('\0') {
            return Err(InvalidDatasetName::ContainsNul);
        }
        if name.chars().count() > DatasetName::MAX_CHARACTERS {
            return Err(InvalidDatasetName::TooLong);
        }
        let slug = slugify(name).ok_or(InvalidDatasetName::NoLetterOrDigit)?;
        Ok(DatasetName { name: name.to_owned(), slug })
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// The origin of a dataset's entities (docs/reference/import-semantics.md, Sources).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatasetSource {
    Push,
    Url(String),
}

impl From<&str> for DatasetSource {
    fn from(text: &str) -> Self {
        match text {
            "push" => DatasetSource::Push,
            url => DatasetSource::Url(url.to_owned()),
        }
    }
}

impl fmt::Display for DatasetSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            DatasetSource::Push => "push",
            DatasetSource::Url(url) => url,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefreshTrigger {
    Schedule,
    Ping,
    Manual,
    Import,
}

names!(
    RefreshTrigger { Schedule = "schedule", Ping = "ping", Manual = "manual", Import = "import" },
    UnknownTrigger,
    "{0:?} is not a refresh trigger; valid: schedule, ping, manual, import"
);
