//! The state that all parts of one diff share.

use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream};

use crate::query::distribute;
use crate::query::fields::chosen::Chosen;
use crate::query::fields::scan::{FieldScan, Wanted};
use crate::query::fields::values::Seeds;
use crate::query::{Engine, QueryError};
use crate::storage::reader::VersionReader;

#[derive(Clone)]
pub(super) struct Session {
    pub(super) readers: [VersionReader; 2],
    pub(super) engine: Engine,
    pub(super) context: Arc<TaskContext>,
    pub(super) seeds: Seeds,
    pub(super) reservation: Arc<MemoryReservation>,
    pub(super) threads: usize,
    pub(super) deadline: Instant,
}

impl Session {
    /// Memory for what goes to disk where it does not fit.
    pub(super) fn spilling(&self, name: &str) -> MemoryReservation {
        MemoryConsumer::new(name).with_can_spill(true).register(self.context.memory_pool())
    }

    /// What is made of the fields of entities that other nodes help to read; `None` where all of them should be read
    /// here, because they are few, or because that failed.
    pub(super) async fn helped<T, F>(
        &self,
        chosen: Chosen,
        wanted: Wanted,
        collect: impl FnOnce(SendableRecordBatchStream) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, QueryError>>,
    {
        let distribution = self.engine.distribution()?;
        let scan = FieldScan::new(&self.readers, chosen, wanted, self.seeds, self.threads);
        let plan = distribution.distribute(&(Arc::new(scan) as _), &self.context, self.engine.tenant()).await?;
        let collected = async { collect(execute_stream(plan.plan.clone(), plan.context.clone())?).await };
        let limit = distribute::most_time(self.deadline.saturating_duration_since(Instant::now()));
        distribute::finish(&**distribution, &plan, limit, collected).await.ok()
    }
}
