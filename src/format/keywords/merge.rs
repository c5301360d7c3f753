//! Merges the runs of a segment into its token pages and postings.
//!
//! Each token is read from all runs, whose rows follow each other, and appended to a page. The postings of a page are
//! written when the page is full. Pages are collected and then written together, because searches read many of them.
//!
//! The memory does not depend on the number of tokens: a buffer per run, one page with its postings, the collected
//! pages, and the rows of one token, which take at most one bit per row and field if they are many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use fixedbitset::FixedBitSet;
use strata_store::checksums::crc32;
use strata_store::{Result, StorageError};

use super::field_set::{FieldSet, MAX_FIELDS};
use super::hash_page::HashPageBuilder;
use super::run::RunReader;
use super::segment::StoredPage;
use super::token_page::{DictionaryPageBuilder, PageKind, RowPageBuilder};
use super::tokenizer::TokenClass;

/// Pages are written together when they have this size, which one request can fetch.
const PAGE_CLUSTER_BYTES: usize = 4 << 20;
/// A field's rows of a token become a bitmap when they are more than one in this many rows of the segment.
const ROWS_PER_LISTED_ROW: usize = 32;

/// Writes bytes to the file and returns their offset.
pub(super) type WriteBytes<'a> = &'a mut dyn FnMut(&[u8]) -> Result<u64>;

/// Writes the postings and pages of a segment. `runs` are in the order of their rows.
pub(super) fn merge_runs(mut runs: Vec<RunReader>, rows: usize, write: WriteBytes<'_>) -> Result<Vec<StoredPage>> {
    let mut writer = PageWriter { write, rows, pages: Vec::new(), pending: Vec::new(), pending_bytes: 0 };
    merge_tokens(&mut runs, &mut writer)?;
    merge_row_tokens(&mut runs, &mut writer)?;
    merge_hashes(&mut runs, &mut writer)?;
    writer.flush()?;
    Ok(writer.pages)
}

/// The next token of a run. Classes are compared first, then tokens, then runs.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NextToken {
    class: TokenClass,
    token: Vec<u8>,
    run: usize,
}

fn merge_tokens(runs: &mut [RunReader], writer: &mut PageWriter<'_>) -> Result<()> {
    let mut heap = BinaryHeap::with_capacity(runs.len());
    for (run, reader) in runs.iter_mut().enumerate() {
        let mut token = Vec::new();
        if reader.read_token(&mut token)? {
            heap.push(Reverse(NextToken { class: TokenClass::from_token(&token), token, run }));
        }
    }
    let mut page = DictionaryPageBuilder::default();
    let mut page_class = TokenClass::Words;
    let mut rows = TokenRows::new(writer.rows);
    let mut current = Vec::new();
    while let Some(mut top) = heap.peek_mut() {
        let Reverse(next) = &mut *top;
        if next.token != current {
            rows.append_to(&current, &mut page);
            if page.is_full() || next.class != page_class {
                writer.push_dictionary_page(page_class, std::mem::take(&mut page))?;
            }
            page_class = next.class;
            current.clone_from(&next.token);
        }
        let reader = &mut runs[next.run];
        reader.read_rows(|field, row| rows.push(field, row))?;
        if reader.read_token(&mut next.token)? {
            next.class = TokenClass::from_token(&next.token);
        } else {
            PeekMut::pop(top);
        }
    }
    rows.append_to(&current, &mut page);
    writer.push_dictionary_page(page_class, page)
}

fn merge_row_tokens(runs: &mut [RunReader], writer: &mut PageWriter<'_>) -> Result<()> {
    let mut keys = Vec::with_capacity(runs.len());
    for run in &mut *runs {
        keys.push(run.read_row_tokens_key()?);
    }
    while let Some(first) = keys.iter().flatten().min().copied() {
        let (class, field) = first;
        let mut page = RowPageBuilder::default();
        for (run, key) in runs.iter_mut().zip(&mut keys) {
            if *key != Some(first) {
                continue;
            }
            run.read_row_tokens(|row, tokens| {
                page.push(row, tokens);
                if page.is_full() { writer.push_row_page(class, field, std::mem::take(&mut page)) } else { Ok(()) }
            })?;
            *key = run.read_row_tokens_key()?;
        }
        writer.push_row_page(class, field, page)?;
    }
    Ok(())
}

fn merge_hashes(runs: &mut [RunReader], writer: &mut PageWriter<'_>) -> Result<()> {
    let mut keys = Vec::with_capacity(runs.len());
    for run in &mut *runs {
        keys.push(run.read_hashes_key()?);
    }
    while let Some(field) = keys.iter().flatten().map(|(field, _)| *field).min() {
        // The next entry of each run with hashes of the field, and the number of its other ones.
        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (number, key) in keys.iter().enumerate() {
            if let Some((other, count @ 1..)) = key
                && *other == field
            {
                heap.push(Reverse((runs[number].read_hash()?, number, count - 1)));
            }
        }
        let mut page = HashPageBuilder::new(writer.rows);
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((entry, number, left)) = &mut *top;
            page.push(*entry);
            if page.is_full() {
                writer.push_hash_page(field, &mut page)?;
            }
            let run = &mut runs[*number];
            if *left > 0 {
                *left -= 1;
                *entry = run.read_hash()?;
            } else {
                keys[*number] = run.read_hashes_key()?;
                PeekMut::pop(top);
            }
        }
        writer.push_hash_page(field, &mut page)?;
    }
    Ok(())
}

