//! Rows of search text to the bytes of a segment.
//!
//! Steps: cut each row into entries (as [`entries`](crate::keywords::cut::entries) does); number the distinct
//! ones, and keep their numbers row by row; at the end, sort the entries of two and more rows, turn rows of entries
//! into entries of rows, and write the sections.
//!
//! Long entries are not numbered: they hardly repeat, and are written as text where they stand.

use strata_json::for_each_piece;
use strata_store::checksums::checksum;

use super::layout::{BLOCK_BYTES, Header, Lengths, MAX_TEXT_BYTES, Part, Section, pack};
use super::table::{Entry, EntryTable, TOGETHER};
use crate::keywords::cut::Class;
use crate::keywords::postings::{self, MAX_ROWS};
use crate::layout::SEPARATOR;

const LONG_BYTES: usize = 64;

/// Hexadecimal entries from so many bytes on are kept as text: hashes and the like.
const LONG_HEXADECIMAL_BYTES: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct SegmentLimits {
    /// Rows after which a segment should end.
    pub rows: usize,
    /// Memory of the builder after which a segment should end. At twice of it, the builder gives up.
    pub memory_bytes: usize,
    /// A segment that takes more of the bytes of its search text, in percent, is left out.
    pub share_percent: u64,
    /// A segment of less search text is left out: a scan of it is as quick.
    pub text_bytes: u64,
}

impl Default for SegmentLimits {
    fn default() -> SegmentLimits {
        SegmentLimits { rows: 131_072, memory_bytes: 128 << 20, share_percent: 50, text_bytes: 1 << 20 }
    }
}

pub struct Segment {
    pub header: Header,
    pub bytes: Vec<u8>,
    /// The CRC-32 of each class's [entries](Header::entries_range).
    pub checksums: [u32; 3],
}

#[derive(Default)]
pub struct SegmentBuilder {
    limits: SegmentLimits,
    table: EntryTable,
    /// Numbers of the entries of the rows, one row after the other.
    numbers: Vec<u32>,
    ends: Vec<u32>,
    long: [LongTexts; 3],
    text_bytes: u64,
    given_up: bool,
}

/// Long entries of rows, each with a separator behind it.
#[derive(Default)]
struct LongTexts {
    bytes: Vec<u8>,
    /// For each row that has some: the row, and where its bytes end.
    ends: Vec<(u32, usize)>,
}

impl LongTexts {
    fn push(&mut self, entry: &[u8], row: u32) {
        self.bytes.extend_from_slice(entry);
        self.bytes.push(SEPARATOR);
        match self.ends.last_mut() {
            Some((last, end)) if *last == row => *end = self.bytes.len(),
            _ => self.ends.push((row, self.bytes.len())),
        }
    }
}

impl SegmentBuilder {
    pub fn new(limits: SegmentLimits) -> SegmentBuilder {
        SegmentBuilder { limits, ..SegmentBuilder::default() }
    }

    pub fn push(&mut self, text: &[u8]) {
        let row = self.ends.len() as u32;
        self.text_bytes += text.len() as u64;
        let SegmentBuilder { table, numbers, ends, long, given_up, .. } = self;
        if *given_up {
            return;
        }
        let mut waiting: [(&[u8], usize); TOGETHER] = [(&[], 0); TOGETHER];
        let mut count = 0;
        for_each_piece(text, |start, end| {
            let (Some(from), length) = (text.get(start..), end - start) else { return };
            if length >= LONG_HEXADECIMAL_BYTES {
                let entry = from.get(..length).unwrap_or_default();
                let class = Class::of(entry);
                if length > LONG_BYTES || class == Class::Hexadecimal {
                    long[class as usize].push(entry, row);
                    return;
                }
            }
            waiting[count] = (from, length);
            count += 1;
            if count == waiting.len() {
                table.insert_all(&waiting, row, numbers);
                count = 0;
            }
        });
        table.insert_all(&waiting[..count], row, numbers);
        ends.push(numbers.len() as u32);
        let too_large = self.memory_bytes() > self.limits.memory_bytes.saturating_mul(2);
        if too_large || self.ends.len() >= MAX_ROWS || self.numbers.len() > u32::MAX as usize / 2 {
            let limits = self.limits;
            let text_bytes = self.text_bytes;
            *self = SegmentBuilder { text_bytes, given_up: true, ..SegmentBuilder::new(limits) };
        }
    }

    pub fn is_full(&self) -> bool {
        self.given_up || self.ends.len() >= self.limits.rows || self.memory_bytes() >= self.limits.memory_bytes
    }

    /// Memory that the builder takes, with what it will take to finish.
    pub fn memory_bytes(&self) -> usize {
        let long =
            self.long.iter().map(|long| 2 * long.bytes.capacity() + long.ends.capacity() * size_of::<(u32, usize)>());
        let numbers = (self.numbers.capacity() + self.numbers.len() + self.ends.capacity()) * size_of::<u32>();
        self.table.memory_bytes() + numbers + long.sum::<usize>()
    }

