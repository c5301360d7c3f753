//! Takes the compression off a stream.
//!
//! The first bytes decide, not the name: a server that unpacks `data.csv.gz` on the way, or packs what
//! has no suffix, is common. Memory is one block of the decompressor and its history (32 KiB for gzip, at
//! most 128 MiB for Zstandard: frames that want more are refused).

use std::io::{self, BufReader, Read};

use crate::model::source::Compression;

use super::error::{SourceError, into_io};

/// How many compressions may lie around each other: the file's own and the transfer's.
const LAYERS_MAX: usize = 2;

/// The bytes to look at before a stream is decided to be compressed.
const MAGIC_BYTES: usize = 4;

/// The stream without its compression, and the innermost compression found. Compressed bytes are read `read_bytes` at a
/// time.
///
/// # Errors
/// What reading the first bytes gives. A damaged or cut stream is a [`SourceError::BadDocument`] from
/// the returned reader when that part of it is reached.
pub(super) fn decompress(
    source: Box<dyn Read + Send>,
    read_bytes: usize,
) -> Result<(Box<dyn Read + Send>, Compression), SourceError> {
    let mut source = source;
    let mut found = Compression::None;
    for _ in 0..LAYERS_MAX {
        let mut first_bytes = Vec::with_capacity(MAGIC_BYTES);
        source.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut first_bytes)?;
        let compression = Compression::detect(&first_bytes);
        let whole = io::Cursor::new(first_bytes).chain(source);
        source = match compression {
            Compression::None => return Ok((Box::new(whole), found)),
            Compression::Gzip => {
                let buffered = BufReader::with_capacity(read_bytes, whole);
                Box::new(Damage { inner: flate2::bufread::MultiGzDecoder::new(buffered), compression })
            }
            Compression::Zstd => {
                let buffered = BufReader::with_capacity(read_bytes, whole);
                Box::new(Damage {
                    inner: zstd::stream::read::Decoder::with_buffer(buffered).map_err(SourceError::Io)?,
                    compression,
                })
            }
        };
        found = compression;
    }
    Ok((source, found))
}

/// Says of a decompressor's own errors that the document is bad; those from below pass as they are.
struct Damage<R> {
    inner: R,
    compression: Compression,
}

impl<R: Read> Read for Damage<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|error| {
            let from_below = error.get_ref().is_some_and(|inner| inner.is::<SourceError>());
            if from_below || error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            let reason = if error.kind() == io::ErrorKind::UnexpectedEof {
                format!("the {} data is cut short", self.compression)
            } else {
                format!("the {} data is damaged: {error}", self.compression)
            };
            into_io(SourceError::document(reason))
        })
    }
}
