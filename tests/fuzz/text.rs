//! Fuzz targets of pure functions from bytes to bytes. `STRATA_FUZZ_TARGET` selects the target.

#![no_main]

mod harness;
mod memory;
#[path = "text/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(init: harness::start(targets::ALL), |bytes: &[u8]| {
    harness::run(bytes);
});
