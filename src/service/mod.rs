//! The use cases: the only place that combines catalog, storage, query engine, encoders and sources.
//!
//! | Room | Use cases |
//! |---|---|
//! | [`App`] | opening all parts from the configuration |
//! | `read` | a read of a version: look up, select, encode; answers kept and shared by those who ask for the same |
//! | `explain` | what a read does: its plans, and what they cost |
//! | `export_cache` | Parquet exports, made once and served in parts; whose may take how much room |
//! | `admission` | who may work when there is more to do than the machine can: permits that users and networks share fairly |
//! | `rate_limit` | how many requests a client may make |
//! | `refresh` | the one way in which a dataset gets a new version: by fetch, push, schedule or import, to a version file |
//! | `dataset` | what owners do with theirs: settings, alternates, clones, diffs, profiles, edits by agents |
//! | `webhook` | who is told of new versions |
//! | `account` | users, passwords, sessions and tokens |
//! | `maintenance` | remove, verify and copy files; readiness; what catalog and store have in common |
//! | `demo` | the fixtures, loaded for a demo owner |

mod account;
mod admission;
mod app;
mod dataset;
mod demo;
mod explain;
mod export_cache;
mod maintenance;
mod rate_limit;
mod read;
mod refresh;
mod webhook;

pub use account::logins::LoggedIn;
pub use account::{AccountError, AddedUser};
pub use admission::bodies::BodyRoom;
pub use admission::semaphore::{Gate, Holder, Refused};
pub use admission::{Load, Weight};
pub use app::{App, OpenError};
pub use dataset::agent_edits::{PullError, Pulled};
pub use dataset::alternates::{AlternateError, alternate_etag};
pub use dataset::diffs::{DiffError, DiffForm, DiffSummary, VersionDiff};
pub use dataset::manage::ManageError;
pub use dataset::profile::{ProfileError, VersionProfile};
pub use dataset::{DatasetSettings, OwnedDataset};
pub use demo::{DEMO_OWNER, DemoCredentials, DemoDataset, DemoError};
pub use explain::{
    AnswerUse, DocumentUse, ExplainError, Explanation, IgnoredParameter, KeptAnswer, LookupUse, PartUse,
    RequestParameter, StageName, StageTime, WorkUse,
};
pub use export_cache::Export;
pub use maintenance::background::Background;
pub use maintenance::backup::{BackedUp, BackupError, BackupFiles};
pub use maintenance::binding::BindingError;
pub use maintenance::check::{CheckDepth, CheckError, Checked, Finding};
pub use maintenance::readiness::NotReady;
pub use maintenance::scrub::{DamagedFile, Scrubbed};
pub use maintenance::sweep::{SweepError, SweepReason, Swept, SweptFile};
pub use rate_limit::memory::{MemoryRateLimiter, RateCapacity};
pub use rate_limit::{
    Bucket, Client, Clock, Moment, RateLimitDecision, RateLimitStatus, RateLimiter, RateLimits, SystemClock,
};
pub use read::cache_key::CacheKey;
pub use read::fields::{UnknownCause, UnknownField};
pub use read::{Admitted, Answer, AnswerBody, Authorization, Lookup, ReadError, ReadTarget};
pub use refresh::files::{Pushed, PushedEntities};
pub use refresh::import::{ImportError, ImportRequest, Imported, local_path};
pub use refresh::version_file::ImportProgress;
pub use refresh::{Push, RefreshError};
pub use webhook::deliveries::DeliveryError;
