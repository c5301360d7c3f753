//! What the fuzz targets share: the choice of one, and what counts as a finding.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process;
use std::sync::OnceLock;

/// A name, and a function that panics if the service does not do with these bytes what it should.
pub type Target = (&'static str, fn(&[u8]));

static CHOSEN: OnceLock<fn(&[u8])> = OnceLock::new();

thread_local! {
    static FOREIGN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Chooses the target that the environment names.
///
/// A panic of the project's own code ends the process at once, even where somebody would catch it, so that libFuzzer
/// keeps the input. A panic of a library may be caught by the code that calls it; uncaught, it is a finding, too.
pub fn start(targets: &[Target]) {
    let name = std::env::var("STRATA_FUZZ_TARGET").unwrap_or_default();
    let names: Vec<&str> = targets.iter().map(|(name, _)| *name).collect();
    let chosen = targets.iter().find(|target| target.0 == name);
    let Some((_, run)) = chosen else { panic!("STRATA_FUZZ_TARGET is {name:?}; valid: {}", names.join(", ")) };
    CHOSEN.get_or_init(|| *run);

    // libFuzzer's hook ends the process at any panic; below it is the usual one, which prints.
    drop(panic::take_hook());
    panic::set_hook(Box::new(|info| {
        if is_ours(info) {
            eprintln!("{info}\n{}", std::backtrace::Backtrace::force_capture());
            process::abort();
        }
        FOREIGN.with(|foreign| *foreign.borrow_mut() = info.to_string());
    }));
}

/// Whether the panic was raised in the workspace: its sources are compiled under relative paths.
fn is_ours(info: &PanicHookInfo<'_>) -> bool {
    info.location().is_none_or(|location| !location.file().starts_with('/'))
}

/// Runs the chosen target.
pub fn run(bytes: &[u8]) {
    let run = CHOSEN.get().expect("chosen at the start");
    if panic::catch_unwind(AssertUnwindSafe(|| run(bytes))).is_err() {
        FOREIGN.with(|foreign| eprintln!("{}", foreign.borrow()));
        process::abort();
    }
}

/// The input as text; bytes that are not UTF-8 end it.
pub fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).expect("valid up to there"),
    }
}

/// The first line, and what follows it.
pub fn line(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}
