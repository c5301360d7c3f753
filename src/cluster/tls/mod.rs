//! Mutual TLS between the nodes of a service, with certificates that a CA in `cluster.tls_ca` has signed.
//!
//! 1. A node reads three files at startup ([`files`]). If they are invalid, the node does not start.
//! 2. The node reads the files again every few seconds, and uses new certificates for new connections. If the new files
//!    are invalid, the node logs a warning, and continues to use the previous certificates.
//! 3. Sessions are not resumed, so that both certificates are verified on each connection.

mod files;

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::Uri;
use rustls::pki_types::{ServerName, UnixTime};
use strata_config::ClusterConfig;
use strata_runtime::blocking::run_blocking;
use strata_runtime::metrics::metrics;
use strata_types::error_chain::ErrorChain;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub use self::files::TlsError;
use self::files::{TlsConfigs, TlsFileContents, TlsFiles};

const POLL_INTERVAL: Duration = Duration::from_secs(5);

pub struct NodeTls {
    current: ArcSwap<TlsConfigs>,
}

impl NodeTls {
    /// Loads the TLS certificates of this node; `None` if they are not configured. The current runtime reloads changed
    /// files until the last handle is dropped.
    pub fn open(cluster: &ClusterConfig) -> Result<Option<Arc<NodeTls>>, TlsError> {
        let Some(files) = TlsFiles::new(cluster) else { return Ok(None) };
        let (tls, watcher) = NodeTls::open_watched(files)?;
        tokio::spawn(watcher.watch_files());
        Ok(Some(tls))
    }

    fn open_watched(files: TlsFiles) -> Result<(Arc<NodeTls>, TlsFileWatcher), TlsError> {
        let contents = files.read()?;
        let configs = files.build_configs(&contents, UnixTime::now())?;
        let tls = Arc::new(NodeTls { current: ArcSwap::from_pointee(configs) });
        tls.set_expiry_metric();
        let files = Arc::new(files);
        let contents = Arc::new(contents);
        let watcher = TlsFileWatcher { tls: Arc::downgrade(&tls), files, contents, last_error: None };
        Ok((tls, watcher))
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.current.load().server.clone().into()
    }

    pub(super) async fn connect(&self, url: &Uri) -> io::Result<TlsStream<TcpStream>> {
        let no_address = || io::Error::new(io::ErrorKind::InvalidInput, "not the address of a node");
        let (Some(host), Some(port)) = (url.host(), url.port_u16()) else { return Err(no_address()) };
        let host = host.trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| no_address())?;
        let connector = TlsConnector::from(self.current.load().client.clone());
        let stream = TcpStream::connect((host, port)).await?;
        let _ = stream.set_nodelay(true);
        connector.connect(name, stream).await
    }

    fn set_expiry_metric(&self) {
        metrics().node_certificate_expires.set(self.current.load().expires_s.unwrap_or_default() as f64);
    }
}

struct TlsFileWatcher {
    tls: Weak<NodeTls>,
    files: Arc<TlsFiles>,
    contents: Arc<TlsFileContents>,
    last_error: Option<(String, bool)>,
}

impl TlsFileWatcher {
    async fn watch_files(mut self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Some(tls) = self.tls.upgrade() else { return };
            self.reload(&tls).await;
        }
    }

    async fn reload(&mut self, tls: &NodeTls) {
        let files = self.files.clone();
        let current = self.contents.clone();
        let expires_s = tls.current.load().expires_s;
        let reload = run_blocking(move || {
            let contents = files.read()?;
            let now = UnixTime::now();
            if contents == *current {
                return files.check_expiry(expires_s, now).map(|()| None);
            }
            files.build_configs(&contents, now).map(|configs| Some((contents, configs)))
        });
        match reload.await {
            Ok(Ok(None)) => {
                if let Some((_, true)) = self.last_error.take() {
                    tracing::info!("found the node's current TLS certificates again");
                }
            }
            Ok(Ok(Some((contents, configs)))) => {
                tls.current.store(Arc::new(configs));
                tls.set_expiry_metric();
                self.contents = Arc::new(contents);
                self.last_error = None;
                tracing::info!("reloaded node TLS certificates");
            }
            Ok(Err(error)) => {
                let is_valid =
                    tls.current.load().expires_s.is_none_or(|expires_s| UnixTime::now().as_secs() <= expires_s);
                self.log_error(ErrorChain(&error).to_string(), is_valid);
            }
            Err(_) => {}
        }
    }

    /// Logs a failed reload of the certificates only if the next reload fails with the same error: while the files are
    /// replaced one after another, they do not match for a moment.
    fn log_error(&mut self, cause: String, is_valid: bool) {
        let (is_same, is_logged) =
            self.last_error.as_ref().map_or((false, false), |(last, is_logged)| (*last == cause, *is_logged));
        if is_same && !is_logged && is_valid {
            tracing::warn!(error = cause, "failed to reload node TLS certificates; keeping the current certificates");
        } else if is_same && !is_logged {
            tracing::error!(
                error = cause,
                "this node's certificate has expired, so other nodes are refusing its connections"
            );
        }
        self.last_error = Some((cause, is_same));
    }
}

#[cfg(test)]
mod tests {
    use strata_testing::certificates::Certificates;

    use super::*;

    #[tokio::test]
    async fn changed_files_are_used_if_valid() {
        let certificates = Certificates::make("127.0.0.");
        let others = Certificates::make("127.0.0.");
        let files = TlsFiles::new(&certificates.section(0)).expect("files");
        let (tls, mut watcher) = NodeTls::open_watched(files).expect("valid files");
        let first = tls.current.load_full();
        watcher.reload(&tls).await;
        assert!(Arc::ptr_eq(&first, &tls.current.load()) && watcher.last_error.is_none(), "nothing has changed");
        let replace = |option: usize| {
            let path = |certificates: &Certificates| certificates.options(0)[option].1.clone();
            std::fs::copy(path(&others), path(&certificates)).expect("copied");
        };
        // The certificate files do not match until all of them are replaced. A repeated error is logged once.
        for (option, cause) in [(0, "cluster.tls_key"), (1, "is not signed by")] {
            replace(option);
            for is_logged in [false, true, true] {
                watcher.reload(&tls).await;
                let (error, logged) = watcher.last_error.clone().expect("an error");
                assert!(error.contains(cause) && logged == is_logged, "{error}");
                assert!(Arc::ptr_eq(&first, &tls.current.load()), "the first certificates stay in use");
            }
        }
        replace(2);
        watcher.reload(&tls).await;
        assert!(watcher.last_error.is_none() && !Arc::ptr_eq(&first, &tls.current.load()));
    }

    #[test]
    fn expired_certificate_in_use_is_an_error() {
        let files = TlsFiles::new(&Certificates::make("127.0.0.").section(0)).expect("files");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_000));
        assert!(files.check_expiry(None, now).is_ok() && files.check_expiry(Some(1_000), now).is_ok());
        let error = files.check_expiry(Some(999), now).expect_err("expired").to_string();
        assert!(error.ends_with("expired at 1970-01-01T00:16:39Z; use a valid one"), "{error}");
    }
}
