//! A directory that does not answer, such as that of a network: a pipe in place of a version file is one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use futures::future::join_all;
use strata_testing::entities::entities;
use strata_testing::eventually;
use strata_testing::machine::{Machine, Server, succeeded};
use strata_testing::network::http_client;

/// A streamed answer waited for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_does_not_answer_is_given_up_and_read_again_when_it_does() {
    let machine = Machine::with_user();
    let files = || machine.data_files().into_iter().filter(|file| file.extension().is_some_and(|end| end == "parquet"));
    machine.write("many.json", &entities(24 << 20));
    succeeded(&machine.run(&["import", "many.json", "--name", "Silent", "--owner", "ada@example.test"]));
    let silent = files().next().expect("its version file");
    succeeded(&machine.run(&["import", "many.json", "--name", "Honest", "--owner", "ada@example.test"]));
    let server = Server::start(
        &machine,
        &[],
        &[("STRATA_CACHE__EXPORTS_AHEAD", "0"), ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")],
    );
    let client = http_client().build().expect("a client");
    let asked = async |name: &str, query: &str| {
        let answer = client.get(format!("{}/api/{name}/active/?{query}", server.base_url)).send().await;
        let answer = answer.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("all of it"))
    };
    // Its footer is known then, and few of its documents.
    let first = asked("1/silent", "limit=1").await;
    assert_eq!(first.0, 200, "{}", first.1);
    let later = "format=jsonl&offset=60000";
    let whole = asked("2/honest", later).await;
    assert_eq!(whole.0, 200, "{}", whole.1);

    let away = machine.path("away");
    fs::rename(&silent, &away).expect("moved");
    assert!(Command::new("mkfifo").arg(&silent).status().expect("mkfifo").success());
    for attempt in ["waits", "is told at once"] {
        let (status, text) = asked("1/silent", later).await;
        assert_eq!(status, 503, "{attempt}: {text}");
        assert!(text.contains("the version file store is not responding"), "{attempt}: {text}");
        assert!(asked("2/honest", later).await == whole, "{attempt}: others are served");
    }

    // Who waits at the pipe comes to its end.
    let pipe = machine.path("pipe");
    fs::rename(&silent, &pipe).expect("moved");
    fs::rename(&away, &silent).expect("moved");
    drop(fs::OpenOptions::new().write(true).open(&pipe).expect("somebody reads it"));
    eventually("it is read again", async || asked("1/silent", later).await == whole).await;
    assert_eq!(asked("1/silent", "limit=1").await, first);
    assert_eq!(server.stop("-TERM").0, Some(0));
}

/// It waited for ever, and eight such requests stopped all others of exports until a restart.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_whose_file_does_not_answer_is_made_again() {
    let machine = Machine::with_user();
    machine.write("many.json", &entities(2 << 20));
    succeeded(&machine.run(&["import", "many.json", "--name", "Kept", "--owner", "ada@example.test"]));
    let server = Server::start(&machine, &[], &[("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")]);
    let client = http_client().build().expect("a client");
    let asked = async |query: &str| {
        let answer = client.get(format!("{}/api/1/kept/active/?format=parquet&{query}", server.base_url)).send().await;
        let answer = answer.expect("an answer");
        (answer.status().as_u16(), answer.bytes().await.expect("all of it"))
    };
    let whole = asked("").await;
    assert_eq!(whole.0, 200);
    let is_export = |file: &PathBuf| {
        file.components().any(|part| part.as_os_str() == "exports")
            && file.extension().is_some_and(|end| end == "parquet")
    };
    let silent = machine.data_files().into_iter().find(is_export).expect("the file of the export");
    fs::remove_file(&silent).expect("removed");
    assert!(Command::new("mkfifo").arg(&silent).status().expect("mkfifo").success());
    let clients = join_all((0..12).map(|_| asked("")));
    assert!(clients.await.iter().all(|answer| *answer == whole), "it is made again");
    let another = asked("sort=id").await;
    assert_eq!(another.0, 200, "others are made");
    assert!(asked("").await == whole);
    assert_eq!(server.stop("-TERM").0, Some(0));
}
