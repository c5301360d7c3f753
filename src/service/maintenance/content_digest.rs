//! The content digest of a file outside of the store: the `content_sha256` of the version that has the same entities.
//!
//! For example, after you download a version as JSON Lines, the digest of the file is the `content_sha256` of this
//! version, unless the file was damaged or changed.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use object_store::path::Path as ObjectPath;
use sha2::{Digest, Sha256};
use strata_format::cache::PartCache;
use strata_format::reader::{NoReadThrottle, VersionReader};
use strata_format::verify::verify_and_hash;
use strata_ingest::{DecodeOptions, SourceError, SourceInput, open_decoder};
use strata_runtime::blocking::run_blocking;
use strata_store::StorageError;
use strata_store::store::{S3Options, open_store};
use strata_types::source::SourceFormat;

const READ_BUFFER_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    #[error("failed to read the file")]
    Io(#[from] io::Error),
    #[error("failed to parse the file as JSON")]
    Json(#[source] SourceError),
    #[error(
        "the file is no complete, undamaged version file; other Parquet files have no digest: use JSON Lines instead"
    )]
    VersionFile(#[source] StorageError),
}

/// Returns the digest of a file in lowercase hexadecimal: the SHA-256 of its entities as JSON Lines.
///
/// - For a version file, also verifies its checksums and columns. A delta file contains only a part of the entities of
///   its version, so it is an error.
/// - A JSON array is converted to JSON Lines.
/// - For any other file, such as JSON Lines, the digest is the SHA-256 of its bytes.
///
/// Streams the file. A version file needs memory for one row group.
pub async fn digest_file(path: &Path) -> Result<String, DigestError> {
    let mut head = Vec::new();
    File::open(path)?.take(4 << 10).read_to_end(&mut head)?;
    if head.starts_with(b"PAR1") {
        return digest_version_file(path).await.map_err(DigestError::VersionFile);
    }
    let is_array = head.trim_ascii_start().first() == Some(&b'[');
    let path = path.to_owned();
    let digest = move || if is_array { digest_json(&path) } else { Ok(digest_bytes(&path)?) };
    run_blocking(digest).await?
}

async fn digest_version_file(path: &Path) -> Result<String, StorageError> {
    let path = path.canonicalize()?;
    let size_bytes = path.metadata()?.len();
    // The bases of a delta file are relative to the store, the parent of `versions`.
    let directory = path.parent().unwrap_or(Path::new("/"));
    let root = if directory.ends_with("versions") { directory.parent().unwrap_or(directory) } else { directory };
    let store = open_store(&root.to_string_lossy(), &S3Options::default())?;
    let path: ObjectPath = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().as_ref().into();
    let reader = VersionReader::open(&store, &path, size_bytes, &PartCache::new(0)).await?;
    if reader.layout().overlay.is_some() {
        let reason = "it is a delta file, which contains only a part of the entities".to_owned();
        return Err(StorageError::InvalidFile(reason));
    }
    verify_and_hash(&reader, &mut NoReadThrottle).await
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
