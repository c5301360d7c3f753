//! A version as a DataFusion table with a row for each entity, in the order of the version.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use strata_format::reader::VersionReader;

use crate::plan::functions::predicate_from_call;
use crate::scan::scan_columns::{
    ComputedColumns, DOCUMENT_COLUMN, GROUP_COLUMN, ORDER_COLUMN, POSITION_COLUMN, scan_column_field,
};
use crate::scan::version_scan::VersionScan;

#[derive(Debug)]
pub(super) struct VersionTable {
    pub(super) reader: VersionReader,
    pub(super) threads: usize,
    pub(super) computed: ComputedColumns,
}

#[async_trait]
impl TableProvider for VersionTable {
    fn schema(&self) -> SchemaRef {
        let ComputedColumns { order, group } = &self.computed;
        let computed =
            [order.as_ref().map(|_| ORDER_COLUMN), group.as_ref().map(|_| GROUP_COLUMN)].into_iter().flatten();
        let columns = [POSITION_COLUMN, DOCUMENT_COLUMN].into_iter().chain(computed);
        Arc::new(Schema::new(columns.map(scan_column_field).collect::<Vec<_>>()))
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
        let predicates = filters.iter().filter_map(predicate_from_call).cloned().collect();
        let schema = match projection {
            Some(columns) => Arc::new(self.schema().project(columns)?),
            None => self.schema(),
        };
        let reader = self.reader.clone();
        Ok(Arc::new(VersionScan::new(reader, schema, self.computed.clone(), predicates, limit, self.threads)))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let exact = |filter: &&Expr| match predicate_from_call(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(exact).collect())
    }
}
