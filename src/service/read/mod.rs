//! A read of a version.
//!
//! Steps: look the target up in the catalog; admit the caller to it; settle the selection on the query engine; encode
//! the selected documents ([`crate::service::read::body`]).

pub(in crate::service) mod body;
pub(in crate::service) mod cache_key;
pub(in crate::service) mod catalog_cache;
pub(in crate::service) mod fields;
pub(in crate::service) mod parquet;
pub(in crate::service) mod responses;
pub(in crate::service) mod single_flight;
pub(in crate::service) mod stream;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::stream::BoxStream;

use crate::catalog::{CatalogError, Resolved, Unavailability};
use crate::encode::{self, ContentCoding, EntityTooLarge, TooManyColumns};
use crate::model::dataset::Dataset;
use crate::model::ids::DatasetId;
use crate::model::request::{Format, ReadRequest};
use crate::model::user::User;
use crate::model::version::{Version, VersionFile, VersionNumber, VersionSelector};
use crate::query::{Outcome, QueryError, cost};
use crate::service::App;
use crate::service::admission::Weight;
use crate::service::admission::semaphore::{Holder, Refused};
use crate::service::explain::Observer;
use crate::service::export_cache::Export;
use crate::service::rate_limit::Client;
use crate::service::read::fields::UnknownField;
use crate::storage::StorageError;
use crate::storage::reader::VersionReader;

/// What the path of a read names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadTarget {
    /// The dataset.
    pub dataset: DatasetId,
    /// The slug that the dataset must have.
    pub name_slug: String,
    /// The version.
    pub version: VersionSelector,
}

/// What the `Authorization` header held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization<'a> {
    /// There was none.
    None,
    /// The scheme `Bearer` with this token.
    Bearer(&'a str),
    /// Another scheme, or nothing that can be read.
    Other,
}

/// An answer to a read.
pub struct Answer {
    /// Entities in the answer, or the count that it holds.
    pub total: u64,
    /// `Content-Type` of the body.
    pub content_type: &'static str,
    /// How the body is coded.
    pub coding: ContentCoding,
    /// The body.
    pub body: AnswerBody,
}

/// A body: whole when it is small.
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// Its parts, in order. An error means that the rest cannot be had.
    Stream(BoxStream<'static, Result<Bytes, ReadError>>),
    /// A Parquet export in the cache, of which parts can be had.
    Export(Export),
}

/// Who takes the bytes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::service) enum Taker {
    /// A client, at whatever pace.
    Client,
    /// The service itself, at once.
    Service,
}

