//! What holds of the repository itself: its pages, promises and packages.

mod comments;
mod packaging;
mod security;
