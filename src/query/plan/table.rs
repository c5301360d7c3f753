//! A version as a DataFusion table: a row per entity, in the version's order.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;

use crate::query::plan::functions::predicate_of;
use crate::query::scan::VersionScan;
use crate::query::scan::columns::{GroupSpec, OrderSpec};
use crate::storage::reader::VersionReader;

/// The column that holds an entity's position in the version, from 0: the order of rows, as data.
pub const POSITION: &str = "position";

/// The column that holds an entity's document.
pub const DOCUMENT: &str = "document";

/// The column that holds the key of `sort`, where there is one: bytes that order as the entities shall.
pub const ORDER: &str = "order";

/// The column that holds the key of `dedup`, where there is one: bytes that are equal for duplicates.
pub const GROUP: &str = "group";

/// A version as a table of [`POSITION`], [`DOCUMENT`], and the computed columns of a query.
#[derive(Debug)]
pub struct VersionTable {
    reader: VersionReader,
    threads: usize,
    computed: Computed,
}

/// The computed columns of a query.
#[derive(Clone, Debug, Default)]
pub struct Computed {
    /// [`ORDER`].
    pub order: Option<OrderSpec>,
    /// [`GROUP`].
    pub group: Option<GroupSpec>,
}

impl VersionTable {
    /// A table over a version file whose scan works on this many row groups at once.
    pub fn new(reader: VersionReader, threads: usize) -> VersionTable {
        VersionTable { reader, threads, computed: Computed::default() }
    }

    /// The same with the column [`ORDER`].
    pub fn with_order(mut self, order: Option<OrderSpec>) -> VersionTable {
        self.computed.order = order;
        self
    }

    /// The same with the column [`GROUP`].
    pub fn with_group(mut self, group: Option<GroupSpec>) -> VersionTable {
        self.computed.group = group;
        self
    }
}

#[async_trait]
impl TableProvider for VersionTable {
    fn schema(&self) -> SchemaRef {
        let mut fields =
            vec![Field::new(POSITION, DataType::UInt64, false), Field::new(DOCUMENT, DataType::Binary, false)];
        if self.computed.order.is_some() {
            fields.push(Field::new(ORDER, DataType::Binary, false));
        }
        if self.computed.group.is_some() {
            fields.push(Field::new(GROUP, DataType::Binary, false));
        }
        Arc::new(Schema::new(fields))
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
        let exact = |filter: &&Expr| match predicate_of(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(exact).collect())
    }
}
