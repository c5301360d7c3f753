//! A request as a plan, and what it selects.

pub mod many_conditions;
pub mod reads;
pub mod selection;
