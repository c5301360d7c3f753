//! What a scan will want of its version, for its reader to fetch ahead, and what a row group takes in memory.

use strata_format::layout::ShreddedPart;
use strata_format::reader::Wanted;

use crate::scan::access::Condition;
use crate::scan::predicate::Comparison;
use crate::scan::schema::{GROUP, ORDER};
use crate::scan::sort_key;
use crate::scan::spec::ScanSpec;

/// Columns that are wanted only where others select something come with these up to so many bytes of a row group.
const SPECULATED_BYTES: u64 = 256 << 10;

/// Bytes of bloom filters that come with the first one where many row groups may hold the text, and few entities are
/// wanted.
const FEW_BLOOM_BYTES: u64 = 1 << 20;

/// Documents of a row group that are in memory at once, if they are looked at.
const DOCUMENT_BYTES: u64 = 4 << 20;

/// What a row of the answer takes besides its position, at most: keys of order and group.
const KEY_BYTES: u64 = 64;

impl ScanSpec {
    /// The same, whose reader fetches ahead what will be wanted, and that.
    pub(super) fn reading_ahead(&self) -> (ScanSpec, Wanted) {
        let wanted = self.wanted();
        let reader = self.reader.reading_ahead(wanted.clone());
        (ScanSpec { reader, ..self.clone() }, wanted)
    }

    pub(super) fn wanted(&self) -> Wanted {
        let row_groups = self.row_groups();
        let reader = &self.reader;
        let mut wanted = Wanted { row_groups: row_groups.clone(), part: self.part.clone(), ..Wanted::default() };
        if row_groups.is_empty() {
            return wanted;
        }
        // Those of the first predicate are wanted for sure, and all where there is none.
        let add = |wanted: &mut Wanted, columns: Vec<usize>, is_sure: bool| {
            if is_sure || reader.column_bytes(row_groups.start, &columns).0 <= SPECULATED_BYTES {
                let more: Vec<usize> = columns.into_iter().filter(|column| !wanted.columns.contains(column)).collect();
                wanted.columns.extend(more);
            }
        };
        for column in self.predicates.iter().filter_map(|condition| condition.indexed_column(reader)) {
            let is_first = wanted.columns.is_empty();
            add(&mut wanted, column.columns(row_groups.clone()), is_first);
            let is_rare = !reader.layout().shredded_columns[column.column].dictionary;
            if column.compare.comparison == Comparison::Equal {
                wanted.bloom_columns.extend(reader.columns_of(column.column, &[ShreddedPart::Text]));
                let bytes = if is_rare || self.fetch.is_none() { u64::MAX } else { FEW_BLOOM_BYTES };
                wanted.bloom_bytes = wanted.bloom_bytes.max(bytes);
            }
        }
        if let Some(order) = self.computed.order.as_ref().filter(|_| self.threshold.is_some() || self.gives(ORDER))
            && let Some(shredded) = sort_key::order_column(reader.layout(), &order.field)
        {
            let parts = sort_key::order_parts(reader, row_groups.clone(), shredded);
            add(&mut wanted, reader.columns_of(shredded, &parts), self.predicates.is_empty());
        }
        if let Some(group) = self.computed.group.as_ref().filter(|_| self.gives(GROUP)) {
            if group.is_stored() {
                add(&mut wanted, vec![reader.hash_column()], self.predicates.is_empty());
            }
            // Where the version is not looked at in parts, codes may tell.
            for shredded in group.shredded(reader.layout()).filter(|_| self.part.is_some()) {
                add(&mut wanted, reader.columns_of(shredded, &ShreddedPart::ALL), self.predicates.is_empty());
            }
        }
        wanted.bloom_columns.sort_unstable();
        wanted.bloom_columns.dedup();
        wanted.columns_ahead = if self.predicates.is_empty() { usize::MAX } else { 1 };
        wanted
    }

    pub(super) fn row_group_bytes(&self, row_group: usize, wanted: &Wanted) -> u64 {
        let reader = &self.reader;
        let rows = self.rows(row_group).len() as u64;
        let keys = if self.gives(ORDER) || self.gives(GROUP) { KEY_BYTES } else { 0 };
        let mut bytes = reader.column_bytes(row_group, &wanted.columns).1 + rows * (8 + keys);
        bytes += self.full_text_bytes(row_group, || reader.search_bytes(row_group));
        let reads_documents = self.predicates.iter().any(Condition::reads_documents);
        if reads_documents { bytes + DOCUMENT_BYTES } else { bytes }
    }
}
