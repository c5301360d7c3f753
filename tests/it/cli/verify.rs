//! `strata verify` for delta files: the digest of the whole list, damaged and missing bases, and copies of a store.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use strata_format::editing::{EditScript, PositionEdit};
use strata_format::writer::WriteOptions;
use strata_store::store::{S3Options, open_store};
use strata_testing::files;
use strata_testing::machine::{Machine, Server, failed, one_json_line, succeeded};
use strata_testing::versions::{FileWorkbench, always_beside};

const ENTITIES: usize = 20_000;
const STORE: &str = "strata-data/store";

fn entity(number: usize, version: usize) -> String {
    format!(r#"{{"id":{number},"version":{version},"words":"word{} of an entity","tags":["a","b"]}}"#, number % 977)
}

fn digest(lines: &str) -> String {
    hex::encode(Sha256::digest(lines))
}

/// The name of a file in the store's folder of versions.
fn file_name(file: &Path) -> String {
    file.file_name().expect("missing name").to_string_lossy().into_owned()
}

/// Flips a bit of the first documents of a file, which are the first part of the file.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).expect("failed to read file");
    bytes[40] ^= 1;
    fs::write(file, bytes).expect("failed to damage file");
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("failed to create directory");
    for entry in fs::read_dir(from).expect("failed to list directory") {
        let path = entry.expect("failed to list directory").path();
        let copy = to.join(file_name(&path));
        match path.is_dir() {
            true => copy_directory(&path, &copy),
            false => _ = fs::copy(&path, copy).expect("failed to copy file"),
        }
    }
}

/// Three versions of a dataset. The second and the third are delta files, and the third has both others as bases.
struct DeltaVersions {
    machine: Machine,
    lines: Vec<String>,
    /// The files of the versions, relative to the machine's directory.
    files: Vec<PathBuf>,
}

impl DeltaVersions {
    fn import() -> DeltaVersions {
        let machine = Machine::with_user();
        let mut entities: Vec<String> = (0..ENTITIES).map(|number| entity(number, 1)).collect();
        let mut versions = DeltaVersions { machine, lines: Vec::new(), files: Vec::new() };
        for version in 1..=3 {
            if version > 1 {
                for number in (version * 100..ENTITIES).step_by(1_000) {
                    entities[number] = entity(number, version);
                }
                entities.swap_remove(version * 70);
            }
            let lines: String = entities.iter().map(|entity| format!("{entity}\n")).collect();
            versions.machine.write("list.jsonl", &lines);
            one_json_line(&versions.machine.import("list.jsonl", &[]));
            versions.lines.push(lines);
            let stored = files(&versions.machine.path(&format!("{STORE}/versions")));
            let stored: Vec<PathBuf> =
                stored.iter().map(|file| Path::new(STORE).join("versions").join(file_name(file))).collect();
            let new = stored.into_iter().find(|file| !versions.files.contains(file));
            versions.files.push(new.expect("missing version file"));
        }
        let size =
            |file: &PathBuf| fs::metadata(versions.machine.path(&file.to_string_lossy())).expect("no file").len();
        let sizes: Vec<u64> = versions.files.iter().map(size).collect();
        assert!(sizes[1] < sizes[0] / 4 && sizes[2] < sizes[0] / 4, "{sizes:?}");
        versions
    }

    fn path(&self, version: usize) -> String {
        self.files[version - 1].to_string_lossy().into_owned()
    }

    fn check_digest(&self, version: usize, file: &str) {
        let expected = format!("{}  {file}\n", digest(&self.lines[version - 1]));
        assert_eq!(succeeded(&self.machine.run(&["verify", file])), expected, "v{version}");
    }

    fn check_failure(&self, file: &str, reasons: &[&str]) {
        let message = failed(&self.machine.run(&["verify", file]));
        assert!(message.contains(&format!("failed to compute the digest of {file}")), "{message}");
        for reason in reasons {
            assert!(message.contains(reason), "{reason}: {message}");
        }
    }
}

#[test]
fn digest_of_delta_file_equals_its_download() {
    let versions = DeltaVersions::import();
    for version in 1..=3 {
        versions.check_digest(version, &versions.path(version));
    }
    let checked = succeeded(&versions.machine.run(&["check", "--quick", "--digests"]));
    assert!(checked.contains(&format!("{}  1/small-things/v3\n", digest(&versions.lines[2]))), "{checked}");

    let server = Server::start(&versions.machine, &[], &[]);
    let runtime = tokio::runtime::Runtime::new().expect("failed to build runtime");
    for version in 1..=3 {
        let url = format!("{}/files/1/small-things/v{version}.jsonl", server.base_url);
        let body = runtime.block_on(async { reqwest::get(url).await?.bytes().await }).expect("failed to download");
        assert!(body == versions.lines[version - 1], "v{version}");
    }
}

