//! Streams of rows that a proxy truncates between nodes: truncated rows never look complete.

use std::collections::HashSet;

use strata_types::read_request::ReadRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{TestNodes, filter, forty_entities, sort, ten_rows_per_group};

/// How the proxy truncates the stream with a node's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamFault {
    None,
    /// Closes the connection before the rows.
    Disconnected,
    /// Resets the stream with `NO_ERROR`.
    Reset,
    /// Ends the stream with `END_STREAM` before the rows.
    Ended,
    /// Drops the rows, but forwards the gRPC trailers, like a node that ends too early by itself.
    Shortened,
}

const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

/// An HTTP/2 frame.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<Frame> {
        let mut head = [0; 9];
        from.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        from.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    async fn write(&self, to: &mut (impl AsyncWrite + Unpin)) -> Option<()> {
        let length = u32::try_from(self.payload.len()).expect("a frame is short").to_be_bytes();
        let head = [&length[1..], &[self.kind, self.flags], &self.stream.to_be_bytes()].concat();
        to.write_all(&[&head, &*self.payload].concat()).await.ok()
    }
}

/// Returns the length of the first gRPC message, which contains the schema.
fn first_message_bytes(bytes: &[u8]) -> usize {
    match bytes {
        [_, a, b, c, d, ..] => 5 + u32::from_be_bytes([*a, *b, *c, *d]) as usize,
        _ => bytes.len(),
    }
}

/// Forwards the responses on one connection, and applies the fault to streams with rows.
async fn forward_responses(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    fault: StreamFault,
) -> Option<()> {
    let mut row_streams = HashSet::new();
    let mut truncated = HashSet::new();
    loop {
        let mut frame = Frame::read(from).await?;
        if frame.kind == DATA && frame.payload.windows(8).any(|bytes| bytes == b"position") {
            row_streams.insert(frame.stream);
        }
        if fault == StreamFault::None || !row_streams.contains(&frame.stream) {
            frame.write(to).await?;
            continue;
        }
        if truncated.contains(&frame.stream) {
            // The trailers.
            if fault == StreamFault::Shortened && frame.kind != DATA {
                frame.write(to).await?;
            }
            continue;
        }
        truncated.insert(frame.stream);
        frame.payload.truncate(first_message_bytes(&frame.payload));
        match fault {
            StreamFault::Disconnected => return None,
            StreamFault::Reset => {
                frame.write(to).await?;
                let reset = Frame { kind: RST_STREAM, flags: 0, stream: frame.stream, payload: vec![0; 4] };
                reset.write(to).await?;
            }
            StreamFault::Ended => {
                frame.flags |= END_STREAM;
                frame.write(to).await?;
            }
            StreamFault::Shortened | StreamFault::None => frame.write(to).await?,
        }
    }
}

/// Starts a proxy that applies the fault to a node's rows, and returns its address.
async fn start_proxy(node: String, fault: StreamFault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&node).await else { continue };
            tokio::spawn(async move {
                let (mut client_reads, mut client_writes) = client.into_split();
                let (mut server_reads, mut server_writes) = server.into_split();
                tokio::select! {
                    _ = tokio::io::copy(&mut client_reads, &mut server_writes) => {}
                    _ = forward_responses(&mut server_reads, &mut client_writes, fault) => {}
                }
            });
        }
    });
    address
}

#[test]
fn truncated_rows_never_look_complete() {
    for fault in
        [StreamFault::None, StreamFault::Disconnected, StreamFault::Reset, StreamFault::Ended, StreamFault::Shortened]
    {
        let nodes = TestNodes::new(2);
        let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
        let address = nodes.known.lock().expect("unpoisoned")[1].address.clone();
        let proxy = nodes.lab.bench.runtime.block_on(start_proxy(address, fault));
        nodes.known.lock().expect("unpoisoned")[1].address = proxy;
        let requests = [
            filter("k", "1"),
            ReadRequest { sort: sort("v", true), limit: Some(3), ..filter("k", "1") },
            ReadRequest { limit: Some(30), ..filter("k", "1") },
        ];
        for (number, request) in requests.iter().enumerate() {
            let (found, used) = nodes.run_on(0, &reader, request);
            assert_eq!(found, nodes.run_locally(&reader, request).expect("found"), "{fault:?}: {request:?}");
            let fallback = match fault {
                StreamFault::None => Some(None),
                // The failed node is then excluded, and there is no other node.
                _ if number == 0 => Some(Some("failed: n1".to_owned())),
                _ => None,
            };
            assert_eq!(used.map(|used| used.fallback), fallback, "{fault:?}: {request:?}");
        }
    }
}
