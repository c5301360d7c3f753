//! Exports by URL: DuckDB, Polars, and PyArrow read ranges (`tests/tools/urls.py`, with the packages that `tests/run`
//! installs), and curl resumes an interrupted download.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use strata_testing::TestService;
use strata_testing::service::ListeningService;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/urls.py");

/// A service with the fixtures on its own port.
struct ServedFixtures {
    service: TestService,
    listening: ListeningService,
}

async fn served() -> ServedFixtures {
    let service = TestService::start().await;
    service.load_fixtures().await;
    ServedFixtures { listening: service.listen().await, service }
}

/// Runs a program without a proxy, and returns the output of a successful run.
async fn run(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("NO_PROXY", "*");
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let run = tokio::task::spawn_blocking(move || command.output());
    let output = run.await.expect("task panicked").expect("failed to run program");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    output
}

async fn curl(arguments: &[&str]) -> Output {
    let arguments: Vec<&OsStr> = ["-sS", "--fail"].iter().chain(arguments).map(OsStr::new).collect();
    run("curl", &arguments).await
}

#[tokio::test]
async fn analysis_tools_read_export_by_url() {
    // Next to the directory for temporary files of tests, in the target directory.
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python-tools").join("bin/python");
    assert!(python.exists(), "{} is missing; ./tests/run installs it", python.display());
    let served = served().await;
    let files = tempfile::tempdir().expect("failed to create directory");
    for (query, rows, columns) in [
        ("1/world-countries/v1/?format=parquet", 250, 855),
        ("3/earthquakes/active/?filter_contains=properties.place:alaska&sort=id&format=parquet", 313, 30),
    ] {
        let direct = served.service.get(&format!("/api/{query}")).await;
        let file = files.path().join("direct.parquet");
        std::fs::write(&file, &direct.body).expect("failed to write");
        let url = format!("http://{}/api/{query}", served.listening.address);
        let output = run(&python, &[SCRIPT.as_ref(), url.as_ref(), file.as_ref()]).await;
        let tools = ["DuckDB", "Polars, read", "Polars, scanned", "PyArrow, in parts", "PyArrow, whole"];
        let expected = tools.map(|tool| format!("{tool}: {rows} rows, {columns} columns\n")).concat();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{query}");
    }
    served.listening.stop().await;
}

#[tokio::test]
async fn curl_resumes_interrupted_download() {
    let served = served().await;
    let direct = served.service.get("/api/3/earthquakes/v1/?format=parquet").await.body;
    let files = tempfile::tempdir().expect("failed to create directory");
    let file = files.path().join("resumed.parquet");
    let url = format!("http://{}/api/3/earthquakes/v1/?format=parquet", served.listening.address);
    for received in [0, 1, direct.len() / 3, direct.len() - 1] {
        std::fs::write(&file, &direct[..received]).expect("failed to write");
        let shown = "%{http_code} %{size_download}";
        let path = file.to_str().expect("invalid UTF-8");
        let printed = curl(&["-C", "-", "-w", shown, "-o", path, &url]).await.stdout;
        assert!(std::fs::read(&file).expect("failed to read") == direct, "from {received}");
        let status = if received == 0 { 200 } else { 206 };
        assert_eq!(String::from_utf8_lossy(&printed), format!("{status} {}", direct.len() - received));
    }
    served.listening.stop().await;
}

#[tokio::test]
async fn curl_decodes_compressed_response() {
    let served = served().await;
    let url = format!("http://{}/api/1/world-countries/v1/?limit=200", served.listening.address);
    let plain = curl(&[&url]).await.stdout;
    let decoded = curl(&["--compressed", &url]).await.stdout;
    assert!(plain == decoded && plain.len() > 100_000);
    let head = curl(&["-o", "/dev/null", "-D", "-", "-H", "Accept-Encoding: gzip", &url]).await.stdout;
    let head = String::from_utf8(head).expect("invalid UTF-8").to_lowercase();
    // A whole body has a length.
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("missing length");
    assert!(length.trim().parse::<usize>().expect("invalid number") < plain.len() / 3, "{head}");
    assert!(head.contains("content-encoding: gzip") && head.contains("vary: "), "{head}");
    served.listening.stop().await;
}
