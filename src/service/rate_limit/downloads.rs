//! Downloads in ranges, which count as one request.
//!
//! Tools read a Parquet export in parts: its end, then the parts that they need. A download begins with a counted
//! request for the export. Further ranges of the same export, by the same client, are free:
//!
//! - for [`DURATION`] after that request,
//! - as long as all sent bytes are at most twice the export and [`SPARE_BYTES`],
//! - as long as they are at most [`SPARE_PARTS`], and [`PARTS_PER_MIB`] for each MiB of the export.
//!
//! The next range counts, and begins another download, which replaces the first. For example, a client that reads an
//! export of 10 MiB byte after byte gets 224 free ranges for each counted one. So a counted request is worth at most
//! about twice the bytes that it is worth without ranges. A free range costs little: callers check only ranges of
//! complete exports, so that it starts no job and runs no query.
//!
//! A client has a few downloads at a time; another one replaces the one that it used least recently. The number of
//! clients is limited, too. A download that was evicted counts again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use moka::sync::Cache;

use crate::locked;
use crate::rate_limit::{Bucket, Client, ExportId, ExportPart};

pub(super) const DURATION: Duration = Duration::from_secs(15 * 60);

/// Bytes beyond twice the export, because tools read small files in overlapping blocks.
const SPARE_BYTES: u64 = 1 << 20;

const SPARE_PARTS: u64 = 64;

/// Free ranges for each MiB, because a tool can request each column of each row group.
const PARTS_PER_MIB: u64 = 16;

/// The maximum bytes and free ranges of a download of an export of this length.
pub(super) fn max_of(export_bytes: u64) -> (u64, u64) {
    let bytes = export_bytes.saturating_mul(2).saturating_add(SPARE_BYTES);
    (bytes, SPARE_PARTS + PARTS_PER_MIB * (export_bytes >> 20))
}

/// Downloads of one client.
pub(super) const DOWNLOADS_OF_CLIENT: usize = 16;

/// Clients whose downloads are remembered, in 20 MB if each has all of its downloads.
const CLIENTS: u64 = 16_384;

/// The downloads of each client, those that were used least recently first.
pub(super) struct Downloads(Cache<Client, Arc<Mutex<Vec<Download>>>>);

struct Download {
    bucket: Bucket,
    export: ExportId,
    until: Duration,
    /// Whether the counted request got all of the export, whose length may have been unknown.
    got_all: bool,
    sent_bytes: u64,
    parts: u64,
}

impl Download {
    fn is_live(&self, now: Duration) -> bool {
        now < self.until
    }

    fn is_of(&self, bucket: Bucket, export: ExportId) -> bool {
        self.bucket == bucket && self.export == export
    }

    /// Whether a range is free. Counts it if so.
    fn take(&mut self, part: &ExportPart) -> bool {
        let (max_bytes, max_parts) = max_of(part.export_bytes);
        let counted_bytes = if self.got_all { part.export_bytes } else { 0 };
        let sent_bytes = self.sent_bytes.saturating_add(part.bytes);
        let is_free = self.parts < max_parts && sent_bytes.saturating_add(counted_bytes) <= max_bytes;
        if is_free {
            self.parts += 1;
            self.sent_bytes = sent_bytes;
        }
        is_free
    }
}

impl Downloads {
    pub(super) fn new() -> Downloads {
        Downloads(Cache::builder().max_capacity(CLIENTS).time_to_idle(DURATION).build())
    }

    pub(super) fn has_any(&self, client: Client, now: Duration) -> bool {
        self.0.get(&client).is_some_and(|downloads| locked(&downloads).iter().any(|download| download.is_live(now)))
    }

    /// Begins a download with a counted request, which got `sent_bytes` of the export; `None` means all of it.
    pub(super) fn begin(
        &self,
        client: Client,
        bucket: Bucket,
        export: ExportId,
        sent_bytes: Option<u64>,
        now: Duration,
    ) {
        let downloads = self.0.get_with(client, Arc::default);
        let mut downloads = locked(&downloads);
        downloads.retain(|other| other.is_live(now) && !other.is_of(bucket, export));
        if downloads.len() >= DOWNLOADS_OF_CLIENT {
            downloads.remove(0);
        }
        let got_all = sent_bytes.is_none();
        let sent_bytes = sent_bytes.unwrap_or(0);
        downloads.push(Download { bucket, export, until: now + DURATION, got_all, sent_bytes, parts: 0 });
    }

    /// Whether a range is free because it belongs to a download of the client. Counts it if so.
    pub(super) fn take(&self, client: Client, bucket: Bucket, part: &ExportPart, now: Duration) -> bool {
        let Some(downloads) = self.0.get(&client) else { return false };
        let mut downloads = locked(&downloads);
        let is_it = |other: &Download| other.is_of(bucket, part.export) && other.is_live(now);
        let Some(place) = downloads.iter().position(is_it) else { return false };
        let mut download = downloads.remove(place);
        let is_free = download.take(part);
        downloads.push(download);
        is_free
    }
}
