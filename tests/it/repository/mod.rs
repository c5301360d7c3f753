//! What holds of the repository itself: its pages, promises and packages.

mod circles;
mod docs;
mod layers;
mod packaging;
mod security;
