//! The file system under the real binary: every change and sync recorded, any call made to fail, a disk made full.
//!
//! The binary runs with a preloaded library (`tests/tools/faultfs.c`, which says what it sees and how rules read). That
//! works on Linux with the GNU C library alone; the tests with it are left out elsewhere.
//!
//! ```ignore
//! let machine = Machine::with_user();
//! let faults = FaultFs::below(&machine.path("strata-data"));
//! let server = faults.serve(&machine, &[], &[]);
//! faults.set(&["fail write,fsync catalog.sqlite* 3 1 ENOSPC", "quota store 4096"]);
//! // … requests …
//! assert_eq!(faults.fired().len(), 1);
//! faults.set(&[]);
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::machine::{Machine, Server};

/// The library, compiled once per run.
static LIBRARY: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = directory.path().join("faultfs.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/faultfs.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&library)
        .args([source, "-ldl", "-lpthread"])
        .output()
        .expect("a C compiler, which the build needs, too");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    (directory, library)
});

/// A directory whose file system is watched.
pub struct FaultFs {
    root: PathBuf,
    /// Rules, log and trace.
    directory: TempDir,
    traced: bool,
    undoes: bool,
}

/// A call that a rule made fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the rule, from 0.
    pub rule: usize,
    /// The kind of call (`write`, `fsync`, …), or `quota`.
    pub kind: String,
    /// The path, relative to the directory.
    pub path: String,
}

/// A change or a sync, as it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where its record ends in the trace.
    pub end: u64,
    /// The file, by its inode; 0 where the operation names none.
    pub inode: u64,
    /// What was done.
    pub operation: Operation,
}

/// What was done; paths are relative to the directory, which is `.` itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Create {
        path: String,
    },
    Write {
        path: String,
        offset: u64,
        data: Vec<u8>,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    MakeDirectory {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    Sync {
        path: String,
    },
    SyncDirectory {
        path: String,
    },
    /// What was not synced is lost.
    SyncFailed {
        path: String,
    },
}

impl FaultFs {
    /// Watches a directory, which need not exist yet (its parent must). Without rules nothing fails.
    pub fn below(root: &Path) -> FaultFs {
        let parent = root.parent().expect("a parent").canonicalize().expect("the parent exists");
        let root = parent.join(root.file_name().expect("a name"));
        let faults =
            FaultFs { root, directory: tempfile::tempdir().expect("a directory"), traced: false, undoes: false };
        faults.set(&[]);
        faults
    }

    /// Records a trace, too.
    pub fn traced(self) -> FaultFs {
        FaultFs { traced: true, ..self }
    }

    /// Remembers what is not synced, so that `drop` rules take it back.
    pub fn undoing(self) -> FaultFs {
        FaultFs { undoes: true, ..self }
    }

    /// The environment variables that a process needs to run on it.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        let mut environment = vec![
            ("LD_PRELOAD", path(&LIBRARY.1)),
            ("FAULTFS_ROOT", path(&self.root)),
            ("FAULTFS_CONTROL", path(&self.file("rules"))),
            ("FAULTFS_LOG", path(&self.file("log"))),
        ];
        if self.traced {
            environment.push(("FAULTFS_TRACE", path(&self.file("trace"))));
        }
        if self.undoes {
            environment.push(("FAULTFS_UNDO", "1".to_owned()));
        }
        environment
    }

    /// A server on it.
    pub fn serve(&self, machine: &Machine, more: &[&str], environment: &[(&str, &str)]) -> Server {
        let own = self.environment();
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        Server::start(machine, more, &own.chain(environment.iter().copied()).collect::<Vec<_>>())
    }

    /// A command on it, to its end.
    pub fn run(&self, machine: &Machine, arguments: &[&str]) -> Output {
        let mut command = machine.command(arguments);
        command.envs(self.environment()).stdin(Stdio::null());
        command.output().expect("the binary runs")
    }

    /// Replaces the rules. Running processes follow with their next call; all counters begin anew.
    pub fn set(&self, rules: &[&str]) {
        let text: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
        let next = self.file("rules.next");
        std::fs::write(&next, text).expect("written");
        std::fs::rename(next, self.file("rules")).expect("renamed");
    }

    /// The calls that failed so far, with those of earlier rules.
    pub fn fired(&self) -> Vec<Fault> {
        let log = std::fs::read_to_string(self.file("log")).unwrap_or_default();
        let faults = log.lines().filter_map(|line| {
            let mut words = line.splitn(4, ' ');
            let rule = words.next()?.parse().ok()?;
            let kind = words.next()?.to_owned();
            let _errno = words.next()?;
            Some(Fault { rule, kind, path: words.next()?.to_owned() })
        });
        faults.collect()
    }

    /// Forgets the faults so far.
    pub fn forget_fired(&self) {
        if let Ok(log) = std::fs::OpenOptions::new().write(true).open(self.file("log")) {
            log.set_len(0).expect("emptied");
        }
    }

    /// How long the trace is: every event whose record ends there or before has happened, others may have.
    pub fn position(&self) -> u64 {
        std::fs::metadata(self.file("trace")).map_or(0, |trace| trace.len())
    }

    /// The trace.
    pub fn trace(&self) -> Vec<Event> {
        let bytes = std::fs::read(self.file("trace")).expect("a trace");
        let mut events = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (event, after) = Event::parse(rest, bytes.len() as u64);
            events.push(event);
            rest = after;
        }
        events
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Event {
    /// The first event, and what comes after it, up to `end` of the trace.
    fn parse(bytes: &[u8], end: u64) -> (Event, &[u8]) {
        const MAGIC: u32 = 0x3154_4646;
        let mut rest = bytes;
        let mut number = |length: usize| {
            let mut value = [0; 8];
            value[..length].copy_from_slice(&rest[..length]);
            rest = &rest[length..];
            u64::from_le_bytes(value)
        };
        assert_eq!(number(4), u64::from(MAGIC));
        let (kind, _errno, inode, offset) = (number(1) as u8, number(4), number(8), number(8));
        let (length, first, second) = (number(8) as usize, number(2) as usize, number(2) as usize);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a path in UTF-8");
        let (path, to) = (text(&rest[..first]), text(&rest[first..first + second]));
        let data = rest[first + second..first + second + length].to_vec();
        let after = &rest[first + second + length..];
        let operation = match kind {
            b'C' => Operation::Create { path },
            b'W' => Operation::Write { path, offset, data },
            b'T' => Operation::Truncate { path, size: offset },
            b'R' => Operation::Rename { from: path, to },
            b'L' => Operation::Link { from: path, to },
            b'U' => Operation::Unlink { path },
            b'M' => Operation::MakeDirectory { path },
            b'D' => Operation::RemoveDirectory { path },
            b'S' => Operation::Sync { path },
            b's' => Operation::SyncDirectory { path },
            b'F' => Operation::SyncFailed { path },
            other => panic!("no operation {other}"),
        };
        (Event { end: end - after.len() as u64, inode, operation }, after)
    }
}

