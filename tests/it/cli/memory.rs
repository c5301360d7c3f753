//! What a process gives back to the system.

use std::fs;

use strata_testing::machine::{Machine, Server};

/// mimalloc knows its options by number, and may count anew in another version.
#[test]
fn the_allocator_has_the_option_that_is_set() {
    let machine = Machine::new();
    let mut told = machine.command(&["--version"]);
    let told = told.env("MIMALLOC_VERBOSE", "1").output().expect("the binary runs").stderr;
    let told = String::from_utf8_lossy(&told);
    let options: Vec<&str> =
        told.lines().filter_map(|line| line.strip_prefix("option '")?.split('\'').next()).collect();
    assert_eq!(options.get(15), Some(&"purge_delay"), "{told}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_has_no_huge_pages() {
    let machine = Machine::new();
    let server = Server::start(&machine, &[], &[]);
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).expect("its status");
    assert!(status.lines().any(|line| line == "THP_enabled:\t0"), "{status}");
    assert_eq!(server.stop("-TERM").0, Some(0));
}
