//! A version as a DataFusion table, with a row for each entity in the version's order.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use strata_format::reader::VersionReader;

use crate::plan::functions::called_predicate;
use crate::scan::schema::{Computed, DOCUMENT, GROUP, ORDER, POSITION, field};
use crate::scan::version_scan::VersionScan;

/// A version as a table of [`POSITION`], [`DOCUMENT`], and the computed columns of a query.
#[derive(Debug)]
pub(super) struct VersionTable {
    pub(super) reader: VersionReader,
    /// The number of row groups that the scan processes at once.
    pub(super) threads: usize,
    pub(super) computed: Computed,
}

#[async_trait]
impl TableProvider for VersionTable {
    fn schema(&self) -> SchemaRef {
        let Computed { order, group } = &self.computed;
        let computed = [order.as_ref().map(|_| ORDER), group.as_ref().map(|_| GROUP)].into_iter().flatten();
        Arc::new(Schema::new([POSITION, DOCUMENT].into_iter().chain(computed).map(field).collect::<Vec<_>>()))
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let predicates = filters.iter().filter_map(called_predicate).cloned().collect();
        let schema = match projection {
            Some(columns) => Arc::new(self.schema().project(columns)?),
            None => self.schema(),
        };
        Ok(Arc::new(VersionScan::new(
            self.reader.clone(),
            schema,
            self.computed.clone(),
            predicates,
            limit,
            self.threads,
        )))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let exact = |filter: &&Expr| match called_predicate(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(exact).collect())
    }
}
