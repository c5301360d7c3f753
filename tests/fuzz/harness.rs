//! The choice of a fuzz target, and the definition of a finding.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process;
use std::sync::OnceLock;

/// The name of a target, and a function that panics if the service mishandles the input.
pub type Target = (&'static str, fn(&[u8]));

static CHOSEN: OnceLock<fn(&[u8])> = OnceLock::new();

thread_local! {
    static FOREIGN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Selects the target that `STRATA_FUZZ_TARGET` names.
///
/// A panic in a crate of this workspace aborts the process at once, even if a caller would catch it, so that libFuzzer
/// stores the input. A caller may catch a panic in a dependency; an uncaught one is a finding, too.
pub fn start(targets: &[Target]) {
    let name = std::env::var("STRATA_FUZZ_TARGET").unwrap_or_default();
    let names: Vec<&str> = targets.iter().map(|(name, _)| *name).collect();
    let chosen = targets.iter().find(|target| target.0 == name);
    let Some((_, run)) = chosen else { panic!("STRATA_FUZZ_TARGET is {name:?}; valid: {}", names.join(", ")) };
    CHOSEN.get_or_init(|| *run);

    // libFuzzer's hook aborts at any panic. Below it is the default hook, which prints the panic.
    drop(panic::take_hook());
    panic::set_hook(Box::new(|info| {
        if is_ours(info) {
            eprintln!("{info}\n{}", std::backtrace::Backtrace::force_capture());
            process::abort();
        }
        FOREIGN.with(|foreign| *foreign.borrow_mut() = info.to_string());
    }));
}

/// Returns whether the panic is in a crate of this workspace, whose sources are compiled under relative paths.
fn is_ours(info: &PanicHookInfo<'_>) -> bool {
    info.location().is_none_or(|location| !location.file().starts_with('/'))
}

/// Runs the selected target.
pub fn run(bytes: &[u8]) {
    let run = CHOSEN.get().expect("chosen at the start");
    if panic::catch_unwind(AssertUnwindSafe(|| run(bytes))).is_err() {
        FOREIGN.with(|foreign| eprintln!("{}", foreign.borrow()));
        process::abort();
    }
}

/// Returns the input as text, up to the first byte that is not UTF-8.
pub fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).expect("valid up to there"),
    }
}

/// Splits the text into its first line and the rest.
pub fn line(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}
