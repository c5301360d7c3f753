//! `format=json`: one array, indented or compact (decisions, section 4).

use super::Encode;
use crate::document;

/// `pretty=true`: two spaces a level, no final line feed.
pub(super) struct Pretty;

impl Encode for Pretty {
    fn begin(&self, _: bool, out: &mut Vec<u8>) {
        out.push(b'[');
    }

    fn entity(&self, document: &[u8], first: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if first { b"\n  " } else { b",\n  " });
        document::pretty_into(document, 1, out);
    }

    fn end(&self, empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if empty { b"]" } else { b"\n]" });
    }
}

/// `pretty=false`: one line.
pub(super) struct Compact;

impl Encode for Compact {
    fn begin(&self, _: bool, out: &mut Vec<u8>) {
        out.push(b'[');
    }

    fn entity(&self, document: &[u8], first: bool, out: &mut Vec<u8>) {
        if !first {
            out.push(b',');
        }
        out.extend_from_slice(document);
    }

    fn end(&self, _: bool, out: &mut Vec<u8>) {
        out.push(b']');
    }
}
