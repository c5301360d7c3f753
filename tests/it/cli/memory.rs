//! The memory settings of a process.

use std::fs;

use strata_testing::machine::{Machine, Server};

/// mimalloc identifies options by number, which can change in another version.
#[test]
fn allocator_has_the_configured_option() {
    let machine = Machine::new();
    let mut output = machine.command(&["--version"]);
    let output = output.env("MIMALLOC_VERBOSE", "1").output().expect("the binary runs").stderr;
    let output = String::from_utf8_lossy(&output);
    let options: Vec<&str> =
        output.lines().filter_map(|line| line.strip_prefix("option '")?.split('\'').next()).collect();
    assert_eq!(options.get(15), Some(&"purge_delay"), "{output}");
}

#[test]
#[cfg(target_os = "linux")]
fn server_has_no_huge_pages() {
    let machine = Machine::new();
    let server = Server::start(&machine, &[], &[]);
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).expect("the status");
    assert!(status.lines().any(|line| line == "THP_enabled:\t0"), "{status}");
    assert_eq!(server.stop("-TERM").0, Some(0));
}
