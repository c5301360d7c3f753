//! Vectorized searches in JSON text.
//!
//! The fast functions of this crate are built on three searches:
//!
//! - [`find_quote_backslash_or_control`] finds the next byte in a string that is not plain text, in untrusted text.
//! - [`find_string_end`] finds the closing quote of a string, in canonical text.
//! - [`StructuralMasks`] and [`StringState`] find the structural characters of 64 bytes as bit sets, and the bytes that
//!   are inside strings (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", 2019, section 3.1).
//!
//! They use a 16-byte [`ByteLane`]: SSE2 on x86-64, word arithmetic elsewhere. `benches/instructions` measures them.

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::ByteLane;
#[cfg(target_arch = "x86_64")]
pub(super) use sse2::ByteLane;

pub(super) const BLOCK_BYTES: usize = 64;
pub(super) const LANE_BYTES: usize = 16;

/// Returns the first position from `at` with a quote, a backslash, or a control character, or the length of the text.
#[inline]
pub(super) fn find_quote_backslash_or_control(text: &[u8], at: usize) -> usize {
    let stops = |lane: ByteLane| lane.eq_mask(b'"') | lane.eq_mask(b'\\') | lane.le_mask(0x1f);
    find_stop(text, at, stops, |byte| byte == b'"' || byte == b'\\' || byte <= 0x1f)
}

/// Returns the first position from `at` where `stops` (for 16 bytes) or `is_stop` (for a byte of the rest) matches.
#[inline(always)]
fn find_stop(text: &[u8], mut at: usize, stops: impl Fn(ByteLane) -> u16, is_stop: impl Fn(u8) -> bool) -> usize {
    while let Some(bytes) = load_lane(text, at) {
        let stops = stops(ByteLane::load(bytes));
        if stops != 0 {
            return at + stops.trailing_zeros() as usize;
        }
        at += LANE_BYTES;
    }
    let rest = text.get(at..).unwrap_or_default();
    rest.iter().position(|byte| is_stop(*byte)).map_or(text.len(), |found| at + found)
}

/// The position of the closing quote of a string. The string has no backslash if `is_plain` is true.
pub(super) struct StringEnd {
    pub quote: usize,
    pub is_plain: bool,
}

#[inline]
pub(super) fn find_string_end(text: &[u8], mut at: usize) -> StringEnd {
    let mut is_plain = true;
    loop {
        let stop = find_quote_or_backslash(text, at);
        match text.get(stop) {
            Some(b'\\') => {
                is_plain = false;
                at = stop + 2;
            }
            Some(_) => return StringEnd { quote: stop, is_plain },
            None => return StringEnd { quote: text.len(), is_plain },
        }
    }
}

#[inline]
fn find_quote_or_backslash(text: &[u8], at: usize) -> usize {
    find_stop(text, at, |lane| lane.eq_mask(b'"') | lane.eq_mask(b'\\'), |byte| byte == b'"' || byte == b'\\')
}

/// Returns the first position of one of two bytes, or `end`. Can load bytes after `end`, which is faster.
#[inline]
pub fn find_either_byte(text: &[u8], mut at: usize, end: usize, [one, other]: [u8; 2]) -> usize {
    while at < end {
        let Some(bytes) = load_lane(text, at) else {
            let mut rest = text.iter().take(end).skip(at);
            return rest.position(|&byte| byte == one || byte == other).map_or(end, |found| at + found);
        };
        let lane = ByteLane::load(bytes);
        let stops = lane.eq_mask(one) | lane.eq_mask(other);
        if stops != 0 {
            return end.min(at + stops.trailing_zeros() as usize);
        }
        at += LANE_BYTES;
    }
    end
}

/// Returns the first position from `at` with a byte that XML might not allow. U+FFFE and U+FFFF begin with 0xEF.
#[inline]
pub fn find_xml_special(text: &[u8], at: usize) -> usize {
    let stops = |lane: ByteLane| {
        lane.eq_mask(b'&') | lane.eq_mask(b'<') | lane.eq_mask(b'>') | lane.eq_mask(0xef) | lane.le_mask(0x1f)
    };
    find_stop(text, at, stops, |byte| matches!(byte, b'&' | b'<' | b'>' | 0xef | ..=0x1f))
}

#[inline]
pub(super) fn ascii_prefix_len(text: &[u8]) -> usize {
    find_stop(text, 0, ByteLane::non_ascii_mask, |byte| !byte.is_ascii())
}

