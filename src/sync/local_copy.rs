//! The files of a local copy: FILE, with one entity per line, and FILE.version, with the number of its version.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use strata_store::fsync;
use strata_types::version::VersionNumber;
use tempfile::NamedTempFile;

use super::edit_parser::EditSink;
use super::{SyncError, parse_version};

const BUFFER_BYTES: usize = 1 << 18;
/// Maximum bytes of FILE.version that are read.
const MAX_VERSION_BYTES: u64 = 64;

/// The SHA-256 of a list as JSON Lines; `None` if the sender specified something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyDigest(Option<[u8; 32]>);

impl CopyDigest {
    pub(crate) fn new(bytes: &[u8]) -> CopyDigest {
        CopyDigest(bytes.try_into().ok())
    }

    pub(crate) fn from_hex(text: &str) -> CopyDigest {
        CopyDigest(hex::decode(text).ok().and_then(|bytes| bytes.try_into().ok()))
    }
}

pub(crate) struct FilePair {
    file: PathBuf,
    version_file: PathBuf,
}

impl FilePair {
    /// Returns an error if replacing a path would remove a device, a link, or a directory.
    pub(crate) fn open(file: &Path) -> Result<FilePair, SyncError> {
        let mut version_file = OsString::from(file);
        version_file.push(".version");
        let files = FilePair { file: file.to_owned(), version_file: version_file.into() };
        for path in [&files.file, &files.version_file] {
            if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(SyncError::NotRegularFile(path.clone()));
            }
        }
        Ok(files)
    }

    /// Returns the version in FILE.version; `None` if a file is missing or FILE.version contains something else.
    pub(crate) fn recorded_version(&self) -> Option<VersionNumber> {
        if !self.file.is_file() {
            return None;
        }
        let mut text = String::new();
        let file = File::open(&self.version_file).ok()?;
        io::Read::read_to_string(&mut io::Read::take(file, MAX_VERSION_BYTES), &mut text).ok()?;
        parse_version(text.trim())
    }

    fn directory(&self) -> &Path {
        self.file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn create_temp_file(&self) -> Result<NamedTempFile, SyncError> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".strata-sync-");
        #[cfg(unix)]
        let builder = {
            use std::os::unix::fs::PermissionsExt;
            // The umask of the process applies. An existing file keeps its permissions.
            builder.permissions(fs::Permissions::from_mode(0o666))
        };
        let file = builder.tempfile_in(self.directory());
        file.map_err(SyncError::file("create a temporary file in", self.directory()))
    }

    /// Replaces both files. The content is written first, so that a crash can only leave an old number, with which the
    /// next sync finds a different digest.
    pub(crate) fn replace(&self, copy: FinishedCopy, version: VersionNumber) -> Result<(), SyncError> {
        let mut version_file = self.create_temp_file()?;
        let written = writeln!(version_file, "v{version}").and_then(|()| version_file.as_file().sync_all());
        written.map_err(SyncError::file("write", &self.version_file))?;
        if let Ok(metadata) = fs::metadata(&self.file) {
            let kept = copy.file.as_file().set_permissions(metadata.permissions());
            kept.map_err(SyncError::file("set the permissions of", &self.file))?;
        }
        copy.file.persist(&self.file).map_err(|error| error.error).map_err(SyncError::file("replace", &self.file))?;
        let replaced = version_file.persist(&self.version_file).map_err(|error| error.error);
        replaced.map_err(SyncError::file("replace", &self.version_file))?;
        fsync::sync_dir(self.directory()).map_err(SyncError::file("synchronize", self.directory()))
    }
}

/// The new content in a temporary file next to FILE, which is removed on drop.
pub(crate) struct NewCopy {
    writer: BufWriter<NamedTempFile>,
    digest: Sha256,
    path: PathBuf,
}

/// A complete temporary file, whose bytes are on the disk.
pub(crate) struct FinishedCopy {
    file: NamedTempFile,
    digest: CopyDigest,
}

impl FinishedCopy {
    pub(crate) fn digest(&self) -> &CopyDigest {
        &self.digest
    }
}

