//! The sections of a segment to the rows that may hold a needle.
//!
//! A piece is one byte search over the text of a dictionary, and one over that of the entries of single rows. Texts
//! that are searched often know [where to look](super::grams).

use std::ops::Range;

use fixedbitset::FixedBitSet;
use memchr::memmem::Finder;

use super::layout::{Header, Part, Section, unpack};
use super::searched::SearchedText;
use crate::keywords::Damaged;
use crate::keywords::cut::{Class, Piece, Plan};
use crate::keywords::postings::{self, MAX_ROWS};
use crate::layout::SEPARATOR;

/// What a needle is looked for in, of one class: decoded, to be kept for many needles.
#[derive(Debug)]
pub struct Entries {
    pub dictionary: Dictionary,
    pub texts: Texts,
    pub checksums: Vec<u32>,
}

impl Entries {
    /// Decodes the [entries](Header::entries_range) of a class, of a segment with this header.
    pub fn decode(header: &Header, class: Class, bytes: &[u8]) -> Result<Entries, Damaged> {
        let start = header.entries_range(class).start;
        let section = |part| {
            let range = header.range(Section { class, part });
            let bytes = bytes.get((range.start - start) as usize..(range.end - start) as usize);
            bytes.ok_or(Damaged::new("entries", "they are truncated"))
        };
        let checksums = section(Part::Checksums)?.as_chunks::<4>().0;
        Ok(Entries {
            dictionary: Dictionary::decode(header, class, section(Part::Dictionary)?)?,
            texts: Texts::decode(header, section(Part::Texts)?)?,
            checksums: checksums.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect(),
        })
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<Entries>()
            + self.dictionary.memory_bytes()
            + self.texts.0.memory_bytes()
            + self.checksums.capacity() * size_of::<u32>()
    }
}

/// A decoded dictionary: the distinct entries of two and more rows.
#[derive(Debug)]
pub struct Dictionary {
    /// A separator, and one more behind each entry; where each entry ends, behind its separator.
    searched: SearchedText,
    counts: Vec<u32>,
    list_starts: Vec<u32>,
}

impl Dictionary {
    pub fn decode(header: &Header, class: Class, bytes: &[u8]) -> Result<Dictionary, Damaged> {
        const PART: &str = "dictionary";
        let damaged = |cause| Damaged::new(PART, cause);
        let rows = header.rows();
        let (text, mut counts) = unpack(PART, bytes, super::layout::MAX_TEXT_BYTES)?;
        if text.len() - 1 < counts.len() {
            return Err(damaged("it contains more row counts than entries"));
        }
        let mut ends = Vec::with_capacity(counts.len());
        ends.extend(memchr::memchr_iter(SEPARATOR, &text).skip(1).take(counts.len() + 1).map(|at| at as u32 + 1));
        if ends.len() != counts.len() {
            return Err(damaged("it contains different numbers of entries and row counts"));
        }
        let mut list_starts = Vec::with_capacity(counts.len() + 1);
        let mut start = 0u32;
        list_starts.push(start);
        for count in &mut counts {
            *count = count.saturating_add(2);
            if *count as usize > rows {
                return Err(damaged("an entry has more rows than the segment"));
            }
            let end = start.checked_add(postings::encoded_bytes(*count as usize, rows) as u32);
            start = end.ok_or_else(|| damaged("its posting lists are too long"))?;
            list_starts.push(start);
        }
        let lists = header.range(Section { class, part: Part::Lists });
        if lists.end - lists.start != u64::from(start) {
            return Err(damaged("its posting lists have the wrong length"));
        }
        Ok(Dictionary { searched: SearchedText::new(text, ends), counts, list_starts })
    }

    pub fn memory_bytes(&self) -> usize {
        self.searched.memory_bytes() + (self.counts.capacity() + self.list_starts.capacity()) * size_of::<u32>()
    }

