//! The use cases: the only crate that combines catalog, storage, query engine, encoders and sources.
//!
//! [`Services`] builds the services and gives access to them. A module uses only modules above it in this table:
//!
//! | Module | Use cases |
//! |---|---|
//! | `rate_limit` | how many requests a client can make |
//! | `admission` | permits that users and networks share fairly, for when there is more work than the machine can do |
//! | `lookup` | finds the target of a read |
//! | `version_path` | the paths of version files in the store |
//! | `maintenance` | removes, verifies and copies files; readiness; the binding of catalog and store |
//! | `manage` | the common part of management: errors, and how owners write |
//! | `export_cache` | Parquet exports, created once and served in parts; disk quotas |
//! | `read` | the path of every read: authorize, plan, execute, encode; with a cache, single flight and compression |
//! | `explain` | what a read does: its plans, and their costs |
//! | `webhook` | notifies owners of new versions |
//! | `refresh` | creates versions: by fetch, push, schedule or import, to a version file |
//! | `dataset` | the datasets of owners: settings, alternates, clones, diffs, profiles, edits by agents |
//! | `account` | users, passwords, sessions and tokens |
//! | `usage` | counts the reads of each dataset, and records them every few seconds |
//! | `demo` | the fixtures, loaded for a demo owner |
//! | `services` | the composition root |

mod account;
mod admission;
mod dataset;
mod demo;
mod explain;
mod export_cache;
mod lookup;
mod maintenance;
mod manage;
mod rate_limit;
mod read;
mod refresh;
mod services;
mod usage;
mod version_path;
pub mod webhook;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use account::logins::{LoggedIn, Logins};
pub use account::session_origin::SessionOrigin;
pub use account::sessions::{OwnedSession, Sessions};
pub use account::{AccountError, Accounts};

pub use admission::bodies::{BodyRoom, LargeBodies};
pub use admission::large_responses::{LargeResponses, ResponseReservation, UNCHARGED_BYTES};
pub use admission::{Load, Weight};
pub use dataset::agent_edits::Pulled;
pub use dataset::alternate_edits::{EntityChange, EntityEdit};
pub use dataset::alternates::{AlternateError, EditError, EditProblem, alternate_etag};
pub use dataset::diffs::{DiffError, DiffForm, DiffSides, DiffSummary, Diffs, VersionDiff};
pub use dataset::profile::{ProfileError, ProfileRequest, VersionProfile};
pub use dataset::{Datasets, OwnedDataset, visibility};
pub use demo::{DEMO_OWNER, Demo, DemoCredentials, DemoDataset, DemoError, DemoExample, demo_examples};
pub use explain::{Explanation, IgnoredParameter};
pub use export_cache::{Export, ExportState};
pub use lookup::cache_key::CacheKey;
pub use lookup::error::{ReadError, UnknownCause, UnknownField};
pub use lookup::{Admitted, Authorization, Lookup, Lookups, ReadTarget};
pub use maintenance::Maintenance;
pub use maintenance::backup::{BackedUp, BackupError, BackupFiles, OnDamage};
pub use maintenance::binding::BindingError;
pub use maintenance::check::{CheckDepth, CheckError, Checked, Finding};
pub use maintenance::readiness::{NotReady, Readiness};
pub use maintenance::restore::{RestoreError, Restored, restore};
pub use maintenance::scrub::{DamagedFile, Scrubbed};
pub use maintenance::sweep::{SweepError, SweepReason, Swept, SweptFile};
pub use manage::ManageError;
pub use rate_limit::memory::{MemoryRateLimiter, RateCapacity};
pub use rate_limit::shared::{SharedRateLimiter, connect as connect_to_redis};
pub use rate_limit::{
    Bucket, Clock, ExportId, ExportPart, Moment, RateLimitDecision, RateLimitStatus, RateLimiter, RateLimits,
    SystemClock,
};
pub use read::ahead::ExportsAhead;
pub use read::edited::InAlternate;
pub use read::hints::{FilterHint, deep_sort_hint};
pub use read::pipeline::{AuthorizedRead, Requester};
pub use read::{Answer, AnswerBody, InspectError, Reads};
pub use refresh::decoding::{ImportProgress, RefreshStage};
pub use refresh::error::RefreshError;
pub use refresh::import::{ImportError, ImportRequest, Imported, local_path};
pub use refresh::ingest::{Ingest, Pushed, PushedEntities};
pub use refresh::push::Push;
pub use refresh::running::{RefreshProgress, Watch};
pub use refresh::{Refreshed, Refreshes};
pub use services::{Background, Dependencies, OpenError, Purpose, Services};
pub use strata_limits::{Client, Overloaded, Principal};
pub use usage::{Usage, UsageMeter};
pub use webhook::Webhooks;
pub use webhook::deliveries::{Deliveries, DeliveryError};

/// Locks a value that no panic leaves half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
