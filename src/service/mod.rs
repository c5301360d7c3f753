//! The use cases: the only place that combines catalog, storage, query engine, encoders and sources.
//!
//! | Module | Use case |
//! |---|---|
//! | [`App`] | opening all parts from the configuration |
//! | `read` | a read of a version: resolve, select, encode |
//! | `lookups` | what the catalog said of a read's target, kept for less than a second |
//! | `rate`, `rate_memory` | how many requests a client may make |
//! | `identity` | what an answer is the answer to |
//! | `body`, `stream` | the selected entities to the bytes of an answer |
//! | `admission` | who may work when there is more to do than the machine can |
//! | `responses` | answers as they are sent: compressed, shared by those who ask for the same, kept while they are small |
//! | `exports` | Parquet exports, made once and served in parts |
//! | `import` | a source to a new version of a dataset |
//! | `scratch` | the directory of temporary files |
//! | `outgoing` | what leaves the service, within the configuration |
//! | `accounts` | users and their tokens |
//! | `demo` | the fixtures, loaded for a demo owner |

mod accounts;
mod admission;
mod app;
mod body;
mod demo;
mod exports;
mod identity;
mod import;
mod lookups;
mod outgoing;
mod rate;
mod rate_memory;
mod read;
mod responses;
mod scratch;
mod stream;

pub use accounts::{AccountError, AddedUser};
pub use admission::Load;
pub use app::{App, NotReady, OpenError};
pub use demo::{DemoDataset, DemoError};
pub use exports::Export;
pub use identity::Identity;
pub use import::{ImportError, ImportProgress, ImportRequest, Imported};
pub use rate::{Bucket, Client, Clock, Moment, RateLimiter, RateLimits, Standing, SystemClock, Verdict};
pub use rate_memory::{MemoryRateLimiter, RateCapacity};
pub use read::{Admitted, Answer, AnswerBody, Authorization, Lookup, ReadError, ReadTarget};