/// Returns the position after the bracket that closes the outermost of `depth` open brackets, or the length of the
/// text. `at` must be outside of strings. If `depth` is 0, the first bracket must be an opening one.
pub(super) fn find_container_end(text: &[u8], at: usize, depth: usize) -> usize {
    let mut nesting = BracketNesting { depth, strings: StringState::default() };
    nesting.find_end(text, at, usize::MAX).ok().flatten().unwrap_or(text.len())
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BracketNesting {
    depth: usize,
    strings: StringState,
}

impl BracketNesting {
    /// Returns the position after the bracket that closes the outermost open bracket, or `None` if the text ends first.
    /// The error is the position of a bracket that nests deeper than `max_depth`.
    #[inline]
    pub(super) fn find_end(&mut self, text: &[u8], mut at: usize, max_depth: usize) -> Result<Option<usize>, usize> {
        loop {
            let (bytes, length) = load_block(text, at);
            if length == 0 {
                return Ok(None);
            }
            let block = StructuralMasks::from_bytes(&bytes);
            let outside = !self.strings.string_mask(&block, length);
            let open = block.open & outside;
            let close = block.close & outside;
            let opened = open.count_ones() as usize;
            let closed = close.count_ones() as usize;
            if self.depth > closed && self.depth.saturating_add(opened) <= max_depth {
                self.depth = self.depth + opened - closed;
            } else if let Some(end) = self.step_brackets(open, close, at, max_depth)? {
                return Ok(Some(end));
            }
            at += length;
        }
    }

    /// Counts the brackets of the block at `at`. It can contain the end of the value, or nest deeper than `max_depth`.
    #[inline]
    fn step_brackets(&mut self, open: u64, close: u64, at: usize, max_depth: usize) -> Result<Option<usize>, usize> {
        let mut brackets = open | close;
        while brackets != 0 {
            let bracket = brackets & brackets.wrapping_neg();
            let position = at + bracket.trailing_zeros() as usize;
            if open & bracket != 0 {
                self.depth += 1;
                if self.depth > max_depth {
                    return Err(position);
                }
            } else {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Ok(Some(position + 1));
                }
            }
            brackets ^= bracket;
        }
        Ok(None)
    }
}

/// Returns the 64 bytes from `at`, padded with spaces at the end of the text, and the number of bytes from the text.
#[inline]
pub(super) fn load_block(text: &[u8], at: usize) -> ([u8; BLOCK_BYTES], usize) {
    let rest = text.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => (*bytes, BLOCK_BYTES),
        None => {
            let mut bytes = [b' '; BLOCK_BYTES];
            bytes[..rest.len()].copy_from_slice(rest);
            (bytes, rest.len())
        }
    }
}

#[inline]
fn load_lane(text: &[u8], at: usize) -> Option<&[u8; LANE_BYTES]> {
    text.get(at..)?.first_chunk()
}

/// The structural characters of 64 bytes: one bit per byte, the lowest bit for the first byte.
pub(super) struct StructuralMasks {
    pub quote: u64,
    pub backslash: u64,
    pub open: u64,
    pub close: u64,
    pub comma: u64,
    pub colon: u64,
}

impl StructuralMasks {
    #[inline]
    pub(super) fn from_bytes(bytes: &[u8; BLOCK_BYTES]) -> StructuralMasks {
        let mut block = StructuralMasks { quote: 0, backslash: 0, open: 0, close: 0, comma: 0, colon: 0 };
        for (number, bytes) in bytes.as_chunks::<LANE_BYTES>().0.iter().enumerate() {
            let shift = number * LANE_BYTES;
            let lane = ByteLane::load(bytes);
            // Brackets and braces differ only in the bit 0x20.
            let brackets = lane.or_byte(0x20);
            block.quote |= u64::from(lane.eq_mask(b'"')) << shift;
            block.backslash |= u64::from(lane.eq_mask(b'\\')) << shift;
            block.open |= u64::from(brackets.eq_mask(b'{')) << shift;
            block.close |= u64::from(brackets.eq_mask(b'}')) << shift;
            block.comma |= u64::from(lane.eq_mask(b',')) << shift;
            block.colon |= u64::from(lane.eq_mask(b':')) << shift;
        }
        block
    }
}

/// The state between two blocks of 64 bytes: whether the next block starts inside a string, and with an escaped byte.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StringState {
    /// All ones if the next block starts inside a string, otherwise 0.
    in_string: u64,
    /// 1 if the first byte of the next block is escaped, otherwise 0.
    escape_next: u64,
}

