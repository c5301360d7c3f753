//! Downloads that were counted: further ranges of the same export, for the same client, need not be.
//!
//! Tools read a Parquet export in parts: its end, then what they need of it. That is one download, and counts once. It
//! begins with a request for the export that was counted, and its further ranges are free:
//!
//! - for [`LASTING`] from its begin,
//! - while all that was sent of it is at most twice the export, and [`SPARE_BYTES`],
//! - while they are at most [`SPARE_PARTS`], and [`PARTS_PER_MIB`] for each MiB of the export.
//!
//! The next range counts, and with it begins another download, which replaces the first. So one counted request brings
//! at most about twice the bytes that it can bring without ranges. A free one costs little: callers ask here only for
//! exports that lie whole in the cache, so it makes none, and runs no query.
//!
//! A client has a few downloads at a time; another one replaces what it used least recently. All together are bounded,
//! too: what is forgotten counts again, as if there was nothing here.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::locked;
use crate::rate_limit::{Bucket, Client, ExportId, ExportPart};

pub(super) const LASTING: Duration = Duration::from_secs(15 * 60);

/// Bytes that a download may take beyond twice the export: small files are read in blocks that overlap.
const SPARE_BYTES: u64 = 1 << 20;

const SPARE_PARTS: u64 = 64;

/// Free ranges for each MiB: a tool may ask for each column of each row group.
const PARTS_PER_MIB: u64 = 16;

