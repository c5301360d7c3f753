//! What holds of the repository itself: its pages, promises and packages.

pub mod docs;
pub mod packaging;
pub mod security;
