//! Decompression of Zstandard frames that declare their content size, like all frames in version files.
//!
//! Each thread reuses one context, because creating a context takes as long as decompressing a small frame.

use std::cell::RefCell;
use std::io;

use zstd::bulk::Decompressor;

thread_local! {
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Returns the declared content size of a frame, or `None` if it is missing or exceeds `max_bytes`.
pub(super) fn content_size(frame: &[u8], max_bytes: usize) -> Option<usize> {
    let size = zstd::zstd_safe::get_frame_content_size(frame).ok()??;
    usize::try_from(size).ok().filter(|size| *size <= max_bytes)
}

pub(super) fn decompress(frame: &[u8], size: usize) -> io::Result<Vec<u8>> {
    let bytes = DECOMPRESSOR.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(Decompressor::new()?),
        };
        context.decompress(frame, size)
    })?;
    if bytes.len() != size {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the length of a frame does not match its header"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_frames_are_decompressed() {
        for contents in
            [&b""[..], b"a", &[7; 100_000], &(0..200_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()]
        {
            let frame = zstd::bulk::compress(contents, 1).expect("failed to compress");
            assert_eq!(content_size(&frame, contents.len()), Some(contents.len()));
            assert_eq!(decompress(&frame, contents.len()).expect("failed to decompress"), contents);
            if let Some(less) = contents.len().checked_sub(1) {
                assert_eq!(content_size(&frame, less), None);
                assert!(decompress(&frame, less).is_err());
            }
            assert!(decompress(&frame, contents.len() + 1).is_err());
            assert!(decompress(&frame[..frame.len() - 1], contents.len()).is_err());
            // Errors must not affect the reused context.
            assert_eq!(decompress(&frame, contents.len()).expect("failed to decompress after an error"), contents);
        }
        assert_eq!(content_size(b"no frame", usize::MAX), None);
        assert!(decompress(b"no frame", 8).is_err());
    }
}
