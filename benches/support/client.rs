//! A minimal HTTP/1.1 client on one keep-alive connection.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A keep-alive connection.
pub struct AsyncClient {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The range of the buffer that was received but not yet used.
    unread: std::ops::Range<usize>,
}

#[derive(Clone, Debug)]
pub struct Head {
    pub status: u16,
    pub etag: Option<String>,
    length: Option<u64>,
    chunked: bool,
}

impl AsyncClient {
    /// Connects to a server. Panics if the server cannot be reached.
    pub async fn connect(address: SocketAddr) -> AsyncClient {
        let stream = TcpStream::connect(address).await.expect("failed to start the server");
        AsyncClient::from_stream(stream)
    }

    /// Like [`AsyncClient::connect`], with a receive buffer of `bytes` bytes.
    pub async fn connect_buffering(address: SocketAddr, bytes: u32) -> AsyncClient {
        let socket = TcpSocket::new_v4().expect("failed to open a socket");
        socket.set_recv_buffer_size(bytes).expect("failed to get the size");
        AsyncClient::from_stream(socket.connect(address).await.expect("failed to start the server"))
    }

    /// Connects from an address of this machine, with an optional receive buffer size.
    pub async fn connect_from(to: SocketAddr, from: IpAddr, buffer: Option<u32>) -> io::Result<AsyncClient> {
        Ok(AsyncClient::from_stream(AsyncClient::stream_from(to, from, buffer).await?))
    }

    /// Like [`AsyncClient::connect_from`], but returns the bare connection.
    pub async fn stream_from(to: SocketAddr, from: IpAddr, buffer: Option<u32>) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind(SocketAddr::new(from, 0))?;
        socket.connect(to).await
    }

    fn from_stream(stream: TcpStream) -> AsyncClient {
        stream.set_nodelay(true).expect("failed to connect");
        AsyncClient { stream, buffer: vec![0; 64 << 10], unread: 0..0 }
    }

    /// Requests `target` and reads the head of the response.
    pub async fn ask(&mut self, target: &str, if_none_match: Option<&str>) -> io::Result<Head> {
        let condition = if_none_match.map_or(String::new(), |etag| format!("If-None-Match: {etag}\r\n"));
        self.send("GET", target, &condition, "").await
    }

    /// Makes a request with additional header lines and reads the head of the response.
    pub async fn send(&mut self, method: &str, target: &str, fields: &str, body: &str) -> io::Result<Head> {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let request = format!("{method} {target} HTTP/1.1\r\nHost: soak\r\n{fields}{length}\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.write_all(body.as_bytes()).await?;
        let mut head = String::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                break;
            }
            head.push_str(&line);
            head.push('\n');
        }
        let value = |name: &str| {
            head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("no head: {head:?}"));
        Ok(Head {
            status: status.ok_or_else(wrong)?,
            etag: value("etag"),
            length: value("content-length").and_then(|length| length.parse().ok()),
            chunked: value("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")),
        })
    }

    /// Reads the body to its regular end and returns its length.
    pub async fn body(&mut self, head: &Head) -> io::Result<u64> {
        if head.status == 304 {
            return Ok(0);
        }
        if !head.chunked {
            let length = head.length.ok_or_else(|| io::Error::other("a body without a length"))?;
            self.skip(length).await?;
            return Ok(length);
        }
        let mut bytes = 0;
        loop {
            let line = self.line().await?;
            let size = u64::from_str_radix(&line, 16).map_err(|_| io::Error::other(format!("no size: {line:?}")))?;
            self.skip(size).await?;
            if !self.line().await?.is_empty() {
                return Err(io::Error::other("a chunk without an end"));
            }
            bytes += size;
            if size == 0 {
                return Ok(bytes);
            }
        }
    }

    /// Reads a body of a known length as text.
    pub async fn text(&mut self, head: &Head) -> io::Result<String> {
        let mut left = head.length.ok_or_else(|| io::Error::other("a body without a length"))? as usize;
        let mut text = Vec::new();
        while left > 0 {
            if self.unread.is_empty() {
                self.fill().await?;
            }
            let here = left.min(self.unread.len());
            text.extend_from_slice(&self.buffer[self.unread.start..self.unread.start + here]);
            self.unread.start += here;
            left -= here;
        }
        String::from_utf8(text).map_err(io::Error::other)
    }

    /// Reads up to `bytes` bytes of the response without parsing them; returns 0 at the end.
    pub async fn some(&mut self, bytes: usize) -> io::Result<usize> {
        if !self.unread.is_empty() {
            let here = bytes.min(self.unread.len());
            self.unread.start += here;
            return Ok(here);
        }
        let most = bytes.min(self.buffer.len());
        self.stream.read(&mut self.buffer[..most]).await
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            let unread = &self.buffer[self.unread.clone()];
            match memchr::memchr(b'\n', unread) {
                Some(end) => {
                    line.extend_from_slice(&unread[..end]);
                    self.unread.start += end + 1;
                    if line.last() == Some(&b'\r') {
                        line.pop();
                    }
                    return String::from_utf8(line).map_err(io::Error::other);
                }
                None => line.extend_from_slice(unread),
            }
            self.fill().await?;
        }
    }

    async fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        while bytes > 0 {
            if self.unread.is_empty() {
                self.fill().await?;
            }
            let here = bytes.min(self.unread.len() as u64);
            self.unread.start += here as usize;
            bytes -= here;
        }
        Ok(())
    }

    async fn fill(&mut self) -> io::Result<()> {
        let read = self.stream.read(&mut self.buffer).await?;
        self.unread = 0..read;
        if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}
