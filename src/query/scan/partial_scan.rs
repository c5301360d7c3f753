//! Partial scans, which process some of the row groups of a scan on other nodes: the estimated reads of each row group,
//! and a description from which another process opens the scan for the same version.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::{exec_datafusion_err, internal_datafusion_err};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use serde::{Deserialize, Serialize};
use strata_format::reader::{FileDescription, PrefetchPlan, VersionReader};
use strata_types::field_path::FieldPath;
use strata_types::read_request::KeywordsMode;

use crate::distribution::{PartitionableScan, RowGroupReadEstimate};
use crate::fetch::entity_projection::{EntityProjection, NullTreatment};
use crate::scan::dedup_spec::{DedupReadPlan, DedupSpec};
use crate::scan::distinct_cache::{self, FillDistinctCacheOperator};
use crate::scan::predicate::{ComparisonOperator, KeywordSearch, PathComparison, Predicate};
use crate::scan::scan_columns::{ComputedColumns, GROUP_COLUMN, ORDER_COLUMN, POSITION_COLUMN, scan_column_field};
use crate::scan::scan_report::AccessPath;
use crate::scan::scan_spec::ScanSpec;
use crate::scan::sort_key::{self, OrderSpec};
use crate::scan::version_scan::VersionScan;
use crate::scan::{hash_index, sort_index};

