//! The naive reference implementation: the same rules over a tree of values, written to be obviously right, slow, and
//! independent of the code it checks. [`hostile`] generates what to compare them over.

pub mod diff;
pub mod formats;
pub mod hostile;
pub mod number;
pub mod pipeline;
pub mod profile;
pub mod rules;
pub mod value;

pub use value::Value;
