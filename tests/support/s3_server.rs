//! An S3 server on loopback that can be stopped and started again, at the same address and with the same objects.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// The server, with one bucket, `bucket`; needs a runtime.
pub struct S3Server {
    address: SocketAddr,
    directory: TempDir,
    refused: Refused,
    running: Option<(oneshot::Sender<()>, tokio::task::JoinHandle<()>)>,
}

/// What is not answered as it should be.
#[derive(Clone, Default)]
struct Refused {
    /// The methods of requests that are refused.
    methods: Arc<Mutex<Vec<&'static str>>>,
    /// Requests for paths with this text are never answered.
    stalled: Arc<Mutex<Option<&'static str>>>,
}

#[async_trait::async_trait]
impl s3s::access::S3Access for Refused {
    async fn check(&self, request: &mut s3s::access::S3AccessContext<'_>) -> s3s::S3Result<()> {
        let stalled = *self.stalled.lock().expect("not poisoned");
        if stalled.is_some_and(|text| request.uri().path().contains(text)) {
            std::future::pending::<()>().await;
        }
        match self.methods.lock().expect("not poisoned").contains(&request.method().as_str()) {
            true => Err(s3s::s3_error!(AccessDenied)),
            false => Ok(()),
        }
    }
}

impl S3Server {
    /// Starts one with an empty bucket.
    pub async fn start() -> S3Server {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("bucket")).expect("a bucket");
        let mut server =
            S3Server { address: ([127, 0, 0, 1], 0).into(), directory, refused: Refused::default(), running: None };
        server.resume().await;
        server
    }

    /// The environment of a strata that keeps its files there.
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

    /// Where it answers.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The directory of the bucket's objects.
    pub fn bucket(&self) -> std::path::PathBuf {
        self.directory.path().join("bucket")
    }

    /// From now on refuses requests of these methods, as to credentials without the permission.
    pub fn refuse(&self, methods: &[&'static str]) {
        *self.refused.methods.lock().expect("not poisoned") = methods.to_vec();
    }

    /// From now on takes requests for paths with this text, and does not answer them.
    pub fn stall(&self, text: &'static str) {
        *self.refused.stalled.lock().expect("not poisoned") = Some(text);
    }

    /// Listens again.
    pub async fn resume(&mut self) {
        let files = s3s_fs::FileSystem::new(self.directory.path()).expect("a file system");
        let mut service = s3s::service::S3ServiceBuilder::new(files);
        service.set_auth(s3s::auth::SimpleAuth::from_single("key", "secret"));
        service.set_access(self.refused.clone());
        let service = service.build();
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        // The port has connections of before, which wait for their end.
        socket.set_reuseaddr(true).expect("set");
        socket.bind(self.address).expect("the port");
        let listener = socket.listen(64).expect("listening");
        self.address = listener.local_addr().expect("its address");
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

    /// Ends the listening and all connections.
    pub async fn stop(&mut self) {
        if let Some((stop, task)) = self.running.take() {
            let _ = stop.send(());
            task.await.expect("it ends");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_does_not_exist_is_named_at_the_start() {
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
            command.output().expect("it runs")
        })
    });
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), ran).await.expect("it does not serve");
    for output in ended.expect("no panic") {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("the bucket for the store s3://nowhere/strata does not exist"), "{message}");
    }
    drop(server);
}
