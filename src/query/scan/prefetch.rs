//! The prefetch plan of a scan for its reader, and the memory that a row group needs.

use strata_format::layout::ShreddedPart;
use strata_format::reader::Wanted;

use crate::scan::access::Condition;
use crate::scan::predicate::Comparison;
use crate::scan::schema::{GROUP, ORDER};
use crate::scan::sort_key;
use crate::scan::spec::ScanSpec;

/// Columns that are read only after other conditions are prefetched up to this size in a row group.
const MAX_SPECULATIVE_BYTES: u64 = 256 << 10;

/// Bytes of bloom filters that are prefetched if many row groups may contain the value and few entities are needed.
const MAX_BLOOM_BYTES: u64 = 1 << 20;

/// The memory for documents of a row group.
const DOCUMENT_BYTES: u64 = 4 << 20;

/// The most memory for the keys of a returned row.
const KEY_BYTES: u64 = 64;

impl ScanSpec {
    pub(super) fn wanted(&self) -> Wanted {
        let row_groups = self.row_groups();
        let reader = &self.reader;
        let mut wanted = Wanted { row_groups: row_groups.clone(), part: self.part.clone(), ..Wanted::default() };
        if row_groups.is_empty() {
            return wanted;
        }
        // The columns of the first predicate are certainly read.
        let add = |wanted: &mut Wanted, columns: Vec<usize>, is_certain: bool| {
            if is_certain || reader.column_bytes(row_groups.start, &columns).0 <= MAX_SPECULATIVE_BYTES {
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
                let bytes = if is_rare || self.fetch.is_none() { u64::MAX } else { MAX_BLOOM_BYTES };
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
            // A complete scan can use codes.
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
