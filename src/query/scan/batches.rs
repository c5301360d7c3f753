//! The columns of the selected rows of a row group, in batches that own their memory.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_plan::metrics::Time;
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{SinkExt, StreamExt};

use crate::engine::BATCH_ROWS;
use crate::error::external;
use crate::scan::dedup_source::GroupKeys;
use crate::scan::row_selection::RowSelection;
use crate::scan::schema::{GROUP, ORDER, POSITION};
use crate::scan::sort_key::OrderKeys;
use crate::scan::spec::ScanSpec;

/// Bytes of batches of a row group that are created in advance, which is all of them for most row groups. No
/// reservation accounts for them, and sort keys can be as large as documents.
const MAX_READY_BYTES: usize = 8 << 20;

#[derive(Default)]
pub(super) struct RowGroupOutput {
    pub(super) entities: usize,
    ready: Vec<RecordBatch>,
    /// The other batches, created one by one on demand.
    rest: Option<BoxStream<'static, Result<RecordBatch>>>,
}

impl From<RecordBatch> for RowGroupOutput {
    fn from(batch: RecordBatch) -> RowGroupOutput {
        RowGroupOutput { entities: batch.num_rows(), ready: vec![batch], rest: None }
    }
}

impl RowGroupOutput {
    /// The batches. Adds the time that creating them keeps a thread busy from now on.
    pub(super) fn batches(self, time: &Time) -> BoxStream<'static, Result<RecordBatch>> {
        let ready = stream::iter(self.ready.into_iter().map(Ok));
        let Some(mut rest) = self.rest else { return ready.boxed() };
        let time = time.clone();
        let rest = stream::poll_fn(move |context| {
            let _timer = time.timer();
            rest.poll_next_unpin(context)
        });
        ready.chain(rest).boxed()
    }
}

impl ScanSpec {
    /// The schema's columns of the selected rows.
    pub(super) async fn batches(self: &Arc<Self>, row_group: usize, selected: &RowSelection) -> Result<RowGroupOutput> {
        let fields = self.schema.fields();
        if let RowSelection::Range(rows) = selected
            && fields.iter().all(|field| field.name() == POSITION)
        {
            let first = self.reader.row_groups()[row_group].first;
            let positions = UInt64Array::from_iter_values(first + rows.start as u64..first + rows.end as u64);
            let columns = fields.iter().map(|_| Arc::new(positions.clone()) as ArrayRef).collect();
            return Ok(self.batch(columns, rows.len())?.into());
        }
        if fields.is_empty() {
            return Ok(self.batch(Vec::new(), selected.len())?.into());
        }
        let mut rows: Vec<usize> = selected.iter().collect();
        let entities = rows.len();
        let mut builder = BatchBuilder::open(self, row_group, entities).await?;
        let mut ready = Vec::with_capacity(entities.div_ceil(BATCH_ROWS));
        let mut count = 0;
        let mut bytes = 0;
        while count < entities && bytes < MAX_READY_BYTES {
            let batch = builder.next(&rows[count..]).await?;
            count += batch.num_rows();
            bytes += batch.get_array_memory_size();
            ready.push(batch);
        }
        builder.close();
        let rest = (count < entities).then(|| self.clone().rest(row_group, rows.split_off(count)));
        Ok(RowGroupOutput { entities, ready, rest })
    }

    fn rest(self: Arc<Self>, row_group: usize, rows: Vec<usize>) -> BoxStream<'static, Result<RecordBatch>> {
        let (mut sender, receiver) = mpsc::channel(0);
        let build = async move {
            let mut builder = BatchBuilder::open(&self, row_group, rows.len()).await?;
            let mut left = rows.as_slice();
            while !left.is_empty() {
                tokio::task::consume_budget().await;
                let batch = builder.next(left).await?;
                left = &left[batch.num_rows()..];
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
            builder.close();
            Ok(())
        };
        let failed = stream::once(build).filter_map(|built| async { built.err().map(Err) });
        stream::select(receiver.map(Ok), failed).boxed()
    }
}

struct BatchBuilder<'a> {
    spec: &'a ScanSpec,
    first: u64,
    order: Option<OrderKeys<'a>>,
    group: Option<GroupKeys<'a>>,
}

impl<'a> BatchBuilder<'a> {
    async fn open(spec: &'a ScanSpec, row_group: usize, rows: usize) -> Result<BatchBuilder<'a>> {
        let order = match &spec.computed.order {
            Some(order) if spec.gives(ORDER) => {
                Some(OrderKeys::open(&spec.reader, row_group, rows, order).await.map_err(external)?)
            }
            _ => None,
        };
        let group = match &spec.group_source {
            Some(source) => Some(GroupKeys::open(&spec.reader, row_group, rows, source).await.map_err(external)?),
            None => None,
        };
        Ok(BatchBuilder { spec, first: spec.reader.row_groups()[row_group].first, order, group })
    }

    /// A batch of the first of these rows, at least one.
    async fn next(&mut self, rows: &[usize]) -> Result<RecordBatch> {
        let BatchBuilder { spec, first, order, group } = self;
        let mut rows = &rows[..rows.len().min(BATCH_ROWS)];
        let order = match order {
            Some(order) => Some(order.keys(rows).await.map_err(external)?),
            None => None,
        };
        // A batch has fewer long keys.
        if let Some(order) = &order {
            rows = &rows[..order.len()];
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(spec.schema.fields().len());
        for field in spec.schema.fields() {
            columns.push(match (field.name().as_str(), &order, &mut *group) {
                (POSITION, _, _) => {
                    Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| *first + *row as u64)))
                }
                (ORDER, Some(order), _) => order.clone(),
                (GROUP, _, Some(group)) => group.keys(rows).await.map_err(external)?,
                (other, _, _) => return internal_err!("a scan does not return the column {other}"),
            });
        }
        spec.batch(columns, rows.len())
    }

    fn close(self) {
        self.spec.metrics.order_pages.add(self.order.map_or(0, |order| order.pages.used));
        self.spec.metrics.group_pages.add(self.group.map_or(0, |group| group.pages.used));
    }
}
