//! The stages of a refresh.

use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
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
    const ALL: [RefreshStage; 5] = [
        RefreshStage::Waiting,
        RefreshStage::Receiving,
        RefreshStage::Decoding,
        RefreshStage::Writing,
        RefreshStage::Publishing,
    ];

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
pub(in crate::service) struct Stage(AtomicU8);

impl Stage {
    pub(in crate::service) fn set(&self, stage: RefreshStage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }

    pub(in crate::service) fn get(&self) -> RefreshStage {
        RefreshStage::ALL.into_iter().nth(self.0.load(Ordering::Relaxed).into()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_the_one_that_was_set() {
        let stage = Stage::default();
        assert_eq!(stage.get(), RefreshStage::Waiting);
        for set in RefreshStage::ALL {
            stage.set(set);
            assert_eq!(stage.get(), set);
        }
    }
}
