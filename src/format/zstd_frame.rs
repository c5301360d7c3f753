//! Zstandard frames that tell how long their contents are. All those of the files of versions do.
//!
//! Each thread keeps one context for all that it decompresses. A new one costs as much as a small frame.

use std::cell::RefCell;
use std::io;

use zstd::bulk::Decompressor;

thread_local! {
    static CONTEXT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The length of a frame's contents, in bytes, as the frame tells it; `None` if it does not, or if it is above `most`.
pub(super) fn size(frame: &[u8], most: usize) -> Option<usize> {
    let size = zstd::zstd_safe::get_frame_content_size(frame).ok()??;
    usize::try_from(size).ok().filter(|size| *size <= most)
}

/// The contents of a frame, of which [`size`] told the length. Memory is taken for that at once.
pub(super) fn decompress(frame: &[u8], size: usize) -> io::Result<Vec<u8>> {
    let bytes = CONTEXT.with_borrow_mut(|context| {
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
    fn frame_is_decompressed_if_whole_and_not_too_long() {
        for contents in
            [&b""[..], b"a", &[7; 100_000], &(0..200_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()]
        {
            let frame = zstd::bulk::compress(contents, 1).expect("compressed");
            assert_eq!(size(&frame, contents.len()), Some(contents.len()));
            assert_eq!(decompress(&frame, contents.len()).expect("decompressed"), contents);
            if let Some(less) = contents.len().checked_sub(1) {
                assert_eq!(size(&frame, less), None);
                assert!(decompress(&frame, less).is_err());
            }
            assert!(decompress(&frame, contents.len() + 1).is_err());
            assert!(decompress(&frame[..frame.len() - 1], contents.len()).is_err());
            // What failed leaves nothing behind.
            assert_eq!(decompress(&frame, contents.len()).expect("decompressed"), contents);
        }
        assert_eq!(size(b"no frame", usize::MAX), None);
        assert!(decompress(b"no frame", 8).is_err());
    }
}