    fn list(&self, entry: u32) -> Option<(u32, Range<u32>)> {
        let entry = entry as usize;
        let start = self.list_starts.get(entry)?;
        let end = self.list_starts.get(entry + 1)?;
        Some((*self.counts.get(entry)?, *start..*end))
    }
}

/// A separator, and one more behind each entry; where the entries of each row end.
#[derive(Debug)]
pub struct Texts(SearchedText);

impl Texts {
    pub fn decode(header: &Header, bytes: &[u8]) -> Result<Texts, Damaged> {
        const PART: &str = "texts";
        let (text, mut ends) = unpack(PART, bytes, MAX_ROWS)?;
        if ends.is_empty() {
            ends = vec![0; header.rows()];
        }
        let mut end = 1u32;
        for length in &mut ends {
            end = end.checked_add(*length).ok_or(Damaged::new(PART, "its rows are too long"))?;
            *length = end;
        }
        if ends.len() != header.rows() || end as usize != text.len() {
            return Err(Damaged::new(PART, "its rows have the wrong length"));
        }
        Ok(Texts(SearchedText::new(text, ends)))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Sections<'a> {
    pub entries: [Option<&'a Entries>; 3],
    /// Lists, ascending by their place.
    pub lists: [&'a [ListBytes<'a>]; 3],
}

impl<'a> Sections<'a> {
    /// The entries of a class that a piece may be in; `None` if the class has none.
    fn entries(&self, header: &Header, class: Class) -> Result<Option<&'a Entries>, Damaged> {
        match self.entries[class as usize] {
            None if !header.entries_range(class).is_empty() => {
                Err(Damaged::new("sections", "a required section was not read"))
            }
            entries => Ok(entries),
        }
    }
}

/// Bytes of a section of lists, as they lie in the segment. A list may go on in the ones that follow without a gap.
#[derive(Clone, Copy, Debug)]
pub struct ListBytes<'a> {
    pub start: u32,
    pub bytes: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidates {
    Exact(FixedBitSet),
    /// The rows that may hold it: their search text tells.
    Candidates(FixedBitSet),
    /// Any row may hold it. The search text of all is to be scanned.
    Scan,
}

#[derive(Debug)]
pub struct Found<'h> {
    header: &'h Header,
    exact: bool,
    /// The pieces that tell rows apart, those of the fewest rows first.
    pieces: Vec<FoundPiece>,
}

#[derive(Debug)]
struct FoundPiece {
    piece: Piece,
    /// Entries of the dictionaries that hold it, by class, ascending.
    entries: [Vec<u32>; 3],
    /// Rows of those entries, those of several counted several times.
    rows: u64,
}

/// Looks for the pieces of a plan in the dictionaries of a segment with this header.
pub fn find<'h>(header: &'h Header, plan: &Plan, sections: &Sections<'_>) -> Result<Found<'h>, Damaged> {
    let exact = matches!(plan, Plan::Exact(_));
    let mut pieces = Vec::new();
    for piece in plan.pieces() {
        let pattern = piece.pattern();
        let finder = Finder::new(&pattern);
        let mut found = FoundPiece { piece: piece.clone(), entries: Default::default(), rows: 0 };
        let mut most = 0;
        for class in Class::ALL.into_iter().filter(|class| piece.may_be_in(*class)) {
            let Some(Entries { dictionary, .. }) = sections.entries(header, class)? else { continue };
            dictionary.searched.visit(&finder, |entry| {
                let count = dictionary.counts.get(entry).copied().unwrap_or_default();
                most = most.max(count as usize);
                found.rows += u64::from(count);
                found.entries[class as usize].push(entry as u32);
            });
        }
        // A piece of most rows does not pay for its lists.
        if exact || most <= header.rows() / 2 {
            pieces.push(found);
        }
    }
    pieces.sort_by_key(|piece| piece.rows);
    Ok(Found { header, exact, pieces })
}

