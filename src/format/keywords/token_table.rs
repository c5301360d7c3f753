//! Distinct tokens of each field in a run that is being built, each with a number.
//!
//! The table uses open addressing with 64-bit slots: half of the hash, and the number of the token. The hash seed is
//! random, so that sources cannot choose colliding tokens, but the numbers and the segment do not depend on it.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::keywords::tokenizer::TokenClass;

/// Tokens of at most this length are stored in their table entry, so that most lookups need no other memory.
const INLINE_TOKEN_BYTES: usize = 16;

pub(super) struct TokenEntry {
    /// The bytes of a short token, padded with zeros. For a long token, its offset in `long_tokens`, and 0.
    key: [u64; 2],
    last_row: u32,
    pub row_count: u32,
    length: u8,
    pub field: u8,
    pub class: TokenClass,
}

impl TokenEntry {
    fn length_and_field(&self) -> u64 {
        u64::from(self.length) | u64::from(self.field) << 8
    }

    #[inline]
    fn record_row_if_new(&mut self, row: u32) -> bool {
        let is_new = self.last_row != row;
        self.last_row = row;
        self.row_count += u32::from(is_new);
        is_new
    }
}

pub(super) const PROBE_BATCH: usize = 64;

/// A token of a row: the first `length` bytes of `from`, at most 255, in a field. `from` may continue after the token,
/// because longer slices allow faster unaligned loads.
#[derive(Clone, Copy, Default)]
pub(super) struct BatchToken<'a> {
    pub(super) from: &'a [u8],
    pub(super) length: usize,
    pub(super) field: u8,
}

impl<'a> BatchToken<'a> {
    fn bytes(&self) -> &'a [u8] {
        self.from.get(..self.length).unwrap_or_default()
    }

    /// Length and field in one integer, which takes one comparison.
    fn length_and_field(&self) -> u64 {
        self.length as u64 | u64::from(self.field) << 8
    }
}

const NOT_FOUND: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct TokenProbe {
    key: [u64; 2],
    hash: u64,
    slot: u64,
    /// The number of the token in the slot if it is short and equals the searched token, otherwise `NOT_FOUND`.
    found: u32,
}

impl Default for TokenProbe {
    fn default() -> Self {
        TokenProbe { key: [0; 2], hash: 0, slot: 0, found: NOT_FOUND }
    }
}

pub(super) struct TokenTable {
    seed: u64,
    /// Hash table slots. The high half has bits of the hash; the low half has the token number plus 1, or 0 if empty.
    slots: Vec<u64>,
    pub(super) tokens: Vec<TokenEntry>,
    long_tokens: Vec<u8>,
}

impl Default for TokenTable {
    fn default() -> TokenTable {
        const INITIAL_SLOTS: usize = 1 << 12;
        let seed = RandomState::new().build_hasher().finish();
        TokenTable { seed, slots: vec![0; INITIAL_SLOTS], tokens: Vec::new(), long_tokens: Vec::new() }
    }
}