/// Estimate for a search in the keyword index: one in this many documents is read to verify candidates.
const VERIFIED_DOCUMENTS_DIVISOR: u64 = 16;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SerializedScan {
    pub file: FileDescription,
    row_groups: Vec<usize>,
    range: Range<u64>,
    columns: Vec<String>,
    predicates: Vec<SerializedPredicate>,
    order: Option<OrderSpec>,
    group: Option<DedupSpec>,
    fetch: Option<usize>,
    /// The number of entities from the start of the sort order that the query needs.
    first: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum SerializedPredicate {
    Compare { comparison: ComparisonOperator, path: FieldPath, value: String, denull: bool },
    Keywords { words: Vec<String>, mode: KeywordsMode, reshape: EntityProjection },
}

impl VersionScan {
    pub fn can_split_across_nodes(&self) -> bool {
        self.spec.partial_row_groups.is_none()
    }

    pub fn distinct_cache_operator(&self, position_column: usize) -> Option<FillDistinctCacheOperator> {
        let spec = &self.spec;
        let groups = spec.computed.group.clone().filter(|_| spec.is_unrestricted_dedup_scan())?;
        Some(FillDistinctCacheOperator { reader: spec.reader.clone(), groups, position_column })
    }

    /// Describes the scan for another process. Returns `None` if the scan is not partial.
    pub fn to_serialized(&self) -> Option<SerializedScan> {
        let spec = &self.spec;
        let row_groups = spec.partial_row_groups.as_ref()?;
        let predicates = spec.predicates.iter().map(|condition| SerializedPredicate::new(&condition.predicate));
        Some(SerializedScan {
            file: spec.reader.description(),
            row_groups: row_groups.to_vec(),
            range: spec.position_range.clone(),
            columns: spec.schema.fields().iter().map(|field| field.name().clone()).collect(),
            predicates: predicates.collect(),
            order: spec.computed.order.clone(),
            group: spec.computed.group.clone(),
            fetch: spec.fetch,
            first: spec.top_k_threshold.as_ref().map(|threshold| threshold.k),
        })
    }
}

#[async_trait]
impl PartitionableScan for VersionScan {
    fn max_read_bytes(&self) -> u64 {
        self.spec.reader.size_bytes_with_bases()
    }

    async fn has_cached_index(&self) -> bool {
        let spec = &self.spec;
        if let (Some(_), Some(order)) = (&spec.top_k_threshold, &spec.computed.order)
            && sort_index::cached_sort_index(&spec.reader, order).await.into_hit().is_some()
        {
            return true;
        }
        if let (true, Some(groups)) = (spec.is_unrestricted_dedup_scan(), &spec.computed.group)
            && distinct_cache::cached_first_entities(&spec.reader, groups).await.is_some()
        {
            return true;
        }
        for column in spec.predicates.iter().filter_map(|condition| condition.indexed_comparison(&spec.reader)) {
            if hash_index::candidate_count(&spec.reader, column.column, column.compare).await.is_some() {
                return true;
            }
        }
        false
    }

    async fn row_groups_to_read(&self) -> Vec<RowGroupReadEstimate> {
        let spec = &self.spec;
        let keys = match spec.computed.group.as_ref().filter(|_| spec.has_output_column(GROUP_COLUMN)) {
            Some(group) => {
                let profile = match group.compared_paths() {
                    Some(_) => spec.reader.profile_paths().await.ok(),
                    None => None,
                };
                group.plan_key_reads(&spec.reader, profile.as_deref()).await
            }
            None => DedupReadPlan::default(),
        };
        let prefetch = spec.prefetch_plan();
        let to_read = |number: usize| RowGroupReadEstimate {
            row_group: number,
            stable_name: spec.reader.stable_row_group_name(number),
            uncached_bytes: spec.estimate_uncached_bytes(number, &prefetch, &keys),
        };
        spec.row_groups_in_range().map(to_read).collect()
    }

    fn to_partial_scan(&self, row_groups: Vec<usize>) -> Arc<dyn ExecutionPlan> {
        Arc::new(self.with_row_groups(self.spec.position_range.clone(), row_groups.into()))
    }
}

impl ScanSpec {
    fn estimate_uncached_bytes(&self, row_group: usize, prefetch: &PrefetchPlan, keys: &DedupReadPlan) -> u64 {
        let reader = &self.reader;
        let missing = |column: &usize| !reader.has_cached_columns(row_group, &[*column]);
        let columns: BTreeSet<usize> = prefetch.columns.iter().chain(&keys.columns).copied().filter(missing).collect();
        let columns: Vec<usize> = columns.into_iter().collect();
        let mut bytes = reader.total_column_sizes(row_group, &columns).stored_bytes;
        let documents = reader.document_column_bytes(row_group);
        bytes += self.estimate_keyword_index_bytes(row_group).min(documents);
        let order = self.computed.order.as_ref().filter(|_| self.has_output_column(ORDER_COLUMN));
        let orders_documents =
            order.is_some_and(|order| sort_key::sortable_column(reader.layout(), &order.field).is_none());
        let pages = reader.page_count(row_group);
        let missing = || (0..pages).filter(|page| !reader.is_page_cached(row_group, *page)).count() as u64;
        let missing_bytes = || documents / pages.max(1) as u64 * missing();
        let costliest = self.predicates.iter().map(|condition| condition.access_path).max();
        if costliest == Some(AccessPath::Documents) || orders_documents || keys.may_read_documents(reader, row_group) {
            bytes += missing_bytes();
        } else if costliest == Some(AccessPath::KeywordIndex) {
            bytes += missing_bytes() / VERIFIED_DOCUMENTS_DIVISOR;
        }
        bytes
    }
}

impl SerializedScan {
    pub fn schema(&self) -> Result<SchemaRef> {
        let field = |name: &String| match name.as_str() {
            POSITION_COLUMN => Ok(scan_column_field(POSITION_COLUMN)),
            ORDER_COLUMN if self.order.is_some() => Ok(scan_column_field(ORDER_COLUMN)),
            GROUP_COLUMN if self.group.is_some() => Ok(scan_column_field(GROUP_COLUMN)),
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
        let predicates = self.predicates.iter().map(SerializedPredicate::to_predicate).collect::<Result<Vec<_>>>()?;
        let computed = ComputedColumns { order: self.order.clone(), group: self.group.clone() };
        let scan = VersionScan::new(reader, schema, computed, predicates, self.fetch, threads);
        let scan = match self.first {
            Some(k) => scan.with_top_k(k),
            None => scan,
        };
        Ok(scan.with_row_groups(self.range.clone(), self.row_groups.clone().into()))
    }
}

impl SerializedPredicate {
    fn new(predicate: &Predicate) -> SerializedPredicate {
        match predicate.clone() {
            Predicate::Comparison(compare) => {
                let PathComparison { operator: comparison, path, value, denull, .. } = *compare;
                SerializedPredicate::Compare { comparison, path, value, denull }
            }
            Predicate::Keywords(KeywordSearch { words, mode, projection: reshape, .. }) => {
                SerializedPredicate::Keywords { words, mode, reshape }
            }
        }
    }

    fn to_predicate(&self) -> Result<Predicate> {
        match self.clone() {
            SerializedPredicate::Compare { comparison, path, value, denull } => {
                let nulls = NullTreatment::from_denull(denull);
                Ok(Predicate::Comparison(Box::new(PathComparison::new(comparison, path, &value, nulls))))
            }
            SerializedPredicate::Keywords { words, mode, reshape } => {
                if words.is_empty() || words.iter().any(String::is_empty) {
                    return Err(exec_datafusion_err!("the scan task contains an empty keyword"));
                }
                Ok(Predicate::Keywords(KeywordSearch::new(words, mode, reshape)))
            }
        }
    }
}