/// The rows of one token in each field, in ascending order.
struct TokenRows {
    segment_rows: usize,
    fields: FieldSet,
    lists: Vec<Vec<u32>>,
    /// The rows of fields with many of them.
    bitmaps: Vec<Option<FixedBitSet>>,
}

impl TokenRows {
    fn new(segment_rows: usize) -> TokenRows {
        TokenRows {
            segment_rows,
            fields: FieldSet::EMPTY,
            lists: vec![Vec::new(); MAX_FIELDS],
            bitmaps: vec![None; MAX_FIELDS],
        }
    }

    fn push(&mut self, field: u8, row: u32) {
        self.fields = self.fields.union(FieldSet::single(field));
        let index = usize::from(field) % MAX_FIELDS;
        if let Some(bitmap) = &mut self.bitmaps[index] {
            return bitmap.insert(row as usize);
        }
        let list = &mut self.lists[index];
        list.push(row);
        if list.len() > self.segment_rows / ROWS_PER_LISTED_ROW && list.len() > 1 << 16 {
            let mut bitmap = FixedBitSet::with_capacity(self.segment_rows);
            list.drain(..).for_each(|row| bitmap.insert(row as usize));
            self.bitmaps[index] = Some(bitmap);
        }
    }

    /// Appends the token with its rows to a page, unless it has no rows, and removes the rows.
    fn append_to(&mut self, token: &[u8], page: &mut DictionaryPageBuilder) {
        let fields = std::mem::take(&mut self.fields);
        if fields.is_empty() {
            return;
        }
        let rows = self.all_rows(fields);
        page.push(token, fields, &rows, self.segment_rows, |field, numbers| {
            let index = usize::from(field) % MAX_FIELDS;
            let mut list = self.lists[index].iter().peekable();
            numbers.extend((0..).zip(&rows).filter_map(|(number, row)| {
                let is_in_field = match &self.bitmaps[index] {
                    Some(bitmap) => bitmap.contains(*row as usize),
                    None => list.next_if_eq(&row).is_some(),
                };
                is_in_field.then_some(number)
            }));
        });
        for field in fields.iter() {
            let index = usize::from(field) % MAX_FIELDS;
            self.lists[index].clear();
            self.bitmaps[index] = None;
        }
    }

    fn all_rows(&self, fields: FieldSet) -> Vec<u32> {
        let indexes = || fields.iter().map(|field| usize::from(field) % MAX_FIELDS);
        if indexes().any(|index| self.bitmaps[index].is_some()) {
            let mut all = FixedBitSet::with_capacity(self.segment_rows);
            for index in indexes() {
                match &self.bitmaps[index] {
                    Some(bitmap) => all.union_with(bitmap),
                    None => self.lists[index].iter().for_each(|row| all.insert(*row as usize)),
                }
            }
            return all.ones().map(|row| row as u32).collect();
        }
        let mut all = Vec::with_capacity(indexes().map(|index| self.lists[index].len()).sum());
        indexes().for_each(|index| all.extend_from_slice(&self.lists[index]));
        if fields.len() > 1 {
            all.sort();
            all.dedup();
        }
        all
    }
}

struct PageWriter<'a> {
    write: WriteBytes<'a>,
    rows: usize,
    pages: Vec<StoredPage>,
    /// Encoded pages that are not written yet. They belong to the last pages, whose offsets are not known yet.
    pending: Vec<Vec<u8>>,
    pending_bytes: usize,
}

impl PageWriter<'_> {
    fn push_dictionary_page(&mut self, class: TokenClass, page: DictionaryPageBuilder) -> Result<()> {
        if page.is_empty() {
            return Ok(());
        }
        let mut stored = StoredPage::unwritten(PageKind::Dictionary, class, page.fields());
        stored.first_token = page.first_token().to_vec();
        stored.posting_bytes = page.postings.len() as u32;
        if stored.posting_bytes > 0 {
            stored.postings_offset = (self.write)(&page.postings)?;
        }
        self.push_page(stored, page.encode())
    }

    fn push_row_page(&mut self, class: TokenClass, field: u8, page: RowPageBuilder) -> Result<()> {
        if page.is_empty() {
            return Ok(());
        }
        self.push_page(StoredPage::unwritten(PageKind::Rows, class, FieldSet::single(field)), page.encode())
    }

    fn push_hash_page(&mut self, field: u8, page: &mut HashPageBuilder) -> Result<()> {
        if page.is_empty() {
            return Ok(());
        }
        let mut stored = StoredPage::unwritten(PageKind::Hashes, TokenClass::Hexadecimal, FieldSet::single(field));
        let (first_digits, encoded) = page.take_page();
        stored.first_token = first_digits;
        self.push_page(stored, Some(encoded))
    }

    fn push_page(&mut self, page: StoredPage, encoded: Option<Vec<u8>>) -> Result<()> {
        let too_large = || StorageError::InvalidFile("a page of its keyword index is too large".to_owned());
        let encoded = encoded.ok_or_else(too_large)?;
        self.pages.push(StoredPage { bytes: encoded.len() as u32, checksum: crc32(&encoded), ..page });
        self.pending_bytes += encoded.len();
        self.pending.push(encoded);
        if self.pending_bytes >= PAGE_CLUSTER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let first = self.pages.len() - self.pending.len();
        for (page, encoded) in self.pages[first..].iter_mut().zip(self.pending.drain(..)) {
            page.offset = (self.write)(&encoded)?;
        }
        self.pending_bytes = 0;
        Ok(())
    }
}
