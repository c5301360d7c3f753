//! Tests of the diff of two versions, and of the patch that turns one version into another one.

mod patches;
mod records;
