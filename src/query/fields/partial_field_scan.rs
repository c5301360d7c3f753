//! Partial scans of fields, which process some row groups on other nodes, like [`crate::scan::partial_scan`].

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use serde::{Deserialize, Serialize};
use strata_format::reader::{FileDescription, VersionReader};

use super::entity_counts::{self, DiffEntityCounts};
use super::field_hash::HashSeeds;
use super::field_scan::{FieldScan, FieldScanOutput};
use super::row_group_fields::FieldRanks;
use crate::distribution::{PartitionableScan, RowGroupReadEstimate};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SerializedFieldScan {
    pub files: [FileDescription; 2],
    units: Vec<usize>,
    /// The entities to scan, encoded by [`DiffEntityCounts::encode_counts`].
    chosen: String,
    seeds: HashSeeds,
    /// The escaped field names by rank, for a scan of features (values per entity). `None` for a scan of values.
    ranks: Option<Vec<String>>,
}

impl FieldScan {
    pub fn can_split_across_nodes(&self) -> bool {
        !self.is_partial
    }

    /// Returns `None` if the scan is not partial.
    pub fn to_serialized(&self) -> Option<SerializedFieldScan> {
        Some(SerializedFieldScan {
            files: [self.readers[0].description(), self.readers[1].description()],
            units: self.units.to_vec(),
            chosen: self.entity_counts.encode_counts(&self.readers, &self.units).ok().filter(|_| self.is_partial)?,
            seeds: self.seeds,
            ranks: match &self.output {
                FieldScanOutput::Values => None,
                FieldScanOutput::Features(ranks) => Some(ranks.field_names_by_rank()?),
            },
        })
    }
}

#[async_trait]
impl PartitionableScan for FieldScan {
    fn is_diff_scan(&self) -> bool {
        true
    }

    fn max_read_bytes(&self) -> u64 {
        self.readers.iter().map(VersionReader::size_bytes_with_bases).fold(0, u64::saturating_add)
    }

    async fn row_groups_to_read(&self) -> Vec<RowGroupReadEstimate> {
        let mut row_groups = Vec::with_capacity(self.units.len());
        for unit in self.units.iter() {
            tokio::task::consume_budget().await;
            let Some((version, row_group)) = entity_counts::locate_row_group(&self.readers, *unit) else { continue };
            let reader = &self.readers[version];
            let counts = self.entity_counts.counts_by_row(&self.readers, *unit);
            let pages = reader.page_count(row_group);
            let wanted_rows = counts.iter().filter(|count| **count > 0).count();
            let is_missing = |page: &usize| !reader.is_page_cached(row_group, *page);
            let missing = match wanted_rows < pages {
                false => (0..pages).filter(is_missing).count(),
                true => {
                    let rows = (0..counts.len()).filter(|row| counts[*row] > 0);
                    let pages: HashSet<usize> = rows.map(|row| reader.page_for_row(row_group, row)).collect();
                    pages.iter().filter(|page| is_missing(page)).count()
                }
            };
            let documents = reader.document_column_bytes(row_group);
            row_groups.push(RowGroupReadEstimate {
                row_group: *unit,
                stable_name: reader.stable_row_group_name(row_group),
                uncached_bytes: documents / pages.max(1) as u64 * missing as u64,
            });
        }
        row_groups
    }

    fn to_partial_scan(&self, row_groups: Vec<usize>) -> Arc<dyn ExecutionPlan> {
        Arc::new(self.with_row_groups(row_groups.into()))
    }
}

impl SerializedFieldScan {
    pub fn schema(&self) -> SchemaRef {
        match &self.ranks {
            None => FieldScanOutput::Values.schema(),
            Some(_) => FieldScanOutput::Features(Arc::default()).schema(),
        }
    }

    /// Creates the field scan for the opened files of both versions. The scan processes `threads` row groups at once.
    pub fn open(&self, readers: &[VersionReader; 2], threads: usize) -> Result<FieldScan> {
        if !self.units.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err(exec_datafusion_err!("the row groups of a diff task are not in ascending order"));
        }
        let entity_counts = DiffEntityCounts::decode_counts(&self.chosen, readers, &self.units)?;
        let features = |names: &Vec<String>| {
            let ranks = names.iter().zip(0..).map(|(name, rank)| (name.as_bytes().into(), rank));
            FieldScanOutput::Features(Arc::new(FieldRanks(ranks.collect())))
        };
        let output = self.ranks.as_ref().map_or(FieldScanOutput::Values, features);
        let scan = FieldScan::new(readers, entity_counts, output, self.seeds, threads);
        Ok(scan.with_row_groups(self.units.clone().into()))
    }
}

impl FieldRanks {
    fn field_names_by_rank(&self) -> Option<Vec<String>> {
        let mut names = vec![None; self.0.len()];
        for (name, rank) in &self.0 {
            *names.get_mut(*rank as usize)? = Some(String::from_utf8(name.to_vec()).ok()?);
        }
        names.into_iter().collect()
    }
}
