//! Fault injection for the file system of the binary: records every change and sync, and makes calls fail or a disk
//! full.
//!
//! The binary runs with a preloaded library (`tests/tools/faultfs.c`, which documents the recorded calls and the syntax
//! of rules). The library requires Linux and glibc; on other systems, the tests are skipped.
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

/// The library, which is compiled once per run.
static LIBRARY: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("failed to create temporary directory");
    let library = directory.path().join("faultfs.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/faultfs.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&library)
        .args([source, "-ldl", "-lpthread"])
        .output()
        .expect("failed to run C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    (directory, library)
});

/// A directory whose file system calls are intercepted.
pub struct FaultFs {
    root: PathBuf,
    /// The directory of the rules, the log and the trace.
    directory: TempDir,
    traced: bool,
    undoes: bool,
}

/// A call that failed because of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// The index of the rule, starting at 0.
    pub rule: usize,
    /// The kind of call, such as `write` or `fsync`, or `quota`.
    pub kind: String,
    /// The path relative to the directory.
    pub path: String,
}

/// A recorded change or sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The end of the event's record in the trace.
    pub end: u64,
    /// The inode of the file; 0 if the operation has no file.
    pub inode: u64,
    pub operation: FileOperation,
}

/// A recorded operation. Paths are relative to the directory, which is `.` itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOperation {
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
    /// Unsynced data is lost.
    SyncFailed {
        path: String,
    },
}

impl FaultFs {
    /// Intercepts the calls below `root`, which need not exist, but whose parent must. Without rules, no call fails.
    pub fn below(root: &Path) -> FaultFs {
        let parent = root.parent().expect("missing parent").canonicalize().expect("missing parent directory");
        let root = parent.join(root.file_name().expect("missing name"));
        let faults = FaultFs {
            root,
            directory: tempfile::tempdir().expect("failed to create directory"),
            traced: false,
            undoes: false,
        };
        faults.set(&[]);
        faults
    }

    /// Also records a trace.
    pub fn traced(self) -> FaultFs {
        FaultFs { traced: true, ..self }
    }

    /// Also remembers unsynced data, so that `drop` rules can undo it.
    pub fn undoing(self) -> FaultFs {
        FaultFs { undoes: true, ..self }
    }

    /// Returns the environment variables that a process needs for the interception.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Path| path.to_str().expect("path is not UTF-8").to_owned();
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

    /// Starts an intercepted server.
    pub fn serve(&self, machine: &Machine, more: &[&str], environment: &[(&str, &str)]) -> Server {
        let own = self.environment();
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        Server::start(machine, more, &own.chain(environment.iter().copied()).collect::<Vec<_>>())
    }

    /// Runs an intercepted command to its end.
    pub fn run(&self, machine: &Machine, arguments: &[&str]) -> Output {
        let mut command = machine.command(arguments);
        command.envs(self.environment()).stdin(Stdio::null());
        command.output().expect("failed to run binary")
    }

    /// Replaces the rules. Running processes apply them on their next call, with new counters.
    pub fn set(&self, rules: &[&str]) {
        let text: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
        let next = self.file("rules.next");
        std::fs::write(&next, text).expect("failed to write");
        std::fs::rename(next, self.file("rules")).expect("failed to rename");
    }

    /// Returns the failed calls of the current rules and of earlier rules.
    pub fn fired(&self) -> Vec<InjectedFault> {
        let log = std::fs::read_to_string(self.file("log")).unwrap_or_default();
        let faults = log.lines().filter_map(|line| {
            let mut words = line.splitn(4, ' ');
            let rule = words.next()?.parse().ok()?;
            let kind = words.next()?.to_owned();
            let _errno = words.next()?;
            Some(InjectedFault { rule, kind, path: words.next()?.to_owned() })
        });
        faults.collect()
    }

    /// Clears the list of failed calls.
    pub fn forget_fired(&self) {
        if let Ok(log) = std::fs::OpenOptions::new().write(true).open(self.file("log")) {
            log.set_len(0).expect("failed to truncate log");
        }
    }

