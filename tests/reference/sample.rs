//! The sample for a seed (docs/reference/sort-and-dedup.md, sample), implemented literally.

/// SipHash-2-4 (Aumasson and Bernstein, 2012) of an 8-byte message with a key of two words.
pub fn sip_hash(key: [u64; 2], message: u64) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    // The message, then its length in the last byte of a word.
    for word in [message, 8 << 56] {
        v[3] ^= word;
        (0..2).for_each(|_| round(&mut v));
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    let mut add = |to: usize, from: usize, left: u32, then_left: u32| {
        v[to] = v[to].wrapping_add(v[from]);
        v[from] = v[from].rotate_left(left) ^ v[to];
        v[to] = v[to].rotate_left(then_left);
    };
    add(0, 1, 13, 32);
    add(2, 3, 16, 0);
    add(0, 3, 21, 0);
    add(2, 1, 17, 32);
}

/// Returns the `sample` entities with the lowest ranks, lowest first. Entities come with their positions.
pub fn draw<T>(mut entities: Vec<(u64, T)>, sample: u64, seed: u64) -> Vec<(u64, T)> {
    entities.sort_by_key(|(position, _)| (sip_hash([seed, 0], *position), *position));
    entities.truncate(usize::try_from(sample).unwrap_or(usize::MAX));
    entities
}
