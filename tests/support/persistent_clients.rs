//! Clients that send requests until a server is gone, and retry only if a connection is refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The number of clients of each kind.
pub const CLIENTS: u64 = 6;

/// The numbers of requests and responses of all clients.
#[derive(Default)]
struct Count {
    sent: AtomicU64,
    answered: AtomicU64,
}

impl Count {
    fn send(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Connects, or returns `None` if the port is closed.
pub async fn connect(address: SocketAddr) -> Option<TcpStream> {
    match TcpStream::connect(address).await {
        Ok(stream) => {
            stream.set_nodelay(true).expect("failed to set TCP option");
            Some(stream)
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{error}");
            None
        }
    }
}

/// Sends requests over HTTP/1.1 until connections are refused.
async fn http1(address: SocketAddr, target: String, keep: bool, pause: Duration, count: Arc<Count>) {
    let close = if keep { "" } else { "Connection: close\r\n" };
    let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{close}\r\n");
    while let Some(mut stream) = connect(address).await {
        loop {
            // Like other clients, does not reuse a connection that the server has already closed.
            if stream.try_read(&mut [0; 1]).is_ok() {
                break;
            }
            count.send();
            let answered = async {
                stream.write_all(request.as_bytes()).await?;
                answer(&mut stream).await
            };
            let last = answered.await.unwrap_or_else(|error| panic!("lost request: {error}"));
            count.answer();
            if last || !keep {
                break;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Reads a response with a known length. Returns true if it is the last one of its connection.
pub async fn answer(stream: &mut TcpStream) -> std::io::Result<bool> {
    let mut read = Vec::new();
    let mut some = [0; 4_096];
    loop {
        let bytes = stream.read(&mut some).await?;
        if bytes == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&some[..bytes]);
        let text = String::from_utf8_lossy(&read).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let length: usize =
            header("content-length: ").expect("missing length").parse().expect("failed to parse number");
        if body.len() >= length {
            return Ok(header("connection: ") == Some("close"));
        }
    }
}

/// Sends requests over HTTP/2, several at a time, until connections are refused.
async fn http2(address: SocketAddr, target: String, count: Arc<Count>) {
    while let Some(stream) = connect(address).await {
        let (client, connection) = match h2::client::handshake(stream).await {
            Ok(both) => both,
            Err(error) => panic!("lost connection: {error}"),
        };
        let driver = tokio::spawn(connection);
        while let Ok(mut ready) = client.clone().ready().await {
            let request =
                || axum::http::Request::get(format!("http://test{target}")).body(()).expect("failed to build request");
            let mut answers = Vec::new();
            for _ in 0..3 {
                // The service has announced that it closes the connection, so the request was not sent.
                if let Ok((answer, _)) = ready.send_request(request(), true) {
                    answers.push(answer);
                }
            }
            let mut is_closed = answers.len() < 3;
            for answer in answers {
                count.send();
                let answered = async {
                    let (head, mut body) = answer.await?.into_parts();
                    assert_eq!(head.status, 200);
                    while let Some(bytes) = body.data().await {
                        let bytes = bytes?.len();
                        body.flow_control().release_capacity(bytes)?;
                    }
                    Ok::<_, h2::Error>(())
                };
                match answered.await {
                    Ok(()) => count.answer(),
                    // The service reports that it has not processed the request.
                    Err(error) if error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR) => {
                        count.answer();
                        is_closed = true;
                    }
                    Err(error) => panic!("lost request: {error}"),
                }
            }
            if is_closed {
                break;
            }
        }
        drop(client);
        let _ = driver.await;
    }
}

/// Runs all kinds of clients until the service is gone, and returns the number of responses.
pub async fn load(address: SocketAddr, target: &str, stop: impl Future<Output = ()>) -> u64 {
    let count = Arc::new(Count::default());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let target = || target.to_owned();
        let pause = Duration::from_millis(number * 20);
        clients.spawn(http1(address, target(), false, Duration::ZERO, count.clone()));
        clients.spawn(http1(address, target(), true, pause, count.clone()));
        clients.spawn(http2(address, target(), count.clone()));
    }
    let stopped = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.await;
    };
    let ended = async {
        while let Some(ended) = clients.join_next().await {
            ended.expect("lost request");
        }
    };
    tokio::join!(stopped, tokio::time::timeout(Duration::from_secs(60), ended)).1.expect("failed to wait for clients");
    let sent = count.sent.load(Ordering::Relaxed);
    let answered = count.answered.load(Ordering::Relaxed);
    assert_eq!(sent, answered);
    answered
}
