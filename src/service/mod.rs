//! The use cases: the only place that combines catalog, storage, query engine, encoders and sources.
//!
//! | Module | Use case |
//! |---|---|
//! | [`App`] | opening all parts from the configuration |
//! | `read` | a read of a version: resolve, select, encode |
//! | `profile` | what a version contains |
//! | `lookups` | what the catalog said of a read's target, kept for less than a second |
//! | `rate`, `rate_memory` | how many requests a client may make |
//! | `identity` | what an answer is the answer to |
//! | `bodies` | room for large bodies of management calls |
//! | `body`, `stream` | the selected entities to the bytes of an answer |
//! | `catalog_gates` | fair shares of the catalog: changes of owners, look-ups of callers |
//! | `fair`, `fair_queue` | a semaphore that users and networks share fairly |
//! | `admission` | who may work when there is more to do than the machine can |
//! | `responses` | answers as they are sent: compressed, shared by those who ask for the same, kept while they are small |
//! | `explain` | what a read does: its plans, and what they cost |
//! | `exports`, `export_room` | Parquet exports, made once and served in parts; whose may take how much room |
//! | `under_way` | work that equal requests share |
//! | `diffs` | what two versions differ in |
//! | `binding` | that catalog and store belong together |
//! | `files` | version files between their first byte and their record |
//! | `refresh` | the one way in which a dataset gets a new version |
//! | `version_file` | entities to a version file |
//! | `import` | a source on the command line to a new version of a dataset |
//! | `scheduler`, `deliveries`, `background` | what a server does besides answering: scheduled refreshes, webhooks |
//! | `scratch` | the directory of temporary files |
//! | `readiness` | whether catalog and store can be written |
//! | `private_files` | what other users of the machine can reach |
//! | `outgoing` | what leaves the service, within the configuration |
//! | `alternates` | the second entity list of a version |
//! | `edits` | the entities of a version for an editor, whose alternate comes back |
//! | `clones` | new datasets that begin with another's latest version |
//! | `sweep`, `check`, `scrub`, `backup` | the care for files: remove, verify at once or bit by bit, copy |
//! | `damage` | what the log says of files that cannot be read |
//! | `manage` | what all management has in common: its errors, and what follows a write |
//! | `accounts` | users and their tokens |
//! | `logins`, `login_limits` | passwords, checked no faster than they may be guessed |
//! | `sessions` | who a request is from |
//! | `datasets`, `webhooks` | what owners do with theirs |
//! | `demo` | the fixtures, loaded for a demo owner |

mod accounts;
mod admission;
mod alternates;
mod app;
mod background;
mod backup;
mod binding;
mod bodies;
mod body;
mod catalog_gates;
mod check;
mod clones;
mod damage;
mod datasets;
mod deliveries;
mod demo;
mod diffs;
mod edits;
mod explain;
mod export_room;
mod exports;
mod fair;
mod fair_queue;
mod files;
mod identity;
mod import;
mod ingest;
mod login_limits;
mod logins;
mod lookups;
mod manage;
mod outgoing;
mod parquet;
mod private_files;
mod profile;
mod rate;
mod rate_memory;
mod read;
mod readiness;
mod refresh;
mod responses;
mod scheduler;
mod scratch;
mod scrub;
mod sessions;
mod stream;
mod sweep;
mod threads;
mod under_way;
mod version_file;
mod webhooks;

pub use accounts::{AccountError, AddedUser};
pub use admission::Load;
pub use alternates::{AlternateError, alternate_etag};
pub use app::{App, OpenError};
pub use background::Background;
pub use backup::{BackedUp, BackupError, BackupFiles};
pub use binding::BindingError;
pub use bodies::BodyRoom;
pub use check::{CheckDepth, CheckError, Checked, Finding};
pub use datasets::{DatasetSettings, OwnedDataset};
pub use deliveries::DeliveryError;
pub use demo::{DEMO_OWNER, DemoCredentials, DemoDataset, DemoError};
pub use diffs::{DiffError, DiffForm, DiffSummary, VersionDiff};
pub use edits::{PullError, Pulled};
pub use explain::{ExplainError, Explanation, IgnoredParameter};
pub use exports::Export;
pub use fair::{Gate, Holder, Refused};
pub use files::{Pushed, PushedEntities};
pub use identity::Identity;
pub use import::{ImportError, ImportRequest, Imported};
pub use logins::LoggedIn;
pub use manage::ManageError;
pub use profile::{ProfileError, VersionProfile};
pub use rate::{Bucket, Client, Clock, Moment, RateLimiter, RateLimits, Standing, SystemClock, Verdict};
pub use rate_memory::{MemoryRateLimiter, RateCapacity};
pub use read::{Admitted, Answer, AnswerBody, Authorization, Lookup, ReadError, ReadTarget};
pub use readiness::NotReady;
pub use refresh::{Push, RefreshError};
pub use scrub::{DamagedFile, Scrubbed};
pub use sweep::{SweepError, SweepReason, Swept, SweptFile};
pub use version_file::ImportProgress;
