//! The use cases of strata. Only this crate combines the catalog, storage, query engine, encoders and sources.
//!
//! [`Services`] builds all services. A module depends only on modules above it in this table:
//!
//! | Module | Use cases |
//! |---|---|
//! | `rate_limit` | limits the request rate of each client |
//! | `admission` | shares permits fairly among users and networks under overload |
//! | `lookup` | resolves the target of a read |
//! | `version_path` | names version files in the store |
//! | `maintenance` | sweep, checks, backup, readiness, and the link between catalog and store |
//! | `management` | errors and writes of owners |
//! | `export_cache` | caches Parquet exports on disk |
//! | `read` | authorizes, plans, executes and encodes reads |
//! | `explain` | shows the plans and costs of a read |
//! | `webhook` | notifies owners of new versions |
//! | `refresh` | creates versions from a URL, a push, a schedule or an import |
//! | `dataset` | settings, alternates, clones, diffs, profiles and edits of datasets |
//! | `account` | users, passwords, sessions and tokens |
//! | `usage` | counts the reads of each dataset |
//! | `demo` | loads example datasets |
//! | `services` | the composition root |

mod account;
mod admission;
mod dataset;
mod demo;
mod explain;
mod export_cache;
mod lookup;
mod maintenance;
mod management;
mod rate_limit;
mod read;
mod refresh;
mod services;
mod usage;
mod version_path;
pub mod webhook;

pub use account::logins::{AuthenticatedSession, LoginService};
pub use account::session_origin::SessionOrigin;
pub use account::sessions::{OwnedSession, SessionService};
pub use account::{AccountError, AccountService};

pub use admission::body_limit::{BodyLimit, BodyReservation};
pub use admission::large_responses::{LargeResponseLimit, MAX_UNCHARGED_RESPONSE_BYTES, ResponseReservation};
pub use admission::{AdmissionLoad, CostClass};
pub use dataset::alternate_edits::{EntityChange, EntityEdit};
pub use dataset::alternates::{AlternateError, EditError, EditProblem, alternate_etag};
pub use dataset::changes::VersionChanges;
pub use dataset::diffs::{DiffError, DiffFormat, DiffService, DiffSides, DiffSummary, VersionDiff};
pub use dataset::entity_pull::PulledPage;
pub use dataset::profile::{ProfileError, ProfileRequest, VersionProfile};
pub use dataset::{DatasetService, DatasetWithAttempts, new_private_visibility};
pub use demo::{DEMO_OWNER_EMAIL, DemoCredentials, DemoDataset, DemoError, DemoExample, DemoService, demo_examples};
pub use explain::{IgnoredParameter, ReadExplanation};
pub use export_cache::{CachedExport, ExportState};
pub use lookup::cache_key::CacheKey;
pub use lookup::error::{ReadError, UnknownField, UnknownFieldCause};
pub use lookup::{AuthorizationHeader, AuthorizedTarget, LookupService, ReadTarget, ResolvedTarget};
pub use maintenance::MaintenanceService;
pub use maintenance::backup::{BackupCopyMode, BackupError, BackupSummary, OnDamage};
pub use maintenance::content_digest::{DigestError, digest_file};
pub use maintenance::integrity_check::{CheckDepth, CheckError, CheckFinding, CheckSummary};
pub use maintenance::readiness::{NotReadyReason, ReadinessCheck};
pub use maintenance::restore::{RestoreError, RestoreSummary, restore};
pub use maintenance::scrub::{DamagedFile, ScrubSummary};
pub use maintenance::store_identity::StoreIdentityError;
pub use maintenance::sweep::{SweepError, SweepReason, SweepSummary, SweptFile};
pub use management::ManageError;
pub use rate_limit::memory::{MemoryRateLimiter, RateLimiterCapacity};
pub use rate_limit::shared::{SharedRateLimiter, connect as connect_to_redis};
pub use rate_limit::{
    ClockReading, ExportId, ExportPart, RateLimitBucket, RateLimitClock, RateLimitDecision, RateLimitStatus,
    RateLimiter, RateLimits, SystemClock,
};
pub use read::alternate_position::AlternatePosition;
pub use read::export_prewarm::ExportPrewarmer;
pub use read::hints::{FilterHint, nested_sort_hint};
pub use read::pipeline::{AuthorizedRead, ReadRequester};
pub use read::{OwnerReadError, ReadResponse, ReadService, ResponseBody};
pub use refresh::decoding::{RefreshCounters, RefreshStage};
pub use refresh::error::RefreshError;
pub use refresh::import::{ImportError, ImportRequest, ImportedVersion, local_path};
pub use refresh::ingest::{IngestService, PushedBody, PushedEntities};
pub use refresh::progress::{ProgressWatch, RefreshProgress};
pub use refresh::push::PushRequest;
pub use refresh::{RefreshService, RefreshedVersion};
pub use services::{BackgroundTasks, OpenError, ProcessPurpose, ServiceDependencies, Services};
pub use strata_limits::{ClientNetwork, Overloaded, Principal};
pub use usage::{UsageMeter, UsageRecorder};
pub use webhook::WebhookService;
pub use webhook::dispatcher::{DeliveryError, WebhookDispatcher};
