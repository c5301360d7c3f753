//! How many instructions the hot paths take, beside committed figures. Unlike a duration this is the same on a busy
//! machine, so a change of some percent shows.
//!
//! ```text
//! cargo bench --profile dist --bench instructions   exit code 1 if a path takes more than 1.1 times its figure
//!     ... -- --only page                            the paths whose name holds the text
//!     ... -- --most 1.01
//!     ... -- --write                                writes benches/instructions/figures.toml
//! ```
//!
//! Count in the profile `dist`, which is that of the packages.
//!
//! 1. The entities of the benchmark of reads are imported, 20,000 of them. Each of the [`paths`] is taken once, and its
//!    answer compared with what the generator knows.
//! 2. Processes take each path under valgrind's `cachegrind`, which counts the instructions of all threads: N times,
//!    and 2N times, three processes each, of which the least counts. The difference, divided by N, is one path. Start
//!    and warm-up cancel out.
//!
//! Everything is read from warm caches, on a runtime of one thread with one thread for queries; no answers are kept.
//! The service keeps records of the catalog for half a second, so that chance would decide how often it asks. Here each
//! read asks, and what a look-up takes is taken off. Seeds of hash tables, turns of threads and the start leave some
//! chance: counts of single processes differed by up to 16 % on the shortest paths, and by 4 % on long ones.

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

use figures::{Built, Figures};
use paths::{Action, Answer, HotPath};
use service::{Job, Place};
use support::import::{self, Hidden};
use support::requests::Expected;
use support::samples::thousands;
use support::source::Source;
use support::table::aligned;

/// The allocator of the service's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Entities that are read.
const ENTITIES: u64 = 20_000;

/// Entities that are imported.
const IMPORTED: u64 = 5_000;

/// Counts instructions of hot paths, and compares them with committed figures
#[derive(Parser)]
struct Arguments {
    /// Count only the paths whose name holds this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Fail if a path takes more than this many times its figure
    #[arg(long, value_name = "RATIO", default_value_t = 1.1)]
    most: f64,
    /// Count in so many processes, and take the least
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
    let arguments = Arguments::parse();
    if arguments.hidden.imported() {
        return ExitCode::SUCCESS;
    }
    if let Some(job) = &arguments.job {
        service::run(&serde_json::from_str(job).expect("a job"));
        return ExitCode::SUCCESS;
    }
    let Some(valgrind) = valgrind() else {
        eprintln!(
            "valgrind counts the instructions, and cannot be run here: install it (apt-get install valgrind, dnf \
             install valgrind, pacman -S valgrind)"
        );
        return ExitCode::FAILURE;
    };
    count(&arguments, Built::here(valgrind))
}

/// The release of valgrind, if it is installed.
fn valgrind() -> Option<String> {
    let output = Command::new("valgrind").arg("--version").stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn count(arguments: &Arguments, built: Built) -> ExitCode {
    let sources = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-reads");
    let open = |entities| Source::open(&sources, entities).expect("the source file can be made");
    let (source, imported) = (open(ENTITIES), open(IMPORTED));
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-instructions");
    eprintln!("importing {ENTITIES} entities");
    let report = import::in_child(&source.path, &data);
    let place = Place { data, path: report.path(), name_slug: report.name_slug, source: imported.path };
    let committed = Figures::read(&arguments.figures);
    if let Some(committed) = committed.as_ref().filter(|committed| committed.built != built) {
        println!("The committed figures are of {}; this is {built}.", committed.built);
    }

    let mut figures = committed.map(|figures| figures.instructions).unwrap_or_default();
    let (mut rows, mut above) = (Vec::new(), Vec::new());
    let looked_up = OnceCell::new();
    let look_up = || *looked_up.get_or_init(|| instructions(&paths::look_up(), &place, arguments.processes));
    for path in paths::all(&source).into_iter().filter(|path| path.name.contains(&arguments.only)) {
        eprintln!("{}", path.name);
        check(&path, &place, &source);
        let now = match path.action {
            Action::LookUp => look_up(),
            Action::Read(_) | Action::Revalidate(_) => {
                instructions(&path, &place, arguments.processes).saturating_sub(look_up())
            }
            Action::Import => instructions(&path, &place, arguments.processes),
        };
        let before =
            if arguments.write { figures.insert(path.name.to_owned(), now) } else { figures.get(path.name).copied() };
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
    std::fs::remove_dir_all(&place.data).expect("the data can be removed");
    print!("{}", aligned(["path", "instructions", "committed", "ratio"], rows));
    if arguments.write {
        Figures { built, instructions: figures }.write(&arguments.figures);
        return ExitCode::SUCCESS;
    }
    for name in &above {
        println!("{name}: more than {} times the committed figure", arguments.most);
    }
    if above.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Takes the path once, in this process, and compares the answer with what the generator knows.
fn check(path: &HotPath, place: &Place, source: &Source) {
    let body = service::on_one_thread(place, async |service| service.act(&path.action).await);
    let value = || serde_json::from_slice::<serde_json::Value>(&body).expect("the answer is JSON");
    let right = match &path.answer {
        Answer::Body(Expected::Count(count)) => value()["count"] == *count,
        Answer::Body(expected) => expected.body(source).as_deref() == Some(&*body),
        Answer::Objects(count) => value().as_array().is_some_and(|array| array.len() as u64 == *count),
        Answer::Records(count) => csv::Reader::from_reader(&*body).records().flatten().count() == *count,
        Answer::Nothing | Answer::Done => body.is_empty(),
    };
    assert!(right, "{}: another answer than the generator knows", path.name);
}

/// The instructions of one path. Chance only adds to what a process must do, so the least of some counts.
fn instructions(path: &HotPath, place: &Place, processes: u32) -> u64 {
    let least = |repetitions| (0..processes).map(|_| counted(&path.action, repetitions, place)).min().unwrap_or(0);
    let [once, twice] = [1, 2].map(|times| least(times * path.repetitions));
    twice.saturating_sub(once) / path.repetitions
}

/// The instructions of a process that takes the path so often.
fn counted(action: &Action, repetitions: u64, place: &Place) -> u64 {
    let job = Job { action: action.clone(), repetitions, place: place.clone() };
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("the benchmark knows its binary"))
        .args(["--job", &serde_json::to_string(&job).expect("a job is JSON")])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    // `==123== I   refs:      15,852,249`
    let count = text.lines().find_map(|line| {
        let (head, count) = line.split_once("refs:")?;
        head.trim_end().ends_with(" I").then(|| count.trim().replace(',', "").parse().ok())?
    });
    count.unwrap_or_else(|| panic!("valgrind has counted nothing:\n{text}"))
}