impl Found<'_> {
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The bytes of the section of lists of a class that a piece needs, ascending.
    pub fn lists_needed(&self, piece: usize, class: Class, sections: &Sections<'_>) -> Vec<Range<u32>> {
        let Some(Entries { dictionary, .. }) = sections.entries[class as usize] else { return Vec::new() };
        let Some(piece) = self.pieces.get(piece) else { return Vec::new() };
        let mut needed: Vec<Range<u32>> = Vec::new();
        // Entries ascend, and so do their lists.
        for (_, range) in piece.entries[class as usize].iter().filter_map(|entry| dictionary.list(*entry)) {
            match needed.last_mut() {
                // Lists of all rows have no bytes.
                _ if range.start == range.end => {}
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => needed.push(range),
            }
        }
        needed
    }

    /// Those of the candidates so far that have a piece, too; all of its rows if there are no candidates so far.
    pub fn narrow(
        &self,
        candidates: Option<FixedBitSet>,
        piece: usize,
        sections: &Sections<'_>,
    ) -> Result<Option<FixedBitSet>, Damaged> {
        let Some(piece) = self.pieces.get(piece) else { return Ok(candidates) };
        let rows = piece.rows(sections, self.header)?;
        Ok(Some(match candidates {
            None => rows,
            Some(mut candidates) => {
                candidates.intersect_with(&rows);
                candidates
            }
        }))
    }

    /// What the candidates are that some of the pieces have left.
    pub fn conclude(&self, candidates: Option<FixedBitSet>) -> Candidates {
        match candidates {
            None => Candidates::Scan,
            Some(rows) if self.exact || rows.is_clear() => Candidates::Exact(rows),
            Some(rows) if rows.count_ones(..) > self.header.rows() / 2 => Candidates::Scan,
            Some(rows) => Candidates::Candidates(rows),
        }
    }
}

impl FoundPiece {
    fn rows(&self, sections: &Sections<'_>, header: &Header) -> Result<FixedBitSet, Damaged> {
        let mut to = FixedBitSet::with_capacity(header.rows());
        let pattern = self.piece.pattern();
        let finder = Finder::new(&pattern);
        for class in Class::ALL.into_iter().filter(|class| self.piece.may_be_in(*class)) {
            let Some(Entries { dictionary, texts, .. }) = sections.entries(header, class)? else { continue };
            let index = class as usize;
            union_lists(dictionary, &self.entries[index], sections.lists[index], &mut to)?;
            let mut inside = true;
            texts.0.visit(&finder, |row| match row < to.len() {
                true => to.insert(row),
                false => inside = false,
            });
            if !inside {
                return Err(Damaged::new("texts", "it contains rows that do not exist"));
            }
        }
        Ok(to)
    }
}

fn union_lists(
    dictionary: &Dictionary,
    entries: &[u32],
    lists: &[ListBytes<'_>],
    to: &mut FixedBitSet,
) -> Result<(), Damaged> {
    let cut_off = || Damaged::new("lists", "they are truncated or were not read");
    let mut rest = lists;
    let mut joined = Vec::new();
    for entry in entries {
        let (count, range) = dictionary.list(*entry).ok_or_else(cut_off)?;
        if range.is_empty() {
            postings::union_into(&[], count as usize, to)?;
            continue;
        }
        while let [_, next, ..] = rest
            && next.start <= range.start
        {
            rest = &rest[1..];
        }
        let (first, others) = rest.split_first().ok_or_else(cut_off)?;
        let offset = range.start.checked_sub(first.start).ok_or_else(cut_off)?;
        let here = first.bytes.get(offset as usize..).ok_or_else(cut_off)?;
        if here.len() >= range.len() {
            postings::union_into(here, count as usize, to)?;
            continue;
        }
        joined.clear();
        joined.extend_from_slice(here);
        for next in others {
            if joined.len() >= range.len() || u64::from(range.start) + joined.len() as u64 != u64::from(next.start) {
                break;
            }
            joined.extend_from_slice(next.bytes);
        }
        postings::union_into(&joined, count as usize, to)?;
    }
    Ok(())
}
