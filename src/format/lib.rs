//! Version files: how the entities of one version lie in Parquet, written once through `object_store` and
//! read by page.
//!
//! | Module | Holds |
//! |---|---|
//! | [`layout`] | the columns of a version file, and what its metadata says |
//! | [`overlay`] | which rows of which files are the entities of a version |
//! | `outline` | what readers need of the footer, in tables that need no decoding |
//! | [`editing`] | an edited list: what stays in its base, what lies in a file of its own, and its profile |
//! | [`keywords`] | the keyword index: which rows hold a text, without their search text |
//! | [`tree`] | paths of a version numbered, and the walk that finds an entity's scalars by number |
//! | [`shapes`] | which path each text of the search text belongs to |
//! | [`profile`] | what a version contains, found in one pass; decides which paths get a shredded column |
//! | [`spool`] | the entities on local disk between the two passes of a write |
//! | [`shred`] | entities to the Arrow arrays of a row group |
//! | [`writer`] | entities in, one Parquet object out |
//! | [`footer`] | what the end of a version file says |
//! | [`reader`] | an opened version file: its parts by row group and page |
//! | [`aux_index`] | auxiliary indexes in the cache: codes, sort orders, first entities of groups, hash indexes |
//! | [`hash_index`] | which entities may hold a value of a column, in memory alone |
//! | [`document_page`] | documents of a page, one after another |
//! | `page_slots` | the pages of documents that are in memory, found without the cache |
//! | [`run`] | consecutive rows |
//! | [`parts`] | the decoded parts that a reader hands out and the cache keeps |
//! | [`verify`] | whether a file holds what it was written with, part by part or column by column |
//! | [`cache`] | one cache for all decoded parts, bounded in bytes |
//! | [`reader_metrics`] | what one reader has asked cache and store for |

pub mod aux_index;
pub mod cache;
pub mod document_page;
pub mod editing;
pub mod footer;
pub mod hash_index;
pub mod keywords;
pub mod layout;
mod outline;
pub mod overlay;
mod page_slots;
pub mod parts;
pub mod profile;
pub mod reader;
pub mod reader_metrics;
pub mod run;
pub mod shapes;
pub mod shred;
pub mod spool;
pub mod tree;
pub mod verify;
pub mod writer;
mod zstd_frame;
