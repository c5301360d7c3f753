//! The key of a response: equal for requests whose responses must have the same bytes.

use std::fmt;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
#[cfg(test)]
use strata_types::ids::{DatasetId, VersionFileId};
use strata_types::leb128;
use strata_types::read_request::ReadRequest;
#[cfg(test)]
use strata_types::version::{VersionFile, VersionNumber, VersionVariant};

use crate::lookup::AuthorizedTarget;
use crate::rate_limit::ExportId;

/// Part of each cache key and ETag. Must be raised if an encoder writes different bytes for the same entities.
const ENCODER_VERSION: u32 = 4;

/// A SHA-256 hash of the entities, the dataset, the version, the canonical request and [`ENCODER_VERSION`]. It does not
/// depend on the file of the version, so that ETags remain valid after a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// Returns the key of the response to a request; `None` if responses differ, such as for `sample` without `seed`.
    pub fn for_request(target: &AuthorizedTarget, request: &ReadRequest) -> Option<CacheKey> {
        if request.is_random() {
            return None;
        }
        let mut buffer = CacheKeyBuffer(Vec::with_capacity(KEY_BUFFER_BYTES));
        // The `Hash` trait delimits strings and slices, so different requests write different bytes.
        (ENCODER_VERSION, &target.file.content_hash, &target.name_slug).hash(&mut buffer);
        (target.dataset_id, target.version, target.variant.is_alternate()).hash(&mut buffer);
        request.canonicalize().hash(&mut buffer);
        Some(CacheKey(Sha256::digest(&buffer.0).into()))
    }

    /// Returns the key of the changes that turn version `since` into the version of `target`.
    pub fn for_changes(target: &AuthorizedTarget, since: &AuthorizedTarget) -> CacheKey {
        let mut buffer = CacheKeyBuffer(Vec::with_capacity(KEY_BUFFER_BYTES));
        (ENCODER_VERSION, "changes", &target.file.path, &since.file.path, &target.name_slug).hash(&mut buffer);
        (target.dataset_id, target.version, since.version).hash(&mut buffer);
        CacheKey(Sha256::digest(&buffer.0).into())
    }

    pub fn to_short_hex(&self) -> String {
        let mut digits = [0; 32];
        // The encoding cannot fail, because the buffer has two digits for each of 16 bytes.
        let _ = hex::encode_to_slice(self.export_id().0, &mut digits);
        digits.into_iter().map(char::from).collect()
    }

    pub fn export_id(&self) -> ExportId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0[..16]);
        ExportId(id)
    }
}

const KEY_BUFFER_BYTES: usize = 512;

/// Collects the bytes to be hashed, because hashing many small parts takes longer. Numbers are always little-endian.
/// Lengths are varints, because most lists of a request are empty, and hashing takes most of the time.
struct CacheKeyBuffer(Vec<u8>);

impl Hasher for CacheKeyBuffer {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn write_u16(&mut self, number: u16) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn write_u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn write_u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn write_u128(&mut self, number: u128) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn write_usize(&mut self, number: usize) {
        leb128::write_varint(number as u64, &mut self.0);
    }

    // `Hasher` requires this method, but nothing calls it: the collected bytes are hashed with SHA-256.
    fn finish(&self) -> u64 {
        0
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_short_hex())
    }
}

#[cfg(test)]
impl AuthorizedTarget {
    fn for_test_content(content_hash: String) -> AuthorizedTarget {
        AuthorizedTarget {
            dataset_id: DatasetId::new(1),
            name_slug: "x".to_owned(),
            is_private: false,
            version: VersionNumber::new(1),
            variant: VersionVariant::Original,
            file: VersionFile {
                id: VersionFileId::new(1),
                path: String::new(),
                size_bytes: 0,
                entity_count: 0,
                content_hash,
            },
            principal: crate::Principal::Operator,
        }
    }
}

#[cfg(test)]
impl CacheKey {
    pub(crate) fn from_test_number(number: usize) -> CacheKey {
        CacheKey::for_request(&AuthorizedTarget::for_test_content(number.to_string()), &ReadRequest::default())
            .expect("a key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::read_request::ResponseFormat;

    struct IncrementalHasher(Sha256);

    impl Hasher for IncrementalHasher {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn write_usize(&mut self, mut number: usize) {
            while number >= 0x80 {
                self.0.update([number as u8 | 0x80]);
                number >>= 7;
            }
            self.0.update([number as u8]);
        }

        fn finish(&self) -> u64 {
            0
        }
    }

    #[test]
    fn cache_key_is_hash_of_its_parts() {
        let target = AuthorizedTarget {
            dataset_id: DatasetId::new(7),
            name_slug: "wörld".to_owned(),
            version: VersionNumber::new(12),
            variant: VersionVariant::Alternate,
            ..AuthorizedTarget::for_test_content("c0ffee".to_owned())
        };
        let plain = ReadRequest::default();
        for request in [
            plain.clone(),
            ReadRequest { limit: Some(100), offset: 7, pretty: false, ..plain.clone() },
            ReadRequest { keywords: vec!["a".to_owned(), "ß".to_owned()], format: ResponseFormat::Csv, ..plain },
        ] {
            let mut hash = IncrementalHasher(Sha256::new());
            (ENCODER_VERSION, &target.file.content_hash, &target.name_slug).hash(&mut hash);
            (target.dataset_id, target.version, target.variant.is_alternate()).hash(&mut hash);
            request.canonicalize().hash(&mut hash);
            let key = CacheKey::for_request(&target, &request).expect("a key");
            assert_eq!(key.0, <[u8; 32]>::from(hash.0.finalize()));
            assert_eq!(key.to_short_hex(), hex::encode(&key.0[..16]));
        }
    }
}
