//! The repository: its comments, security promises, and packages.

mod comments;
mod packaging;
mod security;