/// Why there is no answer, or no rest of one. Everyone who waited for the same answer gets the same error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// No dataset of this id has this slug. Nothing tells which of the two is wrong.
    #[error("no such dataset")]
    DatasetNotFound,
    /// The dataset is neither public nor the user's.
    #[error("no dataset that the user may read")]
    NotReadable,
    /// The dataset is private and there was no `Authorization`.
    #[error("the dataset is private")]
    Unauthorized,
    /// The dataset is private and the `Authorization` is not its key.
    #[error("the key is not the dataset's")]
    Forbidden,
    /// The dataset is frozen.
    #[error("the dataset is frozen")]
    Frozen,
    /// The dataset has no such version.
    #[error("no version {0}")]
    VersionNotFound(VersionSelector),
    /// The version has no alternate.
    #[error("version {0} has no alternate")]
    AltNotFound(VersionNumber),
    /// Settling the selection took too long.
    #[error("the query took longer than {seconds} s")]
    Timeout {
        /// The limit.
        seconds: u64,
    },
    /// The query needed more memory than it may have.
    #[error("the query needed more memory than queries may hold")]
    OutOfMemory,
    /// The answer needs more memory than it can ever have.
    #[error("the answer needs {needed_bytes} bytes of memory, and may have {limit_bytes}")]
    TooMuchMemory {
        /// What it needs.
        needed_bytes: u64,
        /// What `query.memory_bytes` allows.
        limit_bytes: u64,
    },
    /// Too many are at work, of this client or in all, and too many wait.
    #[error(transparent)]
    Busy(#[from] Refused),
    /// A table of the answer would have more columns than `limits.columns`.
    #[error("the table would have more than {limit} columns")]
    TooManyColumns {
        /// The limit.
        limit: usize,
    },
    /// A strict request names fields that are not there.
    #[error("the request names {} unknown fields", .0.len())]
    UnknownFields(Arc<[UnknownField]>),
    /// The catalog cannot be used at the moment.
    #[error("the catalog is not available")]
    CatalogUnavailable {
        /// Why.
        reason: Unavailability,
        /// The cause.
        source: Arc<CatalogError>,
    },
    /// An entity of the answer would take more bytes than `limits.encoded_entity_bytes`.
    #[error("an entity would take more than {limit_bytes} bytes")]
    EntityTooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// The version cannot be read.
    #[error("the version cannot be read")]
    Unreadable(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl ReadError {
    /// Whether one who waited since then for what another one asked for, and failed with it, should ask itself: for the
    /// other one's share was used up, which says nothing of its own.
    pub(in crate::service) fn is_anothers(&self, since: Instant) -> bool {
        match self {
            ReadError::Busy(refused) => refused.is_anothers(since),
            // What it may have at most is less, perhaps.
            ReadError::OutOfMemory | ReadError::TooMuchMemory { .. } => true,
            _ => false,
        }
    }

    /// Whether there was no room, or no permit, for whom it was done.
    pub(in crate::service) fn is_of_a_share(&self) -> bool {
        matches!(self, ReadError::Busy(_) | ReadError::OutOfMemory | ReadError::TooMuchMemory { .. })
    }
}

impl From<CatalogError> for ReadError {
    fn from(error: CatalogError) -> ReadError {
        ReadError::from(Arc::new(error))
    }
}

impl From<Arc<CatalogError>> for ReadError {
    fn from(source: Arc<CatalogError>) -> ReadError {
        match source.unavailability() {
            Some(reason) => ReadError::CatalogUnavailable { reason, source },
            None => ReadError::Unreadable(source),
        }
    }
}

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> ReadError {
        ReadError::Unreadable(Arc::new(error))
    }
}

impl From<TooManyColumns> for ReadError {
    fn from(error: TooManyColumns) -> ReadError {
        ReadError::TooManyColumns { limit: error.limit }
    }
}

impl From<EntityTooLarge> for ReadError {
    fn from(error: EntityTooLarge) -> ReadError {
        ReadError::EntityTooLarge { limit_bytes: error.limit_bytes }
    }
}

impl From<QueryError> for ReadError {
    fn from(error: QueryError) -> ReadError {
        match error {
            QueryError::Timeout { seconds } => ReadError::Timeout { seconds },
            QueryError::OutOfMemory(_) => ReadError::OutOfMemory,
            other => ReadError::Unreadable(Arc::new(other)),
        }
    }
}

/// What the catalog knows of a target, before any check.
pub struct Lookup {
    /// Only of the dataset that has the slug, where one was asked for.
    resolved: Option<Arc<Resolved>>,
    version: VersionSelector,
}

impl Lookup {
    /// Whether there is such a dataset and it is private.
    pub fn is_private(&self) -> bool {
        self.resolved.as_ref().is_some_and(|resolved| resolved.dataset.is_private())
    }

    /// What may be read; `alt` asks for the version's alternate. With the private key it is read for the dataset's
    /// owner, otherwise for the client.
    ///
    /// # Errors
    /// [`ReadError`], in the order of docs/semantics.md, Order of checks.
    pub fn admit(self, authorization: Authorization<'_>, client: Client, alt: bool) -> Result<Admitted, ReadError> {
        let resolved = self.resolved.ok_or(ReadError::DatasetNotFound)?;
        let holder = authorize(&resolved.dataset, authorization, client)?;
        admit(&resolved, self.version, alt, holder)
    }

    /// What a user may read without a key: public datasets, and the user's own; `alt` asks for the version's alternate.
    ///
    /// # Errors
    /// [`ReadError`]; of another's private dataset that there is none.
    pub fn admit_user(self, user: &User, alt: bool) -> Result<Admitted, ReadError> {
        let readable = |resolved: &Arc<Resolved>| !resolved.dataset.is_private() || resolved.dataset.owner == user.id;
        let resolved = self.resolved.filter(readable).ok_or(ReadError::NotReadable)?;
        admit(&resolved, self.version, alt, Holder::User(user.id))
    }
}

/// The checks after those of who reads.
fn admit(
    Resolved { dataset, version }: &Resolved,
    selector: VersionSelector,
    alt: bool,
    holder: Holder,
) -> Result<Admitted, ReadError> {
    if dataset.frozen {
        return Err(ReadError::Frozen);
    }
    Admitted::of(dataset, version.as_ref().ok_or(ReadError::VersionNotFound(selector))?, alt, holder)
}

/// A file of entities that the caller may read.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// The dataset served.
    pub dataset_id: DatasetId,
    /// Its slug.
    pub name_slug: String,
    /// Whether it is private.
    pub private: bool,
    /// The version served.
    pub version: VersionNumber,
    /// Whether its alternate is served.
    pub alt: bool,
    /// The file that holds the entities.
    pub file: VersionFile,
    /// For whom they are read.
    pub holder: Holder,
}