impl NewCopy {
    pub(crate) fn create(files: &FilePair) -> Result<NewCopy, SyncError> {
        let file = files.create_temp_file()?;
        let path = file.path().to_owned();
        Ok(NewCopy { writer: BufWriter::with_capacity(BUFFER_BYTES, file), digest: Sha256::new(), path })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), SyncError> {
        self.digest.update(bytes);
        self.writer.write_all(bytes).map_err(SyncError::file("write", &self.path))
    }

    pub(crate) fn finish(self) -> Result<FinishedCopy, SyncError> {
        let file = self.writer.into_inner().map_err(io::IntoInnerError::into_error);
        let file = file.and_then(|file| file.as_file().sync_all().map(|()| file));
        let file = file.map_err(SyncError::file("write", &self.path))?;
        Ok(FinishedCopy { file, digest: CopyDigest::new(&self.digest.finalize()) })
    }
}

/// Applies edits to FILE and writes the result to a new copy.
pub(crate) struct EditTarget {
    old: BufReader<File>,
    old_path: PathBuf,
    /// The number of lines of the old file that were read.
    old_lines: u64,
    /// Whether the old file cannot be the recorded version. Further edits are then ignored.
    is_mismatch: bool,
    new: NewCopy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineUse {
    Copy,
    Skip,
}

impl EditTarget {
    pub(crate) fn open(files: &FilePair) -> Result<EditTarget, SyncError> {
        let old = File::open(&files.file).map_err(SyncError::file("open", &files.file))?;
        let old = BufReader::with_capacity(BUFFER_BYTES, old);
        let new = NewCopy::create(files)?;
        Ok(EditTarget { old, old_path: files.file.clone(), old_lines: 0, is_mismatch: false, new })
    }

    /// Copies the rest of the old file. Returns `None` if it has too few lines for the edits.
    pub(crate) fn finish(mut self) -> Result<Option<FinishedCopy>, SyncError> {
        if self.is_mismatch {
            return Ok(None);
        }
        while !self.read_part(usize::MAX, LineUse::Copy)?.is_end {}
        self.new.finish().map(Some)
    }

    fn copy_until(&mut self, position: u64) -> Result<(), SyncError> {
        self.is_mismatch |= position < self.old_lines;
        while self.old_lines < position && !self.is_mismatch {
            self.read_line(LineUse::Copy)?;
        }
        Ok(())
    }

    fn read_line(&mut self, line_use: LineUse) -> Result<(), SyncError> {
        loop {
            let part = self.read_part(1, line_use)?;
            if part.lines > 0 {
                self.old_lines += 1;
                return Ok(());
            }
            if part.is_end {
                self.is_mismatch = true;
                return Ok(());
            }
        }
    }

    /// Reads at most one buffer, and at most `max_lines` ends of lines.
    fn read_part(&mut self, max_lines: usize, line_use: LineUse) -> Result<OldPart, SyncError> {
        let buffer = self.old.fill_buf().map_err(SyncError::file("read", &self.old_path))?;
        let end = match max_lines {
            1 => buffer.iter().position(|byte| *byte == b'\n').map(|end| end + 1),
            _ => None,
        };
        let part = OldPart { lines: usize::from(end.is_some()), is_end: buffer.is_empty() };
        let length = end.unwrap_or(buffer.len());
        if line_use == LineUse::Copy {
            self.new.write(&buffer[..length])?;
        }
        self.old.consume(length);
        Ok(part)
    }
}

struct OldPart {
    lines: usize,
    is_end: bool,
}

impl EditSink for EditTarget {
    fn begin_set(&mut self, position: u64) -> Result<(), SyncError> {
        self.remove(position)
    }

    fn remove(&mut self, position: u64) -> Result<(), SyncError> {
        self.copy_until(position)?;
        if self.is_mismatch { Ok(()) } else { self.read_line(LineUse::Skip) }
    }

    fn begin_insert(&mut self, position: u64) -> Result<(), SyncError> {
        self.copy_until(position)
    }

    fn write_entity_part(&mut self, part: &[u8]) -> Result<(), SyncError> {
        if self.is_mismatch { Ok(()) } else { self.new.write(part) }
    }

    fn end_entity(&mut self) -> Result<(), SyncError> {
        self.write_entity_part(b"\n")
    }
}
