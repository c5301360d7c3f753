//! Partial scans of fields, which process some row groups on other nodes, like [`crate::scan::part`].

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use serde::{Deserialize, Serialize};
use strata_format::reader::{FileDescription, VersionReader};

use super::chosen::{self, Chosen};
use super::row_group::Ranks;
use super::scan::{FieldScan, Wanted};
use super::values::Seeds;
use crate::distribute::{Divisible, RowGroupToRead};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldScanDescription {
    pub files: [FileDescription; 2],
    units: Vec<usize>,
    /// See [`Chosen::write`].
    chosen: String,
    seeds: Seeds,
    /// The escaped names of the fields for features, by rank. `None` for values.
    ranks: Option<Vec<String>>,
}

impl FieldScan {
    pub fn is_divisible(&self) -> bool {
        !self.is_part
    }

    /// `None` if the scan is not partial.
    pub fn describe(&self) -> Option<FieldScanDescription> {
        Some(FieldScanDescription {
            files: [self.readers[0].description(), self.readers[1].description()],
            units: self.units.to_vec(),
            chosen: self.chosen.write(&self.readers, &self.units).ok().filter(|_| self.is_part)?,
            seeds: self.seeds,
            ranks: match &self.wanted {
                Wanted::Values => None,
                Wanted::Features(ranks) => Some(ranks.names()?),
            },
        })
    }
}

#[async_trait]
impl Divisible for FieldScan {
    fn is_of_diff(&self) -> bool {
        true
    }

    fn most_bytes(&self) -> u64 {
        self.readers.iter().map(VersionReader::size_bytes_with_base).fold(0, u64::saturating_add)
    }

    async fn row_groups_to_read(&self) -> Vec<RowGroupToRead> {
        let mut row_groups = Vec::with_capacity(self.units.len());
        for unit in self.units.iter() {
            tokio::task::consume_budget().await;
            let Some((version, row_group)) = chosen::place(&self.readers, *unit) else { continue };
            let reader = &self.readers[version];
            let counts = self.chosen.counts(&self.readers, *unit);
            let pages = reader.page_count(row_group);
            let wanted = counts.iter().filter(|count| **count > 0).count();
            let is_missing = |page: &usize| !reader.caches_page(row_group, *page);
            let missing = match wanted < pages {
                false => (0..pages).filter(is_missing).count(),
                true => {
                    let rows = (0..counts.len()).filter(|row| counts[*row] > 0);
                    let pages: HashSet<usize> = rows.map(|row| reader.page_of(row_group, row)).collect();
                    pages.iter().filter(|page| is_missing(page)).count()
                }
            };
            let (_, documents) = reader.search_and_document_bytes(row_group);
            row_groups.push(RowGroupToRead {
                number: *unit,
                name: reader.name_of(row_group),
                bytes: documents / pages.max(1) as u64 * missing as u64,
            });
        }
        row_groups
    }

    fn part(&self, row_groups: Vec<usize>) -> Arc<dyn ExecutionPlan> {
        Arc::new(self.with_row_groups(row_groups.into()))
    }
}

impl FieldScanDescription {
    pub fn schema(&self) -> SchemaRef {
        match &self.ranks {
            None => Wanted::Values.schema(),
            Some(_) => Wanted::Features(Arc::default()).schema(),
        }
    }

    /// The scan of opened files. It processes `threads` row groups at once.
    pub fn open(&self, readers: &[VersionReader; 2], threads: usize) -> Result<FieldScan> {
        if !self.units.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err(exec_datafusion_err!("the row groups of a diff task are not in ascending order"));
        }
        let chosen = Chosen::read(&self.chosen, readers, &self.units)?;
        let features = |names: &Vec<String>| Wanted::Features(Arc::new(Ranks::from_names(names)));
        let wanted = self.ranks.as_ref().map_or(Wanted::Values, features);
        let scan = FieldScan::new(readers, chosen, wanted, self.seeds, threads);
        Ok(scan.with_row_groups(self.units.clone().into()))
    }
}

impl Ranks {
    fn names(&self) -> Option<Vec<String>> {
        let mut names = vec![None; self.0.len()];
        for (name, rank) in &self.0 {
            *names.get_mut(*rank as usize)? = Some(String::from_utf8(name.to_vec()).ok()?);
        }
        names.into_iter().collect()
    }

    fn from_names(names: &[String]) -> Ranks {
        Ranks(names.iter().zip(0..).map(|(name, rank)| (name.as_bytes().into(), rank)).collect())
    }
}
