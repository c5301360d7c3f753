//! Fuzz targets of version files and whole requests. `STRATA_FUZZ_TARGET` names the one to run.

#![no_main]

mod harness;
mod memory;
#[path = "service/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(init: harness::start(targets::ALL), |bytes: &[u8]| {
    harness::run(bytes);
});
