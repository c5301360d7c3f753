//! Fuzz targets that use version files or the whole service, one file for each target.

mod bench;
mod damage;
mod entities;
mod requests;

use crate::harness::Target;

/// Every target of this binary.
pub const ALL: &[Target] = &[("damage", damage::check), ("entities", entities::check), ("requests", requests::check)];
