//! Checks of a list of entities before it becomes a version (docs/reference/refresh-checks.md).
//!
//! Problem: a source can break and still return a valid document, for example half of the entities, or prices as
//! strings. Without checks, the broken list becomes the active version. With checks, the refresh fails instead, and
//! reads continue to return the previous version. For example, the checks `{"required":["name"]}` reject the list
//! `[{"name":"Oslo"},{"name":null}]` with the text:
//!
//! ```text
//! required: 1 of 2 entities fails; first at position 1: `name` is null
//! ```
//!
//! 1. [`CheckSettings::parse`] validates the member `checks` of a dataset and compiles its JSON Schema.
//! 2. [`CheckRun::add_entity`] receives the entities in order, while they are decoded or read from a version.
//! 3. [`SortedCheckRun::into_report`] returns a [`CheckReport`] with one result for each check.
//!
//! Invariants:
//!
//! - Paths reach values as in queries, and two keys are equal exactly if `dedup_key` finds the entities equal.
//! - The memory does not depend on the number of entities: `unique` sorts hashes of keys on disk ([`RecordSorter`]).
//! - The texts of a report have at most [`MAX_REPORT_CHARACTERS`], regardless of the entities.
//! - No JSON Schema makes the work or the stack for an entity unbounded ([`schema_bounds`]).

mod drop_percent;
mod entity_checks;
mod entity_schema;
mod excerpt;
mod record_sorter;
mod report;
mod run;
mod schema_bounds;
mod settings;
mod unique_keys;

pub use record_sorter::RecordSorter;
pub use report::{CheckName, CheckReport, CheckResult, FailedEntities, FailedEntity, MAX_REPORT_CHARACTERS};
pub use run::{ActiveVersion, CheckRun, SortedCheckRun};
pub use settings::{CheckSettings, InvalidChecks};
pub use unique_keys::KeySorter;
