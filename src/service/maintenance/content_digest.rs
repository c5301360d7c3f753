//! The content digest of a file: the `content_sha256` of the version that has the same entities.
//!
//! For example, after you download a version as JSON Lines, the digest of the file is the `content_sha256` of this
//! version, unless the file was damaged or changed.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use object_store::path::Path as ObjectPath;
use sha2::{Digest, Sha256};
use strata_format::cache::PartCache;
use strata_format::overlay::BaseFile;
use strata_format::reader::VersionReader;
use strata_format::verify::verify_and_digest;
use strata_ingest::{DecodeOptions, SourceError, SourceInput, open_decoder};
use strata_runtime::blocking::run_blocking;
use strata_store::StorageError;
use strata_store::store::{S3Options, Store, open_store};
use strata_types::source::SourceFormat;

const READ_BUFFER_BYTES: usize = 1 << 20;

/// Capacity of the cache for pages of bases, because several extents can need the same page.
const BASE_CACHE_BYTES: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    #[error("failed to read the file")]
    Io(#[from] io::Error),
    #[error("failed to parse the file as JSON")]
    Json(#[source] SourceError),
    #[error(
        "the file or a base of it is damaged, or it is not a version file; other Parquet files have no digest: use JSON \
         Lines instead"
    )]
    VersionFile(#[from] StorageError),
    /// `base` is the path in the store, and `searched` describes the directories in which this path does not exist.
    #[error(
        "the file is a delta file, and its base {base} is missing; looked for it in {searched}; verify the file in the \
         directory of its store or in a copy of this directory"
    )]
    MissingBase { base: String, searched: String },
}

/// Returns the digest of a file in lowercase hexadecimal: the SHA-256 of its entities as JSON Lines.
///
/// - For a version file, also verifies its checksums and columns. If it is a delta file, its bases must be in the same
///   store or copy of a store, and their documents are verified, too.
/// - A JSON array is converted to JSON Lines.
/// - For any other file, such as JSON Lines, the digest is the SHA-256 of its bytes.
///
/// Streams the file. A version file needs memory for one row group, and a delta file for [`BASE_CACHE_BYTES`] more.
pub async fn digest_file(path: &Path) -> Result<String, DigestError> {
    let mut head = Vec::new();
    File::open(path)?.take(4 << 10).read_to_end(&mut head)?;
    if head.starts_with(b"PAR1") {
        return digest_version_file(path).await;
    }
    let is_array = head.trim_ascii_start().first() == Some(&b'[');
    let path = path.to_owned();
    let digest = move || if is_array { digest_json(&path) } else { Ok(digest_bytes(&path)?) };
    run_blocking(digest).await?
}

async fn digest_version_file(path: &Path) -> Result<String, DigestError> {
    let path = path.canonicalize()?;
    let size_bytes = path.metadata()?.len();
    let cache = PartCache::new(BASE_CACHE_BYTES);
    let directory = path.parent().unwrap_or(Path::new("/"));
    let (store, object_path) = open_store_at(directory, &path)?;
    let overlay = VersionReader::read_overlay(&store, &object_path, size_bytes, &cache).await?;
    let root = match &overlay {
        Some(overlay) if !overlay.bases.is_empty() => find_store_root(&path, &overlay.bases)?,
        _ => directory,
    };
    let (store, object_path) = open_store_at(root, &path)?;
    let reader = VersionReader::open(&store, &object_path, size_bytes, &cache).await?;
    Ok(verify_and_digest(&reader).await?)
}

/// Opens a directory as a store, and returns the path of one of its files in this store.
fn open_store_at(root: &Path, file: &Path) -> Result<(Store, ObjectPath), StorageError> {
    let store = open_store(&root.to_string_lossy(), &S3Options::default())?;
    let relative = file.strip_prefix(root).unwrap_or(file).to_string_lossy();
    // Unlike `ObjectPath::from`, this function does not encode characters such as `~` and `#`.
    let path = ObjectPath::parse(&relative);
    Ok((store, path.map_err(|error| StorageError::InvalidFile(format!("its path cannot be used: {error}")))?))
}

/// Returns the root of the store that has a delta file. Bases are named by their paths in the store, so the root is
/// the nearest parent directory in which such a path exists. For example, the root of `/copy/versions/2.parquet` with
/// the base `versions/1.parquet` is `/copy`, because `/copy/versions/1.parquet` exists.
fn find_store_root<'a>(file: &'a Path, bases: &[BaseFile]) -> Result<&'a Path, DigestError> {
    let exists_in =
        |directory: &Path, base: &BaseFile| directory.join(ObjectPath::from(&*base.path).as_ref()).is_file();
    let mut parents = file.ancestors().skip(1);
    let root = parents.find(|directory| bases.iter().any(|base| exists_in(directory, base)));
    let missing = bases.iter().find(|base| root.is_none_or(|root| !exists_in(root, base)));
    match (root, missing) {
        (Some(root), None) => Ok(root),
        (Some(root), Some(base)) => {
            Err(DigestError::MissingBase { base: base.path.clone(), searched: root.display().to_string() })
        }
        (None, missing) => Err(DigestError::MissingBase {
            base: missing.map(|base| base.path.clone()).unwrap_or_default(),
            searched: format!("{} and its parent directories", file.parent().unwrap_or(file).display()),
        }),
    }
}

fn digest_json(path: &Path) -> Result<String, DigestError> {
    let options = DecodeOptions { format: Some(SourceFormat::Json), ..DecodeOptions::default() };
    let input = SourceInput::open_file(path).map_err(DigestError::Json)?;
    let (mut decoder, _) = open_decoder(input, &options).map_err(DigestError::Json)?;
    let mut digest = Sha256::new();
    let mut entity = Vec::new();
    while decoder.next_entity(&mut entity).map_err(DigestError::Json)? {
        entity.push(b'\n');
        digest.update(&entity);
        entity.clear();
    }
    Ok(hex::encode(digest.finalize()))
}

fn digest_bytes(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::encode(digest.finalize())),
            length => digest.update(&buffer[..length]),
        }
    }
}
