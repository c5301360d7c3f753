//! Datasets: the catalog's record of one, and the values that create, change or clone one.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::ids::{DatasetId, UserId};
use super::index::IndexSettings;
use super::limits;
use super::secret::Secret;
use super::slug::name_slug;
use super::source::SourceFormat;
use super::version::VersionNumber;

/// The default schedule of a dataset: nightly, as a cron expression in UTC.
pub const DEFAULT_SCHEDULE: &str = "0 2 * * *";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What it holds; `None` is not said.
    pub description: Option<String>,
    /// The terms under which its entities may be used; `None` is not said.
    pub licence: Option<String>,
    /// Whether it is among the datasets that the service lists for everybody, as long as it is public, is not frozen
    /// and has a version.
    pub listed: bool,
}

impl About {
    /// The first of these texts that cannot be used: its field, and what is wrong with it.
    pub fn problem(description: Option<&str>, licence: Option<&str>) -> Option<(&'static str, String)> {
        [("description", description, limits::DESCRIPTION_CHARACTERS), ("licence", licence, limits::LICENCE_CHARACTERS)]
            .into_iter()
            .find_map(|(field, text, characters)| match text {
                Some(text) if text.contains('\0') => {
                    Some((field, "it must not contain the character U+0000".to_owned()))
                }
                Some(text) if text.chars().nth(characters).is_some() => {
                    Some((field, format!("it is longer than {characters} characters")))
                }
                _ => None,
            })
    }
}

/// A named collection of entities, without its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    pub id: DatasetId,
    pub owner: UserId,
    /// Its name, unique among the owner's datasets.
    pub name: DatasetName,
    pub about: About,
    /// The key for reading it; `None` is a public dataset.
    pub private_key: Option<Secret>,
    pub source: DatasetSource,
    /// The format of the source; `None` detects it.
    pub format: Option<SourceFormat>,
    /// The path to the array of entities within a JSON source; `None` is the document itself.
    pub records_path: Option<String>,
    /// Whether the `_source` of its entities keeps the query of the source's URL.
    pub publish_query: bool,
    /// Whether cells of csv and tsv become numbers, booleans and nulls.
    pub infer_types: bool,
    /// A cron expression in UTC; `None` has no schedule.
    pub schedule: Option<String>,
    /// Which paths of versions written from now on get a shredded column, and which get none.
    pub index: IndexSettings,
    pub ping_token: Secret,
    /// The highest version number; `None` before the first version.
    pub latest_version: Option<VersionNumber>,
    /// The version that a rollback made active for good.
    pub pinned_version: Option<VersionNumber>,
    /// Whether refreshes are prevented and reads answer 410.
    pub frozen: bool,
    /// When it was created, to the microsecond.
    pub created_at: DateTime<Utc>,
}

impl Dataset {
    /// The version that `active` means: the pinned one, else the newest; `None` before the first.
    pub fn active_version(&self) -> Option<VersionNumber> {
        self.pinned_version.or(self.latest_version)
    }

    pub fn is_private(&self) -> bool {
        self.private_key.is_some()
    }
}

/// The values of a new dataset. The secrets come from the caller, who draws the random bytes.
#[derive(Clone, Debug)]
pub struct NewDataset {
    pub owner: UserId,
    pub name: DatasetName,
    pub about: About,
    /// The key for reading it; `None` makes it public.
    pub private_key: Option<Secret>,
    pub source: DatasetSource,
    pub format: Option<SourceFormat>,
    pub records_path: Option<String>,
    pub publish_query: bool,
    pub infer_types: bool,
    pub schedule: Option<String>,
    pub index: IndexSettings,
    pub ping_token: Secret,
}

/// The changes of a dataset. `None` leaves a field as it is, `Some(None)` clears a field that may be absent.
#[derive(Clone, Debug, Default)]
pub struct DatasetChange {
    /// The name, and with it the slug.
    pub name: Option<DatasetName>,
    pub description: Option<Option<String>>,
    pub licence: Option<Option<String>>,
    pub listed: Option<bool>,
    pub visibility: Option<Visibility>,
    pub source: Option<DatasetSource>,
    pub format: Option<Option<SourceFormat>>,
    pub records_path: Option<Option<String>>,
    pub publish_query: Option<bool>,
    pub infer_types: Option<bool>,
    pub schedule: Option<Option<String>>,
    /// Which paths get a shredded column, and which get none: replaced as a whole.
    pub index: Option<IndexSettings>,
}

#[derive(Clone, Debug)]
pub enum Visibility {
    Public,
    /// Everybody who has its key.
    Private {
        /// The key of a dataset that was public. A dataset that is already private keeps its own.
        new_key: Secret,
    },
}

/// The values of a clone. The secrets come from the caller, who draws the random bytes.
#[derive(Clone, Debug)]
pub struct NewClone {
    pub source: DatasetId,
    pub owner: UserId,
    pub name: DatasetName,
    /// The key for reading the clone, if the original is private.
    pub private_key: Secret,
    /// A cron expression in UTC, which matters once the clone has a source to fetch.
    pub schedule: Option<String>,
    pub ping_token: Secret,
}

/// A dataset's name together with its URL form.
///
/// - The slug is `name_slug(name)` as of the time when the name was given. It is never empty.
/// - The name has at most [`DatasetName::MAX_CHARACTERS`] characters and no NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetName {
    name: String,
    slug: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDatasetName {
    #[error("it must contain at least one letter or digit")]
    Empty,
    #[error("it must have at most {} characters", DatasetName::MAX_CHARACTERS)]
    TooLong,
    /// It holds U+0000, which databases cannot store.
    #[error("it must not contain the character U+0000")]
    Nul,
}

impl DatasetName {
    /// The longest possible name. The limit comes from PostgreSQL's indexes.
    pub const MAX_CHARACTERS: usize = limits::DATASET_NAME_CHARACTERS;

    /// A name that was recorded before, with the slug it was given then.
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

    /// Takes the name as it is. Blanks around it stay a part of it.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name.contains('\0') {
            return Err(InvalidDatasetName::Nul);
        }
        if name.chars().count() > DatasetName::MAX_CHARACTERS {
            return Err(InvalidDatasetName::TooLong);
        }
        let slug = name_slug(name).ok_or(InvalidDatasetName::Empty)?;
        Ok(DatasetName { name: name.to_owned(), slug })
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// Where the entities of a dataset come from (docs/reference/import-semantics.md, Sources).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatasetSource {
    /// `push`: the owner sends them.
    Push,
    Url(String),
}

impl From<&str> for DatasetSource {
    /// `push` is [`DatasetSource::Push`], any other text a URL, which is not checked here.
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
    /// A call of its ping URL.
    Ping,
    /// Its owner, through the management interface.
    Manual,
    /// `strata import` on the command line.
    Import,
}

names!(
    RefreshTrigger { Schedule = "schedule", Ping = "ping", Manual = "manual", Import = "import" },
    UnknownTrigger,
    "{0:?} is not a refresh trigger; valid: schedule, ping, manual, import"
);
