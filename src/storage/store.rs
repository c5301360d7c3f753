//! Opening the object store that `store.url` names.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use url::Url;

use super::unfinished::{self, UnfinishedFile};
use super::{StorageError, durable};

/// The object that [`Store::probe`] writes.
const PROBE: &str = "readiness-probe";

/// What an S3 store needs besides its URL. What is `None` comes from the usual `AWS_*` environment.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// Endpoint of an S3-compatible server, for instance `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Access key id.
    pub access_key_id: Option<String>,
    /// Secret access key.
    pub secret_access_key: Option<String>,
    /// Whether plain `http` endpoints are allowed.
    pub allow_http: bool,
    /// For how long a call that fails is tried again; the builder's own time if `None`.
    pub retry_within: Option<Duration>,
}

/// An opened object store.
#[derive(Clone, Debug)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    /// The directory, where the store is one.
    directory: Option<PathBuf>,
}

impl Store {
    /// The store's objects.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// The file that is an object, where the store is a directory.
    pub fn file_of(&self, path: &object_store::path::Path) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(path.as_ref()))
    }

    /// Makes a written object outlive a power failure. Object stores promise that by themselves; in a directory the file
    /// is synchronised, its entry, and that of each folder on the way, which may be new.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn persist(&self, path: &object_store::path::Path) -> Result<(), StorageError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let (file, root) = (directory.join(path.as_ref()), directory.clone());
        let synchronise = move || durable::synchronise_file(&file, &root);
        tokio::task::spawn_blocking(synchronise).await.map_err(|_| StorageError::Worker)??;
        Ok(())
    }

    /// What writers that were killed have left below a folder, and those at work are writing: no object, so that no listing
    /// has it. Only directories have such files here. Parts of uploads that an S3 store keeps are its own to remove, by
    /// a lifecycle rule (docs/operate.md, Sweep).
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub async fn unfinished(&self, folder: &'static str) -> Result<Vec<UnfinishedFile>, StorageError> {
        let Some(directory) = self.directory.clone() else { return Ok(Vec::new()) };
        let list = move || unfinished::list(&directory, folder);
        Ok(tokio::task::spawn_blocking(list).await.map_err(|_| StorageError::Worker)??)
    }

    /// Removes one of them; one that is gone already is passed over.
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn remove_unfinished(&self, file: &UnfinishedFile) -> Result<(), StorageError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        match tokio::fs::remove_file(directory.join(&file.path)).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Whether the store can be written: writes a small object, makes it outlive a power failure, and removes it. Its
    /// name is always the same, so that a process that dies meanwhile leaves one behind at most.
    ///
    /// # Errors
    /// What the store answered.
    pub async fn probe(&self) -> Result<(), StorageError> {
        let path = object_store::path::Path::from(PROBE);
        self.objects.put(&path, bytes::Bytes::from_static(&[b'.'; 4_096]).into()).await?;
        match self.persist(&path).await {
            Ok(()) => {}
            // Another process has removed it; it was written.
            Err(StorageError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match self.objects.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<Arc<dyn ObjectStore>> for Store {
    fn from(objects: Arc<dyn ObjectStore>) -> Store {
        Store { objects, directory: None }
    }
}

/// Opens the store: a directory path or `file://` (created when missing), `s3://bucket/prefix`, or
/// `memory://` (gone when the process ends).
///
/// # Errors
/// [`StorageError::Url`] names the URL and what is wrong with it. Nothing is contacted here; [`Store::probe`] does.
pub fn open(url: &str, s3: &S3Options) -> Result<Store, StorageError> {
    let wrong = |reason: String| StorageError::Url { url: url.to_owned(), reason };
    match url.split_once("://") {
        None => directory(PathBuf::from(url)),
        Some(("file", _)) => {
            let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
            let path = parsed
                .to_file_path()
                .map_err(|()| wrong("a file URL needs an absolute path, as in file:///var/lib/strata".into()))?;
            directory(path)
        }
        Some(("memory", "")) => Ok(objects(InMemory::new())),
        Some(("memory", _)) => Err(wrong("a store in memory takes no path: memory://".into())),
        Some(("s3", rest)) => {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() {
                return Err(wrong("the bucket is missing, as in s3://bucket/prefix".into()));
            }
            let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_allow_http(s3.allow_http);
            if let Some(endpoint) = &s3.endpoint {
                builder = builder.with_endpoint(endpoint);
            }
            if let Some(region) = &s3.region {
                builder = builder.with_region(region);
            }
            if let Some(key) = &s3.access_key_id {
                builder = builder.with_access_key_id(key);
            }
            if let Some(secret) = &s3.secret_access_key {
                builder = builder.with_secret_access_key(secret);
            }
            if let Some(retry_timeout) = s3.retry_within {
                builder = builder.with_retry(RetryConfig { retry_timeout, ..RetryConfig::default() });
            }
            let store = builder.build().map_err(|error| wrong(error.to_string()))?;
            let prefix = prefix.trim_matches('/');
            if prefix.is_empty() { Ok(objects(store)) } else { Ok(objects(PrefixStore::new(store, prefix.to_owned()))) }
        }
        Some((scheme, _)) => Err(wrong(format!(
            "the scheme `{scheme}` is none of a directory path, file://, s3://bucket/prefix, memory://"
        ))),
    }
}

fn objects(store: impl ObjectStore) -> Store {
    Store { objects: Arc::new(store), directory: None }
}

fn directory(path: PathBuf) -> Result<Store, StorageError> {
    durable::create_directory(&path)?;
    let store = LocalFileSystem::new_with_prefix(&path)?.with_automatic_cleanup(true);
    Ok(Store { objects: Arc::new(store), directory: Some(path) })
}
