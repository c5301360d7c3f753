//! Removes the compression of a stream.
//!
//! The first bytes decide, not the name. Memory is one block of the decompressor and its history: 32 KiB for gzip, at
//! most `sources.zstd_window_bytes` for Zstandard. The output of each compression is bounded by the bytes received
//! (`expansion`).

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use strata_types::source::Compression;

use super::DecodeOptions;
use super::error::{SourceError, into_io};
use super::expansion::Expansion;
use super::input::{Counted, CountingReader};

/// How many compressions may be nested: the file's own and the transfer's.
const LAYERS_MAX: usize = 2;

const MAGIC_BYTES: usize = 4;

/// The stream without its compression, and the innermost compression found. Compressed bytes are read
/// [`DecodeOptions::window_bytes`] at a time. The returned reader fails with [`SourceError::BadDocument`] where the
/// stream is damaged or cut.
pub(super) fn decompress(
    mut source: Box<dyn Read + Send>,
    options: &DecodeOptions,
    expansion: &Expansion,
) -> Result<(Box<dyn Read + Send>, Compression), SourceError> {
    let mut found = Compression::None;
    for _ in 0..LAYERS_MAX {
        let mut first_bytes = Vec::with_capacity(MAGIC_BYTES);
        source.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut first_bytes)?;
        let compression = Compression::detect(&first_bytes);
        let whole = io::Cursor::new(first_bytes).chain(source);
        let unpacked: Box<dyn Read + Send> = match compression {
            Compression::None => return Ok((Box::new(whole), found)),
            Compression::Gzip => {
                let buffered = BufReader::with_capacity(options.window_bytes, whole);
                Box::new(Damage { inner: Members { member: Some(GzDecoder::new(buffered)) }, compression })
            }
            Compression::Zstd => {
                let buffered = BufReader::with_capacity(options.window_bytes, whole);
                let mut inner = zstd::stream::read::Decoder::with_buffer(buffered).map_err(SourceError::Io)?;
                // The largest power of two within the bound; the library's own bounds are 10 and 31.
                let window_log = options.zstd_window_bytes.checked_ilog2().unwrap_or(0).clamp(10, 31);
                inner.window_log_max(window_log).map_err(SourceError::Io)?;
                Box::new(Damage { inner, compression })
            }
        };
        let counted = Counted::Became(expansion.clone());
        source = Box::new(CountingReader::new(unpacked, None, counted, options));
        found = compression;
    }
    Ok((source, found))
}

/// Turns a decompressor's own errors into a bad document. Errors of the reader below pass unchanged.
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
            let reason = if error.get_ref().is_some_and(|inner| inner.is::<NoMember>()) {
                format!("the {} data is followed by data that is not {0}", self.compression)
            } else if error.kind() == io::ErrorKind::UnexpectedEof {
                format!("the {} data is truncated", self.compression)
            } else {
                // The library's word for a frame whose window is larger than allowed.
                let is_window = error.to_string().contains("too much memory");
                let hint = if is_window { " (its window is larger than sources.zstd_window_bytes)" } else { "" };
                format!("the {} data is damaged: {error}{hint}", self.compression)
            };
            into_io(SourceError::document(reason))
        })
    }
}

/// The members of gzip data, one after the other (RFC 1952, section 2.2).
struct Members<R> {
    member: Option<GzDecoder<R>>,
}

#[derive(Debug, thiserror::Error)]
#[error("other data follows")]
struct NoMember;

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let (Some(member), false) = (&mut self.member, buffer.is_empty()) {
            let count = member.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            match member.get_mut().fill_buf()? {
                [] => self.member = None,
                [0x1f] | [0x1f, 0x8b, ..] => {
                    self.member = self.member.take().map(|member| GzDecoder::new(member.into_inner()));
                }
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, NoMember)),
            }
        }
        Ok(0)
    }
}
