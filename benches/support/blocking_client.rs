//! A minimal HTTP/1.1 client on one keep-alive connection, so that a benchmark measures mainly the server; and a server
//! that returns static bytes.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use bytes::Bytes;
use strata_config::Config;
use strata_http::router::with_fallbacks_and_layers;
use strata_http::server::{ServerLimits, serve_router};
use tokio::net::TcpListener;

/// A keep-alive connection.
pub struct BlockingClient {
    stream: TcpStream,
    /// The bytes that were received but not yet used.
    buffer: Vec<u8>,
    filled: usize,
}

impl BlockingClient {
    /// Connects to a server. Panics if this fails.
    pub fn connect(address: SocketAddr) -> BlockingClient {
        let stream = TcpStream::connect(address).expect("failed to start the server");
        stream.set_nodelay(true).expect("failed to connect");
        BlockingClient { stream, buffer: vec![0; 1 << 20], filled: 0 }
    }

    /// Reads the response body of `target` into `body`. Panics if the status is not 200.
    pub fn get(&mut self, target: &str, body: &mut Vec<u8>) {
        body.clear();
        self.filled = 0;
        let head = format!("GET {target} HTTP/1.1\r\nHost: bench\r\n\r\n");
        self.stream.write_all(head.as_bytes()).expect("the server reads");
        let head_end = loop {
            if let Some(end) = memchr::memmem::find(&self.buffer[..self.filled], b"\r\n\r\n") {
                break end + 4;
            }
            self.fill();
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 "), "{target}: {head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        match length.map(|length| length.parse::<usize>()) {
            Some(length) => {
                let length = length.expect("a length");
                let here = (self.filled - head_end).min(length);
                body.extend_from_slice(&self.buffer[head_end..head_end + here]);
                body.resize(length, 0);
                self.stream.read_exact(&mut body[here..]).expect("the whole body");
            }
            None => self.chunks(head_end, body),
        }
    }

    /// Reads a chunked body.
    fn chunks(&mut self, mut at: usize, body: &mut Vec<u8>) {
        loop {
            let size_end = loop {
                match memchr::memmem::find(&self.buffer[at..self.filled], b"\r\n") {
                    Some(end) => break at + end,
                    None => self.fill(),
                }
            };
            let size = std::str::from_utf8(&self.buffer[at..size_end]).expect("failed to get the size");
            let size = usize::from_str_radix(size, 16).expect("failed to get the size");
            at = size_end + 2;
            while self.filled < at + size + 2 {
                self.fill();
            }
            body.extend_from_slice(&self.buffer[at..at + size]);
            at += size + 2;
            if size == 0 {
                return;
            }
        }
    }

    fn fill(&mut self) {
        if self.filled == self.buffer.len() {
            self.buffer.resize(2 * self.filled, 0);
        }
        let read = self.stream.read(&mut self.buffer[self.filled..]).expect("the server answers");
        assert!(read > 0, "the server ended the connection");
        self.filled += read;
    }
}

/// Serves `body` at `/static`, with the same server and layers as the service.
pub async fn serve_static(body: Bytes, listener: TcpListener, shutdown: impl Future) {
    let handler = move || {
        let body = body.clone();
        async move { ([(CONTENT_TYPE, "application/json")], body) }
    };
    let router = with_fallbacks_and_layers(Router::new().route("/static", get(handler)));
    let limits = ServerLimits::from(&Config::default());
    serve_router(router, listener, limits, shutdown, |_| ()).await.expect("failed to run the server");
}
