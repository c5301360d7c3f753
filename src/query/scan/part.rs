//! Partial scans, which process some of the row groups of a scan on other nodes: what each row group requires to read,
//! and a description that another process of the same version opens.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::{exec_datafusion_err, internal_datafusion_err};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use serde::{Deserialize, Serialize};
use strata_format::reader::{FileDescription, VersionReader, Wanted};
use strata_types::path::Path;
use strata_types::request::KeywordsMode;

use crate::distribute::{Divisible, RowGroupToRead};
use crate::fetch::reshape::Reshape;
use crate::scan::dedup_key::{GroupSpec, KeyReads};
use crate::scan::distinct_cache::{self, KeepFirsts};
use crate::scan::hash_index;
use crate::scan::predicate::{Compare, Comparison, Keywords, Predicate};
use crate::scan::report::AccessName;
use crate::scan::schema::{Computed, GROUP, ORDER, POSITION, field};
use crate::scan::sort_index;
use crate::scan::sort_key::{self, OrderSpec};
use crate::scan::spec::ScanSpec;
use crate::scan::version_scan::VersionScan;

/// One of this many documents is read to verify matches of the full-text column.
const VERIFIED_DIVISOR: u64 = 16;

/// A partial scan as data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScanDescription {
    pub file: FileDescription,
    row_groups: Vec<usize>,
    range: Range<u64>,
    columns: Vec<String>,
    predicates: Vec<PredicateDescription>,
    order: Option<OrderSpec>,
    group: Option<GroupSpec>,
    fetch: Option<usize>,
    /// How many entities of an order are needed.
    first: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum PredicateDescription {
    Compare { comparison: Comparison, path: Path, value: String, denull: bool },
    Keywords { words: Vec<String>, mode: KeywordsMode, reshape: Reshape },
}

impl VersionScan {
    pub fn is_divisible(&self) -> bool {
        self.spec.part.is_none()
    }

    /// The operator that caches the first entities of all groups, if this scan finds them. See [`KeepFirsts`].
    pub fn keeping(&self, positions: usize) -> Option<KeepFirsts> {
        let spec = &self.spec;
        let groups = spec.computed.group.clone().filter(|_| spec.finds_all_firsts())?;
        Some(KeepFirsts { reader: spec.reader.clone(), groups, positions })
    }

    /// `None` if the scan is not partial.
    pub fn describe(&self) -> Option<ScanDescription> {
        let spec = &self.spec;
        let part = spec.part.as_ref()?;
        let descriptions = spec.predicates.iter().map(|condition| PredicateDescription::new(&condition.predicate));
        Some(ScanDescription {
            file: spec.reader.description(),
            row_groups: part.to_vec(),
            range: spec.range.clone(),
            columns: spec.schema.fields().iter().map(|field| field.name().clone()).collect(),
            predicates: descriptions.collect(),
            order: spec.computed.order.clone(),
            group: spec.computed.group.clone(),
            fetch: spec.fetch,
            first: spec.threshold.as_ref().map(|threshold| threshold.k),
        })
    }
}

#[async_trait]
impl Divisible for VersionScan {
    fn most_bytes(&self) -> u64 {
        self.spec.reader.size_bytes_with_base()
    }

    async fn is_kept(&self) -> bool {
        let spec = &self.spec;
        if let (Some(_), Some(order)) = (&spec.threshold, &spec.computed.order)
            && sort_index::lookup(&spec.reader, order).await.hit().is_some()
        {
            return true;
        }
        if let (true, Some(groups)) = (spec.finds_all_firsts(), &spec.computed.group)
            && distinct_cache::lookup(&spec.reader, groups).await.is_some()
        {
            return true;
        }
        for column in spec.predicates.iter().filter_map(|condition| condition.indexed_column(&spec.reader)) {
            if hash_index::candidate_count(&spec.reader, column.column, column.compare).await.is_some() {
                return true;
            }
        }
        false
    }

    async fn row_groups_to_read(&self) -> Vec<RowGroupToRead> {
        let spec = &self.spec;
        let keys = match spec.computed.group.as_ref().filter(|_| spec.gives(GROUP)) {
            Some(group) => {
                // The scan reads it, too.
                let index = match group.compared() {
                    Some(_) => spec.reader.paths().await.ok(),
                    None => None,
                };
                group.reads(&spec.reader, index.as_deref()).await
            }
            None => KeyReads::default(),
        };
        let wanted = spec.wanted();
        let to_read = |number: usize| RowGroupToRead {
            number,
            name: spec.reader.name_of(number),
            bytes: spec.uncached_bytes(number, &wanted, &keys),
        };
        spec.row_groups().map(to_read).collect()
    }

