//! One file per target, and what they share.

mod bench;
mod damage;
mod entities;
mod requests;

use crate::harness::Target;

/// Every target of this binary.
pub const ALL: &[Target] = &[("damage", damage::check), ("entities", entities::check), ("requests", requests::check)];
