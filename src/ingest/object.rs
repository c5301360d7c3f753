//! Reads a source that is an object of the configured store.
//!
//! The store also holds the version files of every dataset. So an object is a source only in the folder that the
//! operator opened (`sources.prefix`), and never in a folder of the service: that of the version files, or of exports.
//! Anybody who can write into that folder decides what datasets may read: if the store is a directory, a link out of
//! that folder is followed.

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, ObjectStore};
use strata_config::is_own_folder;
use strata_types::source::{ObjectUrl, Validators};
use tokio::time::{Instant, timeout};

use super::error::SourceError;
use super::input::{FetchLimits, Fetched, Opened, Patience, Progress, SourceInput};

/// The place in the store of a URL's object, if sources may read it. Of others, nothing tells whether they exist.
pub(super) fn locate(url: &ObjectUrl, store_url: &str, prefix: Option<&str>) -> Result<ObjectPath, SourceError> {
    let bad = |reason: String| SourceError::BadAddress { reason };
    let Some(prefix) = prefix else {
        return Err(bad(
            "objects in the store cannot be sources; the operator can set sources.prefix to allow a folder".into(),
        ));
    };
    let mut names = url.key();
    if let Some(bucket) = url.bucket() {
        // The bucket, and the names of the prefix.
        let root = store_url.strip_prefix("s3://").unwrap_or_default();
        let root: Vec<&str> = root.split('/').filter(|name| !name.is_empty()).collect();
        let below = root.split_first().filter(|(first, _)| **first == bucket).and_then(|(_, root)| strip(names, root));
        names = below.ok_or_else(|| bad("the object is not in the configured store".to_owned()))?;
    }
    let folder: Vec<&str> = prefix.split('/').collect();
    let is_own = names.first().is_some_and(|first| is_own_folder(first));
    if is_own || strip(names, &folder).is_none_or(<[String]>::is_empty) {
        return Err(bad(format!("only objects in the store's folder {prefix} (sources.prefix) can be sources")));
    }
    ObjectPath::parse(names.join("/")).map_err(|error| bad(error.to_string()))
}

fn strip<'a>(names: &'a [String], start: &[&str]) -> Option<&'a [String]> {
    let (first, rest) = names.split_at_checked(start.len())?;
    (first == start).then_some(rest)
}

pub(super) async fn open(
    limits: &FetchLimits,
    store: &dyn ObjectStore,
    url: &ObjectUrl,
    path: &ObjectPath,
    known: Option<&Validators>,
) -> Result<Opened, SourceError> {
    let until = Instant::now().checked_add(limits.total_timeout);
    let known = known.filter(|known| known.url == url.as_str());
    let options = GetOptions { if_none_match: known.and_then(|known| known.etag.clone()), ..GetOptions::default() };
    let answer = timeout(limits.answer_timeout, store.get_opts(path, options)).await;
    let found = match answer {
        Err(_) => return Err(unreachable("the store did not respond in time")),
        Ok(Err(object_store::Error::NotModified { .. })) => {
            let known = known.cloned().map(Opened::NotModified);
            return known.ok_or_else(|| unreachable("the store returned Not Modified to an unconditional request"));
        }
        Ok(Err(object_store::Error::NotFound { .. })) => return Err(unreachable("the store has no such object")),
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to open source object");
            return Err(unreachable("the store failed to return the object"));
        }
        Ok(Ok(found)) => found,
    };
    let validators = Validators { url: url.as_str().to_owned(), etag: found.meta.e_tag.clone(), last_modified: None };
    let progress = Progress { total_bytes: Some(found.meta.size), ..Progress::default() };
    let chunks = found.into_stream().map_err(|error| {
        tracing::warn!(%error, "failed to read source object");
        unreachable("the store interrupted the transfer")
    });
    let patience = Patience { idle: limits.idle_timeout, until };
    let body = SourceInput::fetched(chunks.boxed(), patience);
    let input = SourceInput { name: url.key().last().cloned(), progress, ..body };
    Ok(Opened::Document(Fetched { input, validators }))
}

/// The store's own words may name its address and paths, which are the operator's.
fn unreachable(reason: &str) -> SourceError {
    SourceError::Unreachable { reason: reason.to_owned() }
}
