//! Opens the object store at `store.url`, and checks that the store is available and belongs to this installation.
//!
//! Problem: a directory whose disk is not mounted looks like an empty store, and a read of any version file then fails
//! as if the file had been deleted. Therefore, each store contains its identity in [`IDENTITY_OBJECT_NAME`]. After a
//! failed request, [`Store::detect_missing_store`] compares the identity, so that the error is
//! [`StorageError::StoreMissing`] and not damage of a version file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, RetryConfig};
use strata_runtime::blocking::run_blocking;
use strata_types::error_chain::iter_error_chain;
use strata_types::secret::Secret;
use url::Url;

use super::staged_uploads::{self, StagedUpload};
use super::unavailable::ResourceUnavailable;
use super::{Result, StorageError, fsync};

/// Object that contains the identity of the metadata database that the store belongs to.
pub const IDENTITY_OBJECT_NAME: &str = "strata.id";
const PROBE_OBJECT_NAME: &str = "readiness-probe";
const MAX_IDENTITY_BYTES: u64 = 256;
const IDENTITY_HEX_DIGITS: usize = 32;

/// Options of an S3 store in addition to its URL. Unset options are read from the usual `AWS_*` environment variables.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// Endpoint of an S3-compatible server, for example `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<Secret>,
    pub allow_http: bool,
    /// Max time for retries of a failed request. With `None`, `object_store` uses its default.
    pub retry_timeout: Option<Duration>,
}

/// An object store and the identity that it must have. Clones share the expected identity.
#[derive(Clone, Debug)]
pub struct Store {
    object_store: Arc<dyn ObjectStore>,
    backend: StoreBackend,
    expected_identity: Arc<OnceLock<String>>,
}

#[derive(Clone, Debug)]
enum StoreBackend {
    Memory,
    Directory(PathBuf),
    Remote {
        /// Client of the same store that retries only once. With `None`, probes use the client of all other requests.
        probe_store: Option<Arc<dyn ObjectStore>>,
    },
}

/// Opens a store without contacting it: a directory path or `file://` (created if missing), `s3://bucket/prefix`, or
/// `memory://` (its objects are lost at exit). [`Store::probe_write`] contacts the store.
///
/// Fails with [`StorageError::InvalidUrl`] if `url` is invalid or names a file, and with [`StorageError::Io`] if the
/// directory cannot be created.
pub fn open_store(url: &str, s3: &S3Options) -> Result<Store> {
    match url.split_once("://") {
        None => open_directory(PathBuf::from(url)),
        Some(("file", _)) => open_directory(parse_file_url(url)?),
        Some(("memory", "")) => Ok(Store::in_memory()),
        Some(("memory", _)) => Err(invalid_url(url, "an in-memory store cannot have a path; use memory://")),
        Some(("s3", location)) => match location.split_once('/').unwrap_or((location, "")) {
            ("", _) => Err(invalid_url(url, "the bucket is missing; valid: s3://bucket/prefix")),
            (bucket, prefix) => open_bucket(url, s3_builder(bucket, s3), prefix.trim_matches('/')),
        },
        Some((scheme, _)) => {
            let valid = "a directory path, file://, s3://bucket/prefix, memory://";
            Err(invalid_url(url, format!("unknown scheme `{scheme}`; valid: {valid}")))
        }
    }
}

impl Store {
    fn new(object_store: Arc<dyn ObjectStore>, backend: StoreBackend) -> Store {
        Store { object_store, backend, expected_identity: Arc::default() }
    }

    pub fn in_memory() -> Store {
        Store::new(Arc::new(InMemory::new()), StoreBackend::Memory)
    }

    pub fn object_store(&self) -> &Arc<dyn ObjectStore> {
        &self.object_store
    }

