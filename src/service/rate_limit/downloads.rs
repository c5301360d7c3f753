//! Rate limiting of range requests: counts the download of an export in ranges as one request.
//!
//! Tools read a Parquet export in parts: its end, then the parts that they need. A download begins with a counted
//! request for the export. Further ranges of the same export, by the same client, are free (not counted):
//!
//! - for [`DOWNLOAD_DURATION`] after that request,
//! - as long as the sent bytes are at most twice the export plus [`EXTRA_DOWNLOAD_BYTES`],
//! - as long as the ranges are at most [`BASE_DOWNLOAD_PARTS`] plus [`DOWNLOAD_PARTS_PER_MIB`] for each MiB of the
//!   export.
//!
//! The next range counts, and begins another download, which replaces the first. For example, a client that reads an
//! export of 10 MiB byte by byte gets 224 free ranges for each counted range. So a counted request returns at most
//! about twice the bytes of a request without ranges. Callers check only ranges of complete exports, so a free range
//! starts no job and runs no query.
//!
//! The downloads of a client and the number of clients are limited; the least recently used are evicted. The next range
//! of an evicted download counts.

use parking_lot::Mutex;

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;

use crate::rate_limit::{ClientNetwork, ExportId, ExportPart, RateLimitBucket};

pub(super) const DOWNLOAD_DURATION: Duration = Duration::from_secs(15 * 60);

/// Bytes that a download can have beyond twice the export, because tools read small files in overlapping blocks.
const EXTRA_DOWNLOAD_BYTES: u64 = 1 << 20;
const BASE_DOWNLOAD_PARTS: u64 = 64;

/// Range requests that are not rate-limited, for each MiB of an export. A tool can request each column chunk by itself.
const DOWNLOAD_PARTS_PER_MIB: u64 = 16;

pub(super) fn max_download_bytes_and_parts(export_bytes: u64) -> (u64, u64) {
    let bytes = export_bytes.saturating_mul(2).saturating_add(EXTRA_DOWNLOAD_BYTES);
    (bytes, BASE_DOWNLOAD_PARTS + DOWNLOAD_PARTS_PER_MIB * (export_bytes >> 20))
}

pub(super) const MAX_DOWNLOADS_PER_CLIENT: usize = 16;

/// The tracker takes about 20 MB if each client has the maximum number of downloads.
const MAX_TRACKED_CLIENTS: u64 = 16_384;

pub(super) struct DownloadTracker(Cache<ClientNetwork, Arc<Mutex<Vec<RangeDownload>>>>);

struct RangeDownload {
    bucket: RateLimitBucket,
    export: ExportId,
    expires_at: Duration,
    /// Whether the response to the counted request was the whole export. Its length could be unknown at that time.
    has_full_response: bool,
    sent_bytes: u64,
    part_count: u64,
}

impl RangeDownload {
    fn is_active(&self, now: Duration) -> bool {
        now < self.expires_at
    }

    fn is_for(&self, bucket: RateLimitBucket, export: ExportId) -> bool {
        self.bucket == bucket && self.export == export
    }

    fn try_add_part(&mut self, part: &ExportPart) -> bool {
        let (max_bytes, max_parts) = max_download_bytes_and_parts(part.export_bytes);
        let counted_bytes = if self.has_full_response { part.export_bytes } else { 0 };
        let sent_bytes = self.sent_bytes.saturating_add(part.part_bytes);
        let is_free = self.part_count < max_parts && sent_bytes.saturating_add(counted_bytes) <= max_bytes;
        if is_free {
            self.part_count += 1;
            self.sent_bytes = sent_bytes;
        }
        is_free
    }
}

impl DownloadTracker {
    pub(super) fn new() -> DownloadTracker {
        DownloadTracker(Cache::builder().max_capacity(MAX_TRACKED_CLIENTS).time_to_idle(DOWNLOAD_DURATION).build())
    }

    pub(super) fn has_active_download(&self, client: ClientNetwork, now: Duration) -> bool {
        self.0.get(&client).is_some_and(|downloads| downloads.lock().iter().any(|download| download.is_active(now)))
    }

    /// Begins a download with a counted request, whose response has `sent_bytes` of the export; `None` means all.
    pub(super) fn begin(
        &self,
        client: ClientNetwork,
        bucket: RateLimitBucket,
        export: ExportId,
        sent_bytes: Option<u64>,
        now: Duration,
    ) {
        let downloads = self.0.get_with(client, Arc::default);
        let mut downloads = downloads.lock();
        downloads.retain(|other| other.is_active(now) && !other.is_for(bucket, export));
        if downloads.len() >= MAX_DOWNLOADS_PER_CLIENT {
            downloads.remove(0);
        }
        let has_full_response = sent_bytes.is_none();
        let sent_bytes = sent_bytes.unwrap_or(0);
        downloads.push(RangeDownload {
            bucket,
            export,
            expires_at: now + DOWNLOAD_DURATION,
            has_full_response,
            sent_bytes,
            part_count: 0,
        });
    }

    /// Returns whether a range request is not rate-limited because it belongs to a download, and then counts it there.
    pub(super) fn try_continue(
        &self,
        client: ClientNetwork,
        bucket: RateLimitBucket,
        part: &ExportPart,
        now: Duration,
    ) -> bool {
        let Some(downloads) = self.0.get(&client) else { return false };
        let mut downloads = downloads.lock();
        let is_same = |other: &RangeDownload| other.is_for(bucket, part.export) && other.is_active(now);
        let Some(index) = downloads.iter().position(is_same) else { return false };
        let mut download = downloads.remove(index);
        let is_free = download.try_add_part(part);
        downloads.push(download);
        is_free
    }
}
