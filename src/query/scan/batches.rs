//! The columns of the selected rows of a row group, in batches that keep nothing alive but themselves: what sorts and
//! aggregates hold is accounted by batch.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_plan::metrics::Time;
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{SinkExt, StreamExt};

use crate::engine::BATCH_ROWS;
use crate::error::external;
use crate::scan::dedup_key::GroupKeys;
use crate::scan::row_selection::RowSelection;
use crate::scan::schema::{GROUP, ORDER, POSITION};
use crate::scan::sort_key::OrderKeys;
use crate::scan::spec::ScanSpec;

/// Bytes of batches of a row group that are made before anyone asks for them: all of them, most of the time. Nobody
/// accounts for them until they are given, and the values of a sort may be as large as the documents.
const MADE_BYTES: usize = 8 << 20;

#[derive(Default)]
pub(super) struct Given {
    pub(super) entities: usize,
    made: Vec<RecordBatch>,
    /// What comes after, each batch made when the one before has been taken.
    rest: Option<BoxStream<'static, Result<RecordBatch>>>,
}

impl From<RecordBatch> for Given {
    fn from(batch: RecordBatch) -> Given {
        Given { entities: batch.num_rows(), made: vec![batch], rest: None }
    }
}

impl Given {
    /// The batches. The time that their making keeps a thread busy from now on is added to `time`.
    pub(super) fn batches(self, time: &Time) -> BoxStream<'static, Result<RecordBatch>> {
        let made = stream::iter(self.made.into_iter().map(Ok));
        let Some(mut rest) = self.rest else { return made.boxed() };
        let time = time.clone();
        let rest = stream::poll_fn(move |context| {
            let _timer = time.timer();
            rest.poll_next_unpin(context)
        });
        made.chain(rest).boxed()
    }
}

impl ScanSpec {
    /// The schema's columns of the selected rows.
    pub(super) async fn batches(self: &Arc<Self>, row_group: usize, selected: &RowSelection) -> Result<Given> {
        let first = self.reader.row_groups()[row_group].first;
        if let RowSelection::Range(rows) = selected
            && self.schema.fields().iter().all(|field| field.name() == POSITION)
        {
            let positions = UInt64Array::from_iter_values(first + rows.start as u64..first + rows.end as u64);
            let columns = self.schema.fields().iter().map(|_| Arc::new(positions.clone()) as ArrayRef).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            return Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?.into());
        }
        if self.schema.fields().is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(selected.len()));
            return Ok(RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &options)?.into());
        }
        let mut rows: Vec<usize> = selected.iter().collect();
        let entities = rows.len();
        let mut making = Making::open(self, row_group, entities).await?;
        let mut made = Vec::with_capacity(entities.div_ceil(BATCH_ROWS));
        let (mut given, mut bytes) = (0, 0);
        while given < entities && bytes < MADE_BYTES {
            let batch = making.next(&rows[given..]).await?;
            given += batch.num_rows();
            bytes += batch.get_array_memory_size();
            made.push(batch);
        }
        making.close();
        let rest = (given < entities).then(|| self.clone().rest(row_group, rows.split_off(given)));
        Ok(Given { entities, made, rest })
    }

    /// Batches of rows, each made when the one before has been taken.
    fn rest(self: Arc<Self>, row_group: usize, rows: Vec<usize>) -> BoxStream<'static, Result<RecordBatch>> {
        let (mut taker, taken) = mpsc::channel(0);
        let making = async move {
            let mut making = Making::open(&self, row_group, rows.len()).await?;
            let mut left = rows.as_slice();
            while !left.is_empty() {
                tokio::task::consume_budget().await;
                let batch = making.next(left).await?;
                left = &left[batch.num_rows()..];
                // Nobody takes any more: then this is not asked for any more, either.
                if taker.send(batch).await.is_err() {
                    break;
                }
            }
            making.close();
            Ok(())
        };
        let failed = stream::once(making).filter_map(|made| async { made.err().map(Err) });
        stream::select(taken.map(Ok), failed).boxed()
    }
}

struct Making<'a> {
    spec: &'a ScanSpec,
    first: u64,
    order: Option<OrderKeys<'a>>,
    group: Option<GroupKeys<'a>>,
}

impl<'a> Making<'a> {
    async fn open(spec: &'a ScanSpec, row_group: usize, rows: usize) -> Result<Making<'a>> {
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
        Ok(Making { spec, first: spec.reader.row_groups()[row_group].first, order, group })
    }

    /// A batch of the first of these rows: as many as it holds, at least one.
    async fn next(&mut self, rows: &[usize]) -> Result<RecordBatch> {
        let Making { spec, first, order, group } = self;
        let mut rows = &rows[..rows.len().min(BATCH_ROWS)];
        let order = match order {
            Some(order) => Some(order.keys(rows).await.map_err(external)?),
            None => None,
        };
        // Long keys are fewer.
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
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(spec.schema.clone(), columns, &options)?)
    }

    fn close(self) {
        self.spec.metrics.order_pages.add(self.order.map_or(0, |order| order.pages.used));
        self.spec.metrics.group_pages.add(self.group.map_or(0, |group| group.pages.used));
    }
}
