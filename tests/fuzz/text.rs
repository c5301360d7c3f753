//! Fuzz targets of pure functions: bytes in, bytes out. `STRATA_FUZZ_TARGET` names the one to run.

#![no_main]

mod harness;
mod memory;
#[path = "text/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(init: harness::start(targets::ALL), |bytes: &[u8]| {
    harness::run(bytes);
});
