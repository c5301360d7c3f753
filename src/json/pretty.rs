//! Indents canonical text: two spaces per level, `"key": value`, `[]` and `{}` when empty (docs/reference/formats.md,
//! json and jsonl).
//!
//! The structural characters of 64 bytes at a time are found by [`scan`](super::scan); the text between two of them is
//! copied as it stands.

use super::scan::{Block, StringState, block_at};

/// Bytes that a short copy of any length moves at once. The next copy overwrites the surplus.
const STRIDE_BYTES: usize = 32;

/// Appends the value indented, as it looks when nested in `indent_levels` levels: its first line follows what the
/// caller has written, further lines are indented by as many levels more (1 for the entities of an array). No line
/// break at the end.
///
/// Stops above about `most_bytes`: 128 levels deep, a byte can take 257. Returns whether all of it was written. If not,
/// the output is unusable.
pub fn pretty_within(document: &[u8], indent_levels: usize, most_bytes: usize, out: &mut Vec<u8>) -> bool {
    // Enough for usual documents. It grows for others.
    let guess_bytes = document.len() + document.len() / 2 + 8 * STRIDE_BYTES;
    let mut writer = Writer { start: out.len(), at: out.len(), out };
    writer.make_room(guess_bytes);
    let mut level = indent_levels;
    let mut strings = StringState::default();
    let mut block_start = 0;
    // Everything before this is written.
    let mut copied = 0;
    loop {
        let (bytes, length) = block_at(document, block_start);
        if length == 0 {
            break;
        }
        let block = Block::read(&bytes);
        let outside = !strings.advance(&block, length);
        let mut structure = (block.open | block.close | block.comma | block.colon) & outside;
        let lines = structure.count_ones() as usize;
        writer.make_room(block_start + length - copied + lines * (2 + 2 * (level + lines)));
        while structure != 0 {
            let position = block_start + structure.trailing_zeros() as usize;
            structure &= structure - 1;
            let next = position + 1;
            let byte = document[position];
            if byte == b':' || byte == b',' {
                // The two most frequent, without a branch between them.
                let indent = if byte == b':' { Indent::BLANK } else { Indent::new(level) };
                writer.copy(document, copied, next);
                writer.indent(indent);
                copied = next;
            } else if byte == b'{' || byte == b'[' {
                if !matches!(document.get(next), Some(b'}' | b']')) {
                    writer.copy(document, copied, next);
                    level += 1;
                    writer.indent(Indent::new(level));
                    copied = next;
                }
            } else if !matches!(document[..position].last(), Some(b'{' | b'[')) {
                // A closing bracket. That of an empty container is copied with its opening one.
                writer.copy(document, copied, position);
                level = level.saturating_sub(1);
                writer.indent(Indent::new(level));
                copied = position;
            }
        }
        block_start += length;
        if writer.at - writer.start > most_bytes {
            writer.finish();
            return false;
        }
    }
    writer.make_room(document.len() - copied);
    writer.copy(document, copied, document.len());
    writer.finish();
    true
}

/// White space between two tokens: one byte, then blanks.
#[derive(Clone, Copy)]
struct Indent {
    first: u8,
    length: usize,
}

impl Indent {
    const BLANK: Indent = Indent { first: b' ', length: 1 };

    /// A line break and the indentation of a level.
    #[inline]
    fn new(level: usize) -> Indent {
        Indent { first: b'\n', length: 1 + 2 * level }
    }
}

/// Writes over existing memory, so each small step is a move and not a call.
struct Writer<'o> {
    /// Where this document begins in `out`.
    start: usize,
    /// Longer than the written part by at least a stride.
    out: &'o mut Vec<u8>,
    at: usize,
}

impl Writer<'_> {
    /// Makes sure that `length` more bytes can be written, in any strides.
    #[inline]
    fn make_room(&mut self, length: usize) {
        let needed = self.at + length + 2 * STRIDE_BYTES;
        if self.out.len() < needed {
            // Growth depends only on this document. The text before it in `out` may be a hundred times as long.
            self.out.resize(needed + (self.at - self.start) / 2, 0);
        }
    }

    #[inline]
    fn copy(&mut self, document: &[u8], from: usize, to: usize) {
        let length = to - from;
        let source: Option<&[u8; STRIDE_BYTES]> = document[from..].first_chunk();
        match (source, self.out[self.at..].first_chunk_mut()) {
            (Some(source), Some(target)) if length <= STRIDE_BYTES => *target = *source,
            _ => self.out[self.at..self.at + length].copy_from_slice(&document[from..to]),
        }
        self.at += length;
    }

    #[inline]
    fn indent(&mut self, indent: Indent) {
        match self.out[self.at..].first_chunk_mut::<STRIDE_BYTES>() {
            Some(target) if indent.length <= STRIDE_BYTES => {
                *target = [b' '; STRIDE_BYTES];
                target[0] = indent.first;
            }
            _ => {
                let target = &mut self.out[self.at..self.at + indent.length];
                target.fill(b' ');
                target[0] = indent.first;
            }
        }
        self.at += indent.length;
    }

    fn finish(self) {
        self.out.truncate(self.at);
    }
}
