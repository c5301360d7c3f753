//! A proxy that records the bytes on the network, as an eavesdropper would see them.

use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// Forwards connections and records the bytes in both directions.
pub struct RecordingProxy {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<u8>>>,
    _passing: AbortOnDropHandle<()>,
}

impl RecordingProxy {
    /// Starts the proxy. Requires a runtime.
    pub fn start(listen: &str, target: &str) -> RecordingProxy {
        let listener = StdTcpListener::bind(listen).expect("failed to bind port");
        listener.set_nonblocking(true).expect("failed to set option");
        let listener = TcpListener::from_std(listener).expect("failed to create listener");
        let address = listener.local_addr().expect("missing address");
        let recorded = Arc::<Mutex<Vec<u8>>>::default();
        let target = target.to_owned();
        let log = recorded.clone();
        let passing = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = target.clone();
                let log = log.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(&target).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::join!(pass(from_client, to_server, &log), pass(from_server, to_client, &log));
                });
            }
        });
        RecordingProxy { address, recorded, _passing: AbortOnDropHandle::new(passing) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all recorded bytes.
    pub fn recorded(&self) -> Vec<u8> {
        self.recorded.lock().expect("poisoned lock").clone()
    }

    /// Returns true if these bytes were sent.
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        self.recorded.lock().expect("poisoned lock").windows(bytes.len()).any(|window| window == bytes)
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, log: &Mutex<Vec<u8>>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        log.lock().expect("poisoned lock").extend_from_slice(&bytes[..length]);
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
