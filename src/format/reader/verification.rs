//! Every byte of a version file compared with its checksum.

use std::ops::Range;

use strata_store::checksums::verify;
use strata_store::{Result, StorageError};

use super::file::FileReader;
use super::footer_load::load_footer;
use super::readahead::READ_AHEAD_BYTES;
use super::version::VersionReader;
use crate::fetched_range::FetchedRange;
use crate::profile::StoredProfile;

impl VersionReader {
    /// Fetches every byte of the file that a read may use, and compares it with its checksum; `pace` is told of the
    /// bytes after each request, and may wait. Nothing is decoded, and the cache is not asked. The base of an edited
    /// file is not read: it is a file of its own.
    pub async fn verify_checksums(&self, pace: &mut dyn Pace) -> Result<()> {
        let FileReader { file, footer } = self.own();
        // The end has been verified when the file was opened, perhaps long ago.
        let size_bytes = footer.size_bytes;
        let opened = load_footer(file).await;
        let opened = opened.map_err(|error| file.blame("the footer", error))?;
        FileReader { file: file.clone(), footer: opened.into() }.verify_end().await?;
        pace.spent(size_bytes - footer.sealed_from).await;
        let mut parts = footer.outline.parts().into_iter().peekable();
        // One part, or as many whole ones as a request may yield.
        while let Some(first) = parts.next() {
            let mut together = vec![first];
            let start = together[0].0.start;
            let fits = |part: &(Range<u64>, u32)| part.0.end <= start + READ_AHEAD_BYTES;
            while let Some(part) = parts.next_if(fits) {
                together.push(part);
            }
            let end = together.last().map_or(start, |part| part.0.end);
            let bytes = file.fetch(start..end).await.map_err(|error| file.blame("a part", error))?;
            let run = FetchedRange { start, bytes };
            for (range, expected) in together {
                let verified = run.slice(range.clone()).map_err(StorageError::from);
                let verified = verified.and_then(|bytes| verify(&bytes, expected));
                verified.map_err(|error| file.blame(&format!("bytes {} to {}", range.start, range.end), error))?;
            }
            pace.spent(end - start).await;
        }
        self.own().verify_keywords(pace).await?;
        self.own().verify_shapes(pace).await?;
        self.own().load_profile(StoredProfile::decode).await?;
        pace.spent(footer.profile.length).await;
        Ok(())
    }
}

/// Who decides how fast a file is read for its own sake.
#[async_trait::async_trait]
pub trait Pace: Send {
    /// So many bytes were read; returns when more may be.
    async fn spent(&mut self, bytes: u64);
}

#[derive(Clone, Copy, Debug)]
pub struct Unbounded;

#[async_trait::async_trait]
impl Pace for Unbounded {
    async fn spent(&mut self, _: u64) {}
}
