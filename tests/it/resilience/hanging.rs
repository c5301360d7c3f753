//! Tests of a directory that does not respond, such as a network directory. A named pipe in place of a file simulates
//! it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use futures::future::join_all;
use strata_testing::entities::entities;
use strata_testing::eventually;
use strata_testing::machine::{Machine, Server, succeeded};
use strata_testing::network::http_client;

/// Regression test: a streamed response waited forever.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_file_times_out_and_recovers() {
    let machine = Machine::with_user();
    let files = || machine.data_files().into_iter().filter(|file| file.extension().is_some_and(|end| end == "parquet"));
    machine.write("many.json", &entities(24 << 20));
    succeeded(&machine.run(&["import", "many.json", "--name", "Silent", "--owner", "ada@example.test"]));
    let blocked_file = files().next().expect("its version file");
    succeeded(&machine.run(&["import", "many.json", "--name", "Honest", "--owner", "ada@example.test"]));
    let server = Server::start(
        &machine,
        &[],
        &[("STRATA_CACHE__EXPORTS_AHEAD", "0"), ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")],
    );
    let client = http_client().build().expect("failed to build the client");
    let read = async |name: &str, query: &str| {
        let answer = client.get(format!("{}/api/{name}/active/?{query}", server.base_url)).send().await;
        let answer = answer.expect("failed to get a response");
        (answer.status().as_u16(), answer.text().await.expect("all of it"))
    };
    // Afterwards, the footer and a few documents of the file are cached.
    let first = read("1/silent", "limit=1").await;
    assert_eq!(first.0, 200, "{}", first.1);
    let later = "format=jsonl&offset=60000";
    let whole = read("2/honest", later).await;
    assert_eq!(whole.0, 200, "{}", whole.1);

    let away = machine.path("away");
    fs::rename(&blocked_file, &away).expect("failed to move the file");
    assert!(Command::new("mkfifo").arg(&blocked_file).status().expect("failed to run mkfifo").success());
    for attempt in ["first, after the timeout", "second, at once"] {
        let (status, text) = read("1/silent", later).await;
        assert_eq!(status, 503, "{attempt}: {text}");
        assert!(text.contains("the version file store is not responding"), "{attempt}: {text}");
        assert!(read("2/honest", later).await == whole, "{attempt}: other files cannot be read");
    }

    // The reader that waits at the pipe gets an end of file.
    let pipe = machine.path("pipe");
    fs::rename(&blocked_file, &pipe).expect("failed to move the file");
    fs::rename(&away, &blocked_file).expect("failed to move the file");
    drop(fs::OpenOptions::new().write(true).open(&pipe).expect("the body has no reader"));
    eventually("the file is read again", async || read("1/silent", later).await == whole).await;
    assert_eq!(read("1/silent", "limit=1").await, first);
    assert_eq!(server.stop("-TERM").0, Some(0));
}

/// Regression test: the request waited forever, and eight such requests blocked all other exports until a restart.
#[tokio::test(flavor = "multi_thread")]
async fn export_with_hanging_file_is_rebuilt() {
    let machine = Machine::with_user();
    machine.write("many.json", &entities(2 << 20));
    succeeded(&machine.run(&["import", "many.json", "--name", "Kept", "--owner", "ada@example.test"]));
    let server = Server::start(&machine, &[], &[("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")]);
    let client = http_client().build().expect("failed to build the client");
    let read = async |query: &str| {
        let answer = client.get(format!("{}/api/1/kept/active/?format=parquet&{query}", server.base_url)).send().await;
        let answer = answer.expect("failed to get a response");
        (answer.status().as_u16(), answer.bytes().await.expect("all of it"))
    };
    let whole = read("").await;
    assert_eq!(whole.0, 200);
    let is_export = |file: &PathBuf| {
        file.components().any(|part| part.as_os_str() == "exports")
            && file.extension().is_some_and(|end| end == "parquet")
    };
    let blocked_file = machine.data_files().into_iter().find(is_export).expect("the file of the export");
    fs::remove_file(&blocked_file).expect("failed to remove the file");
    assert!(Command::new("mkfifo").arg(&blocked_file).status().expect("failed to run mkfifo").success());
    let clients = join_all((0..12).map(|_| read("")));
    assert!(clients.await.iter().all(|answer| *answer == whole), "the export is not rebuilt");
    let another = read("sort=id").await;
    assert_eq!(another.0, 200, "other exports are not built");
    assert!(read("").await == whole);
    assert_eq!(server.stop("-TERM").0, Some(0));
}