#[test]
fn a_trace_holds_what_an_import_does_to_the_disk() {
    let machine = Machine::with_user();
    machine.write("small.jsonl", "{\"a\":1}\n");
    let faults = FaultFs::below(&machine.path("strata-data")).traced();
    let imported = faults.run(&machine, &["import", "small.jsonl", "--name", "Things", "--owner", "ada@example.test"]);
    crate::machine::succeeded(&imported);
    let trace = faults.trace();
    let position = |wanted: &dyn Fn(&Operation) -> bool| {
        trace.iter().position(|event| wanted(&event.operation)).unwrap_or_else(|| panic!("{trace:?}"))
    };
    let version = |path: &str| path.starts_with("store/versions/") && path.ends_with(".parquet");
    let renamed = position(&|operation| matches!(operation, Operation::Rename { to, .. } if version(to)));
    let synced = position(&|operation| matches!(operation, Operation::Sync { path } if version(path)));
    let log = |operation: &Operation| matches!(operation, Operation::Write { path, .. } if path.ends_with("-wal"));
    assert!(renamed < synced && trace.iter().any(|event| log(&event.operation)));
    // What was written is what is there.
    let Operation::Rename { from, to } = &trace[renamed].operation else { unreachable!() };
    let mut written = Vec::new();
    for event in &trace {
        if let Operation::Write { path, offset, data } = &event.operation
            && path == from
        {
            written.resize(*offset as usize, 0);
            written.extend_from_slice(data);
        }
    }
    assert_eq!(written, std::fs::read(machine.path("strata-data").join(to)).expect("the file"));
    assert_eq!(trace.last().map(|event| event.end), Some(faults.position()));
    assert_eq!(faults.fired(), []);
}

#[test]
fn rules_make_single_calls_fail_while_a_server_runs() {
    let machine = Machine::with_user();
    machine.write("small.jsonl", "{\"a\":1}\n");
    let faults = FaultFs::below(&machine.path("strata-data")).undoing();
    let import = ["import", "small.jsonl", "--name", "Things", "--owner", "ada@example.test"];
    for rule in ["fail rename store/* 1 1 EIO", "drop fsync store/* 1 1 EIO", "quota store 10"] {
        faults.set(&[rule]);
        let message = crate::machine::failed(&faults.run(&machine, &import));
        assert!(!faults.fired().is_empty(), "{rule}: {message}");
        faults.forget_fired();
    }
    faults.set(&["fail write catalog.sqlite-wal 1000 1 EIO"]);
    crate::machine::succeeded(&faults.run(&machine, &import));
    let server = faults.serve(&machine, &[], &[]);
    let (head, _) = crate::machine::get(&format!("{}/api/1/things/v1/", server.base_url), None);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(faults.fired(), []);
    server.stop("-TERM");
}