#[test]
fn delta_file_is_verified_in_copy_of_store() {
    let versions = DeltaVersions::import();
    copy_directory(&versions.machine.path(STORE), &versions.machine.path("a copy #1~/deep/store"));
    fs::remove_dir_all(versions.machine.path("strata-data")).expect("failed to remove data");
    for version in 1..=3 {
        let name = file_name(&versions.files[version - 1]);
        versions.check_digest(version, &format!("a copy #1~/deep/store/versions/{name}"));
    }
    // A delta file in a folder of its own still finds its bases below a parent directory.
    let name = file_name(&versions.files[2]);
    let from = versions.machine.path("a copy #1~/deep/store");
    fs::create_dir(from.join("moved")).expect("failed to create directory");
    fs::rename(from.join("versions").join(&name), from.join("moved").join(&name)).expect("failed to move file");
    versions.check_digest(3, &format!("a copy #1~/deep/store/moved/{name}"));
}

#[test]
fn missing_base_is_named_with_directory() {
    let versions = DeltaVersions::import();
    let [first, second] = [0, 1].map(|number| file_name(&versions.files[number]));
    let root = versions.machine.path(STORE).canonicalize().expect("missing store");
    let searched = |name: &str| format!("its base versions/{name} is missing; looked for it in {}", root.display());
    fs::copy(versions.machine.path(&versions.path(2)), versions.machine.path("alone.parquet")).expect("failed to copy");
    versions.check_failure(
        "alone.parquet",
        &[&format!("its base versions/{first} is missing; looked for it in "), " and its parent directories; "],
    );

    fs::remove_file(versions.machine.path(&versions.path(2))).expect("failed to remove file");
    versions.check_failure(&versions.path(3), &[&format!("{};", searched(&second))]);
    fs::remove_file(versions.machine.path(&versions.path(1))).expect("failed to remove file");
    versions.check_failure(&versions.path(3), &["is missing; looked for it in ", " and its parent directories; "]);
}

#[test]
fn damaged_base_is_reported() {
    let versions = DeltaVersions::import();
    damage(&versions.machine.path(&versions.path(1)));
    let name = file_name(&versions.files[0]);
    for version in 1..=3 {
        let reason = format!("the version file versions/{name} is damaged: document page 0 of row group 0");
        let reasons: &[&str] = if version == 1 { &[] } else { &[&reason] };
        versions.check_failure(&versions.path(version), &[reasons, &["it does not match its checksum"]].concat());
    }
    // A complete file with other entities is no base, even if it is intact.
    versions.machine.write("other.jsonl", &versions.lines[0].replace("word1 ", "word2 "));
    let arguments = ["import", "other.jsonl", "--name", "Others", "--owner", "ada@example.test"];
    one_json_line(&versions.machine.run(&arguments));
    let stored = files(&versions.machine.path(&format!("{STORE}/versions")));
    let is_new = |file: &&PathBuf| versions.files.iter().all(|known| file_name(known) != file_name(file));
    let other = stored.iter().find(is_new).expect("missing version file");
    fs::copy(other, versions.machine.path(&versions.path(1))).expect("failed to replace base");
    versions.check_failure(&versions.path(2), &["the file or a base of it is damaged"]);
}

/// Regression test: `strata verify` printed the content hash of an edited file, which is not a digest of its entities.
#[test]
fn digest_of_edited_file_covers_its_entities() {
    let machine = Machine::new();
    let bench = FileWorkbench::new();
    let store = open_store(&machine.path("store").to_string_lossy(), &S3Options::default()).expect("failed to open");
    let entities: Vec<String> = (0..9).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    let documents: Vec<String> = entities.iter().map(|entity| entity.trim_end().to_owned()).collect();
    let options = WriteOptions::default();
    let base = bench.write(&store, &documents, &options).expect("failed to write");
    let removal = EditScript::from([(3, PositionEdit { inserts: Vec::new(), change: Some(None) })]);
    let edited = bench.edit(&store, &base, &removal, (&options, &always_beside(0))).expect("failed to edit");
    let paths = [base.0, edited.expect("missing edit plan").0].map(|path| format!("store/{path}"));
    let list = [&entities[..3], &entities[4..]].concat().concat();
    for (path, lines) in [(&paths[0], entities.concat()), (&paths[1], list)] {
        assert_eq!(succeeded(&machine.run(&["verify", path])), format!("{}  {path}\n", digest(&lines)));
    }
    damage(&machine.path(&paths[0]));
    let message = failed(&machine.run(&["verify", &paths[1]]));
    assert!(message.contains("document page 0 of row group 0: it does not match its checksum"), "{message}");
}
