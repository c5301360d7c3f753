//! An S3 server on loopback that can be stopped and restarted with the same address and objects.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// A server with the bucket `bucket`. Requires a runtime.
pub struct S3Server {
    address: SocketAddr,
    directory: TempDir,
    faults: RequestFaults,
    running: Option<(oneshot::Sender<()>, tokio::task::JoinHandle<()>)>,
}

/// Requests that fail or never get a response.
#[derive(Clone, Default)]
struct RequestFaults {
    /// The methods of rejected requests.
    methods: Arc<Mutex<Vec<&'static str>>>,
    /// Requests whose path contains this text get no response.
    stalled: Arc<Mutex<Option<&'static str>>>,
}

#[async_trait::async_trait]
impl s3s::access::S3Access for RequestFaults {
    async fn check(&self, request: &mut s3s::access::S3AccessContext<'_>) -> s3s::S3Result<()> {
        let stalled = *self.stalled.lock().expect("poisoned lock");
        if stalled.is_some_and(|text| request.uri().path().contains(text)) {
            std::future::pending::<()>().await;
        }
        match self.methods.lock().expect("poisoned lock").contains(&request.method().as_str()) {
            true => Err(s3s::s3_error!(AccessDenied)),
            false => Ok(()),
        }
    }
}

impl S3Server {
    /// Starts a server with an empty bucket.
    pub async fn start() -> S3Server {
        let directory = tempfile::tempdir().expect("failed to create temporary directory");
        std::fs::create_dir(directory.path().join("bucket")).expect("failed to create bucket");
        let mut server = S3Server {
            address: ([127, 0, 0, 1], 0).into(),
            directory,
            faults: RequestFaults::default(),
            running: None,
        };
        server.resume().await;
        server
    }

    /// Returns the environment variables of a strata process that uses the bucket as its store.
    pub fn environment(&self) -> [(&'static str, String); 6] {
        [
            ("STRATA_STORE__URL", "s3://bucket/strata".to_owned()),
            ("STRATA_STORE__ENDPOINT", self.endpoint()),
            ("STRATA_STORE__REGION", "us-east-1".to_owned()),
            ("STRATA_STORE__ACCESS_KEY_ID", "key".to_owned()),
            ("STRATA_STORE__SECRET_ACCESS_KEY", "secret".to_owned()),
            ("STRATA_STORE__ALLOW_HTTP", "true".to_owned()),
        ]
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the directory with the objects of the bucket.
    pub fn bucket(&self) -> std::path::PathBuf {
        self.directory.path().join("bucket")
    }

    /// Rejects requests with these methods, as if the credentials lacked the permission.
    pub fn refuse(&self, methods: &[&'static str]) {
        *self.faults.methods.lock().expect("poisoned lock") = methods.to_vec();
    }

    /// Accepts requests for paths with this text without responding.
    pub fn stall(&self, text: &'static str) {
        *self.faults.stalled.lock().expect("poisoned lock") = Some(text);
    }

    /// Starts listening again.
    pub async fn resume(&mut self) {
        let files = s3s_fs::FileSystem::new(self.directory.path()).expect("failed to open file system");
        let mut service = s3s::service::S3ServiceBuilder::new(files);
        service.set_auth(s3s::auth::SimpleAuth::from_single("key", "secret"));
        service.set_access(self.faults.clone());
        let service = service.build();
        let socket = tokio::net::TcpSocket::new_v4().expect("failed to create socket");
        // Earlier connections of the port can still be closing.
        socket.set_reuseaddr(true).expect("failed to set option");
        socket.bind(self.address).expect("failed to bind port");
        let listener = socket.listen(64).expect("failed to listen");
        self.address = listener.local_addr().expect("failed to get address");
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = &mut stopped => return,
                };
                let Ok((connection, _)) = accepted else { return };
                let service = service.clone();
                connections.spawn(async move {
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(connection), service).await;
                });
            }
        });
        self.running = Some((stop, task));
    }

    /// Stops listening and closes all connections.
    pub async fn stop(&mut self) {
        if let Some((stop, task)) = self.running.take() {
            let _ = stop.send(());
            task.await.expect("failed to wait for end");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_bucket_is_reported_at_start() {
    let server = S3Server::start().await;
    let mut environment = server.environment();
    environment[0].1 = "s3://nowhere/strata".to_owned();
    let ran = tokio::task::spawn_blocking(move || {
        let machine = crate::machine::Machine::new();
        machine.write("a.json", "[]");
        let commands = [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["import", "a.json", "--name", "A", "--owner", "ada@example.test"],
        ];
        commands.map(|arguments| {
            let mut command = machine.command(arguments);
            command.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
            command.output().expect("failed to run")
        })
    });
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), ran).await.expect("failed to wait for exit");
    for output in ended.expect("task panicked") {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("the bucket for the store s3://nowhere/strata does not exist"), "{message}");
    }
    drop(server);
}
