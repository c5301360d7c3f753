//! What holds of the repository itself: its pages, promises and packages.

mod circles;
mod layers;
mod packaging;
mod security;
