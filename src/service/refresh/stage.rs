//! The stages of a refresh.

use std::sync::{Mutex, PoisonError};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefreshStage {
    /// It asks the source, or waits for its turn.
    #[default]
    Waiting,
    /// The source, or the body, comes.
    Receiving,
    Decoding,
    Writing,
    Publishing,
}

impl RefreshStage {
    pub fn name(self) -> &'static str {
        match self {
            RefreshStage::Waiting => "waiting",
            RefreshStage::Receiving => "receiving",
            RefreshStage::Decoding => "decoding",
            RefreshStage::Writing => "writing",
            RefreshStage::Publishing => "publishing",
        }
    }
}

/// A stage that others may look at.
#[derive(Debug, Default)]
pub(crate) struct Stage(Mutex<RefreshStage>);

impl Stage {
    pub(crate) fn set(&self, stage: RefreshStage) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    pub(crate) fn get(&self) -> RefreshStage {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
