//! Opening the object store that `store.url` names.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, RetryConfig};
use strata_runtime::blocking::blocking;
use strata_types::causes::chain;
use url::Url;

use super::shortage::Shortage;
use super::unfinished::{self, UnfinishedFile};
use super::{Result, StorageError, durable};

const PROBE: &str = "readiness-probe";

/// The object that says which catalog a store belongs to.
pub const IDENTITY: &str = "strata.id";

const IDENTITY_BYTES: u64 = 256;

const IDENTITY_DIGITS: usize = 32;

/// What an S3 store needs besides its URL. What is `None` comes from the usual `AWS_*` environment.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// Endpoint of an S3-compatible server, for instance `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
    pub allow_http: bool,
    /// For how long a call that fails is tried again; the builder's own time if `None`.
    pub retry_within: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    /// The same, by a client that soon gives up, where calls go over a network.
    probed: Option<Arc<dyn ObjectStore>>,
    directory: Option<PathBuf>,
    volatile: bool,
    identity: Arc<OnceLock<String>>,
}

impl Store {
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    pub fn nowhere() -> Store {
        Store { volatile: true, ..objects(InMemory::new()) }
    }

    /// The same store, which tries a failed call again once only. So whoever probes it learns soon why it fails.
    pub fn for_probes(&self) -> Store {
        let objects = self.probed.clone().unwrap_or_else(|| self.objects.clone());
        Store { objects, ..self.clone() }
    }

    pub fn is_volatile(&self) -> bool {
        self.volatile
    }

    /// Whether its objects are files of this machine, or lie in memory: a request waits for no network.
    pub fn is_local(&self) -> bool {
        self.volatile || self.directory.is_some()
    }

    /// Which catalog the store says it belongs to; `None` if it does not say, or a power failure has cut what it was
    /// about to say.
    pub async fn identity(&self) -> Result<Option<String>> {
        let path = object_store::path::Path::from(IDENTITY);
        match self.check_regular(&path).await {
            Err(StorageError::Layout(_)) => return Err(StorageError::gone("its strata.id is not a regular file")),
            checked => checked?,
        }
        let found = match self.objects.get(&path).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // No other service writes so much; it is none of ours.
        if found.meta.size > IDENTITY_BYTES {
            return Ok(Some(format!("{} bytes", found.meta.size)));
        }
        let text = String::from_utf8_lossy(&found.bytes().await?).trim_matches(['\0', '\n']).to_owned();
        let is_cut = text.len() < IDENTITY_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == 0);
        Ok((!is_cut).then_some(text))
    }

    /// Gives the store an identity, unless it has one; returns what it has, which outlives a power failure.
    pub async fn give_identity(&self, identity: &str) -> Result<String> {
        let path = object_store::path::Path::from(IDENTITY);
        let content = bytes::Bytes::from(format!("{identity}\n"));
        match self.objects.put_opts(&path, content.clone().into(), PutMode::Create.into()).await {
            Ok(_) => {}
            // What is there was cut; or some file systems and servers cannot do so on condition.
            Err(_) if self.identity().await?.is_none() => drop(self.objects.put(&path, content.into()).await?),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.persist(&path).await?;
        self.identity().await?.ok_or(StorageError::gone("it does not contain strata.id after a successful write"))
    }

    pub fn expect_identity(&self, identity: String) {
        // Of several at once, all bring the same.
        let _ = self.identity.set(identity);
    }

    pub fn expects_identity(&self) -> bool {
        self.identity.get().is_some()
    }

    /// Whether the store is there, and the same as when the service was opened. One small request.
    ///
    /// # Errors
    /// [`StorageError::Gone`], or what the store answered.
    pub async fn verify(&self) -> Result<()> {
        let Some(expected) = self.identity.get() else { return Ok(()) };
        match self.identity().await {
            Ok(Some(found)) if found == *expected => Ok(()),
            Ok(Some(_)) => Err(StorageError::gone("a different store is in its place")),
            Ok(None) => Err(StorageError::gone("it has no strata.id")),
            Err(error) if self.directory.is_some() && Shortage::of(&error).is_none() && is_away(&error) => {
                Err(StorageError::gone("its directory does not exist"))
            }
            Err(error) => Err(error),
        }
    }

    /// What the failure of a request means: that the store is not there, or what the store says.
    pub async fn meaning(&self, error: StorageError) -> StorageError {
        if Shortage::of(&error).is_some() {
            return error;
        }
        match self.verify().await {
            Err(gone @ StorageError::Gone(_)) => gone,
            _ => error,
        }
    }

    pub fn file_of(&self, path: &object_store::path::Path) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(path.as_ref()))
    }

    /// Refuses what is no regular file, where the store is a directory: whoever opens a pipe waits for one who writes.
    /// Nothing at all passes.
    ///
    /// # Errors
    /// [`StorageError::Layout`]; where the system starts no thread to look.
    pub async fn check_regular(&self, path: &object_store::path::Path) -> Result<()> {
        let Some(file) = self.file_of(path) else { return Ok(()) };
        match blocking(move || std::fs::metadata(file)).await? {
            Ok(found) if !found.is_file() => Err(StorageError::Layout("it is not a regular file".to_owned())),
            _ => Ok(()),
        }
    }

    /// Makes a written object outlive a power failure. Object stores promise that by themselves; in a directory the
    /// file is synchronised, its entry, and that of each folder on the way, which may be new.
    pub async fn persist(&self, path: &object_store::path::Path) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let file = directory.join(path.as_ref());
        let root = directory.clone();
        let synchronise = move || durable::synchronise_file(&file, &root);
        blocking(synchronise).await??;
        Ok(())
    }

    /// What writers that were killed have left below a folder, and those at work are writing: no object, so that no
    /// listing has it. Only directories have such files here. Parts of uploads that an S3 store keeps are its own to
    /// remove, by a lifecycle rule (docs/guides/backup-and-restore.md, Sweep).
    pub async fn unfinished(&self, folder: &'static str) -> Result<Vec<UnfinishedFile>> {
        let Some(directory) = self.directory.clone() else { return Ok(Vec::new()) };
        let list = move || unfinished::list(&directory, folder);
        Ok(blocking(list).await??)
    }

    /// Removes one of them; one that is gone already is passed over.
    pub async fn remove_unfinished(&self, file: &UnfinishedFile) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let file = directory.join(&file.path);
        match blocking(move || std::fs::remove_file(file)).await? {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Whether the store can be written: writes a small object, makes it outlive a power failure, and removes it. Its
    /// name is always the same, so that a process that dies meanwhile leaves one behind at most.
    pub async fn probe(&self) -> Result<()> {
        // A directory that is not there is not made anew.
        self.verify().await?;
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
        Store { objects, probed: None, directory: None, volatile: false, identity: Arc::default() }
    }
}

