//! A test server on loopback that records every request and returns prepared bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A recorded request.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub method: String,
    /// The path and query, or the entire URL if the client uses the server as a proxy.
    pub target: String,
    /// The headers, with lower-case names.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Received {
    /// Returns the value of a header that occurs at most once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let values: Vec<&str> =
            self.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect();
        assert!(values.len() < 2, "{name} occurs {} times", values.len());
        values.first().copied()
    }
}

/// The bytes of a response, and what happens to the connection.
pub enum Reply {
    /// Sends the bytes, then closes the connection.
    Bytes(Vec<u8>),
    /// Sends the bytes, then waits until the client closes the connection.
    Stall(Vec<u8>),
}

/// A running server, which stops on drop.
pub struct LoopbackServer {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LoopbackServer {
    /// Starts a server on a free port of 127.0.0.1, which handles one connection at a time.
    pub fn start(answer: impl Fn(&Received) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("failed to bind port");
        let address = listener.local_addr().expect("missing address");
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let is_over = Arc::<AtomicBool>::default();
        let log = received.clone();
        let over = is_over.clone();
        // If the end of a test blocks the client's runtime, the client cannot close the connection.
        let wait = move |connection: &mut TcpStream| {
            connection.set_read_timeout(Some(Duration::from_millis(20)))?;
            while !over.load(Ordering::SeqCst) {
                match connection.read(&mut [0]) {
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    ended => return ended.map(drop),
                }
            }
            Ok(())
        };
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            for connection in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut connection) = connection else { continue };
                let Some(request) = read_request(&mut connection) else { continue };
                let reply = answer(&request);
                log.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                // The client can already have closed the connection.
                let _ = match reply {
                    Reply::Bytes(bytes) => connection.write_all(&bytes),
                    Reply::Stall(bytes) => connection.write_all(&bytes).and_then(|()| wait(&mut connection)),
                };
            }
        });
        Self { address, received, is_over, thread: Some(thread) }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns all requests.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the requests since the previous call.
    pub fn take_received(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

fn read_request(connection: &mut TcpStream) -> Option<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let method = first.next()?.to_owned();
    let target = first.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut request = Received { method, target, headers, body: Vec::new() };
    assert_eq!(request.header("transfer-encoding"), None, "chunked bodies are not supported");
    let length = request.header("content-length").map_or(0, |length| length.parse().expect("missing length"));
    request.body = vec![0; length];
    connection.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// Returns a 200 response with these header lines, each of which includes its line end.
pub fn ok(headers: &str, body: &[u8]) -> Reply {
    Reply::Bytes(with_status("200 OK", headers, body))
}

/// Returns a redirect to `location`.
pub fn redirect(location: &str) -> Reply {
    Reply::Bytes(with_status("302 Found", &format!("Location: {location}\r\n"), b""))
}

/// Returns a response with the rest of the status line, header lines and a body.
pub fn with_status(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
