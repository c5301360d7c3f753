//! Instruction counts of the hot paths, compared with committed counts. In contrast to a duration, an instruction count
//! is the same on a busy machine, so that a change of a few percent is visible.
//!
//! ```text
//! cargo bench --profile dist --bench instructions   exit code 1 if a path takes more than 1.1 times its count
//!     ... -- --only page                            the paths whose name contains the text
//!     ... -- --most 1.01
//!     ... -- --write                                writes benches/instructions/figures.toml
//! ```
//!
//! Use the profile `dist`, because the released packages use it.
//!
//! 1. The benchmark imports 20,000 entities of the `reads` benchmark. It runs each of the [`paths`] once and compares
//!    the response with the expected one.
//! 2. It runs each path under valgrind's `cachegrind`, which counts the instructions of all threads: N times and 2N
//!    times, in three processes each. The lowest count of the three is used. The difference, divided by N, is the count
//!    of one path, so that start and warm-up cancel out.
//!
//! All reads use warm caches, and the runtime has one thread and one query thread. Responses are not cached. The
//! service caches catalog records for half a second, so the number of catalog lookups would be random. To avoid this,
//! every read makes a lookup, and the benchmark subtracts the cost of the lookup. Hash table seeds, thread scheduling,
//! and the start still cause noise: counts of single processes differed by up to 16 % on the shortest paths and by 4 %
//! on long paths.

#![allow(unreachable_pub, reason = "nothing is exported: `pub` is for the other modules")]

mod figures;
mod paths;
mod service;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod support;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;

use figures::{BuildEnvironment, CommittedCounts};
use paths::{ExpectedResult, HotPath, HotPathAction};
use service::{Job, PreparedData};
use support::import::{self, Hidden};
use support::requests::Expected;
use support::samples::thousands;
use support::source::Source;
use support::table::aligned;

/// The allocator of the service's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of entities in the version that is read.
const ENTITIES: u64 = 20_000;

/// The number of entities in the imported source.
const IMPORTED: u64 = 5_000;

/// Counts instructions of hot paths, and compares them with committed figures
#[derive(Parser)]
struct InstructionArguments {
    /// Count only the paths whose name holds this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Fail if a path takes more than this many times its figure
    #[arg(long, value_name = "RATIO", default_value_t = 1.1)]
    most: f64,
    /// Number of processes that count; the lowest count is used
    #[arg(long, value_name = "N", default_value_t = 3)]
    processes: u32,
    /// Write the figures instead of failing
    #[arg(long)]
    write: bool,
    /// The file of figures
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions/figures.toml"))]
    figures: PathBuf,
    #[command(flatten)]
    hidden: Hidden,
    /// The child process whose instructions are counted
    #[arg(long, hide = true)]
    job: Option<String>,
}

fn main() -> ExitCode {
    let arguments = InstructionArguments::parse();
    if arguments.hidden.imported() {
        return ExitCode::SUCCESS;
    }
    if let Some(job) = &arguments.job {
        service::run(&serde_json::from_str(job).expect("failed to parse the job"));
        return ExitCode::SUCCESS;
    }
    let Some(valgrind) = valgrind() else {
        eprintln!(
            "valgrind counts the instructions, and cannot be run here: install it (apt-get install valgrind, dnf \
             install valgrind, pacman -S valgrind)"
        );
        return ExitCode::FAILURE;
    };
    count(&arguments, BuildEnvironment::current(valgrind))
}