    /// Returns the length of the trace. Every event whose record ends before this position has happened.
    pub fn position(&self) -> u64 {
        std::fs::metadata(self.file("trace")).map_or(0, |trace| trace.len())
    }

    pub fn trace(&self) -> Vec<TraceEvent> {
        let bytes = std::fs::read(self.file("trace")).expect("failed to read trace");
        let mut events = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (event, after) = TraceEvent::parse(rest, bytes.len() as u64);
            events.push(event);
            rest = after;
        }
        events
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl TraceEvent {
    /// Parses the first event. Returns it and the rest of the trace up to `end`.
    fn parse(bytes: &[u8], end: u64) -> (TraceEvent, &[u8]) {
        const MAGIC: u32 = 0x3154_4646;
        let mut rest = bytes;
        let mut number = |length: usize| {
            let mut value = [0; 8];
            value[..length].copy_from_slice(&rest[..length]);
            rest = &rest[length..];
            u64::from_le_bytes(value)
        };
        assert_eq!(number(4), u64::from(MAGIC));
        let kind = number(1) as u8;
        let _errno = number(4);
        let inode = number(8);
        let offset = number(8);
        let length = number(8) as usize;
        let first = number(2) as usize;
        let second = number(2) as usize;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("path is not UTF-8");
        let path = text(&rest[..first]);
        let to = text(&rest[first..first + second]);
        let data = rest[first + second..first + second + length].to_vec();
        let after = &rest[first + second + length..];
        let operation = match kind {
            b'C' => FileOperation::Create { path },
            b'W' => FileOperation::Write { path, offset, data },
            b'T' => FileOperation::Truncate { path, size: offset },
            b'R' => FileOperation::Rename { from: path, to },
            b'L' => FileOperation::Link { from: path, to },
            b'U' => FileOperation::Unlink { path },
            b'M' => FileOperation::MakeDirectory { path },
            b'D' => FileOperation::RemoveDirectory { path },
            b'S' => FileOperation::Sync { path },
            b's' => FileOperation::SyncDirectory { path },
            b'F' => FileOperation::SyncFailed { path },
            other => panic!("unknown operation {other}"),
        };
        (TraceEvent { end: end - after.len() as u64, inode, operation }, after)
    }
}

#[test]
fn trace_contains_disk_operations_of_import() {
    let machine = Machine::with_user();
    machine.write("small.jsonl", "{\"a\":1}\n");
    let faults = FaultFs::below(&machine.path("strata-data")).traced();
    let imported = faults.run(&machine, &["import", "small.jsonl", "--name", "Things", "--owner", "ada@example.test"]);
    crate::machine::succeeded(&imported);
    let trace = faults.trace();
    let position = |wanted: &dyn Fn(&FileOperation) -> bool| {
        trace.iter().position(|event| wanted(&event.operation)).unwrap_or_else(|| panic!("{trace:?}"))
    };
    let version = |path: &str| path.starts_with("store/versions/") && path.ends_with(".parquet");
    let renamed = position(&|operation| matches!(operation, FileOperation::Rename { to, .. } if version(to)));
    let synced = position(&|operation| matches!(operation, FileOperation::Sync { path } if version(path)));
    let log =
        |operation: &FileOperation| matches!(operation, FileOperation::Write { path, .. } if path.ends_with("-wal"));
    assert!(renamed < synced && trace.iter().any(|event| log(&event.operation)));
    // The recorded writes produce the file on disk.
    let FileOperation::Rename { from, to } = &trace[renamed].operation else { unreachable!() };
    let mut written = Vec::new();
    for event in &trace {
        if let FileOperation::Write { path, offset, data } = &event.operation
            && path == from
        {
            written.resize(*offset as usize, 0);
            written.extend_from_slice(data);
        }
    }
    assert_eq!(written, std::fs::read(machine.path("strata-data").join(to)).expect("failed to read file"));
    assert_eq!(trace.last().map(|event| event.end), Some(faults.position()));
    assert_eq!(faults.fired(), []);
}

#[test]
fn rule_fails_single_call_of_running_server() {
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
