//! Finds the bytes that matter in JSON text, many at a time.
//!
//! Everything fast in this module tree rests on three searches:
//!
//! - [`string_stop`]: the next byte in a string that is not plain text, for untrusted input;
//! - [`string_end`]: the closing quote of a string, for canonical text;
//! - [`Block`] with [`StringState`]: the structural characters of 64 bytes as bit sets, and which of them stand inside
//!   a string (the method of Langdale and Lemire, "Parsing Gigabytes of JSON per Second", 2019, section 3.1).
//!
//! They are written over a [`Lane`] of 16 bytes, which is SSE2 on x86-64 and arithmetic on words elsewhere.
//!
//! Measured by `benches/instructions`.

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::Lane;
#[cfg(target_arch = "x86_64")]
pub(super) use sse2::Lane;

pub(super) const BLOCK_BYTES: usize = 64;

pub(super) const LANE_BYTES: usize = 16;

/// The first position from `at` on that holds a quote, a backslash or a control character; the length if none does.
#[inline]
pub(super) fn string_stop(text: &[u8], at: usize) -> usize {
    let stops = |lane: Lane| lane.equal(b'"') | lane.equal(b'\\') | lane.at_most(0x1f);
    find(text, at, stops, |byte| byte == b'"' || byte == b'\\' || byte <= 0x1f)
}

/// The first position from `at` on that a search for single bytes stops at, 16 bytes at a time and then one by one; the
/// length if it does nowhere.
#[inline(always)]
fn find(text: &[u8], mut at: usize, stops: impl Fn(Lane) -> u16, is_stop: impl Fn(u8) -> bool) -> usize {
    while let Some(bytes) = lane_at(text, at) {
        let stops = stops(Lane::load(bytes));
        if stops != 0 {
            return at + stops.trailing_zeros() as usize;
        }
        at += LANE_BYTES;
    }
    let rest = text.get(at..).unwrap_or_default();
    rest.iter().position(|byte| is_stop(*byte)).map_or(text.len(), |found| at + found)
}

/// The position of the quote that closes the string whose inside starts at `at`, or the length if it is not closed.
/// Also whether the inside has no backslash.
#[inline]
pub(super) fn string_end(text: &[u8], mut at: usize) -> (usize, bool) {
    let mut plain = true;
    loop {
        let stop = quote_or_backslash(text, at);
        match text.get(stop) {
            Some(b'\\') => {
                plain = false;
                at = stop + 2;
            }
            Some(_) => return (stop, plain),
            None => return (text.len(), plain),
        }
    }
}

#[inline]
fn quote_or_backslash(text: &[u8], at: usize) -> usize {
    find(text, at, |lane| lane.equal(b'"') | lane.equal(b'\\'), |byte| byte == b'"' || byte == b'\\')
}

/// The first position from `at` on that holds one of two bytes; `end` if none before it does. Strings are short: that a
/// few bytes behind `end` are looked at, too, is faster than a search of the part alone.
#[inline]
pub fn find_either(text: &[u8], mut at: usize, end: usize, [one, other]: [u8; 2]) -> usize {
    while at < end {
        let Some(bytes) = lane_at(text, at) else {
            let mut rest = text.iter().take(end).skip(at);
            return rest.position(|&byte| byte == one || byte == other).map_or(end, |found| at + found);
        };
        let lane = Lane::load(bytes);
        let stops = lane.equal(one) | lane.equal(other);
        if stops != 0 {
            return end.min(at + stops.trailing_zeros() as usize);
        }
        at += LANE_BYTES;
    }
    end
}

/// The first position from `at` on that holds a byte that text in XML may not have: `&`, `<`, `>`, a control character,
/// or the first byte of U+FFFE and U+FFFF, which others have, too. The length if none does.
#[inline]
pub fn find_markup(text: &[u8], at: usize) -> usize {
    let stops =
        |lane: Lane| lane.equal(b'&') | lane.equal(b'<') | lane.equal(b'>') | lane.equal(0xef) | lane.at_most(0x1f);
    find(text, at, stops, |byte| matches!(byte, b'&' | b'<' | b'>' | 0xef | ..=0x1f))
}