/// Returns the valgrind release, or `None` if valgrind is not installed.
fn valgrind() -> Option<String> {
    let output = Command::new("valgrind").arg("--version").stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn count(arguments: &InstructionArguments, built: BuildEnvironment) -> ExitCode {
    let sources = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-reads");
    let open = |entities| Source::open(&sources, entities).expect("failed to generate the source file");
    let source = open(ENTITIES);
    let imported = open(IMPORTED);
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-instructions");
    eprintln!("importing {ENTITIES} entities");
    let report = import::in_child(&source.path, &data);
    let prepared = PreparedData { data, path: report.path(), name_slug: report.name_slug, source: imported.path };
    let committed = CommittedCounts::read(&arguments.figures);
    if let Some(committed) = committed.as_ref().filter(|committed| committed.built != built) {
        println!("The committed figures are of {}; this is {built}.", committed.built);
    }

    let mut counts = committed.map(|committed| committed.instructions).unwrap_or_default();
    let mut rows = Vec::new();
    let mut above = Vec::new();
    let looked_up = OnceCell::new();
    let look_up = || *looked_up.get_or_init(|| instructions(&paths::look_up(), &prepared, arguments.processes));
    for path in paths::hot_paths(&source).into_iter().filter(|path| path.name.contains(&arguments.only)) {
        eprintln!("{}", path.name);
        check(&path, &prepared, &source);
        let now = match path.action {
            HotPathAction::LookUp => look_up(),
            HotPathAction::Read(_) | HotPathAction::Revalidate(_) => {
                instructions(&path, &prepared, arguments.processes).saturating_sub(look_up())
            }
            HotPathAction::Import => instructions(&path, &prepared, arguments.processes),
        };
        let before =
            if arguments.write { counts.insert(path.name.to_owned(), now) } else { counts.get(path.name).copied() };
        let ratio = before.map(|before| now as f64 / before as f64);
        if ratio.is_some_and(|ratio| ratio > arguments.most) {
            above.push(path.name);
        }
        rows.push([
            path.name.to_owned(),
            thousands(now),
            before.map_or("none".to_owned(), thousands),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")),
        ]);
    }
    std::fs::remove_dir_all(&prepared.data).expect("failed to remove the data");
    print!("{}", aligned(["path", "instructions", "committed", "ratio"], rows));
    if arguments.write {
        CommittedCounts { built, instructions: counts }.write(&arguments.figures);
        return ExitCode::SUCCESS;
    }
    for name in &above {
        println!("{name}: more than {} times the committed figure", arguments.most);
    }
    if above.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the path once in this process and compares the response with the expected one.
fn check(path: &HotPath, prepared: &PreparedData, source: &Source) {
    let body = service::on_one_thread(prepared, async |service| service.act(&path.action).await);
    let value = || serde_json::from_slice::<serde_json::Value>(&body).expect("failed to parse the response");
    let right = match &path.expected {
        ExpectedResult::Body(Expected::Count(count)) => value()["count"] == *count,
        ExpectedResult::Body(expected) => expected.body(source).as_deref() == Some(&*body),
        ExpectedResult::Objects(count) => value().as_array().is_some_and(|array| array.len() as u64 == *count),
        ExpectedResult::Records(count) => csv::Reader::from_reader(&*body).records().flatten().count() == *count,
        ExpectedResult::Nothing | ExpectedResult::Done => body.is_empty(),
    };
    assert!(right, "{}: another answer than the generator knows", path.name);
}

/// Returns the instruction count of one path. Noise only adds instructions, so the lowest of several counts is used.
fn instructions(path: &HotPath, prepared: &PreparedData, processes: u32) -> u64 {
    let min_count =
        |repetitions| (0..processes).map(|_| count_process(&path.action, repetitions, prepared)).min().unwrap_or(0);
    let [once, twice] = [1, 2].map(|times| min_count(times * path.repetitions));
    twice.saturating_sub(once) / path.repetitions
}

/// Returns the instruction count of a process that runs the path `repetitions` times.
fn count_process(action: &HotPathAction, repetitions: u64, prepared: &PreparedData) -> u64 {
    let job = Job { action: action.clone(), repetitions, prepared: prepared.clone() };
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("failed to find the binary"))
        .args(["--job", &serde_json::to_string(&job).expect("failed to serialize the job")])
        .output()
        .expect("failed to run valgrind");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    // For example: `==123== I   refs:      15,852,249`
    let count = text.lines().find_map(|line| {
        let (head, count) = line.split_once("refs:")?;
        head.trim_end().ends_with(" I").then(|| count.trim().replace(',', "").parse().ok())?
    });
    count.unwrap_or_else(|| panic!("valgrind has counted nothing:\n{text}"))
}
