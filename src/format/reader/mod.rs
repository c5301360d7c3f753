//! An opened version file: its footer, and its parts by row group and page. Each part is fetched with one request,
//! verified, decoded and cached. A reader can fetch parts ahead ([`VersionReader::reading_ahead`]).
//!
//! Bytes are compared with their checksum before they are decoded, and failures are not cached, so a restored file is
//! read again. Every failure names the file, and is reported
//! ([`PartCache::reporting`](crate::cache::PartCache::reporting)).

mod base_rows;
mod columns;
mod description;
mod documents;
mod extents;
mod file;
mod footer_load;
mod keywords;
mod object_file;
mod prefetch;
mod readahead;
mod shapes;
mod verification;
mod version;

pub use base_rows::{BasePlace, SharedRows};
pub use description::FileDescription;
pub(super) use file::FileReader;
pub use readahead::Wanted;
pub use verification::{Pace, Unbounded};
pub use version::VersionReader;