impl TokenTable {
    /// Adds tokens of a row to the table. Appends to `numbers` the numbers of the tokens that the row did not contain
    /// before in the same field. Large tables exceed the processor's caches. Therefore, the slots and entries of a
    /// batch are loaded in parallel before the first of them is compared.
    pub(super) fn insert_batch(&mut self, tokens: &[BatchToken<'_>], row: u32, numbers: &mut Vec<u32>) {
        let mut probes = [TokenProbe::default(); PROBE_BATCH];
        for tokens in tokens.chunks(PROBE_BATCH) {
            let probes = &mut probes[..tokens.len()];
            for (probe, token) in probes.iter_mut().zip(tokens) {
                let key = match token.from.first_chunk::<INLINE_TOKEN_BYTES>() {
                    Some(sixteen) => masked_key(sixteen, token.length),
                    None => token_key(token.bytes()),
                };
                let hash = self.hash(key, token.length_and_field(), token.bytes());
                *probe = TokenProbe { key, hash, ..TokenProbe::default() };
            }
            let mask = self.slots.len() - 1;
            for probe in probes.iter_mut() {
                probe.slot = self.slots.get(probe.hash as usize & mask).copied().unwrap_or_default();
            }
            for (probe, token) in probes.iter_mut().zip(tokens) {
                let number = (probe.slot as u32).wrapping_sub(1);
                // Without branches on `difference`, the processor continues with next tokens while it loads this entry.
                if let Some(entry) = self.tokens.get(number as usize) {
                    let difference = (entry.key[0] ^ probe.key[0])
                        | (entry.key[1] ^ probe.key[1])
                        | (entry.length_and_field() ^ token.length_and_field());
                    let is_inline = token.length <= INLINE_TOKEN_BYTES;
                    probe.found = if (difference == 0) & is_inline { number } else { NOT_FOUND };
                }
            }
            for (probe, token) in probes.iter().zip(tokens) {
                let number = match self.tokens.get_mut(probe.found as usize) {
                    Some(entry) => entry.record_row_if_new(row).then_some(probe.found),
                    None => self.find_or_insert(probe, token, row),
                };
                numbers.extend(number);
            }
        }
    }

    #[inline]
    fn find_or_insert(&mut self, probe: &TokenProbe, token: &BatchToken<'_>, row: u32) -> Option<u32> {
        let TokenProbe { key, hash, .. } = *probe;
        let bytes = token.bytes();
        let mask = self.slots.len() - 1;
        let high = hash & HASH_HIGH_MASK;
        let mut slot = hash as usize & mask;
        loop {
            let slot_value = self.slots.get_mut(slot)?;
            if *slot_value == 0 {
                let number = self.tokens.len() as u32;
                *slot_value = high | u64::from(number + 1);
                self.append_token(key, token, row);
                return Some(number);
            }
            if *slot_value & HASH_HIGH_MASK == high {
                let number = *slot_value as u32 - 1;
                if let Some(entry) = self.tokens.get_mut(number as usize)
                    && entry.length_and_field() == token.length_and_field()
                    && match bytes.len() {
                        ..=INLINE_TOKEN_BYTES => entry.key == key,
                        _ => self.long_tokens.get(entry.key[0] as usize..).is_some_and(|long| long.starts_with(bytes)),
                    }
                {
                    return entry.record_row_if_new(row).then_some(number);
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    #[cold]
    fn append_token(&mut self, mut key: [u64; 2], token: &BatchToken<'_>, row: u32) {
        let bytes = token.bytes();
        if bytes.len() > INLINE_TOKEN_BYTES {
            key = [self.long_tokens.len() as u64, 0];
            self.long_tokens.extend_from_slice(bytes);
        }
        self.tokens.push(TokenEntry {
            key,
            last_row: row,
            row_count: 1,
            length: bytes.len() as u8,
            field: token.field,
            class: TokenClass::from_token(bytes),
        });
        // The load factor of the hash table stays below one half, so that probe sequences are short.
        if self.tokens.len() * 2 > self.slots.len() {
            let mask = self.slots.len() * 2 - 1;
            let mut slots = vec![0; mask + 1];
            for (number, entry) in self.tokens.iter().enumerate() {
                let length_and_field = entry.length_and_field();
                let hash = match usize::from(entry.length) {
                    ..=INLINE_TOKEN_BYTES => self.hash(entry.key, length_and_field, &[]),
                    _ => {
                        let bytes = self.long_token_bytes(entry);
                        self.hash(self::token_key(bytes), length_and_field, bytes)
                    }
                };
                let mut index = hash as usize & mask;
                while slots.get(index).is_some_and(|slot| *slot != 0) {
                    index = (index + 1) & mask;
                }
                if let Some(slot) = slots.get_mut(index) {
                    *slot = (hash & HASH_HIGH_MASK) | (number as u64 + 1);
                }
            }
            self.slots = slots;
        }
    }

    pub(super) fn append_token_bytes(&self, entry: &TokenEntry, out: &mut Vec<u8>) {
        match usize::from(entry.length) {
            length @ ..=INLINE_TOKEN_BYTES => {
                out.extend(entry.key.iter().flat_map(|half| half.to_le_bytes()).take(length))
            }
            _ => out.extend_from_slice(self.long_token_bytes(entry)),
        }
    }

    fn long_token_bytes(&self, entry: &TokenEntry) -> &[u8] {
        let from = self.long_tokens.get(entry.key[0] as usize..).unwrap_or_default();
        from.get(..usize::from(entry.length)).unwrap_or_default()
    }

    /// Compares the bytes of two tokens.
    pub(super) fn compare(&self, left: &TokenEntry, right: &TokenEntry) -> Ordering {
        // No token contains a byte 0, so a token padded with zeros sorts before longer tokens that begin with it.
        let first = |entry: &TokenEntry| match usize::from(entry.length) {
            ..=INLINE_TOKEN_BYTES => entry.key,
            _ => token_key(self.long_token_bytes(entry)),
        };
        let order = first(left).map(u64::swap_bytes).cmp(&first(right).map(u64::swap_bytes));
        order.then_with(|| {
            let rest = |entry: &TokenEntry| match usize::from(entry.length) {
                ..=INLINE_TOKEN_BYTES => &[],
                _ => self.long_token_bytes(entry),
            };
            rest(left).cmp(rest(right))
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let entries = self.tokens.capacity() * size_of::<TokenEntry>();
        self.slots.capacity() * size_of::<u64>() + entries + self.long_tokens.capacity()
    }

    /// Hashes a token by folded multiplication, as in wyhash and foldhash.
    #[inline]
    fn hash(&self, key: [u64; 2], length_and_field: u64, bytes: &[u8]) -> u64 {
        let mut hash = folded_multiply(
            key[0] ^ self.seed,
            key[1] ^ length_and_field.wrapping_mul(HASH_MULTIPLIER) ^ self.seed.rotate_left(32),
        );
        for rest in bytes.get(INLINE_TOKEN_BYTES..).unwrap_or_default().chunks(INLINE_TOKEN_BYTES) {
            let key = self::token_key(rest);
            hash = folded_multiply(key[0] ^ hash, key[1] ^ self.seed);
        }
        folded_multiply(hash, HASH_MULTIPLIER ^ self.seed)
    }
}

const HASH_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const HASH_HIGH_MASK: u64 = !(u32::MAX as u64);

#[inline]
fn folded_multiply(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn token_key(bytes: &[u8]) -> [u64; 2] {
    match bytes.first_chunk() {
        Some(sixteen) => masked_key(sixteen, INLINE_TOKEN_BYTES),
        None => {
            let mut sixteen = [0; INLINE_TOKEN_BYTES];
            sixteen[..bytes.len()].copy_from_slice(bytes);
            masked_key(&sixteen, INLINE_TOKEN_BYTES)
        }
    }
}

/// Like [`token_key`] for the first `length` bytes of `sixteen`, without unpredictable branches on the length.
#[inline]
fn masked_key(sixteen: &[u8; INLINE_TOKEN_BYTES], length: usize) -> [u64; 2] {
    let mask = u128::MAX >> (u128::BITS as usize - 8 * length.clamp(1, INLINE_TOKEN_BYTES));
    let key = u128::from_le_bytes(*sixteen) & mask;
    [key as u64, (key >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn table_matches_naive_implementation(fields in 1..4_u8, rows in proptest::collection::vec(proptest::collection::vec(proptest::collection::vec(1u8..4, 1..40), 0..160), 0..60)) {
            let mut table = TokenTable::default();
            let mut expected_tokens: Vec<((&[u8], u8), u32)> = Vec::new();
            for (row, tokens) in rows.iter().enumerate() {
                let padded: Vec<Vec<u8>> =
                    tokens.iter().map(|token| [token.as_slice(), &[7; 20][..token.len() % 20]].concat()).collect();
                let field = |number: usize| number as u8 % fields;
                let batch: Vec<BatchToken<'_>> = padded
                    .iter()
                    .zip(tokens)
                    .enumerate()
                    .map(|(number, (from, token))| BatchToken { from, length: token.len(), field: field(number) })
                    .collect();
                let mut numbers = Vec::new();
                table.insert_batch(&batch, row as u32, &mut numbers);
                let mut seen: Vec<(&[u8], u8)> = Vec::new();
                let mut expected: Vec<u32> = Vec::new();
                for (number, token) in tokens.iter().enumerate() {
                    let token = (token.as_slice(), field(number));
                    if seen.contains(&token) {
                        continue;
                    }
                    seen.push(token);
                    let number = expected_tokens.iter().position(|(other, _)| *other == token);
                    let number = number.unwrap_or_else(|| { expected_tokens.push((token, 0)); expected_tokens.len() - 1 });
                    expected_tokens[number].1 += 1;
                    expected.push(number as u32);
                }
                prop_assert_eq!(numbers, expected);
            }
            prop_assert_eq!(table.tokens.len(), expected_tokens.len());
            for (entry, ((bytes, field), count)) in table.tokens.iter().zip(&expected_tokens) {
                let mut written = Vec::new();
                table.append_token_bytes(entry, &mut written);
                prop_assert_eq!((written.as_slice(), entry.field), (*bytes, *field));
                prop_assert_eq!(entry.row_count, *count);
            }
            for pair in (0..expected_tokens.len()).collect::<Vec<_>>().windows(2) {
                let order = table.compare(&table.tokens[pair[0]], &table.tokens[pair[1]]);
                prop_assert_eq!(order, expected_tokens[pair[0]].0.0.cmp(expected_tokens[pair[1]].0.0));
            }
        }
    }
}