    /// The segment. `None` when it would be larger than its share of the search text, its search text is too short, or
    /// its builder gave up: its rows have to be scanned.
    pub fn finish(self) -> Option<Segment> {
        if self.given_up || self.text_bytes < self.limits.text_bytes {
            return None;
        }
        let lists = self.lists();
        let most = self.text_bytes.saturating_mul(self.limits.share_percent) / 100;
        let mut bytes = 0;
        let mut packed: [[Vec<u8>; 4]; 3] = Default::default();
        // What is likely to be large comes last.
        for part in [Part::Lists, Part::Checksums, Part::Dictionary, Part::Texts] {
            for class in Class::ALL {
                let of_class = &mut packed[class as usize];
                let section = match part {
                    Part::Lists => self.pack_lists(class, &lists)?,
                    Part::Checksums => {
                        let blocks = of_class[Part::Lists as usize].chunks(BLOCK_BYTES as usize);
                        blocks.flat_map(|block| checksum(block).to_le_bytes()).collect()
                    }
                    Part::Dictionary => self.pack_dictionary(class, &lists)?,
                    Part::Texts => self.pack_texts(class)?,
                };
                bytes += section.len() as u64;
                if bytes > most {
                    return None;
                }
                of_class[part as usize] = section;
            }
        }
        let mut lengths = [Lengths::default(); 3];
        for (lengths, packed) in lengths.iter_mut().zip(&packed) {
            let length = |part: Part| u32::try_from(packed[part as usize].len()).ok();
            let [dictionary, texts] = [length(Part::Dictionary)?, length(Part::Texts)?];
            *lengths = Lengths { dictionary, texts, lists: length(Part::Lists)? };
        }
        let header = Header::try_new(self.ends.len(), lengths).ok()?;
        let bytes = Section::ALL.map(|section| &packed[section.class as usize][section.part as usize][..]).concat();
        let mut checksums = [0; 3];
        for (sum, class) in checksums.iter_mut().zip(Class::ALL) {
            let range = header.entries_range(class);
            *sum = checksum(bytes.get(range.start as usize..range.end as usize)?);
        }
        Some(Segment { header, bytes, checksums })
    }

    /// Sorts the entries of two and more rows, and finds their rows.
    fn lists(&self) -> EntryRows {
        let entries = &self.table.entries;
        let mut sorted: Vec<(&Entry, u32)> = entries.iter().zip(0..).filter(|(entry, _)| entry.count > 1).collect();
        sorted.sort_unstable_by(|(one, _), (other, _)| self.table.compare(one, other));
        let numbers: Vec<u32> = sorted.into_iter().map(|(_, number)| number).collect();
        let mut next = vec![u32::MAX; entries.len()];
        let mut start = 0;
        for number in &numbers {
            if let (Some(next), Some(entry)) = (next.get_mut(*number as usize), entries.get(*number as usize)) {
                *next = start;
                start += entry.count;
            }
        }
        let mut rows = vec![0; start as usize];
        for (row, numbers) in self.rows() {
            for number in numbers {
                if let Some(next) = next.get_mut(*number as usize)
                    && let Some(to) = rows.get_mut(*next as usize)
                {
                    *to = row;
                    *next += 1;
                }
            }
        }
        EntryRows { numbers, rows }
    }

    fn rows(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let mut start = 0;
        self.ends.iter().enumerate().map(move |(row, end)| {
            let numbers = self.numbers.get(start..*end as usize).unwrap_or_default();
            start = *end as usize;
            (row as u32, numbers)
        })
    }

    fn pack_lists(&self, class: Class, lists: &EntryRows) -> Option<Vec<u8>> {
        let mut packed = Vec::new();
        let mut rest = lists.rows.as_slice();
        for number in &lists.numbers {
            let entry = self.table.entries.get(*number as usize)?;
            let (rows, others) = rest.split_at_checked(entry.count as usize)?;
            if entry.class == class {
                postings::encode(rows, self.ends.len(), &mut packed);
            }
            rest = others;
        }
        Some(packed)
    }

    fn pack_dictionary(&self, class: Class, lists: &EntryRows) -> Option<Vec<u8>> {
        let entries = &self.table.entries;
        let of_class = lists.numbers.iter().filter_map(|number| entries.get(*number as usize));
        let mut text = vec![SEPARATOR];
        let mut counts = Vec::new();
        for entry in of_class.filter(|entry| entry.class == class) {
            self.table.bytes_into(entry, &mut text);
            text.push(SEPARATOR);
            counts.push(entry.count - 2);
        }
        if counts.is_empty() { Some(Vec::new()) } else { pack(Part::Dictionary, &text, counts.into_iter()) }
    }

    fn pack_texts(&self, class: Class) -> Option<Vec<u8>> {
        let entries = &self.table.entries;
        let long = self.long.get(class as usize)?;
        let mut long_rows = long.ends.iter().peekable();
        let mut long_start = 0;
        let mut text = vec![SEPARATOR];
        let mut lengths = Vec::with_capacity(self.ends.len());
        for (row, numbers) in self.rows() {
            let start = text.len();
            for entry in numbers.iter().filter_map(|number| entries.get(*number as usize)) {
                if entry.count == 1 && entry.class == class {
                    self.table.bytes_into(entry, &mut text);
                    text.push(SEPARATOR);
                }
            }
            if let Some((_, end)) = long_rows.next_if(|(of, _)| *of == row) {
                text.extend_from_slice(long.bytes.get(long_start..*end)?);
                long_start = *end;
            }
            if text.len() > MAX_TEXT_BYTES {
                return None;
            }
            lengths.push((text.len() - start) as u32);
        }
        if text.len() == 1 { Some(Vec::new()) } else { pack(Part::Texts, &text, lengths.into_iter()) }
    }
}

struct EntryRows {
    numbers: Vec<u32>,
    rows: Vec<u32>,
}
