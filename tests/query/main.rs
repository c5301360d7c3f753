//! A request as a plan, and what it selects.

mod cold;
mod columns;
mod edited;
mod exact;
mod examples;
mod keyword_index;
mod long_keys;
mod many_conditions;
mod many_ranges;
mod range_limits;
mod ranges;
mod reads;
mod selection;
mod sets;
mod shapes;
mod sharing;
mod spilling;
mod tuning;
