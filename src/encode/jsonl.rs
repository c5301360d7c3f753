//! `format=jsonl`: a compact entity on every line, each line ended.

use super::{Encode, EntityTooLarge};

pub(super) struct Jsonl;

impl Encode for Jsonl {
    fn begin(&self, _: bool, _: &mut Vec<u8>) {}

    fn entity(&self, document: &[u8], _: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge> {
        out.extend_from_slice(document);
        out.push(b'\n');
        Ok(())
    }

    fn end(&self, _: bool, _: &mut Vec<u8>) {}
}
