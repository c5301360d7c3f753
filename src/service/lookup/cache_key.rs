//! The key of an answer: equal for requests that must be answered with the same bytes.

use std::fmt;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};

use crate::model::request::ReadRequest;
use crate::service::lookup::Admitted;
use crate::service::rate_limit::ExportId;

/// Raise it when any encoder writes other bytes for the same entities, or a seed draws others: what clients and caches
/// hold is void then.
const ENCODER_VERSION: u32 = 3;

/// A hash over the file, the dataset and version it is served as, the canonical request and the encoder's version.
/// Known before anything is planned or read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// The key of the answer to a request; `None` when every answer is another one, as with `sample` and no `seed`.
    pub fn of(admitted: &Admitted, request: &ReadRequest) -> Option<CacheKey> {
        if request.is_drawn_anew() {
            return None;
        }
        let mut hash = Sha256Hasher(Sha256::new());
        // Of plain data: every part of it is delimited.
        (ENCODER_VERSION, &admitted.file.path, &admitted.name_slug).hash(&mut hash);
        (admitted.dataset_id, admitted.version, admitted.alt).hash(&mut hash);
        request.canonical().hash(&mut hash);
        Some(CacheKey(hash.0.finalize().into()))
    }

    /// Its first 16 bytes, enough to tell answers apart, as lower-case hex.
    pub fn short(&self) -> String {
        hex::encode(self.export_id().0)
    }

    /// The same bytes, for who counts requests.
    pub fn export_id(&self) -> ExportId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0[..16]);
        ExportId(id)
    }
}

/// All that is hashed, as SHA-256. Numbers have the same bytes on every machine.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn write_u16(&mut self, number: u16) {
        self.0.update(number.to_le_bytes());
    }

    fn write_u32(&mut self, number: u32) {
        self.0.update(number.to_le_bytes());
    }

    fn write_u64(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn write_u128(&mut self, number: u128) {
        self.0.update(number.to_le_bytes());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    // The whole hash is taken instead.
    fn finish(&self) -> u64 {
        0
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.short())
    }
}

#[cfg(test)]
impl CacheKey {
    /// One for each number, for tests.
    pub(in crate::service) fn numbered(number: usize) -> CacheKey {
        use crate::model::ids::{DatasetId, FileId};
        use crate::model::version::{VersionFile, VersionNumber};

        let admitted = Admitted {
            dataset_id: DatasetId::new(1),
            name_slug: "x".to_owned(),
            private: false,
            version: VersionNumber::new(1),
            alt: false,
            file: VersionFile {
                id: FileId::new(1),
                path: number.to_string(),
                size_bytes: 0,
                entity_count: 0,
                content_hash: String::new(),
            },
            holder: crate::service::Holder::Operator,
        };
        CacheKey::of(&admitted, &ReadRequest::default()).expect("a key")
    }
}
