//! Reads a source from an object of the configured store. The store also contains the version files of all datasets.
//! Therefore sources must be in the folder `sources.prefix`, and never in strata's own folders. In a directory,
//! symbolic links out of that folder are followed, so anyone who can write there decides what datasets can read.

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, ObjectStore};
use strata_config::is_reserved_folder;
use strata_types::source::{ObjectUrl, SourceValidators};
use tokio::time::{Instant, timeout};

use super::error::SourceError;
use super::source_input::{BodyTimeouts, FetchLimits, FetchOutcome, FetchedSource, ReadProgress, SourceInput};

/// Returns the path of a URL's object if sources may read it. The errors do not reveal whether an object exists.
pub(super) fn resolve_object_path(
    url: &ObjectUrl,
    store_url: &str,
    prefix: Option<&str>,
) -> Result<ObjectPath, SourceError> {
    let unusable = |reason: String| SourceError::UnusableUrl { reason };
    let disabled = "objects in the store cannot be sources; the operator can set sources.prefix to allow a folder";
    let prefix = prefix.ok_or_else(|| unusable(disabled.to_owned()))?;
    let mut names = url.key();
    if let Some(bucket) = url.bucket() {
        // The configured URL of the store contains a bucket and a prefix, like the URL of the object.
        let root = store_url.strip_prefix("s3://").unwrap_or_default();
        let root: Vec<&str> = root.split('/').filter(|name| !name.is_empty()).collect();
        let below = root
            .split_first()
            .filter(|(first, _)| **first == bucket)
            .and_then(|(_, root)| strip_path_prefix(names, root));
        names = below.ok_or_else(|| unusable("the object is not in the configured store".to_owned()))?;
    }
    let folder: Vec<&str> = prefix.split('/').collect();
    let is_reserved = names.first().is_some_and(|first| is_reserved_folder(first));
    if is_reserved || strip_path_prefix(names, &folder).is_none_or(<[String]>::is_empty) {
        return Err(unusable(format!("only objects in the store's folder {prefix} (sources.prefix) can be sources")));
    }
    ObjectPath::parse(names.join("/")).map_err(|error| unusable(error.to_string()))
}

fn strip_path_prefix<'a>(names: &'a [String], prefix: &[&str]) -> Option<&'a [String]> {
    let (first, rest) = names.split_at_checked(prefix.len())?;
    (first == prefix).then_some(rest)
}

pub(super) async fn open_object(
    limits: &FetchLimits,
    store: &dyn ObjectStore,
    url: &ObjectUrl,
    path: &ObjectPath,
    known: Option<&SourceValidators>,
) -> Result<FetchOutcome, SourceError> {
    let deadline = Instant::now().checked_add(limits.total_timeout);
    let known = known.filter(|known| known.url == url.as_str());
    let options = GetOptions { if_none_match: known.and_then(|known| known.etag.clone()), ..GetOptions::default() };
    let response = timeout(limits.response_timeout, store.get_opts(path, options)).await;
    let object = match response {
        Err(_) => return Err(store_error("the store did not respond in time")),
        Ok(Err(object_store::Error::NotModified { .. })) => {
            let known = known.cloned().map(FetchOutcome::NotModified);
            return known.ok_or_else(|| store_error("the store returned Not Modified to an unconditional request"));
        }
        Ok(Err(object_store::Error::NotFound { .. })) => return Err(store_error("the store has no such object")),
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to open source object");
            return Err(store_error("the store failed to return the object"));
        }
        Ok(Ok(object)) => object,
    };
    let validators =
        SourceValidators { url: url.as_str().to_owned(), etag: object.meta.e_tag.clone(), last_modified: None };
    let progress = ReadProgress { total_bytes: Some(object.meta.size), ..ReadProgress::default() };
    let chunks = object.into_stream().map_err(|error| {
        tracing::warn!(%error, "failed to read source object");
        store_error("the store interrupted the transfer")
    });
    let timeouts = BodyTimeouts { idle_timeout: limits.idle_timeout, deadline };
    let body = SourceInput::from_response(chunks.boxed(), timeouts);
    let input = SourceInput { name: url.key().last().cloned(), progress, ..body };
    Ok(FetchOutcome::Document(FetchedSource { input, validators }))
}

/// Returns an error without the store's own message, which might contain the operator's addresses and paths.
fn store_error(reason: &str) -> SourceError {
    SourceError::Unreachable { reason: reason.to_owned() }
}
