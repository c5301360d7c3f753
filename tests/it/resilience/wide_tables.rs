//! Tests of wide Parquet responses for several clients at the minimum of query memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use strata_testing::machine::{Machine, Server, succeeded};

/// The number of column pairs in the table.
const PAIRS: usize = 300;

/// The number of clients that read at the same time.
const CLIENTS: usize = 4;

/// Returns entities that make responses wait for memory: hundreds of columns, and strings of several megabytes.
fn entities() -> String {
    let mut random = StdRng::seed_from_u64(5);
    let mut entity = |number: usize| {
        let pairs: Vec<_> =
            (0..PAIRS).map(|at| json!({"at": at, "value": format!("{:x}", random.random::<u64>())})).collect();
        let text = "xyz"[number % 3..][..1].repeat(random.random_range(1..6_000_000));
        format!("{}\n", json!({"number": number, "text": text, "pairs": pairs}))
    };
    (0..60).map(&mut entity).collect()
}

/// Returns the status and the body of a GET request of one client; `None` if the response is truncated.
fn read(base_url: &str, client: usize, target: &str) -> Option<(u16, Vec<u8>)> {
    let host = base_url.strip_prefix("http://").expect("failed to get the address");
    let mut stream = TcpStream::connect(host).expect("failed to connect");
    let head = format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: 172.16.0.{client}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("failed to send");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("failed to get a response");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let status = std::str::from_utf8(&answer[9..12])
        .expect("failed to parse the status")
        .parse()
        .expect("failed to parse the status");
    let mut body = answer.split_off(end);
    let is_chunked = String::from_utf8_lossy(&answer).to_lowercase().contains("transfer-encoding: chunked");
    if is_chunked && body.split_off(body.len().saturating_sub(5)) != b"0\r\n\r\n" {
        return None;
    }
    Some((status, body))
}

/// Regression test: the responses were truncated within a second, because each had started and none got memory for the
/// rest.
#[test]
fn concurrent_wide_tables_are_complete() {
    let machine = Machine::with_user();
    machine.write("wide.jsonl", &entities());
    succeeded(&machine.run(&["import", "wide.jsonl", "--name", "Wide", "--owner", "ada@example.test"]));
    let environment = [
        ("STRATA_SERVER__TRUSTED_PROXIES", "127.0.0.1"),
        ("STRATA_CACHE__EXPORT_BYTES", "0"),
        ("STRATA_CACHE__MEMORY_BYTES", "64MiB"),
        ("STRATA_QUERY__MEMORY_BYTES", "128MiB"),
    ];
    let server = Server::start(&machine, &[], &environment);
    let target = "/api/1/wide/v1/?format=parquet&typed=true";
    let (status, alone) = read(&server.base_url, 0, target).expect("failed to read the response");
    assert_eq!((status, &alone[alone.len() - 6..alone.len() - 2]), (200, &b"PAR1"[..]));
    let answers: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn({
                    let server = &server;
                    move || read(&server.base_url, client, target)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("failed to read")).collect()
    });
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("a started response was truncated")).collect();
    let whole = answers.iter().filter(|(status, _)| *status == 200);
    let chunks = |body: &[u8]| -> Vec<u8> {
        // The sizes of the chunks depend on the speed of the reader, so only their contents are compared.
        let mut bytes = Vec::new();
        let mut left = body;
        while let Some(end) = left.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&left[..end]).expect("failed to parse the size");
            let size = usize::from_str_radix(size, 16).expect("failed to parse the size");
            bytes.extend_from_slice(&left[end + 2..end + 2 + size]);
            left = &left[end + 2 + size + 2..];
        }
        bytes
    };
    let alone = chunks(&alone);
    assert!(whole.clone().all(|(_, body)| chunks(body) == alone));
    // On a slow machine, some requests can time out in the queue.
    assert!(whole.count() > 1 && answers.iter().all(|(status, _)| [200, 503].contains(status)));
    assert_eq!(server.stop("-TERM").0, Some(0));

    // Regression test: row groups were smaller if memory was short. So a client could not resume a download at another
    // server, although the ETags were equal.
    let environment = [("STRATA_CACHE__EXPORT_BYTES", "0"), ("STRATA_QUERY__MEMORY_BYTES", "2GiB")];
    let server = Server::start(&machine, &[], &environment);
    let (status, roomy) = read(&server.base_url, 0, target).expect("failed to read the response");
    assert_eq!(status, 200);
    assert!(chunks(&roomy) == alone, "the bytes depend on the available memory");
    assert_eq!(server.stop("-TERM").0, Some(0));
}
