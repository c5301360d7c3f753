//! Opens the object store at `store.url`, and checks that the store is available and belongs to this installation.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, RetryConfig};
use strata_runtime::blocking::run_blocking;
use strata_types::error_chain::iter_error_chain;
use url::Url;

use super::staged_uploads::{self, StagedUpload};
use super::unavailable::ResourceUnavailable;
use super::{Result, StorageError, fsync};

const PROBE_OBJECT_NAME: &str = "readiness-probe";
/// Object that contains the identity of the metadata database that the store belongs to.
pub const IDENTITY_OBJECT_NAME: &str = "strata.id";
const MAX_IDENTITY_BYTES: u64 = 256;
const IDENTITY_HEX_DIGITS: usize = 32;

/// Options of an S3 store in addition to its URL. Unset options are read from the usual `AWS_*` environment variables.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// Endpoint of an S3-compatible server, for example `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
    pub allow_http: bool,
    /// Max time for retries of a failed request. With `None`, `object_store` uses its default.
    pub retry_timeout: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Store {
    object_store: Arc<dyn ObjectStore>,
    /// Client of the same remote store that retries only once. `None` for local stores.
    probe_store: Option<Arc<dyn ObjectStore>>,
    directory: Option<PathBuf>,
    in_memory: bool,
    expected_identity: Arc<OnceLock<String>>,
}

impl Store {
    pub fn object_store(&self) -> &Arc<dyn ObjectStore> {
        &self.object_store
    }

    pub fn in_memory() -> Store {
        Store { in_memory: true, ..from_object_store(InMemory::new()) }
    }

    pub fn for_probes(&self) -> Store {
        let object_store = self.probe_store.clone().unwrap_or_else(|| self.object_store.clone());
        Store { object_store, ..self.clone() }
    }

    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    pub fn is_local(&self) -> bool {
        self.in_memory || self.directory.is_some()
    }

    /// Returns `None` if the object does not exist, or if a power failure truncated it.
    pub async fn read_identity(&self) -> Result<Option<String>> {
        let path = object_store::path::Path::from(IDENTITY_OBJECT_NAME);
        match self.ensure_regular_file(&path).await {
            Err(StorageError::InvalidFile(_)) => {
                return Err(StorageError::store_missing("its strata.id is not a regular file"));
            }
            result => result?,
        }
        let response = match self.object_store.get(&path).await {
            Ok(response) => response,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // No version of this service writes that many bytes, so the store belongs to something else.
        if response.meta.size > MAX_IDENTITY_BYTES {
            return Ok(Some(format!("{} bytes", response.meta.size)));
        }
        let text = String::from_utf8_lossy(&response.bytes().await?).trim_matches(['\0', '\n']).to_owned();
        let is_truncated =
            text.len() < IDENTITY_HEX_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == 0);
        Ok((!is_truncated).then_some(text))
    }

