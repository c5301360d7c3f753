//! A request as a plan, and what it selects.

mod many_conditions;
mod reads;
mod selection;
