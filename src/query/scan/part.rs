//! A scan in parts: other nodes look at some of its row groups. What each would have to read, and a part as text, which
//! another process of the same version of the program opens.

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
use crate::scan::kept_groups::{self, KeepFirsts};
use crate::scan::kept_index;
use crate::scan::kept_order;
use crate::scan::metrics::AccessName;
use crate::scan::predicate::{Compare, Comparison, Keywords, Predicate};
use crate::scan::schema::{Computed, GROUP, ORDER, POSITION, field};
use crate::scan::sort_key::{self, OrderSpec};
use crate::scan::spec::ScanSpec;
use crate::scan::version_scan::VersionScan;

/// Documents that verify what the search text has found are one in so many bytes of all of them.
const VERIFIED_DIVISOR: u64 = 16;

/// A part of a scan as text. The program that reads it must be of the same version.
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
    /// How many of the first of the order are wanted.
    first: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum PredicateDescription {
    Compare { comparison: Comparison, path: Path, value: String, denull: bool },
    Keywords { words: Vec<String>, mode: KeywordsMode, reshape: Reshape },
}

impl VersionScan {
    /// Whether other nodes can look at parts of it.
    pub fn is_divisible(&self) -> bool {
        self.spec.part.is_none()
    }

    /// What keeps the first entities of all groups, where this scan is for them, as parts of it find them: above who
    /// gives them, with their positions in this column.
    pub fn keeping(&self, positions: usize) -> Option<KeepFirsts> {
        let spec = &self.spec;
        let groups = spec.computed.group.clone().filter(|_| spec.finds_all_firsts())?;
        Some(KeepFirsts { reader: spec.reader.clone(), groups, positions })
    }

    /// A part as text; `None` where it is none that another process could open.
    pub fn describe(&self) -> Option<ScanDescription> {
        let spec = &self.spec;
        let part = spec.part.as_ref()?;
        let descriptions = spec.predicates.iter().map(|condition| PredicateDescription::of(&condition.predicate));
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
    fn is_of_diff(&self) -> bool {
        false
    }

    fn most_bytes(&self) -> u64 {
        self.spec.reader.size_bytes_with_base()
    }

    /// The order, the first of all groups, or a hash index.
    async fn is_kept(&self) -> bool {
        let spec = &self.spec;
        if let (Some(_), Some(order)) = (&spec.threshold, &spec.computed.order)
            && kept_order::kept_order(&spec.reader, order).await.hit().is_some()
        {
            return true;
        }
        if let (true, Some(groups)) = (spec.finds_all_firsts(), &spec.computed.group)
            && kept_groups::kept_firsts(&spec.reader, groups).await.is_some()
        {
            return true;
        }
        for column in spec.predicates.iter().filter_map(|condition| condition.indexed_column(&spec.reader)) {
            if kept_index::candidate_count(&spec.reader, column.column, column.compare).await.is_some() {
                return true;
            }
        }
        false
    }

    async fn row_groups_to_read(&self) -> Vec<RowGroupToRead> {
        let spec = &self.spec;
        let keys = match spec.computed.group.as_ref().filter(|_| spec.gives(GROUP)) {
            Some(group) => group.reads(&spec.reader).await,
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
        Arc::new(self.looking_at(self.spec.range.clone(), row_groups.into()))
    }
}

impl ScanSpec {
    /// About how many bytes of a row group are to be read that are not in the cache, as they are stored: at most, as
    /// far as statistics and filters may rule it out.
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
        let (groups, entities) = (reader.row_groups().len(), reader.entity_count());
        let is_ascending = self.row_groups.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_ascending || self.row_groups.last().is_some_and(|last| *last >= groups) || self.range.end > entities {
            return Err(exec_datafusion_err!("the row groups of the scan task are not in the file"));
        }
        let predicates = self.predicates.iter().map(PredicateDescription::predicate).collect::<Result<Vec<_>>>()?;
        let computed = Computed { order: self.order.clone(), group: self.group.clone() };
        let scan = VersionScan::new(reader, schema, computed, predicates, self.fetch, threads);
        let scan = match self.first {
            Some(k) => scan.with_top_k(k),
            None => scan,
        };
        Ok(scan.looking_at(self.range.clone(), self.row_groups.clone().into()))
    }
}

impl PredicateDescription {
    fn of(predicate: &Predicate) -> PredicateDescription {
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
