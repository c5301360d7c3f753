//! Reader of an open version file. Parts are addressed by row group and page. Each part is fetched with one request,
//! verified, decoded, and cached. A reader can also prefetch parts ([`VersionReader::with_readahead`]).
//!
//! A [`VersionReader`] has a `FileReader` for each file of a version, which reads the parts of the file (`documents`,
//! `columns`, `keywords`). The module `extents` maps the row groups of the version to those of the files.
//!
//! Checksums are verified before decoding. Failures are not cached, so a restored file works again. Each failure names
//! the file, and damage is reported ([`PartCache::with_damage_reports`](crate::cache::PartCache::with_damage_reports)).

mod columns;
mod description;
mod documents;
mod extents;
mod file_reader;
mod footer_load;
mod gather;
mod keywords;
mod object_file;
mod prefetch;
mod readahead;
mod shared_rows;
mod verification;
mod version_reader;

pub use description::FileDescription;
pub use extents::{KeywordRows, TotalColumnSizes};
pub(super) use file_reader::FileReader;
pub use readahead::PrefetchPlan;
pub use shared_rows::{RowPosition, SharedRowRun};
pub use verification::{NoReadThrottle, ReadThrottle};
pub use version_reader::VersionReader;
