//! Observes the making of an answer, for explanations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use strata_format::reader::VersionReader;
use strata_format::reader_metrics::ReaderMetrics;
use strata_query::explain::Explained;
use utoipa::ToSchema;

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageName {
    /// Reading the footer of the file.
    Open,
    /// Waiting for a permit.
    Wait,
    /// Planning the query.
    Plan,
    /// Selecting and ordering the entities.
    Select,
    /// Counting the matches, for `total`.
    Count,
    /// Sorting many documents into the order of the response, if that order differs from the file's order.
    Order,
    /// Finding the columns of a table.
    Columns,
    /// Reading the documents and encoding the body.
    Encode,
}

impl StageName {
    /// What is done, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            StageName::Open => "open the file",
            StageName::Wait => "wait for a permit",
            StageName::Plan => "plan",
            StageName::Select => "select entities",
            StageName::Count => "count matches",
            StageName::Order => "sort documents",
            StageName::Columns => "find columns",
            StageName::Encode => "fetch documents and encode",
        }
    }
}

pub(crate) struct Observer {
    /// What opening the file and selecting ask for.
    pub selecting: Arc<ReaderMetrics>,
    pub answering: Arc<ReaderMetrics>,
    /// The stages so far, in their order, with their durations.
    pub stages: Vec<(StageName, Duration)>,
    lap: Instant,
    /// The file, and the estimated work in bytes.
    pub opened: Option<(VersionReader, u64)>,
    pub explained: Option<Explained>,
    /// Bytes of documents that were sorted on disk.
    pub spilled_bytes: Option<u64>,
    pub columns: Option<usize>,
}

impl Observer {
    pub(crate) fn start() -> Observer {
        Observer {
            selecting: Arc::default(),
            answering: Arc::default(),
            stages: Vec::new(),
            lap: Instant::now(),
            opened: None,
            explained: None,
            spilled_bytes: None,
            columns: None,
        }
    }

    fn took(&mut self, stage: StageName, duration: Duration) {
        self.stages.push((stage, duration));
        self.lap = Instant::now();
    }

    /// A stage is over that began when the one before was.
    pub(crate) fn over(&mut self, stage: StageName) {
        self.took(stage, self.lap.elapsed());
    }

    pub(crate) fn opened(&mut self, reader: &VersionReader, work_bytes: u64) {
        self.over(StageName::Open);
        self.opened = Some((reader.clone(), work_bytes));
    }

    pub(crate) fn selected(&mut self, explained: Explained) {
        self.took(StageName::Plan, explained.planning);
        self.took(StageName::Select, explained.selecting);
        self.explained = Some(explained);
    }

    /// Documents have been put in order by way of the disk, so many bytes of them.
    pub(crate) fn ordered(&mut self, spilled_bytes: u64) {
        self.over(StageName::Order);
        self.spilled_bytes = Some(spilled_bytes);
    }

    pub(crate) fn columns_found(&mut self, columns: usize) {
        self.over(StageName::Columns);
        self.columns = Some(columns);
    }
}
