//! The keyword index. Even first byte: a needle, then search texts of rows; what the index says is what a scan says.
//! Odd: entries of any bytes; they are refused, or give rows that there are.

use memchr::memmem;
use strata_format::keywords::cut::{Class, Plan};
use strata_format::keywords::segment::{
    Candidates, Entries, Header, Lengths, ListBytes, Part, Section, Sections, SegmentBuilder, SegmentLimits, find,
};

pub fn check(bytes: &[u8]) {
    match bytes.split_first() {
        Some((mode, rest)) if mode % 2 == 0 => built(*mode, rest),
        Some((mode, rest)) => any(*mode, rest),
        None => {}
    }
}

fn built(mode: u8, bytes: &[u8]) {
    let (needle, rows) = match memchr::memchr(b'\n', bytes) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    let rows: Vec<Vec<u8>> = rows
        .split(|byte| *byte == b'\n')
        .map(|row| [&[0xFF], row, &[0xFF]].concat())
        .cycle()
        .take(1 + usize::from(mode))
        .collect();
    let limits = SegmentLimits { share_percent: u64::MAX >> 20, text_bytes: 0, ..SegmentLimits::default() };
    let mut builder = SegmentBuilder::new(limits);
    rows.iter().for_each(|row| builder.push(row));
    let segment = builder.finish().expect("a segment");
    let entries = Class::ALL.map(|class| {
        let range = segment.header.entries_range(class);
        Entries::decode(&segment.header, class, &segment.bytes[range.start as usize..range.end as usize])
            .expect("entries")
    });
    let lists = Class::ALL.map(|class| {
        let range = segment.header.range(Section { class, part: Part::Lists });
        &segment.bytes[range.start as usize..range.end as usize]
    });
    let holds: Vec<bool> = rows.iter().map(|row| memmem::find(row, needle).is_some()).collect();
    match ask(&segment.header, &entries, lists, needle).expect("an answer") {
        Candidates::Exact(found) => (0..rows.len()).for_each(|row| assert_eq!(found.contains(row), holds[row])),
        Candidates::Candidates(found) => (0..rows.len()).for_each(|row| assert!(found.contains(row) || !holds[row])),
        Candidates::Scan => {}
    }
}

fn any(mode: u8, bytes: &[u8]) {
    let Some((numbers, rest)) = bytes.split_first_chunk::<8>() else { return };
    let number = |at: usize| u32::from(u16::from_le_bytes([numbers[at], numbers[at + 1]]));
    let words = Lengths { dictionary: number(0), texts: number(2), lists: number(4) };
    let header =
        Header::try_new(number(6) as usize, [words, Lengths::default(), Lengths::default()]).expect("a header");
    let Ok(entries) = Entries::decode(&header, Class::Words, rest) else { return };
    let empty = [Class::Digits, Class::Hexadecimal].map(|class| Entries::decode(&header, class, &[]).expect("none"));
    let [digits, hexadecimal] = empty;
    let entries = [entries, digits, hexadecimal];
    let needle = [&b"a"[..], b"b c", b"-", b"1"][usize::from(mode / 2) % 4];
    if let Ok(Candidates::Exact(found) | Candidates::Candidates(found)) = ask(&header, &entries, [rest; 3], needle) {
        assert!(found.ones().all(|row| row < header.rows()));
    }
}

fn ask(
    header: &Header,
    entries: &[Entries; 3],
    lists: [&[u8]; 3],
    needle: &[u8],
) -> Result<Candidates, strata_format::keywords::Damaged> {
    let lists = lists.map(|bytes| [ListBytes { start: 0, bytes }]);
    let sections = Sections { entries: entries.each_ref().map(Some), lists: lists.each_ref().map(|lists| &lists[..]) };
    let found = find(header, &Plan::of(needle), &sections)?;
    let mut candidates = None;
    for piece in 0..found.pieces() {
        candidates = found.narrow(candidates, piece, &sections)?;
    }
    Ok(found.conclude(candidates))
}
