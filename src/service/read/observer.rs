//! Collects the stages and figures of a read for explanations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use strata_format::reader::VersionReader;
use strata_format::reader_metrics::ReaderMetrics;
use strata_query::explain::QueryExplanation;
use utoipa::ToSchema;

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadStage {
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

impl ReadStage {
    pub fn description(self) -> &'static str {
        match self {
            ReadStage::Open => "open the file",
            ReadStage::Wait => "wait for a permit",
            ReadStage::Plan => "plan",
            ReadStage::Select => "select entities",
            ReadStage::Count => "count matches",
            ReadStage::Order => "sort documents",
            ReadStage::Columns => "find columns",
            ReadStage::Encode => "fetch documents and encode",
        }
    }
}

pub(crate) struct ReadObserver {
    pub selection_metrics: Arc<ReaderMetrics>,
    pub response_metrics: Arc<ReaderMetrics>,
    pub stages: Vec<(ReadStage, Duration)>,
    stage_started_at: Instant,
    /// The opened version file, and the estimated work of the read in bytes.
    pub opened: Option<(VersionReader, u64)>,
    pub explained: Option<QueryExplanation>,
    pub spilled_bytes: Option<u64>,
    pub columns: Option<usize>,
}

impl ReadObserver {
    pub(crate) fn new() -> ReadObserver {
        ReadObserver {
            selection_metrics: Arc::default(),
            response_metrics: Arc::default(),
            stages: Vec::new(),
            stage_started_at: Instant::now(),
            opened: None,
            explained: None,
            spilled_bytes: None,
            columns: None,
        }
    }

    fn record_stage(&mut self, stage: ReadStage, duration: Duration) {
        self.stages.push((stage, duration));
        self.stage_started_at = Instant::now();
    }

    /// Ends a stage of a read that began when the previous stage ended.
    pub(crate) fn end_stage(&mut self, stage: ReadStage) {
        self.record_stage(stage, self.stage_started_at.elapsed());
    }

    pub(crate) fn end_open_stage(&mut self, reader: &VersionReader, work_bytes: u64) {
        self.end_stage(ReadStage::Open);
        self.opened = Some((reader.clone(), work_bytes));
    }

    pub(crate) fn record_plan_and_select_stages(&mut self, explained: QueryExplanation) {
        self.record_stage(ReadStage::Plan, explained.planning_time);
        self.record_stage(ReadStage::Select, explained.selection_time);
        self.explained = Some(explained);
    }

    pub(crate) fn end_order_stage(&mut self, spilled_bytes: u64) {
        self.end_stage(ReadStage::Order);
        self.spilled_bytes = Some(spilled_bytes);
    }

    pub(crate) fn end_columns_stage(&mut self, columns: usize) {
        self.end_stage(ReadStage::Columns);
        self.columns = Some(columns);
    }
}
