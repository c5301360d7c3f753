//! What holds of the repository itself: its pages, promises and packages.

mod docs;
mod packaging;
mod security;