/// Opens the store: a directory path or `file://` (created when missing), `s3://bucket/prefix`, or
/// `memory://` (gone when the process ends).
///
/// # Errors
/// [`StorageError::Url`] names the URL and what is wrong with it. Nothing is contacted here; [`Store::probe`] does.
pub fn open(url: &str, s3: &S3Options) -> Result<Store> {
    let wrong = |reason: String| StorageError::Url { url: url.to_owned(), reason };
    match url.split_once("://") {
        None => directory(PathBuf::from(url)),
        Some(("file", _)) => {
            let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
            let path = parsed
                .to_file_path()
                .map_err(|()| wrong("a file URL needs an absolute path, such as file:///var/lib/strata".into()))?;
            directory(path)
        }
        Some(("memory", "")) => Ok(Store::nowhere()),
        Some(("memory", _)) => Err(wrong("an in-memory store cannot have a path; use memory://".into())),
        Some(("s3", rest)) => {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() {
                return Err(wrong("the bucket is missing; valid: s3://bucket/prefix".into()));
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
            if let Some(retry_timeout) = s3.retry_within {
                builder = builder.with_retry(RetryConfig { retry_timeout, ..RetryConfig::default() });
            }
            let prefix = prefix.trim_matches('/');
            let build = |builder: AmazonS3Builder| {
                let store = builder.build().map_err(|error| wrong(error.to_string()))?;
                Ok::<Arc<dyn ObjectStore>, StorageError>(match prefix {
                    "" => Arc::new(store),
                    prefix => Arc::new(PrefixStore::new(store, prefix.to_owned())),
                })
            };
            let once = RetryConfig { max_retries: 1, ..RetryConfig::default() };
            let probed = build(builder.clone().with_retry(once))?;
            Ok(Store { probed: Some(probed), ..Store::from(build(builder)?) })
        }
        Some((scheme, _)) => Err(wrong(format!(
            "unknown scheme `{scheme}`; valid: a directory path, file://, s3://bucket/prefix, memory://"
        ))),
    }
}

fn objects(store: impl ObjectStore) -> Store {
    Store::from(Arc::new(store) as Arc<dyn ObjectStore>)
}

fn directory(path: PathBuf) -> Result<Store> {
    if std::fs::metadata(&path).is_ok_and(|found| !found.is_dir()) {
        let reason = "it exists, but is not a directory".to_owned();
        return Err(StorageError::Url { url: path.display().to_string(), reason });
    }
    durable::create_directory(&path)?;
    let store = LocalFileSystem::new_with_prefix(&path)?.with_automatic_cleanup(true);
    Ok(Store { directory: Some(path), ..objects(store) })
}

/// Whether something on the way to a file is no directory, or no file system is there to ask.
fn is_away(error: &StorageError) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotConnected, NotFound, StaleNetworkFileHandle};

    chain(error).any(|error| {
        error.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(error.kind(), NotADirectory | NotConnected | NotFound | StaleNetworkFileHandle)
        })
    })
}
