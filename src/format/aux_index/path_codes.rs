//! Path codes: the values at a path as small numbers, one for each entity, so that `dedup_key` compares numbers.
//!
//! For example, if the values at `kind` are `"a"`, none, `"b"`, and `"a"`, the codes can be 0, 1, 2, and 0, and the
//! `missing_code` is 1.

use super::AuxIndex;

/// Dictionary codes: two entities have the same code if and only if the path yields the same values in both.
#[derive(Debug)]
pub struct PathCodes {
    pub codes: Vec<u16>,
    pub distinct_codes: usize,
    pub missing_code: Option<u16>,
    pub null_code: Option<u16>,
    pub empty_code: Option<u16>,
}

impl AuxIndex for PathCodes {
    const MAX_BYTES_PER_ENTITY: u64 = size_of::<u16>() as u64;

    fn memory_bytes(&self) -> usize {
        self.codes.capacity() * size_of::<u16>()
    }
}