impl StringState {
    /// Returns the bytes of the next block that are inside strings, including opening but not closing quotes.
    #[inline]
    pub(super) fn string_mask(&mut self, block: &StructuralMasks, length: usize) -> u64 {
        let escaped = self.escaped_mask(block.backslash, length);
        let quotes = block.quote & !escaped;
        let in_string = prefix_xor(quotes) ^ self.in_string;
        // Padding contains no quotes, so the last bit is the state after the last byte of the text.
        self.in_string = ((in_string as i64) >> 63) as u64;
        in_string
    }

    /// Returns the bytes that follow an unescaped backslash.
    #[inline]
    fn escaped_mask(&mut self, backslash: u64, length: usize) -> u64 {
        if backslash == 0 {
            return std::mem::take(&mut self.escape_next);
        }
        // In a run of backslashes, every second byte is escaped, so only the parity of the run's start matters. Adding
        // the starts at odd positions to the runs produces a carry at the end of each such run.
        const EVEN_BITS: u64 = 0x5555_5555_5555_5555;
        let backslash = backslash & !self.escape_next;
        let follows = backslash << 1 | self.escape_next;
        let odd_starts = backslash & !EVEN_BITS & !follows;
        let (carried, overflow) = odd_starts.overflowing_add(backslash);
        let escaped = (EVEN_BITS ^ (carried << 1)) & follows;
        self.escape_next = if length == BLOCK_BYTES { u64::from(overflow) } else { escaped >> length & 1 };
        escaped
    }
}

