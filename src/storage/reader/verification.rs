//! Every byte of a version file compared with its checksum.

use std::ops::Range;

use super::READ_AHEAD_BYTES;
use super::end::load_footer;
use super::file::FileReader;
use crate::storage::checksums::verify;
use crate::storage::profile::StoredProfile;
use crate::storage::run::Run;
use crate::storage::{Result, StorageError};

impl FileReader {
    pub(crate) async fn verify_checksums(&self, pace: &mut dyn Pace) -> Result<()> {
        // The end has been verified when the file was opened, perhaps long ago.
        let size_bytes = self.footer.size_bytes;
        let opened = load_footer(&self.file, size_bytes).await;
        let opened = opened.map_err(|error| self.file.blame("the footer", error))?;
        FileReader { file: self.file.clone(), footer: opened.into() }.verify_end().await?;
        pace.spent(size_bytes - self.footer.sealed_from).await;
        let mut parts = self.footer.outline.parts().into_iter().peekable();
        // One part, or as many whole ones as a request may yield.
        while let Some(first) = parts.next() {
            let mut together = vec![first];
            let start = together[0].0.start;
            let fits = |part: &(Range<u64>, u32)| part.0.end <= start + READ_AHEAD_BYTES;
            while let Some(part) = parts.next_if(fits) {
                together.push(part);
            }
            let end = together.last().map_or(start, |part| part.0.end);
            let bytes = self.file.fetch(start..end).await.map_err(|error| self.file.blame("a part", error))?;
            let run = Run { start, bytes };
            for (range, expected) in together {
                let verified = run.slice(range.clone()).map_err(StorageError::from);
                let verified = verified.and_then(|bytes| verify(&bytes, expected));
                verified.map_err(|error| self.file.blame(&format!("bytes {} to {}", range.start, range.end), error))?;
            }
            pace.spent(end - start).await;
        }
        self.verify_keywords(pace).await?;
        self.verify_shapes(pace).await?;
        self.load_profile(StoredProfile::decode).await?;
        pace.spent(self.footer.profile.length).await;
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