/// The length of the ASCII text at the start of `text`.
#[inline]
pub(super) fn ascii_length(text: &[u8]) -> usize {
    find(text, 0, Lane::not_ascii, |byte| !byte.is_ascii())
}

/// The position after the bracket that closes the outermost of `depth` open brackets, given that `at` is outside of
/// strings; the length if there is none. With `depth` 0, the first bracket must be an opening one.
pub(super) fn container_end(text: &[u8], at: usize, depth: usize) -> usize {
    let mut nesting = Nesting { depth, strings: StringState::default() };
    nesting.end(text, at, usize::MAX).ok().flatten().unwrap_or(text.len())
}

/// The brackets that are open after the text so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nesting {
    depth: usize,
    strings: StringState,
}

impl Nesting {
    /// The position after the bracket that closes the outermost open one, in a text that continues at `at`; `None` if
    /// the text ends before.
    ///
    /// # Errors
    /// The position of a bracket that nests deeper than `most`.
    #[inline]
    pub(super) fn end(&mut self, text: &[u8], mut at: usize, most: usize) -> Result<Option<usize>, usize> {
        loop {
            let (bytes, length) = block_at(text, at);
            if length == 0 {
                return Ok(None);
            }
            let block = Block::read(&bytes);
            let outside = !self.strings.advance(&block, length);
            let open = block.open & outside;
            let close = block.close & outside;
            let opened = open.count_ones() as usize;
            let closed = close.count_ones() as usize;
            if self.depth > closed && self.depth.saturating_add(opened) <= most {
                self.depth = self.depth + opened - closed;
            } else if let Some(end) = self.take_brackets(open, close, at, most)? {
                return Ok(Some(end));
            }
            at += length;
        }
    }

