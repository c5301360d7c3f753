//! Decompresses a stream whose first bytes show that it is compressed, regardless of the file name. The memory is
//! limited to one block and the window: 32 KiB for gzip, at most `sources.zstd_window_bytes` for Zstandard.
//! `expansion_guard` limits the output.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use strata_types::source::SourceCompression;

use super::DecodeOptions;
use super::error::{SourceError, into_io_error};
use super::expansion_guard::ExpansionGuard;
use super::source_input::{CountingReader, ExpansionStage};

/// The maximum number of nested compressions: one of the file and one of the transfer.
const MAX_COMPRESSION_LAYERS: usize = 2;
const MAGIC_BYTES: usize = 4;

/// Returns the decompressed stream, and the innermost compression. Damaged data is [`SourceError::InvalidDocument`].
pub(super) fn decompress(
    mut source: Box<dyn Read + Send>,
    options: &DecodeOptions,
    expansion: &ExpansionGuard,
) -> Result<(Box<dyn Read + Send>, SourceCompression), SourceError> {
    let mut innermost = SourceCompression::None;
    for _ in 0..MAX_COMPRESSION_LAYERS {
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        source.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
        let compression = SourceCompression::detect(&magic);
        let whole = io::Cursor::new(magic).chain(source);
        let decompressed: Box<dyn Read + Send> = match compression {
            SourceCompression::None => return Ok((Box::new(whole), innermost)),
            SourceCompression::Gzip => {
                let buffered = BufReader::with_capacity(options.window_bytes, whole);
                let inner = GzipMemberReader { member: Some(GzDecoder::new(buffered)) };
                Box::new(DecompressErrorReader { inner, compression })
            }
            SourceCompression::Zstd => {
                let buffered = BufReader::with_capacity(options.window_bytes, whole);
                let mut inner = zstd::stream::read::Decoder::with_buffer(buffered).map_err(SourceError::Io)?;
                // The zstd library limits the window to a power of two, with exponents from 10 to 31.
                let window_log = options.zstd_window_bytes.checked_ilog2().unwrap_or(0).clamp(10, 31);
                inner.window_log_max(window_log).map_err(SourceError::Io)?;
                Box::new(DecompressErrorReader { inner, compression })
            }
        };
        let stage = ExpansionStage::Expanded(expansion.clone());
        source = Box::new(CountingReader::new(decompressed, None, stage, options));
        innermost = compression;
    }
    Ok((source, innermost))
}

/// Converts errors of the decompressor to [`SourceError::InvalidDocument`]. Other errors pass unchanged.
struct DecompressErrorReader<R> {
    inner: R,
    compression: SourceCompression,
}

impl<R: Read> Read for DecompressErrorReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|error| {
            let is_source_error = error.get_ref().is_some_and(|inner| inner.is::<SourceError>());
            if is_source_error || error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            let reason = if error.get_ref().is_some_and(|inner| inner.is::<TrailingDataError>()) {
                format!("the {} data is followed by data that is not {0}", self.compression)
            } else if error.kind() == io::ErrorKind::UnexpectedEof {
                format!("the {} data is truncated", self.compression)
            } else {
                // The zstd library returns this text for a frame whose window is too large.
                let is_window = error.to_string().contains("too much memory");
                let hint = if is_window { " (its window is larger than sources.zstd_window_bytes)" } else { "" };
                format!("the {} data is damaged: {error}{hint}", self.compression)
            };
            into_io_error(SourceError::invalid_document(reason))
        })
    }
}

/// Reads consecutive gzip members (RFC 1952, section 2.2).
struct GzipMemberReader<R> {
    member: Option<GzDecoder<R>>,
}

#[derive(Debug, thiserror::Error)]
#[error("other data follows")]
struct TrailingDataError;

impl<R: BufRead> Read for GzipMemberReader<R> {
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
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, TrailingDataError)),
            }
        }
        Ok(0)
    }
}