    /// Returns a handle of the same store whose requests to S3 are retried at most once, so that a probe fails early.
    pub fn for_probes(&self) -> Store {
        match &self.backend {
            StoreBackend::Remote { probe_store: Some(probe_store) } => {
                Store { object_store: probe_store.clone(), ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    pub fn is_in_memory(&self) -> bool {
        matches!(self.backend, StoreBackend::Memory)
    }

    /// Returns whether the store is a directory or in memory. A directory can be on a network file system.
    pub fn is_local(&self) -> bool {
        matches!(self.backend, StoreBackend::Memory | StoreBackend::Directory(_))
    }

    fn directory(&self) -> Option<&Path> {
        match &self.backend {
            StoreBackend::Directory(directory) => Some(directory),
            StoreBackend::Memory | StoreBackend::Remote { .. } => None,
        }
    }

    /// Returns `None` if the identity object does not exist, or if a power failure truncated it. Fails with
    /// [`StorageError::StoreMissing`] if the object is a pipe or another special file in a directory.
    pub async fn read_identity(&self) -> Result<Option<String>> {
        let path = ObjectPath::from(IDENTITY_OBJECT_NAME);
        match self.ensure_regular_file(&path).await {
            Err(StorageError::InvalidFile(_)) => {
                return Err(StorageError::store_missing("its strata.id is not a regular file"));
            }
            result => result?,
        }
        let response = match self.object_store.get(&path).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            response => response?,
        };
        // No version of strata writes an identity of that many bytes, so the store belongs to something else.
        if response.meta.size > MAX_IDENTITY_BYTES {
            return Ok(Some(format!("{} bytes", response.meta.size)));
        }
        let text = String::from_utf8_lossy(&response.bytes().await?).trim_matches(['\0', '\n']).to_owned();
        let is_truncated =
            text.len() < IDENTITY_HEX_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == 0);
        Ok((!is_truncated).then_some(text))
    }

    /// Writes the identity unless the store already has one. Returns the identity of the store, which is then durable.
    pub async fn initialize_identity(&self, identity: &str) -> Result<String> {
        let path = ObjectPath::from(IDENTITY_OBJECT_NAME);
        let content = bytes::Bytes::from(format!("{identity}\n"));
        match self.object_store.put_opts(&path, content.clone().into(), PutMode::Create.into()).await {
            Ok(_) => {}
            // The identity object is truncated, or the file system or server does not support conditional writes.
            Err(_) if self.read_identity().await?.is_none() => _ = self.object_store.put(&path, content.into()).await?,
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.sync_object(&path).await?;
        self.read_identity()
            .await?
            .ok_or(StorageError::store_missing("it does not contain strata.id after a successful write"))
    }

    /// Sets the identity for [`Store::verify_identity`], in all clones. Only the first call has an effect.
    pub fn set_expected_identity(&self, identity: String) {
        // All callers set the same identity, so a failure of this call does not matter.
        let _ = self.expected_identity.set(identity);
    }

    pub fn has_expected_identity(&self) -> bool {
        self.expected_identity.get().is_some()
    }

    /// Checks the identity of the store with one small request. Returns [`StorageError::StoreMissing`] if the identity
    /// differs from the expected one.
    pub async fn verify_identity(&self) -> Result<()> {
        let Some(expected) = self.expected_identity.get() else { return Ok(()) };
        match self.read_identity().await {
            Ok(Some(identity)) if identity == *expected => Ok(()),
            Ok(Some(_)) => Err(StorageError::store_missing("a different store is in its place")),
            Ok(None) => Err(StorageError::store_missing("it has no strata.id")),
            Err(error)
                if self.directory().is_some()
                    && ResourceUnavailable::from_error(&error).is_none()
                    && is_path_unavailable(&error) =>
            {
                Err(StorageError::store_missing("its directory does not exist"))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns [`StorageError::StoreMissing`] if this is the cause of a failed request, and otherwise `error`.
    pub async fn detect_missing_store(&self, error: StorageError) -> StorageError {
        if ResourceUnavailable::from_error(&error).is_some() {
            return error;
        }
        match self.verify_identity().await {
            Err(missing @ StorageError::StoreMissing(_)) => missing,
            _ => error,
        }
    }

    /// Returns the path of an object's file if the store is a directory.
    pub fn local_path(&self, path: &ObjectPath) -> Option<PathBuf> {
        self.directory().map(|directory| directory.join(path.as_ref()))
    }

    /// Rejects pipes and other special files, because opening a pipe waits for its writer. Missing files pass.
    pub async fn ensure_regular_file(&self, path: &ObjectPath) -> Result<()> {
        let Some(file) = self.local_path(path) else { return Ok(()) };
        match run_blocking(move || std::fs::metadata(file)).await? {
            Ok(metadata) if !metadata.is_file() => {
                Err(StorageError::InvalidFile("it is not a regular file".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// If the store is a directory, syncs the file and its directories up to the root. Other stores guarantee
    /// durability.
    pub async fn sync_object(&self, path: &ObjectPath) -> Result<()> {
        let Some(directory) = self.directory() else { return Ok(()) };
        let file = directory.join(path.as_ref());
        let root = directory.to_owned();
        let sync = move || fsync::sync_file(&file, &root);
        run_blocking(sync).await??;
        Ok(())
    }

    /// Lists incomplete uploads in a folder of a directory store, from killed and from active writers. For S3, the
    /// result is empty: a lifecycle rule removes its incomplete uploads (docs/guides/backup-and-restore.md, Sweep).
    pub async fn list_staged_uploads(&self, folder: &'static str) -> Result<Vec<StagedUpload>> {
        let Some(directory) = self.directory().map(Path::to_owned) else { return Ok(Vec::new()) };
        let list = move || staged_uploads::list_staged_uploads(&directory, folder);
        Ok(run_blocking(list).await??)
    }

    /// Removes an incomplete upload. Succeeds if its writer has renamed or removed the file.
    pub async fn remove_staged_upload(&self, file: &StagedUpload) -> Result<()> {
        let Some(directory) = self.directory() else { return Ok(()) };
        let file = directory.join(&file.path);
        match run_blocking(move || std::fs::remove_file(file)).await? {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Writes, syncs, and deletes a small object. Its name is constant, so crashed processes leave at most one object.
    pub async fn probe_write(&self) -> Result<()> {
        // The identity is verified first, because the write would create a missing directory.
        self.verify_identity().await?;
        let path = ObjectPath::from(PROBE_OBJECT_NAME);
        self.object_store.put(&path, bytes::Bytes::from_static(&[b'.'; 4_096]).into()).await?;
        match self.sync_object(&path).await {
            Ok(()) => {}
            // Another process that also probes the store has deleted the object after the successful write.
            Err(StorageError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match self.object_store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A remote store without a separate client for probes.
impl From<Arc<dyn ObjectStore>> for Store {
    fn from(object_store: Arc<dyn ObjectStore>) -> Store {
        Store::new(object_store, StoreBackend::Remote { probe_store: None })
    }
}

fn invalid_url(url: &str, reason: impl Into<String>) -> StorageError {
    StorageError::InvalidUrl { url: url.to_owned(), reason: reason.into() }
}

fn parse_file_url(url: &str) -> Result<PathBuf> {
    let parsed = Url::parse(url).map_err(|error| invalid_url(url, error.to_string()))?;
    let path = parsed.to_file_path();
    path.map_err(|()| invalid_url(url, "a file URL needs an absolute path, such as file:///var/lib/strata"))
}

fn open_directory(path: PathBuf) -> Result<Store> {
    if std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_dir()) {
        return Err(invalid_url(&path.display().to_string(), "it exists, but is not a directory"));
    }
    fsync::create_dir_synced(&path)?;
    let object_store = LocalFileSystem::new_with_prefix(&path)?.with_automatic_cleanup(true);
    Ok(Store::new(Arc::new(object_store), StoreBackend::Directory(path)))
}

fn s3_builder(bucket: &str, s3: &S3Options) -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_allow_http(s3.allow_http);
    let options = [
        (AmazonS3ConfigKey::Endpoint, s3.endpoint.as_deref()),
        (AmazonS3ConfigKey::Region, s3.region.as_deref()),
        (AmazonS3ConfigKey::AccessKeyId, s3.access_key_id.as_deref()),
        (AmazonS3ConfigKey::SecretAccessKey, s3.secret_access_key.as_ref().map(Secret::expose)),
    ];
    for (key, value) in options.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        builder = builder.with_config(key, value);
    }
    match s3.retry_timeout {
        Some(retry_timeout) => builder.with_retry(RetryConfig { retry_timeout, ..RetryConfig::default() }),
        None => builder,
    }
}

/// Opens a bucket with two clients: one with the retries of `builder`, and one for probes.
fn open_bucket(url: &str, builder: AmazonS3Builder, prefix: &str) -> Result<Store> {
    let open_client = |builder: AmazonS3Builder| {
        let store = builder.build().map_err(|error| invalid_url(url, error.to_string()))?;
        Ok::<Arc<dyn ObjectStore>, StorageError>(match prefix {
            "" => Arc::new(store),
            prefix => Arc::new(PrefixStore::new(store, prefix.to_owned())),
        })
    };
    let probe_retries = RetryConfig { max_retries: 1, ..RetryConfig::default() };
    let probe_store = open_client(builder.clone().with_retry(probe_retries))?;
    Ok(Store::new(open_client(builder)?, StoreBackend::Remote { probe_store: Some(probe_store) }))
}

/// Returns whether the error means a missing path, a file in place of a directory, or a disconnected file system.
fn is_path_unavailable(error: &StorageError) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotConnected, NotFound, StaleNetworkFileHandle};

    iter_error_chain(error).any(|error| {
        error.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(error.kind(), NotADirectory | NotConnected | NotFound | StaleNetworkFileHandle)
        })
    })
}
