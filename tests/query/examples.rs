//! The programs in `src/query/examples`, which use the crates without a server.

use std::io::Write;
use std::process::{Command, Stdio};

use strata_testing::binary::example;

#[test]
fn examples_write_and_read_a_version_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = Command::new(example("write_version"));
    writer.arg("cities.parquet").current_dir(&directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut writer = writer.spawn().expect("the example runs");
    let entities = b"{\"city\": \"Bern\", \"n\": 1.0}\n{\"city\":\"Basel\"}\n{\"city\":\"Bern\",\"n\":2}\n";
    writer.stdin.take().expect("a pipe").write_all(entities).expect("written");
    let output = writer.wait_with_output().expect("it ends");
    let size = directory.path().join("cities.parquet").metadata().expect("a file").len();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("cities.parquet: 3 entities, {size} bytes\n"));

    let mut reader = Command::new(example("read_version"));
    let output = reader.args(["cities.parquet", "city", "bern"]).current_dir(&directory).output().expect("it runs");
    let expected = "{\"city\":\"Bern\",\"n\":1.0}\n{\"city\":\"Bern\",\"n\":2}\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
}
