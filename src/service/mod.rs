//! The use cases: the only place that combines catalog, storage, query engine, encoders and sources.
//!
//! | Module | Use case |
//! |---|---|
//! | [`App`] | opening all parts from the configuration |
//! | `read` | a read of a version: resolve, select, encode |
//! | `identity` | what an answer is the answer to |
//! | `body` | the selected entities to the bytes of an answer |
//! | `responses` | answers as they are sent: compressed, shared by those who ask for the same, kept while they are small |
//! | `exports` | Parquet exports, made once and served in parts |
//! | `import` | a source to a new version of a dataset |
//! | `scratch` | the directory of temporary files |
//! | `accounts` | users and their tokens |
//! | `demo` | the fixtures, loaded for a demo owner |

mod accounts;
mod app;
mod body;
mod demo;
mod exports;
mod identity;
mod import;
mod read;
mod responses;
mod scratch;

pub use accounts::{AccountError, AddedUser};
pub use app::{App, NotReady, OpenError};
pub use demo::{DemoDataset, DemoError};
pub use exports::Export;
pub use identity::Identity;
pub use import::{ImportError, ImportProgress, ImportRequest, Imported};
pub use read::{Admitted, Answer, AnswerBody, Authorization, Lookup, ReadError, ReadTarget};
