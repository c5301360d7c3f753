//! Tests of the query engine: plans, scans, selections and documents, most of them against the naive reference.

mod cold;
mod columns;
mod delta_versions;
mod edited;
mod engine_limits;
mod exact;
mod examples;
mod fields;
mod keyword_index;
mod long_keys;
mod many_conditions;
mod many_ranges;
mod much_text;
mod operators;
mod range_limits;
mod ranges;
mod reads;
mod selection;
mod sets;
mod sharing;
mod spilling;
mod tuning;
