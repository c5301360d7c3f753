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

use super::client::{Fetched, Opened, SourceClient};
use super::error::SourceError;
use super::input::{Patience, Progress, SourceInput};

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

/// What follows `start` in `names`.
fn strip<'a>(names: &'a [String], start: &[&str]) -> Option<&'a [String]> {
    let (first, rest) = names.split_at_checked(start.len())?;
    (first == start).then_some(rest)
}

pub(super) async fn open(
    client: &SourceClient,
    store: &dyn ObjectStore,
    url: &ObjectUrl,
    path: &ObjectPath,
    known: Option<&Validators>,
) -> Result<Opened, SourceError> {
    let limits = &client.limits;
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

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::source::SourceUrl;

    #[track_caller]
    fn check(url: &str, store_url: &str, prefix: Option<&str>, expected: &str) {
        let SourceUrl::Object(parsed) = url.parse().unwrap() else { panic!("{url} is no object") };
        let found = match locate(&parsed, store_url, prefix) {
            Ok(path) => path.to_string(),
            Err(error) => format!("! {error}"),
        };
        let fits = if expected.starts_with('!') { found.contains(&expected[2..]) } else { found == expected };
        assert!(fits, "{url} in {store_url} below {prefix:?}: {found}");
    }

    #[test]
    fn only_objects_below_the_prefix_are_found() {
        let data = "./strata-data/store";
        let bucket = "s3://bucket/root/";
        let closed = "! objects in the store cannot be sources";
        let outside = "! only objects in the store's folder a (sources.prefix) can be sources";
        let elsewhere = "! the object is not in the configured store";
        check("store:///a/x.json", data, None, closed);
        check("s3://bucket/root/a/x.json", bucket, None, closed);
        check("store:///a/x.json", data, Some("a"), "a/x.json");
        check("store:///a/b/x.json", data, Some("a/b"), "a/b/x.json");
        check("store:///a/b%20c/x.json", data, Some("a/b c"), "a/b c/x.json");
        check("store:///a/versions/x.json", data, Some("a"), "a/versions/x.json");
        check("store:///ab/x.json", data, Some("a"), outside);
        check("store:///a", data, Some("a"), outside);
        check("store:///x.json", data, Some("a"), outside);
        check("store:///A/x.json", data, Some("a"), outside);
        check("store:///versions/x.parquet", data, Some("a"), outside);
        check("store:///shared-exports/x.parquet", data, Some("a"), outside);
        check(
            "store:///Shared-Exports/x",
            data,
            Some("shared-exports"),
            "! only objects in the store's folder shared-exports",
        );
        // Even if the configuration let such a prefix pass.
        check("store:///versions/x.parquet", data, Some("versions"), "! only objects in the store's folder versions");
        check("store:///VERSIONS/x.parquet", data, Some("VERSIONS"), "! only objects in the store's folder VERSIONS");
        check("s3://bucket/root/a/x.json", bucket, Some("a"), "a/x.json");
        check("store:///a/x.json", bucket, Some("a"), "a/x.json");
        check("s3://bucket/root/versions/x.parquet", bucket, Some("a"), outside);
        check("s3://bucket/rooted/a/x.json", bucket, Some("a"), elsewhere);
        check("s3://bucket/a/x.json", bucket, Some("a"), elsewhere);
        check("s3://other/root/a/x.json", bucket, Some("a"), elsewhere);
        check("s3://bucket/a/x.json", "s3://bucket", Some("a"), "a/x.json");
        check("s3://bucket/a/x.json", data, Some("a"), elsewhere);
    }
}