    fn part(&self, row_groups: Vec<usize>) -> Arc<dyn ExecutionPlan> {
        Arc::new(self.with_row_groups(self.spec.range.clone(), row_groups.into()))
    }
}

impl ScanSpec {
    /// The estimated number of stored bytes of a row group that must be read and are not cached, if it is not pruned.
    fn uncached_bytes(&self, row_group: usize, wanted: &Wanted, keys: &KeyReads) -> u64 {
        let reader = &self.reader;
        let missing = |column: &usize| !reader.caches_columns(row_group, &[*column]);
        let columns: BTreeSet<usize> = wanted.columns.iter().chain(&keys.columns).copied().filter(missing).collect();
        let columns: Vec<usize> = columns.into_iter().collect();
        let mut bytes = reader.column_bytes(row_group, &columns).0;
        let (search, documents) = reader.search_and_document_bytes(row_group);
        if !reader.caches_search(row_group) {
            bytes += self.full_text_bytes(row_group, || search).min(search);
        }
        let order = self.computed.order.as_ref().filter(|_| self.gives(ORDER));
        let orders_documents =
            order.is_some_and(|order| sort_key::order_column(reader.layout(), &order.field).is_none());
        let pages = reader.page_count(row_group);
        let missing = || (0..pages).filter(|page| !reader.caches_page(row_group, *page)).count() as u64;
        let missing_bytes = || documents / pages.max(1) as u64 * missing();
        let dearest = self.predicates.iter().map(|condition| condition.access).max();
        if dearest == Some(AccessName::Documents) || orders_documents || keys.documents_of(reader, row_group) {
            bytes += missing_bytes();
        } else if dearest == Some(AccessName::SearchTextThenDocuments) {
            bytes += missing_bytes() / VERIFIED_DIVISOR;
        }
        bytes
    }
}

impl ScanDescription {
    pub fn schema(&self) -> Result<SchemaRef> {
        let field = |name: &String| match name.as_str() {
            POSITION => Ok(field(POSITION)),
            ORDER if self.order.is_some() => Ok(field(ORDER)),
            GROUP if self.group.is_some() => Ok(field(GROUP)),
            other => Err(internal_datafusion_err!("a scan task does not return the column {other}")),
        };
        Ok(Arc::new(Schema::new(self.columns.iter().map(field).collect::<Result<Vec<Field>>>()?)))
    }

    pub fn open(&self, reader: VersionReader, threads: usize) -> Result<VersionScan> {
        let schema = self.schema()?;
        let groups = reader.row_groups().len();
        let is_ascending = self.row_groups.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_ascending
            || self.row_groups.last().is_some_and(|last| *last >= groups)
            || self.range.end > reader.entity_count()
        {
            return Err(exec_datafusion_err!("the row groups of the scan task are not in the file"));
        }
        let predicates = self.predicates.iter().map(PredicateDescription::predicate).collect::<Result<Vec<_>>>()?;
        let computed = Computed { order: self.order.clone(), group: self.group.clone() };
        let scan = VersionScan::new(reader, schema, computed, predicates, self.fetch, threads);
        let scan = match self.first {
            Some(k) => scan.with_top_k(k),
            None => scan,
        };
        Ok(scan.with_row_groups(self.range.clone(), self.row_groups.clone().into()))
    }
}

impl PredicateDescription {
    fn new(predicate: &Predicate) -> PredicateDescription {
        match predicate.clone() {
            Predicate::Compare(compare) => {
                let Compare { comparison, path, value, denull, .. } = *compare;
                PredicateDescription::Compare { comparison, path, value, denull }
            }
            Predicate::Keywords(Keywords { words, mode, reshape, .. }) => {
                PredicateDescription::Keywords { words, mode, reshape }
            }
        }
    }

    fn predicate(&self) -> Result<Predicate> {
        match self.clone() {
            PredicateDescription::Compare { comparison, path, value, denull } => {
                Ok(Predicate::Compare(Box::new(Compare::new(comparison, path, &value, denull))))
            }
            PredicateDescription::Keywords { words, mode, reshape } => {
                if words.is_empty() || words.iter().any(String::is_empty) {
                    return Err(exec_datafusion_err!("the scan task contains an empty keyword"));
                }
                Ok(Predicate::Keywords(Keywords::new(words, mode, reshape)))
            }
        }
    }
}
