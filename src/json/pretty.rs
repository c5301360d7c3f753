//! Indents canonical text: two spaces per level, `"key": value`, and `[]` and `{}` if empty (docs/reference/formats.md,
//! json and jsonl). The text between two structural characters is copied unchanged.

use super::scan::{StringState, StructuralMasks, load_block};

/// Number of bytes that a short copy always moves. The next copy overwrites the surplus.
const STRIDE_BYTES: usize = 32;

/// Appends the value, indented as if it were nested in `indent_levels` levels (1 for the entities of an array). The
/// first line is not indented, and there is no line break at the end.
///
/// Returns false if the output would exceed about `max_bytes`: one byte at level 128 can become 257 bytes.
pub fn try_write_indented(document: &[u8], indent_levels: usize, max_bytes: usize, out: &mut Vec<u8>) -> bool {
    let guess_bytes = document.len() + document.len() / 2 + 8 * STRIDE_BYTES;
    let mut writer = IndentedJsonWriter { start: out.len(), position: out.len(), out };
    writer.reserve(guess_bytes);
    let mut level = indent_levels;
    let mut strings = StringState::default();
    let mut block_start = 0;
    let mut copied = 0;
    loop {
        let (bytes, length) = load_block(document, block_start);
        if length == 0 {
            break;
        }
        let block = StructuralMasks::from_bytes(&bytes);
        let outside = !strings.string_mask(&block, length);
        let mut structure = (block.open | block.close | block.comma | block.colon) & outside;
        let lines = structure.count_ones() as usize;
        writer.reserve(block_start + length - copied + lines * (2 + 2 * (level + lines)));
        while structure != 0 {
            let position = block_start + structure.trailing_zeros() as usize;
            structure &= structure - 1;
            let next = position + 1;
            let byte = document[position];
            if byte == b':' || byte == b',' {
                // Colons and commas are the two most frequent structural characters, so no branch distinguishes them.
                let indent = if byte == b':' { TokenSpacing::SPACE } else { TokenSpacing::new(level) };
                writer.write_slice(document, copied, next);
                writer.write_spacing(indent);
                copied = next;
            } else if byte == b'{' || byte == b'[' {
                if !matches!(document.get(next), Some(b'}' | b']')) {
                    writer.write_slice(document, copied, next);
                    level += 1;
                    writer.write_spacing(TokenSpacing::new(level));
                    copied = next;
                }
            } else if !matches!(document[..position].last(), Some(b'{' | b'[')) {
                // A closing bracket gets a line of its own, unless the container is empty and is copied as a whole.
                writer.write_slice(document, copied, position);
                level = level.saturating_sub(1);
                writer.write_spacing(TokenSpacing::new(level));
                copied = position;
            }
        }
        block_start += length;
        if writer.position - writer.start > max_bytes {
            writer.truncate_to_written();
            return false;
        }
    }
    writer.reserve(document.len() - copied);
    writer.write_slice(document, copied, document.len());
    writer.truncate_to_written();
    true
}

/// White space between two JSON tokens: one byte, then spaces.
#[derive(Clone, Copy)]
struct TokenSpacing {
    first: u8,
    length: usize,
}

impl TokenSpacing {
    const SPACE: TokenSpacing = TokenSpacing { first: b' ', length: 1 };

    #[inline]
    fn new(level: usize) -> TokenSpacing {
        TokenSpacing { first: b'\n', length: 1 + 2 * level }
    }
}

/// Writes indented JSON into existing memory, so that a short copy is a move instead of a call.
struct IndentedJsonWriter<'o> {
    start: usize,
    /// The output, which is at least [`STRIDE_BYTES`] longer than the written part.
    out: &'o mut Vec<u8>,
    position: usize,
}

impl IndentedJsonWriter<'_> {
    #[inline]
    fn reserve(&mut self, length: usize) {
        let needed = self.position + length + 2 * STRIDE_BYTES;
        if self.out.len() < needed {
            // The buffer grows by half of the current document, because `out` can contain much longer text before it.
            self.out.resize(needed + (self.position - self.start) / 2, 0);
        }
    }

    #[inline]
    fn write_slice(&mut self, document: &[u8], from: usize, to: usize) {
        let length = to - from;
        let source: Option<&[u8; STRIDE_BYTES]> = document[from..].first_chunk();
        match (source, self.out[self.position..].first_chunk_mut()) {
            (Some(source), Some(target)) if length <= STRIDE_BYTES => *target = *source,
            _ => self.out[self.position..self.position + length].copy_from_slice(&document[from..to]),
        }
        self.position += length;
    }

    #[inline]
    fn write_spacing(&mut self, indent: TokenSpacing) {
        match self.out[self.position..].first_chunk_mut::<STRIDE_BYTES>() {
            Some(target) if indent.length <= STRIDE_BYTES => {
                *target = [b' '; STRIDE_BYTES];
                target[0] = indent.first;
            }
            _ => {
                let target = &mut self.out[self.position..self.position + indent.length];
                target.fill(b' ');
                target[0] = indent.first;
            }
        }
        self.position += indent.length;
    }

    fn truncate_to_written(self) {
        self.out.truncate(self.position);
    }
}
