//! The key of an answer: equal for requests that must be answered with the same bytes.

use std::fmt;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
#[cfg(test)]
use strata_types::ids::{DatasetId, FileId};
use strata_types::request::ReadRequest;
#[cfg(test)]
use strata_types::version::{VersionFile, VersionNumber};

use crate::lookup::Admitted;
use crate::rate_limit::ExportId;

/// Raise it when an encoder writes other bytes for the same entities: it voids what clients and caches hold.
const ENCODER_VERSION: u32 = 4;

/// A hash of the file, the dataset and version it is served as, the canonical request and the encoder's version.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// The key of the answer to a request; `None` when every answer is another one, as with `sample` and no `seed`.
    pub fn of(admitted: &Admitted, request: &ReadRequest) -> Option<CacheKey> {
        if request.is_drawn_anew() {
            return None;
        }
        let mut parts = Parts(Vec::with_capacity(PARTS_BYTES));
        // Of plain data: every part of it is delimited.
        (ENCODER_VERSION, &admitted.file.path, &admitted.name_slug).hash(&mut parts);
        (admitted.dataset_id, admitted.version, admitted.alt).hash(&mut parts);
        request.canonical().hash(&mut parts);
        Some(CacheKey(Sha256::digest(&parts.0).into()))
    }

    /// Its first 16 bytes, enough to tell answers apart, as lower-case hex.
    pub fn short(&self) -> String {
        let mut text = [0; 32];
        // It has room for just as many.
        let _ = hex::encode_to_slice(self.export_id().0, &mut text);
        text.into_iter().map(char::from).collect()
    }

    /// The same bytes, for who counts requests.
    pub fn export_id(&self) -> ExportId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0[..16]);
        ExportId(id)
    }
}

const PARTS_BYTES: usize = 512;

/// All that is hashed, together: many small parts take longer. Numbers have the same bytes on every machine.
struct Parts(Vec<u8>);

impl Hasher for Parts {
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
impl Admitted {
    fn of_file(path: String) -> Admitted {
        Admitted {
            dataset_id: DatasetId::new(1),
            name_slug: "x".to_owned(),
            private: false,
            version: VersionNumber::new(1),
            alt: false,
            file: VersionFile { id: FileId::new(1), path, size_bytes: 0, entity_count: 0, content_hash: String::new() },
            holder: crate::Principal::Operator,
        }
    }
}

#[cfg(test)]
impl CacheKey {
    pub(crate) fn numbered(number: usize) -> CacheKey {
        CacheKey::of(&Admitted::of_file(number.to_string()), &ReadRequest::default()).expect("a key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::request::Format;

    struct PartByPart(Sha256);

    impl Hasher for PartByPart {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn write_usize(&mut self, number: usize) {
            self.0.update((number as u64).to_le_bytes());
        }

        fn finish(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_key_is_the_hash_of_its_parts() {
        let admitted = Admitted {
            dataset_id: DatasetId::new(7),
            name_slug: "wörld".to_owned(),
            version: VersionNumber::new(12),
            alt: true,
            ..Admitted::of_file("files/a.parquet".to_owned())
        };
        let plain = ReadRequest::default();
        for request in [
            plain.clone(),
            ReadRequest { limit: Some(100), offset: 7, pretty: false, ..plain.clone() },
            ReadRequest { keywords: vec!["a".to_owned(), "ß".to_owned()], format: Format::Csv, ..plain },
        ] {
            let mut hash = PartByPart(Sha256::new());
            (ENCODER_VERSION, &admitted.file.path, &admitted.name_slug).hash(&mut hash);
            (admitted.dataset_id, admitted.version, admitted.alt).hash(&mut hash);
            request.canonical().hash(&mut hash);
            let key = CacheKey::of(&admitted, &request).expect("a key");
            assert_eq!(key.0, <[u8; 32]>::from(hash.0.finalize()));
            assert_eq!(key.short(), hex::encode(&key.0[..16]));
        }
    }
}
