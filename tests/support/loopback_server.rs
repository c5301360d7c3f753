//! A server of the tests' own on loopback: it keeps every request, and answers byte for byte what it is told to.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query, or the whole URL if a client takes the server for a proxy.
    pub target: String,
    /// The headers, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Received {
    /// The one value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let values: Vec<&str> =
            self.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect();
        assert!(values.len() < 2, "{name} comes {} times", values.len());
        values.first().copied()
    }
}

/// What is sent back, and then.
pub enum Reply {
    /// These bytes; then the connection ends.
    Bytes(Vec<u8>),
    /// These bytes; then nothing, until the client hangs up.
    Stall(Vec<u8>),
}

/// The server. It ends when it is dropped.
pub struct LoopbackServer {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LoopbackServer {
    /// Starts on a free port of 127.0.0.1, for one connection after the other.
    pub fn start(answer: impl Fn(&Received) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (received, is_over) = (Arc::<Mutex<Vec<Received>>>::default(), Arc::<AtomicBool>::default());
        let (log, over) = (received.clone(), is_over.clone());
        // A client whose runtime the end of a test blocks cannot hang up any more.
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
                // A client that has seen enough may be gone.
                let _ = match reply {
                    Reply::Bytes(bytes) => connection.write_all(&bytes),
                    Reply::Stall(bytes) => connection.write_all(&bytes).and_then(|()| wait(&mut connection)),
                };
            }
        });
        Self { address, received, is_over, thread: Some(thread) }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What came until now.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What came since the last time.
    pub fn take_received(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread where it waits for a connection.
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
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut request = Received { method, target, headers, body: Vec::new() };
    assert_eq!(request.header("transfer-encoding"), None, "bodies come with their length");
    let length = request.header("content-length").map_or(0, |length| length.parse().expect("a length"));
    request.body = vec![0; length];
    connection.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// A 200 with these header lines, each with its line end.
pub fn ok(headers: &str, body: &[u8]) -> Reply {
    Reply::Bytes(with_status("200 OK", headers, body))
}

/// A redirect to `location`.
pub fn redirect(location: &str) -> Reply {
    Reply::Bytes(with_status("302 Found", &format!("Location: {location}\r\n"), b""))
}

/// An answer with a status line's end, header lines and a body.
pub fn with_status(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
