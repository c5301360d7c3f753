//! The scan of a node, as it arrives from the one that answers: its file is opened when it runs.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::query::fields::part::FieldScanDescription;
use crate::query::fields::scan::FieldScan;
use crate::query::operator::{in_one_partition, leaf};
use crate::query::scan::part::ScanDescription;
use crate::query::scan::version_scan::VersionScan;
use crate::storage::cache::PartCache;
use crate::storage::reader::VersionReader;
use crate::storage::store::Store;

#[derive(Clone)]
pub(super) struct Files {
    pub(super) store: Store,
    pub(super) cache: PartCache,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Described {
    Entities(Box<ScanDescription>),
    Fields(Box<FieldScanDescription>),
}

impl Described {
    /// An operator; `None` where it is no scan of a part.
    pub(super) fn of(scan: &Arc<dyn ExecutionPlan>) -> Option<Described> {
        let entities = || Some(Described::Entities(Box::new(scan.downcast_ref::<VersionScan>()?.describe()?)));
        let fields = || Some(Described::Fields(Box::new(scan.downcast_ref::<FieldScan>()?.describe()?)));
        entities().or_else(fields)
    }

    fn schema(&self) -> Result<SchemaRef> {
        match self {
            Described::Entities(scan) => scan.schema(),
            Described::Fields(scan) => Ok(scan.schema()),
        }
    }

    /// The scan, of opened files, on so many row groups at once.
    async fn open(&self, files: &Files, threads: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let open = async |file| {
            let reader = VersionReader::open_described(&files.store, file, &files.cache).await;
            reader.map_err(|error| DataFusionError::External(Box::new(error)))
        };
        Ok(match self {
            Described::Entities(scan) => Arc::new(scan.open(open(scan.file()).await?, threads)?),
            Described::Fields(scan) => {
                let [one, other] = scan.files();
                Arc::new(scan.open(&[open(one).await?, open(other).await?], threads)?)
            }
        })
    }
}

pub(super) struct PartScan {
    described: Arc<Described>,
    files: Files,
    threads: usize,
    properties: Arc<PlanProperties>,
}

impl PartScan {
    pub(super) fn try_new(described: Described, files: Files, threads: usize) -> Result<PartScan> {
        let properties = in_one_partition(EquivalenceProperties::new(described.schema()?));
        Ok(PartScan { described: Arc::new(described), files, threads, properties })
    }
}

impl PartScan {
    pub(super) fn is_of_diff(&self) -> bool {
        matches!(*self.described, Described::Fields(_))
    }
}

impl fmt::Debug for PartScan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PartScan").field("described", &self.described).finish_non_exhaustive()
    }
}

impl DisplayAs for PartScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PartScan")
    }
}

impl ExecutionPlan for PartScan {
    fn name(&self) -> &'static str {
        "PartScan"
    }

    leaf!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (described, files, threads) = (self.described.clone(), self.files.clone(), self.threads);
        let opened = async move { described.open(&files, threads).await?.execute(partition, context) };
        let batches = futures::stream::once(opened).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
