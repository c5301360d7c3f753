//! A read of a version.
//!
//! Steps: resolve the dataset and version; settle the selection on the query engine; encode the selected
//! documents ([`super::body`]).

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path as ObjectPath;

use super::{App, body};
use crate::catalog::CatalogError;
use crate::encode::{self, TooManyColumns};
use crate::model::dataset::Dataset;
use crate::model::ids::DatasetId;
use crate::model::request::{Format, ReadRequest};
use crate::model::version::{Version, VersionFile, VersionNumber, VersionSelector};
use crate::query::QueryError;
use crate::query::engine::Outcome;
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
    /// The dataset served.
    pub dataset_id: DatasetId,
    /// Its slug.
    pub name_slug: String,
    /// The version served.
    pub version: VersionNumber,
    /// Whether its alternate was served.
    pub alt: bool,
    /// Entities in the answer, or the count that it holds.
    pub total: u64,
    /// `Content-Type` of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: AnswerBody,
}

/// A body: whole when it is small.
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// Its parts, in order. An error means that the rest cannot be had.
    Stream(BoxStream<'static, Result<Bytes, ReadError>>),
}

/// Why there is no answer, or no rest of one.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No dataset of this id has this slug. Nothing tells which of the two is wrong.
    #[error("no such dataset")]
    DatasetNotFound,
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
    /// A table of the answer would have more columns than `limits.columns`.
    #[error("the table would have more than {limit} columns")]
    TooManyColumns {
        /// The limit.
        limit: usize,
    },
    /// The version cannot be read.
    #[error("the version cannot be read")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<CatalogError> for ReadError {
    fn from(error: CatalogError) -> ReadError {
        ReadError::Unreadable(Box::new(error))
    }
}

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> ReadError {
        ReadError::Unreadable(Box::new(error))
    }
}

impl From<TooManyColumns> for ReadError {
    fn from(error: TooManyColumns) -> ReadError {
        ReadError::TooManyColumns { limit: error.limit }
    }
}

impl From<QueryError> for ReadError {
    fn from(error: QueryError) -> ReadError {
        match error {
            QueryError::Timeout { seconds } => ReadError::Timeout { seconds },
            QueryError::OutOfMemory(_) => ReadError::OutOfMemory,
            other => ReadError::Unreadable(Box::new(other)),
        }
    }
}

impl App {
    /// Answers a read. Dropping the future, or a streamed body, stops its work.
    ///
    /// # Errors
    /// [`ReadError`], in the order of checks of decisions section 5.
    pub async fn read(
        &self,
        target: &ReadTarget,
        authorization: Authorization<'_>,
        request: ReadRequest,
    ) -> Result<Answer, ReadError> {
        let resolved = self.catalog().resolve_read(target.dataset, target.version).await?;
        let resolved = resolved.filter(|resolved| resolved.dataset.name.slug() == target.name_slug);
        let resolved = resolved.ok_or(ReadError::DatasetNotFound)?;
        authorize(&resolved.dataset, authorization)?;
        if resolved.dataset.frozen {
            return Err(ReadError::Frozen);
        }
        let version = resolved.version.ok_or(ReadError::VersionNotFound(target.version))?;
        let reader = self.open_version(&version, request.alt).await?;
        let request = Arc::new(request);
        let outcome = self.engine().select(reader.clone(), request.clone()).await?;
        let answer = |total, content_type, body| Answer {
            dataset_id: resolved.dataset.id,
            name_slug: target.name_slug.clone(),
            version: version.number,
            alt: request.alt,
            total,
            content_type,
            body,
        };
        match outcome {
            Outcome::Count(count) => {
                let body = encode::count(count, resolved.dataset.id, version.number, request.alt, request.pretty);
                Ok(answer(count, Format::Json.content_type(), AnswerBody::Whole(body.into())))
            }
            Outcome::Selection(selection) => {
                let total = selection.len();
                let body = body::body(self, reader, selection, &request).await?;
                Ok(answer(total, request.format.content_type(), body))
            }
        }
    }

    async fn open_version(&self, version: &Version, alt: bool) -> Result<VersionReader, ReadError> {
        let file: &VersionFile = match (&version.alt, alt) {
            (_, false) => &version.file,
            (Some(file), true) => file,
            (None, true) => return Err(ReadError::AltNotFound(version.number)),
        };
        let path = ObjectPath::from(file.path.as_str());
        Ok(VersionReader::open(self.store(), &path, file.size_bytes, self.cache()).await?)
    }
}

fn authorize(dataset: &Dataset, authorization: Authorization<'_>) -> Result<(), ReadError> {
    match (&dataset.private_key, authorization) {
        (None, _) => Ok(()),
        (Some(_), Authorization::None) => Err(ReadError::Unauthorized),
        (Some(key), Authorization::Bearer(token)) if key.matches(token) => Ok(()),
        (Some(_), _) => Err(ReadError::Forbidden),
    }
}