    /// Takes the brackets of the block at `at`, which may hold the end or nest too deep, one by one.
    #[inline]
    fn take_brackets(&mut self, open: u64, close: u64, at: usize, most: usize) -> Result<Option<usize>, usize> {
        let mut brackets = open | close;
        while brackets != 0 {
            let bracket = brackets & brackets.wrapping_neg();
            let position = at + bracket.trailing_zeros() as usize;
            if open & bracket != 0 {
                self.depth += 1;
                if self.depth > most {
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

/// The 64 bytes from `at` on, padded with blanks at the end of the text, and how many are the text's.
#[inline]
pub(super) fn block_at(text: &[u8], at: usize) -> ([u8; BLOCK_BYTES], usize) {
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
fn lane_at(text: &[u8], at: usize) -> Option<&[u8; LANE_BYTES]> {
    text.get(at..)?.first_chunk()
}

/// The places of JSON's structural characters in 64 bytes: one bit per byte, the lowest for the first.
pub(super) struct Block {
    /// `"`, escaped or not.
    pub quote: u64,
    pub backslash: u64,
    pub open: u64,
    pub close: u64,
    pub comma: u64,
    pub colon: u64,
}

impl Block {
    #[inline]
    pub(super) fn read(bytes: &[u8; BLOCK_BYTES]) -> Block {
        let mut block = Block { quote: 0, backslash: 0, open: 0, close: 0, comma: 0, colon: 0 };
        for (number, bytes) in bytes.as_chunks::<LANE_BYTES>().0.iter().enumerate() {
            let shift = number * LANE_BYTES;
            let lane = Lane::load(bytes);
            // Brackets and braces differ in this bit only.
            let brackets = lane.or(0x20);
            block.quote |= u64::from(lane.equal(b'"')) << shift;
            block.backslash |= u64::from(lane.equal(b'\\')) << shift;
            block.open |= u64::from(brackets.equal(b'{')) << shift;
            block.close |= u64::from(brackets.equal(b'}')) << shift;
            block.comma |= u64::from(lane.equal(b',')) << shift;
            block.colon |= u64::from(lane.equal(b':')) << shift;
        }
        block
    }
}

/// The state after the blocks so far: whether the next one starts inside a string, and whether a backslash escapes its
/// first byte.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StringState {
    /// All ones inside a string, else 0.
    inside: u64,
    /// 1 when the next byte is escaped, else 0.
    escape: u64,
}

impl StringState {
    /// The bytes of the next block, of which `length` count, that are inside a string. The opening quote counts as
    /// inside, the closing one does not.
    #[inline]
    pub(super) fn advance(&mut self, block: &Block, length: usize) -> u64 {
        let escaped = self.escaped(block.backslash, length);
        let quotes = block.quote & !escaped;
        let inside = running_parity(quotes) ^ self.inside;
        // Padding holds no quote, so that the last bit speaks for the last byte that counts.
        self.inside = ((inside as i64) >> 63) as u64;
        inside
    }

    /// The bytes that a backslash escapes: the one after each backslash that is not escaped itself.
    #[inline]
    fn escaped(&mut self, backslash: u64, length: usize) -> u64 {
        if backslash == 0 {
            return std::mem::take(&mut self.escape);
        }
        // A run of backslashes escapes every second byte from its second on, so only the parity of its start matters:
        // adding the starts at odd positions to the runs carries out of each such run at its end.
        const EVEN: u64 = 0x5555_5555_5555_5555;
        let backslash = backslash & !self.escape;
        let follows = backslash << 1 | self.escape;
        let odd_starts = backslash & !EVEN & !follows;
        let (carried, overflow) = odd_starts.overflowing_add(backslash);
        let escaped = (EVEN ^ (carried << 1)) & follows;
        self.escape = if length == BLOCK_BYTES { u64::from(overflow) } else { escaped >> length & 1 };
        escaped
    }
}

/// Bit `i` is the parity of the bits up to and including `i`.
#[inline]
fn running_parity(mut bits: u64) -> u64 {
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

    /// 16 bytes in a vector register. Answers hold one bit a byte, the lowest for the first.
    #[derive(Clone, Copy)]
    pub(crate) struct Lane(__m128i);

    // SAFETY, for every block here: SSE2 belongs to the x86-64 baseline, and only `load` touches memory.
    impl Lane {
        #[inline]
        pub(crate) fn load(bytes: &[u8; 16]) -> Lane {
            // SAFETY: the reference is valid for the 16 bytes read, and this load needs no alignment.
            Lane(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
        }

        #[inline]
        pub(crate) fn equal(self, byte: u8) -> u16 {
            // SAFETY: see above.
            unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, _mm_set1_epi8(byte as i8))) as u16 }
        }

        #[inline]
        pub(crate) fn at_most(self, byte: u8) -> u16 {
            // SAFETY: see above.
            unsafe {
                let least = _mm_min_epu8(self.0, _mm_set1_epi8(byte as i8));
                _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, least)) as u16
            }
        }

        #[inline]
        pub(crate) fn not_ascii(self) -> u16 {
            // SAFETY: see above.
            unsafe { _mm_movemask_epi8(self.0) as u16 }
        }

        #[inline]
        pub(crate) fn or(self, byte: u8) -> Lane {
            // SAFETY: see above.
            Lane(unsafe { _mm_or_si128(self.0, _mm_set1_epi8(byte as i8)) })
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;

    /// 16 bytes as two words. Answers hold one bit a byte, the lowest for the first.
    #[derive(Clone, Copy)]
    pub(crate) struct Lane([u64; 2]);

    impl Lane {
        #[inline]
        pub(crate) fn load(bytes: &[u8; 16]) -> Lane {
            let both = u128::from_le_bytes(*bytes);
            Lane([both as u64, (both >> 64) as u64])
        }

        #[inline]
        pub(crate) fn equal(self, byte: u8) -> u16 {
            // The high bit of each byte that is zero, exactly: no carry leaves a byte.
            self.bits(|word| {
                let word = word ^ (LOW * u64::from(byte));
                !(((word & !HIGH) + !HIGH) | word)
            })
        }

        #[inline]
        pub(crate) fn at_most(self, byte: u8) -> u16 {
            debug_assert!(byte < 0x80, "the sum below must stay within a byte");
            // A byte is above when its low seven bits reach 0x80 with the rest added, or its high bit is set.
            self.bits(|word| !(((word & !HIGH) + LOW * u64::from(0x7f - byte)) | word))
        }

        #[inline]
        pub(crate) fn not_ascii(self) -> u16 {
            self.bits(|word| word)
        }

        #[inline]
        pub(crate) fn or(self, byte: u8) -> Lane {
            Lane(self.0.map(|word| word | (LOW * u64::from(byte))))
        }

        /// Gathers the high bits of the bytes of `marked`.
        #[inline]
        fn bits(self, marked: impl Fn(u64) -> u64) -> u16 {
            let [first, second] =
                self.0.map(|word| ((marked(word) & HIGH) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56);
            (first | second << 8) as u16
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(bytes: &[u8], is: impl Fn(u8) -> bool) -> u64 {
        bytes.iter().enumerate().fold(0, |bits, (at, &byte)| bits | u64::from(is(byte)) << at)
    }

    /// Bytes among which those that matter are frequent.
    fn text(length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
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
        fn lanes(bytes in text(16), byte in any::<u8>()) {
            let bytes: &[u8; 16] = bytes.first_chunk().expect("16 bytes");
            macro_rules! check {
                ($lane:ty) => {
                    let lane = <$lane>::load(bytes);
                    prop_assert_eq!(u64::from(lane.equal(byte)), bits(bytes, |other| other == byte));
                    prop_assert_eq!(u64::from(lane.equal(b'"')), bits(bytes, |other| other == b'"'));
                    prop_assert_eq!(u64::from(lane.at_most(0x1f)), bits(bytes, |other| other <= 0x1f));
                    prop_assert_eq!(u64::from(lane.not_ascii()), bits(bytes, |other| other >= 0x80));
                    prop_assert_eq!(u64::from(lane.or(0x20).equal(b'{')), bits(bytes, |other| other | 0x20 == b'{'));
                };
            }
            check!(Lane);
            check!(portable::Lane);
        }

        #[test]
        fn searches(bytes in text(0..200), at in 0..220_usize) {
            let naive = |is: fn(u8) -> bool| {
                (at..bytes.len()).find(|&at| is(bytes[at])).unwrap_or(bytes.len())
            };
            let stop = naive(|byte| matches!(byte, b'"' | b'\\' | ..=0x1f));
            prop_assert_eq!(string_stop(&bytes, at), stop);
            prop_assert_eq!(quote_or_backslash(&bytes, at), naive(|byte| matches!(byte, b'"' | b'\\')));
            let end = bytes.len().saturating_sub(at % 40);
            let either = (at..end).find(|&at| matches!(bytes[at], b',' | b'\\')).unwrap_or(end);
            prop_assert_eq!(find_either(&bytes, at, end, [b',', b'\\']), either);
            let markup = naive(|byte| matches!(byte, b'&' | b'<' | b'>' | 0xef | ..=0x1f));
            prop_assert_eq!(find_markup(&bytes, at), markup);
            let ascii = bytes.iter().take_while(|byte| byte.is_ascii()).count();
            prop_assert_eq!(ascii_length(&bytes), ascii);
        }

        #[test]
        fn strings_over_any_split(bytes in text(0..300), sizes in prop::collection::vec(1..=64_usize, 1..10)) {
            let mut naive = Vec::new();
            let mut inside = false;
            let mut escape = false;
            for &byte in &bytes {
                let quote = byte == b'"' && !escape;
                escape = byte == b'\\' && !escape;
                inside ^= quote;
                naive.push(inside);
            }
            let mut fast = Vec::new();
            let mut strings = StringState::default();
            let mut at = 0;
            for size in sizes.iter().cycle() {
                let (block, length) = block_at(&bytes[..bytes.len().min(at + size)], at);
                if length == 0 {
                    break;
                }
                let inside = strings.advance(&Block::read(&block), length);
                fast.extend((0..length).map(|at| inside >> at & 1 == 1));
                at += length;
            }
            prop_assert_eq!(fast, naive);
        }
    }
}