/// Returns a number in which bit `i` is the parity of the bits up to and including `i`.
#[inline]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    };

    /// 16 bytes in a vector register. Masks have one bit per byte, the lowest bit for the first byte.
    #[derive(Clone, Copy)]
    pub(crate) struct ByteLane(__m128i);

    impl ByteLane {
        #[inline]
        pub(crate) fn load(bytes: &[u8; 16]) -> ByteLane {
            // SAFETY: SSE2 is in the x86-64 baseline. The load reads the 16 bytes of `bytes`, and needs no alignment.
            ByteLane(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
        }

        #[inline]
        pub(crate) fn eq_mask(self, byte: u8) -> u16 {
            // SAFETY: SSE2 belongs to the x86-64 baseline, and these instructions access no memory.
            unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, _mm_set1_epi8(byte as i8))) as u16 }
        }

        #[inline]
        pub(crate) fn le_mask(self, byte: u8) -> u16 {
            // SAFETY: SSE2 belongs to the x86-64 baseline, and these instructions access no memory.
            unsafe {
                let min = _mm_min_epu8(self.0, _mm_set1_epi8(byte as i8));
                _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, min)) as u16
            }
        }

        #[inline]
        pub(crate) fn non_ascii_mask(self) -> u16 {
            // SAFETY: SSE2 belongs to the x86-64 baseline, and the instruction accesses no memory.
            unsafe { _mm_movemask_epi8(self.0) as u16 }
        }

        #[inline]
        pub(crate) fn or_byte(self, byte: u8) -> ByteLane {
            // SAFETY: SSE2 belongs to the x86-64 baseline, and these instructions access no memory.
            ByteLane(unsafe { _mm_or_si128(self.0, _mm_set1_epi8(byte as i8)) })
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    const LOW_BITS: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = LOW_BITS << 7;

    /// 16 bytes as two words. Masks have one bit per byte, the lowest bit for the first byte.
    #[derive(Clone, Copy)]
    pub(crate) struct ByteLane([u64; 2]);

    impl ByteLane {
        #[inline]
        pub(crate) fn load(bytes: &[u8; 16]) -> ByteLane {
            let both = u128::from_le_bytes(*bytes);
            ByteLane([both as u64, (both >> 64) as u64])
        }

        #[inline]
        pub(crate) fn eq_mask(self, byte: u8) -> u16 {
            // The high bit of each byte that equals `byte` is set. The result is exact, because no carry leaves a byte.
            self.movemask(|word| {
                let word = word ^ (LOW_BITS * u64::from(byte));
                !(((word & !HIGH_BITS) + !HIGH_BITS) | word)
            })
        }

        #[inline]
        pub(crate) fn le_mask(self, byte: u8) -> u16 {
            debug_assert!(byte < 0x80, "the sum below must stay within a byte");
            // A byte exceeds `byte` if its low seven bits plus `0x7f - byte` reach 0x80, or if its high bit is set.
            self.movemask(|word| !(((word & !HIGH_BITS) + LOW_BITS * u64::from(0x7f - byte)) | word))
        }

        #[inline]
        pub(crate) fn non_ascii_mask(self) -> u16 {
            self.movemask(|word| word)
        }

        #[inline]
        pub(crate) fn or_byte(self, byte: u8) -> ByteLane {
            ByteLane(self.0.map(|word| word | (LOW_BITS * u64::from(byte))))
        }

        #[inline]
        fn movemask(self, marked: impl Fn(u64) -> u64) -> u16 {
            let [first, second] =
                self.0.map(|word| ((marked(word) & HIGH_BITS) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56);
            (first | second << 8) as u16
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mask_of(bytes: &[u8], is: impl Fn(u8) -> bool) -> u64 {
        bytes.iter().enumerate().fold(0, |bits, (at, &byte)| bits | u64::from(is(byte)) << at)
    }

    fn byte_strategy(length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            any::<u8>(),
            prop::sample::select(br#""\{}[],: a"#.as_slice()),
            Just(b'\\'),
            prop::sample::select(&[0x1f_u8, 0x20, 0x7f, 0x80, 0xef, 0xff, b'&', b'<', b'>']),
        ];
        prop::collection::vec(byte, length)
    }

    proptest! {
        #[test]
        fn lane_masks_match_byte_comparisons(bytes in byte_strategy(16), byte in any::<u8>()) {
            let bytes: &[u8; 16] = bytes.first_chunk().expect("failed to get 16 bytes");
            macro_rules! check {
                ($lane:ty) => {
                    let lane = <$lane>::load(bytes);
                    prop_assert_eq!(u64::from(lane.eq_mask(byte)), mask_of(bytes, |other| other == byte));
                    prop_assert_eq!(u64::from(lane.eq_mask(b'"')), mask_of(bytes, |other| other == b'"'));
                    prop_assert_eq!(u64::from(lane.le_mask(0x1f)), mask_of(bytes, |other| other <= 0x1f));
                    prop_assert_eq!(u64::from(lane.non_ascii_mask()), mask_of(bytes, |other| other >= 0x80));
                    prop_assert_eq!(u64::from(lane.or_byte(0x20).eq_mask(b'{')), mask_of(bytes, |other| other | 0x20 == b'{'));
                };
            }
            check!(ByteLane);
            check!(portable::ByteLane);
        }

        #[test]
        fn searches_match_naive_search(bytes in byte_strategy(0..200), at in 0..220_usize) {
            let naive = |is: fn(u8) -> bool| {
                (at..bytes.len()).find(|&at| is(bytes[at])).unwrap_or(bytes.len())
            };
            let stop = naive(|byte| matches!(byte, b'"' | b'\\' | ..=0x1f));
            prop_assert_eq!(find_quote_backslash_or_control(&bytes, at), stop);
            prop_assert_eq!(find_quote_or_backslash(&bytes, at), naive(|byte| matches!(byte, b'"' | b'\\')));
            let end = bytes.len().saturating_sub(at % 40);
            let either = (at..end).find(|&at| matches!(bytes[at], b',' | b'\\')).unwrap_or(end);
            prop_assert_eq!(find_either_byte(&bytes, at, end, [b',', b'\\']), either);
            let markup = naive(|byte| matches!(byte, b'&' | b'<' | b'>' | 0xef | ..=0x1f));
            prop_assert_eq!(find_xml_special(&bytes, at), markup);
            let ascii = bytes.iter().take_while(|byte| byte.is_ascii()).count();
            prop_assert_eq!(ascii_prefix_len(&bytes), ascii);
        }

        #[test]
        fn string_masks_match_naive_scan(bytes in byte_strategy(0..300), sizes in prop::collection::vec(1..=64_usize, 1..10)) {
            let mut naive = Vec::new();
            let mut in_string = false;
            let mut escape = false;
            for &byte in &bytes {
                let quote = byte == b'"' && !escape;
                escape = byte == b'\\' && !escape;
                in_string ^= quote;
                naive.push(in_string);
            }
            let mut fast = Vec::new();
            let mut strings = StringState::default();
            let mut at = 0;
            for size in sizes.iter().cycle() {
                let (block, length) = load_block(&bytes[..bytes.len().min(at + size)], at);
                if length == 0 {
                    break;
                }
                let in_string = strings.string_mask(&StructuralMasks::from_bytes(&block), length);
                fast.extend((0..length).map(|at| in_string >> at & 1 == 1));
                at += length;
            }
            prop_assert_eq!(fast, naive);
        }
    }
}
