//! Verification of all checksums of a version file.

use std::ops::Range;

use strata_store::checksums::verify_checksum;
use strata_store::{Result, StorageError};

use super::file_reader::FileReader;
use super::footer_load::load_footer;
use super::readahead::MAX_REQUEST_BYTES;
use super::version_reader::VersionReader;
use crate::fetched_range::FetchedRange;
use crate::profile::StoredProfile;

impl VersionReader {
    /// Compares all bytes of a version file with their checksums, but not the bytes of its bases. Bypasses the cache.
    pub async fn verify_checksums(&self, throttle: &mut dyn ReadThrottle) -> Result<()> {
        let FileReader { object_file, footer } = self.version_file();
        // The footer was verified when the file was opened, which can be long ago, so it is loaded and verified again.
        let size_bytes = footer.size_bytes;
        let opened = load_footer(object_file).await;
        let opened = opened.map_err(|error| object_file.report_damage("the footer", error))?;
        FileReader { object_file: object_file.clone(), footer: opened.into() }.verify_footer_index().await?;
        throttle.throttle(size_bytes - footer.checksummed_from).await;
        let mut parts = footer.footer_index.checksummed_ranges().into_iter().peekable();
        while let Some(first) = parts.next() {
            let start = first.0.start;
            let fits = |part: &(Range<u64>, u32)| part.0.end <= start + MAX_REQUEST_BYTES;
            let batch: Vec<_> = std::iter::once(first).chain(std::iter::from_fn(|| parts.next_if(fits))).collect();
            let end = batch.last().map_or(start, |part| part.0.end);
            let bytes =
                object_file.fetch(start..end).await.map_err(|error| object_file.report_damage("a part", error))?;
            let fetched = FetchedRange { start, bytes };
            for (range, expected) in batch {
                let verified = fetched.slice(range.clone()).map_err(StorageError::from);
                let verified = verified.and_then(|bytes| verify_checksum(&bytes, expected));
                verified.map_err(|error| {
                    object_file.report_damage(&format!("bytes {} to {}", range.start, range.end), error)
                })?;
            }
            throttle.throttle(end - start).await;
        }
        self.version_file().verify_keyword_index(throttle).await?;
        self.version_file().load_profile(StoredProfile::decode).await?;
        throttle.throttle(footer.profile_location.length).await;
        Ok(())
    }
}

#[async_trait::async_trait]
pub trait ReadThrottle: Send {
    /// Called after `bytes` were read from the file. Returns when more bytes may be read.
    async fn throttle(&mut self, bytes: u64);
}

#[derive(Clone, Copy, Debug)]
pub struct NoReadThrottle;

#[async_trait::async_trait]
impl ReadThrottle for NoReadThrottle {
    async fn throttle(&mut self, _: u64) {}
}
