//! One entity as JSON text.

mod rules;
