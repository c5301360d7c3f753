//! Creates the output of a row group: the columns of its selected rows, in batches that own their memory.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_plan::metrics::Time;
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{SinkExt, StreamExt};

use crate::engine::BATCH_ROWS;
use crate::error::to_external_error;
use crate::scan::dedup_key_source::DedupKeyReader;
use crate::scan::row_selection::RowSelection;
use crate::scan::scan_columns::{GROUP_COLUMN, ORDER_COLUMN, POSITION_COLUMN};
use crate::scan::scan_spec::ScanSpec;
use crate::scan::sort_key::OrderKeyReader;

/// Max bytes of the batches that a row group creates in advance. Most row groups have fewer bytes. The limit is
/// necessary because no reservation accounts for these batches, and sort keys can be as large as documents.
const MAX_READY_BATCH_BYTES: usize = 8 << 20;

#[derive(Default)]
pub(super) struct RowGroupOutput {
    pub(super) entities: usize,
    ready_batches: Vec<RecordBatch>,
    remaining_batches: Option<BoxStream<'static, Result<RecordBatch>>>,
}

impl From<RecordBatch> for RowGroupOutput {
    fn from(batch: RecordBatch) -> RowGroupOutput {
        RowGroupOutput { entities: batch.num_rows(), ready_batches: vec![batch], remaining_batches: None }
    }
}

impl RowGroupOutput {
    /// Returns the batches of a row group. Adds the time in which their creation keeps a thread busy to `time`.
    pub(super) fn into_batches(self, time: &Time) -> BoxStream<'static, Result<RecordBatch>> {
        let ready = stream::iter(self.ready_batches.into_iter().map(Ok));
        let Some(mut rest) = self.remaining_batches else { return ready.boxed() };
        let time = time.clone();
        let rest = stream::poll_fn(move |context| {
            let _timer = time.timer();
            rest.poll_next_unpin(context)
        });
        ready.chain(rest).boxed()
    }
}

impl ScanSpec {
    pub(super) async fn read_batches(
        self: &Arc<Self>,
        row_group: usize,
        selected: &RowSelection,
    ) -> Result<RowGroupOutput> {
        let fields = self.schema.fields();
        if let RowSelection::Range(rows) = selected
            && fields.iter().all(|field| field.name() == POSITION_COLUMN)
        {
            let first = self.reader.row_groups()[row_group].first_position;
            let positions = UInt64Array::from_iter_values(first + rows.start as u64..first + rows.end as u64);
            let columns = fields.iter().map(|_| Arc::new(positions.clone()) as ArrayRef).collect();
            return Ok(self.new_record_batch(columns, rows.len())?.into());
        }
        if fields.is_empty() {
            return Ok(self.new_record_batch(Vec::new(), selected.len())?.into());
        }
        let mut rows: Vec<usize> = selected.iter().collect();
        let entities = rows.len();
        let mut builder = ScanBatchBuilder::open(self, row_group, entities).await?;
        let mut ready_batches = Vec::with_capacity(entities.div_ceil(BATCH_ROWS));
        let mut count = 0;
        let mut bytes = 0;
        while count < entities && bytes < MAX_READY_BATCH_BYTES {
            let batch = builder.next_batch(&rows[count..]).await?;
            count += batch.num_rows();
            bytes += batch.get_array_memory_size();
            ready_batches.push(batch);
        }
        builder.record_pages_read();
        let rest = (count < entities).then(|| self.clone().stream_rows(row_group, rows.split_off(count)));
        Ok(RowGroupOutput { entities, ready_batches, remaining_batches: rest })
    }

    fn stream_rows(self: Arc<Self>, row_group: usize, rows: Vec<usize>) -> BoxStream<'static, Result<RecordBatch>> {
        let (mut sender, receiver) = mpsc::channel(0);
        let build = async move {
            let mut builder = ScanBatchBuilder::open(&self, row_group, rows.len()).await?;
            let mut left = rows.as_slice();
            while !left.is_empty() {
                tokio::task::consume_budget().await;
                let batch = builder.next_batch(left).await?;
                left = &left[batch.num_rows()..];
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
            builder.record_pages_read();
            Ok(())
        };
        let failed = stream::once(build).filter_map(|built| async { built.err().map(Err) });
        stream::select(receiver.map(Ok), failed).boxed()
    }
}

struct ScanBatchBuilder<'a> {
    spec: &'a ScanSpec,
    first_position: u64,
    order: Option<OrderKeyReader<'a>>,
    group: Option<DedupKeyReader<'a>>,
}

impl<'a> ScanBatchBuilder<'a> {
    async fn open(spec: &'a ScanSpec, row_group: usize, rows: usize) -> Result<ScanBatchBuilder<'a>> {
        let order = match &spec.computed.order {
            Some(order) if spec.has_output_column(ORDER_COLUMN) => {
                Some(OrderKeyReader::open(&spec.reader, row_group, rows, order).await.map_err(to_external_error)?)
            }
            _ => None,
        };
        let group = match &spec.dedup_key_source {
            Some(source) => {
                Some(DedupKeyReader::open(&spec.reader, row_group, rows, source).await.map_err(to_external_error)?)
            }
            None => None,
        };
        Ok(ScanBatchBuilder { spec, first_position: spec.reader.row_groups()[row_group].first_position, order, group })
    }

    /// Creates a batch of at least one row from the start of `rows`.
    async fn next_batch(&mut self, rows: &[usize]) -> Result<RecordBatch> {
        let ScanBatchBuilder { spec, first_position, order, group } = self;
        let mut rows = &rows[..rows.len().min(BATCH_ROWS)];
        let order = match order {
            Some(order) => Some(order.read_keys(rows).await.map_err(to_external_error)?),
            None => None,
        };
        // If sort keys are long, a batch has fewer rows.
        if let Some(order) = &order {
            rows = &rows[..order.len()];
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(spec.schema.fields().len());
        for field in spec.schema.fields() {
            columns.push(match (field.name().as_str(), &order, &mut *group) {
                (POSITION_COLUMN, _, _) => {
                    Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| *first_position + *row as u64)))
                }
                (ORDER_COLUMN, Some(order), _) => order.clone(),
                (GROUP_COLUMN, _, Some(group)) => group.read_keys(rows).await.map_err(to_external_error)?,
                (other, _, _) => return internal_err!("a scan does not return the column {other}"),
            });
        }
        spec.new_record_batch(columns, rows.len())
    }

    fn record_pages_read(self) {
        self.spec.metrics.order_pages_read.add(self.order.map_or(0, |order| order.page_reader.pages_read));
        self.spec.metrics.group_pages_read.add(self.group.map_or(0, |group| group.page_reader.pages_read));
    }
}