impl Admitted {
    /// A version of a dataset, or its alternate.
    ///
    /// # Errors
    /// [`ReadError::AltNotFound`].
    pub(in crate::service) fn of(
        dataset: &Dataset,
        version: &Version,
        alt: bool,
        holder: Holder,
    ) -> Result<Admitted, ReadError> {
        let file = match (&version.alt, alt) {
            (_, false) => &version.file,
            (Some(file), true) => file,
            (None, true) => return Err(ReadError::AltNotFound(version.number)),
        };
        Ok(Admitted {
            dataset_id: dataset.id,
            name_slug: dataset.name.slug().to_owned(),
            private: dataset.is_private(),
            version: version.number,
            alt,
            file: file.clone(),
            holder,
        })
    }
}

impl App {
    /// What the catalog says of the target of a read, or said less than a second ago.
    ///
    /// # Errors
    /// [`ReadError::Unreadable`] when the catalog does not answer.
    pub async fn look_up(&self, target: &ReadTarget) -> Result<Lookup, ReadError> {
        let Lookup { resolved, version } = self.look_up_id(target.dataset, target.version).await?;
        let resolved = resolved.filter(|resolved| resolved.dataset.name.slug() == target.name_slug);
        Ok(Lookup { resolved, version })
    }

    /// As [`App::look_up`], of a dataset whose slug does not matter.
    ///
    /// # Errors
    /// [`ReadError::Unreadable`] when the catalog does not answer.
    pub async fn look_up_id(&self, dataset: DatasetId, version: VersionSelector) -> Result<Lookup, ReadError> {
        let resolved = self.catalog_cache().resolve(self.catalog(), dataset, version).await?;
        Ok(Lookup { resolved, version })
    }

    /// Makes the answer to a read, as it is before it is coded or kept ([`App::answer`]); what it takes is told to the
    /// observer. Dropping the future, or a streamed body, stops its work. Permits and memory are those of
    /// [`App::acting_for`].
    ///
    /// # Errors
    /// [`ReadError`] of the query and of the file.
    pub(in crate::service) async fn make_answer(
        &self,
        admitted: &Admitted,
        request: Arc<ReadRequest>,
        taker: Taker,
        mut observer: Option<&mut Observer>,
    ) -> Result<Answer, ReadError> {
        let observed = observer.as_ref().map(|observer| self.cache().observed(observer.settling.clone()));
        let cache = observed.as_ref().unwrap_or(self.cache());
        let reader = VersionReader::open_recorded(self.store(), &admitted.file, cache).await?;
        let work_bytes = cost::work_bytes(reader.layout(), &request);
        let weight = Weight::of(work_bytes, &self.config().query);
        if let Some(observer) = &mut observer {
            observer.opened(&reader, work_bytes);
        }
        let permit = self.admission().query(weight).await?;
        let engine = self.engine().at(weight.priority());
        // That of another one is held until the body is whole or has begun.
        let (permit, _other) = if weight == Weight::Heavy { (Some(permit), None) } else { (None, Some(permit)) };
        let outcome = match &mut observer {
            None => engine.select(reader.clone(), request.clone()).await?,
            Some(observer) => {
                observer.admitted();
                let (outcome, explained) = engine.explain(reader.clone(), request.clone()).await?;
                observer.settled(explained);
                outcome
            }
        };
        match outcome {
            Outcome::Count(count) => {
                let body = encode::count(count, admitted.dataset_id, admitted.version, admitted.alt, request.pretty);
                let content_type = Format::Json.content_type();
                let body = AnswerBody::Whole(body.into());
                Ok(Answer { total: count, content_type, coding: ContentCoding::Identity, body })
            }
            Outcome::Selection(selection) => {
                let total = selection.len();
                let reader = match &observer {
                    None => reader,
                    Some(observer) => reader.observed(observer.answering.clone()),
                };
                let body = body::body(self, &engine, reader, selection, &request, (permit, taker), observer).await?;
                let content_type = request.format.content_type();
                Ok(Answer { total, content_type, coding: ContentCoding::Identity, body })
            }
        }
    }
}

/// For whom the dataset is read, if it may be.
fn authorize(dataset: &Dataset, authorization: Authorization<'_>, client: Client) -> Result<Holder, ReadError> {
    match (&dataset.private_key, authorization) {
        (None, _) => Ok(Holder::Anonymous(client)),
        (Some(_), Authorization::None) => Err(ReadError::Unauthorized),
        (Some(key), Authorization::Bearer(token)) if key.matches(token) => Ok(Holder::User(dataset.owner)),
        (Some(_), _) => Err(ReadError::Forbidden),
    }
}