    /// Writes the identity unless the store has one. Returns the identity of the store, which is durable by then.
    pub async fn initialize_identity(&self, identity: &str) -> Result<String> {
        let path = object_store::path::Path::from(IDENTITY_OBJECT_NAME);
        let content = bytes::Bytes::from(format!("{identity}\n"));
        match self.object_store.put_opts(&path, content.clone().into(), PutMode::Create.into()).await {
            Ok(_) => {}
            // The object is truncated, or the file system or server does not support conditional writes.
            Err(_) if self.read_identity().await?.is_none() => {
                drop(self.object_store.put(&path, content.into()).await?)
            }
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.sync_object(&path).await?;
        self.read_identity()
            .await?
            .ok_or(StorageError::store_missing("it does not contain strata.id after a successful write"))
    }

    pub fn set_expected_identity(&self, identity: String) {
        // Concurrent callers set the same identity.
        let _ = self.expected_identity.set(identity);
    }

    pub fn has_expected_identity(&self) -> bool {
        self.expected_identity.get().is_some()
    }

    /// Checks the identity with one small request. [`StorageError::StoreMissing`] if it differs from the expected one.
    pub async fn verify_identity(&self) -> Result<()> {
        let Some(expected) = self.expected_identity.get() else { return Ok(()) };
        match self.read_identity().await {
            Ok(Some(identity)) if identity == *expected => Ok(()),
            Ok(Some(_)) => Err(StorageError::store_missing("a different store is in its place")),
            Ok(None) => Err(StorageError::store_missing("it has no strata.id")),
            Err(error)
                if self.directory.is_some()
                    && ResourceUnavailable::from_error(&error).is_none()
                    && is_path_unavailable(&error) =>
            {
                Err(StorageError::store_missing("its directory does not exist"))
            }
            Err(error) => Err(error),
        }
    }

    /// Checks whether [`StorageError::StoreMissing`] is the cause of a failed request.
    pub async fn classify_failure(&self, error: StorageError) -> StorageError {
        if ResourceUnavailable::from_error(&error).is_some() {
            return error;
        }
        match self.verify_identity().await {
            Err(missing @ StorageError::StoreMissing(_)) => missing,
            _ => error,
        }
    }

    pub fn local_path(&self, path: &object_store::path::Path) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(path.as_ref()))
    }

    /// Rejects pipes and other special files, because opening a pipe waits for its writer. Missing files pass.
    pub async fn ensure_regular_file(&self, path: &object_store::path::Path) -> Result<()> {
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
    pub async fn sync_object(&self, path: &object_store::path::Path) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let file = directory.join(path.as_ref());
        let root = directory.clone();
        let sync = move || fsync::sync_file(&file, &root);
        run_blocking(sync).await??;
        Ok(())
    }

    /// Lists incomplete uploads in a folder of a directory store, from killed and from active writers. For S3, the
    /// result is empty: a lifecycle rule removes its incomplete uploads (docs/guides/backup-and-restore.md, Sweep).
    pub async fn list_staged_uploads(&self, folder: &'static str) -> Result<Vec<StagedUpload>> {
        let Some(directory) = self.directory.clone() else { return Ok(Vec::new()) };
        let list = move || staged_uploads::list_staged_uploads(&directory, folder);
        Ok(run_blocking(list).await??)
    }

    pub async fn remove_staged_upload(&self, file: &StagedUpload) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let file = directory.join(&file.path);
        match run_blocking(move || std::fs::remove_file(file)).await? {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Writes, syncs, and deletes a small object. Its name is constant, so crashed processes leave at most one object.
    pub async fn probe_write(&self) -> Result<()> {
        // If the directory is missing, the write would create it.
        self.verify_identity().await?;
        let path = object_store::path::Path::from(PROBE_OBJECT_NAME);
        self.object_store.put(&path, bytes::Bytes::from_static(&[b'.'; 4_096]).into()).await?;
        match self.sync_object(&path).await {
            Ok(()) => {}
            // Another process has deleted the object after the successful write.
            Err(StorageError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match self.object_store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<Arc<dyn ObjectStore>> for Store {
    fn from(object_store: Arc<dyn ObjectStore>) -> Store {
        Store { object_store, probe_store: None, directory: None, in_memory: false, expected_identity: Arc::default() }
    }
}

/// Opens a store without contacting it: a directory path or `file://` (created if missing), `s3://bucket/prefix`, or
/// `memory://` (its objects are lost at exit). [`Store::probe_write`] contacts the store.
pub fn open_store(url: &str, s3: &S3Options) -> Result<Store> {
    let invalid_url = |reason: String| StorageError::InvalidUrl { url: url.to_owned(), reason };
    match url.split_once("://") {
        None => open_directory(PathBuf::from(url)),
        Some(("file", _)) => {
            let parsed = Url::parse(url).map_err(|error| invalid_url(error.to_string()))?;
            let path = parsed.to_file_path().map_err(|()| {
                invalid_url("a file URL needs an absolute path, such as file:///var/lib/strata".into())
            })?;
            open_directory(path)
        }
        Some(("memory", "")) => Ok(Store::in_memory()),
        Some(("memory", _)) => Err(invalid_url("an in-memory store cannot have a path; use memory://".into())),
        Some(("s3", rest)) => {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() {
                return Err(invalid_url("the bucket is missing; valid: s3://bucket/prefix".into()));
            }
            let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_allow_http(s3.allow_http);
            let options = [
                (AmazonS3ConfigKey::Endpoint, &s3.endpoint),
                (AmazonS3ConfigKey::Region, &s3.region),
                (AmazonS3ConfigKey::AccessKeyId, &s3.access_key_id),
                (AmazonS3ConfigKey::SecretAccessKey, &s3.secret_access_key),
            ];
            for (key, value) in options.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
                builder = builder.with_config(key, value);
            }
            if let Some(retry_timeout) = s3.retry_timeout {
                builder = builder.with_retry(RetryConfig { retry_timeout, ..RetryConfig::default() });
            }
            let prefix = prefix.trim_matches('/');
            let build = |builder: AmazonS3Builder| {
                let store = builder.build().map_err(|error| invalid_url(error.to_string()))?;
                Ok::<Arc<dyn ObjectStore>, StorageError>(match prefix {
                    "" => Arc::new(store),
                    prefix => Arc::new(PrefixStore::new(store, prefix.to_owned())),
                })
            };
            let once = RetryConfig { max_retries: 1, ..RetryConfig::default() };
            let probe_store = build(builder.clone().with_retry(once))?;
            Ok(Store { probe_store: Some(probe_store), ..Store::from(build(builder)?) })
        }
        Some((scheme, _)) => Err(invalid_url(format!(
            "unknown scheme `{scheme}`; valid: a directory path, file://, s3://bucket/prefix, memory://"
        ))),
    }
}

fn from_object_store(store: impl ObjectStore) -> Store {
    Store::from(Arc::new(store) as Arc<dyn ObjectStore>)
}

fn open_directory(path: PathBuf) -> Result<Store> {
    if std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_dir()) {
        let reason = "it exists, but is not a directory".to_owned();
        return Err(StorageError::InvalidUrl { url: path.display().to_string(), reason });
    }
    fsync::create_dir_synced(&path)?;
    let store = LocalFileSystem::new_with_prefix(&path)?.with_automatic_cleanup(true);
    Ok(Store { directory: Some(path), ..from_object_store(store) })
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
