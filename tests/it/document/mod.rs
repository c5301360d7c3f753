//! One entity as JSON text.

pub mod rules;
