//! Files written by pyarrow, pandas, fastparquet, and DuckDB, and tables written by people. strata must read the same
//! values as other readers, or reject the file with a reason. `tests/tools/corpora.py` writes and compares the files,
//! with the packages that `tests/run` installs.

use std::fmt::Write as _;
use std::path::Path;

use strata_ingest::{DecodeOptions, SourceError, SourceInput, open_decoder};
use strata_testing::scripts::{tool, tools_file};

/// The expected result of `corpora.py check` for each file.
const OUTCOMES: &str = include_str!("corpora.txt");

/// Decodes a file as text: entities, warnings, and the error, one per line.
fn decode_file(path: &Path) -> String {
    let mut lines = String::new();
    let mut decode = || -> Result<(), SourceError> {
        let (mut decoder, _) = open_decoder(SourceInput::open_file(path)?, &DecodeOptions::default())?;
        let mut entity = Vec::new();
        while decoder.next_entity(&mut entity)? {
            writeln!(lines, "{}", std::str::from_utf8(&entity).expect("failed to decode UTF-8"))
                .expect("failed to write");
            entity.clear();
        }
        for warning in decoder.warnings() {
            writeln!(lines, "W {warning}").expect("failed to write");
        }
        Ok(())
    };
    if let Err(error) = decode() {
        writeln!(lines, "! {error}").expect("failed to write");
    }
    lines
}

/// Runs a command of `corpora.py` and returns its standard output.
fn run(command: &str, directory: &Path) -> String {
    let output = tool("python").arg(tools_file("corpora.py")).arg(command).arg(directory).output();
    let output = output.expect("failed to run corpora.py");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    printed.into_owned()
}

#[test]
fn corpus_files_load_or_are_rejected() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    run("write", directory.path());
    let files: Vec<_> = std::fs::read_dir(directory.path()).expect("failed to create directory").collect();
    for file in files {
        let path = file.expect("failed to read directory entry").path();
        let lines = decode_file(&path);
        std::fs::write(format!("{}.found", path.display()), lines).expect("failed to write");
    }
    assert_eq!(run("check", directory.path()), OUTCOMES);
}
