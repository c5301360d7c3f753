//! What goes over a connection, as whoever can read the network sees it.

use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// Passes connections on, and keeps what is sent, in both directions.
pub struct RecordingProxy {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<u8>>>,
    _passing: AbortOnDropHandle<()>,
}

impl RecordingProxy {
    /// Must be called in a runtime.
    pub fn start(listen: &str, target: &str) -> RecordingProxy {
        let listener = StdTcpListener::bind(listen).expect("a port");
        listener.set_nonblocking(true).expect("set");
        let listener = TcpListener::from_std(listener).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let (recorded, target) = (Arc::<Mutex<Vec<u8>>>::default(), target.to_owned());
        let kept = recorded.clone();
        let passing = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (target, kept) = (target.clone(), kept.clone());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(&target).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::join!(pass(from_client, to_server, &kept), pass(from_server, to_client, &kept));
                });
            }
        });
        RecordingProxy { address, recorded, _passing: AbortOnDropHandle::new(passing) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All that was sent so far.
    pub fn recorded(&self) -> Vec<u8> {
        self.recorded.lock().expect("unpoisoned").clone()
    }

    /// Whether these bytes were sent.
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        self.recorded.lock().expect("unpoisoned").windows(bytes.len()).any(|window| window == bytes)
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, kept: &Mutex<Vec<u8>>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        kept.lock().expect("unpoisoned").extend_from_slice(&bytes[..length]);
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