/// The bytes, and the free parts, that a download may have of an export that is so long.
pub(super) fn max_of(export_bytes: u64) -> (u64, u64) {
    let bytes = export_bytes.saturating_mul(2).saturating_add(SPARE_BYTES);
    (bytes, SPARE_PARTS + PARTS_PER_MIB * (export_bytes >> 20))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DownloadCapacity {
    /// Parts that lock apart, at least 1. All downloads of a client lie in one.
    pub shards: usize,
    pub downloads: usize,
    /// Downloads of one client, at least 1.
    pub of_client: usize,
}

impl Default for DownloadCapacity {
    /// 16,384 downloads, in less than 2 MB.
    fn default() -> Self {
        DownloadCapacity { shards: 64, downloads: 256, of_client: 16 }
    }
}

pub(super) struct Downloads {
    of_shard: usize,
    of_client: usize,
    hasher: RandomState,
    shards: Vec<Mutex<Vec<Download>>>,
}

struct Download {
    client: Client,
    bucket: Bucket,
    export: ExportId,
    until: Duration,
    /// The request that was counted got all of it. The length may not have been known then.
    got_all: bool,
    sent_bytes: u64,
    parts: u64,
}

impl Download {
    fn is_live(&self, now: Duration) -> bool {
        now < self.until
    }

    fn is_of(&self, client: Client, bucket: Bucket, export: ExportId) -> bool {
        self.client == client && self.bucket == bucket && self.export == export
    }

    /// Takes a part from what is free. Whether it is.
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
    pub(super) fn new(capacity: DownloadCapacity) -> Downloads {
        let shards = (0..capacity.shards.max(1)).map(|_| Mutex::default()).collect();
        let DownloadCapacity { downloads, of_client, .. } = capacity;
        Downloads { of_shard: downloads, of_client: of_client.max(1), hasher: RandomState::new(), shards }
    }

    pub(super) fn has_any(&self, client: Client, now: Duration) -> bool {
        self.shard(client).iter().any(|download| download.client == client && download.is_live(now))
    }

    /// Begins one, with a request that was counted; `sent_bytes` is what that got of the export, `None` all of it.
    pub(super) fn begin(
        &self,
        client: Client,
        bucket: Bucket,
        export: ExportId,
        sent_bytes: Option<u64>,
        now: Duration,
    ) {
        let mut shard = self.shard(client);
        shard.retain(|other| other.is_live(now) && !other.is_of(client, bucket, export));
        let has_max = shard.iter().filter(|other| other.client == client).count() >= self.of_client;
        if (has_max || shard.len() >= self.of_shard)
            && let Some(replaced) = shard.iter().position(|other| !has_max || other.client == client)
        {
            shard.remove(replaced);
        }
        if shard.len() < self.of_shard {
            let got_all = sent_bytes.is_none();
            let sent_bytes = sent_bytes.unwrap_or(0);
            shard.push(Download { client, bucket, export, until: now + LASTING, got_all, sent_bytes, parts: 0 });
        }
    }

    /// Takes a part from what is free of the client's download. Whether there is one, and the part is within it.
    pub(super) fn take(&self, client: Client, bucket: Bucket, part: &ExportPart, now: Duration) -> bool {
        let mut shard = self.shard(client);
        let is_it = |other: &Download| other.is_of(client, bucket, part.export) && other.is_live(now);
        let Some(place) = shard.iter().position(is_it) else { return false };
        let mut download = shard.remove(place);
        let is_free = download.take(part);
        shard.push(download);
        is_free
    }

    fn shard(&self, client: Client) -> MutexGuard<'_, Vec<Download>> {
        let shard = self.hasher.hash_one(client) as usize % self.shards.len();
        locked(&self.shards[shard])
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn client(number: u32) -> Client {
        Client::V4(number.to_be_bytes())
    }

    fn export(number: u8) -> ExportId {
        ExportId([number; 16])
    }

    fn part(number: u8, export_bytes: u64, bytes: u64) -> ExportPart {
        ExportPart { export: export(number), export_bytes, bytes }
    }

    struct Setup(Downloads);

    impl Setup {
        fn new() -> Setup {
            Setup(Downloads::new(DownloadCapacity { shards: 1, downloads: 8, of_client: 4 }))
        }

        fn begin(&self, number: u32, of: u8, sent_bytes: Option<u64>, at_s: u64) {
            self.0.begin(client(number), Bucket::Public, export(of), sent_bytes, Duration::from_secs(at_s));
        }

        fn takes(&self, number: u32, part: ExportPart, at_s: u64) -> bool {
            self.0.take(client(number), Bucket::Public, &part, Duration::from_secs(at_s))
        }

        /// How many of these are free, until one is not.
        fn free(&self, number: u32, part: ExportPart) -> u64 {
            (0..).take_while(|_| self.takes(number, part, 1)).count() as u64
        }
    }

    #[test]
    fn a_download_is_free_as_far_as_its_bytes_and_its_parts_go() {
        let setup = Setup::new();
        // Nothing was counted yet.
        assert!(!setup.takes(1, part(1, 10 * MIB, 1), 1));
        for (sent_bytes, size, expected) in [
            // Byte for byte: the parts are what ends it.
            (Some(1), 1, 64 + 16 * 10),
            (None, 1, 64 + 16 * 10),
            (Some(0), 0, 64 + 16 * 10),
            // Twice, and 1 MiB.
            (Some(0), MIB, 21),
            (Some(MIB), MIB, 20),
            (None, MIB, 11),
            // All of it again and again.
            (Some(0), 10 * MIB, 2),
            (Some(1), 10 * MIB, 2),
            (None, 10 * MIB, 1),
        ] {
            setup.begin(1, 1, sent_bytes, 0);
            assert_eq!(setup.free(1, part(1, 10 * MIB, size)), expected, "{sent_bytes:?} {size}");
        }
        // Sizes that nothing has do not overflow.
        setup.begin(1, 1, Some(u64::MAX), 0);
        assert!(!setup.takes(1, part(1, MIB, u64::MAX), 1));
        assert!(setup.takes(1, part(1, u64::MAX, u64::MAX), 1));
    }

    #[test]
    fn it_is_that_of_one_client_one_export_and_one_bucket_for_a_while() {
        let setup = Setup::new();
        setup.begin(1, 1, Some(0), 100);
        assert!(setup.takes(1, part(1, MIB, 1), 100));
        assert!(!setup.takes(2, part(1, MIB, 1), 100), "another client");
        assert!(!setup.takes(1, part(2, MIB, 1), 100), "another export");
        let private = setup.0.take(client(1), Bucket::Private, &part(1, MIB, 1), Duration::from_secs(100));
        assert!(!private, "another bucket");
        assert!(setup.takes(1, part(1, MIB, 1), 100 + 899));
        assert!(setup.0.has_any(client(1), Duration::from_secs(999)));
        assert!(!setup.takes(1, part(1, MIB, 1), 100 + 900), "too late");
        assert!(!setup.0.has_any(client(1), Duration::from_secs(1_000)));
        assert!(!setup.0.has_any(client(2), Duration::from_secs(100)));
    }

    #[test]
    fn a_client_has_a_few_and_all_together_are_bounded() {
        let setup = Setup::new();
        for of in 1..=4 {
            setup.begin(1, of, Some(0), 0);
        }
        // The first is used again, so the second goes.
        assert!(setup.takes(1, part(1, MIB, 1), 1));
        setup.begin(1, 5, Some(0), 1);
        let live: Vec<u8> = (1..=5).filter(|&of| setup.takes(1, part(of, MIB, 1), 1)).collect();
        assert_eq!(live, [1, 3, 4, 5]);
        // Others have their own, and beyond what there is in all, whose was not used for longest goes.
        for number in 2..=5 {
            setup.begin(number, 1, Some(0), 1);
        }
        setup.begin(6, 1, Some(0), 1);
        assert_eq!(setup.0.shard(client(1)).len(), 8);
        let live: Vec<u8> = (1..=5).filter(|&of| setup.takes(1, part(of, MIB, 1), 1)).collect();
        assert_eq!(live, [3, 4, 5]);
        // What is over makes room.
        setup.begin(7, 1, Some(0), 10_000);
        assert_eq!(setup.0.shard(client(1)).len(), 1);
        // No room at all is nothing kept.
        let none = Downloads::new(DownloadCapacity { shards: 0, downloads: 0, of_client: 0 });
        none.begin(client(1), Bucket::Public, export(1), None, Duration::ZERO);
        assert!(!none.has_any(client(1), Duration::ZERO));
    }

    proptest! {
        /// Whatever a client does: for each request that counts, it gets at most twice an export, and so many parts.
        #[test]
        fn nobody_gets_more_than_the_counted_requests_are_worth(
            requests in vec((0..3_u8, 0..3 * MIB, 0..400_u64), 0..400),
        ) {
            let setup = Setup::new();
            let (mut counted, mut sent_bytes, mut free, mut now) = (0, 0, 0, 0);
            for (of, bytes, pause) in requests {
                now += pause;
                let part = part(of, 3 * MIB, bytes);
                if setup.takes(1, part, now) {
                    free += 1;
                } else {
                    counted += 1;
                    setup.begin(1, of, Some(bytes), now);
                }
                sent_bytes += bytes;
            }
            prop_assert!(sent_bytes <= counted * (2 * 3 * MIB + SPARE_BYTES));
            prop_assert!(free <= counted * (SPARE_PARTS + 3 * PARTS_PER_MIB));
        }
    }
}
