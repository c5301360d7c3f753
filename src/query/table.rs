//! A version as a DataFusion table: a row per entity, in the version's order.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;

use super::functions::predicate_of;
use super::scan::VersionScan;
use crate::storage::reader::VersionReader;

/// The column that holds an entity's position in the version, from 0: the order of rows, as data.
pub const POSITION: &str = "position";

/// The column that holds an entity's document.
pub const DOCUMENT: &str = "document";

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new(POSITION, DataType::UInt64, false),
        Field::new(DOCUMENT, DataType::Binary, false),
    ]))
});

/// A version as a table of [`POSITION`] and [`DOCUMENT`].
#[derive(Debug)]
pub struct VersionTable {
    reader: VersionReader,
    threads: usize,
}

impl VersionTable {
    /// A table over a version file whose scan works on this many row groups at once.
    pub fn new(reader: VersionReader, threads: usize) -> VersionTable {
        VersionTable { reader, threads }
    }
}

#[async_trait]
impl TableProvider for VersionTable {
    fn schema(&self) -> SchemaRef {
        SCHEMA.clone()
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
        let predicates = filters.iter().filter_map(predicate_of).collect();
        let schema = match projection {
            Some(columns) => Arc::new(SCHEMA.project(columns)?),
            None => SCHEMA.clone(),
        };
        Ok(Arc::new(VersionScan::new(self.reader.clone(), schema, predicates, limit, self.threads)))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let exact = |filter: &&Expr| match predicate_of(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(exact).collect())
    }
}
