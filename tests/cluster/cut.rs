//! What a node gives, cut on the way: nothing that was cut looks whole.

use std::collections::HashSet;

use strata_types::request::ReadRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Nodes, filter, forty, sort, tens};

/// What becomes of the rows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// All come.
    Whole,
    /// The connection ends before them.
    Disconnected,
    /// Their stream is reset as one that needs no more.
    Reset,
    /// Their stream ends before them, as HTTP/2 ends it.
    Ended,
    /// Their stream ends as gRPC ends it, without the last message: a node that ended too early by itself does that.
    Shortened,
}

const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

/// A frame of HTTP/2.
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

/// The bytes of the first message of gRPC: it tells the columns.
fn first_message(bytes: &[u8]) -> usize {
    match bytes {
        [_, a, b, c, d, ..] => 5 + u32::from_be_bytes([*a, *b, *c, *d]) as usize,
        _ => bytes.len(),
    }
}

/// Passes on what a node answers on one connection, but for its rows.
async fn pass_on(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin), fate: Fate) -> Option<()> {
    let (mut of_rows, mut dropped) = (HashSet::new(), HashSet::new());
    loop {
        let mut frame = Frame::read(from).await?;
        if frame.kind == DATA && frame.payload.windows(8).any(|bytes| bytes == b"position") {
            of_rows.insert(frame.stream);
        }
        if fate == Fate::Whole || !of_rows.contains(&frame.stream) {
            frame.write(to).await?;
            continue;
        }
        if dropped.contains(&frame.stream) {
            // The ends of those that are shortened.
            if fate == Fate::Shortened && frame.kind != DATA {
                frame.write(to).await?;
            }
            continue;
        }
        dropped.insert(frame.stream);
        frame.payload.truncate(first_message(&frame.payload));
        match fate {
            Fate::Disconnected => return None,
            Fate::Reset => {
                frame.write(to).await?;
                // `NO_ERROR`.
                let reset = Frame { kind: RST_STREAM, flags: 0, stream: frame.stream, payload: vec![0; 4] };
                reset.write(to).await?;
            }
            Fate::Ended => {
                frame.flags |= END_STREAM;
                frame.write(to).await?;
            }
            Fate::Shortened | Fate::Whole => frame.write(to).await?,
        }
    }
}

/// A way to a node on which its rows are cut; its address.
async fn way_to(node: String, fate: Fate) -> String {
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
                    _ = pass_on(&mut server_reads, &mut client_writes, fate) => {}
                }
            });
        }
    });
    address
}

#[test]
fn rows_that_are_cut_on_the_way_never_look_whole() {
    for fate in [Fate::Whole, Fate::Disconnected, Fate::Reset, Fate::Ended, Fate::Shortened] {
        let nodes = Nodes::new(2);
        let reader = nodes.version(&forty(), &tens());
        let address = nodes.known.lock().expect("unpoisoned")[1].address.clone();
        let way = nodes.lab.bench.runtime.block_on(way_to(address, fate));
        nodes.known.lock().expect("unpoisoned")[1].address = way;
        let requests = [
            filter("k", "1"),
            ReadRequest { sort: sort("v", true), limit: Some(3), ..filter("k", "1") },
            ReadRequest { limit: Some(30), ..filter("k", "1") },
        ];
        for (number, request) in requests.iter().enumerate() {
            let (found, used) = nodes.found(0, &reader, request);
            assert_eq!(found, nodes.alone(&reader, request).expect("found"), "{fate:?}: {request:?}");
            let fallback = match fate {
                Fate::Whole => Some(None),
                // It is left alone afterwards, and there is nobody else.
                _ if number == 0 => Some(Some("failed: n1".to_owned())),
                _ => None,
            };
            assert_eq!(used.map(|used| used.fallback), fallback, "{fate:?}: {request:?}");
        }
    }
}
