//! Mutual TLS between the servers of a service, with certificates that one of `cluster.tls_ca` has signed.
//!
//! 1. Three files are read at the start (`files`). If something is wrong with them, the server does not start.
//! 2. They are read again every few seconds, and new ones are used for new connections. If something is wrong with
//!    them, the former ones stay in use, and the log says so.
//! 3. No session is resumed, so that both certificates are checked on each connection.

mod files;

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::Uri;
use rustls::pki_types::{ServerName, UnixTime};
use strata_config::Cluster;
use strata_runtime::blocking::blocking;
use strata_runtime::metrics::metrics;
use strata_types::causes::Causes;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub use self::files::TlsError;
use self::files::{Contents, Files, TlsConfigs};

const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The certificates of this server and of those that it trusts, as they are at the moment.
pub struct NodeTls {
    in_use: ArcSwap<TlsConfigs>,
}

impl NodeTls {
    /// Within a runtime; `None` without certificates. The files are watched until the last handle is dropped.
    pub fn open(cluster: &Cluster) -> Result<Option<Arc<NodeTls>>, TlsError> {
        let Some(files) = Files::new(cluster) else { return Ok(None) };
        let (tls, watch) = NodeTls::watched(files)?;
        tokio::spawn(watch.run());
        Ok(Some(tls))
    }

    fn watched(files: Files) -> Result<(Arc<NodeTls>, Watch), TlsError> {
        let contents = files.read()?;
        let configs = files.check(&contents, UnixTime::now())?;
        let tls = Arc::new(NodeTls { in_use: ArcSwap::from_pointee(configs) });
        tls.record_expiry();
        let watch =
            Watch { tls: Arc::downgrade(&tls), files: Arc::new(files), contents: Arc::new(contents), trouble: None };
        Ok((tls, watch))
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.in_use.load().server.clone().into()
    }

    /// A connection to the server at a URL, if it shows a certificate that names the host of the URL.
    pub(super) async fn connect(&self, url: &Uri) -> io::Result<TlsStream<TcpStream>> {
        let no_address = || io::Error::new(io::ErrorKind::InvalidInput, "not the address of a node");
        let (Some(host), Some(port)) = (url.host(), url.port_u16()) else { return Err(no_address()) };
        let host = host.trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| no_address())?;
        let connector = TlsConnector::from(self.in_use.load().client.clone());
        let stream = TcpStream::connect((host, port)).await?;
        let _ = stream.set_nodelay(true);
        connector.connect(name, stream).await
    }

    fn record_expiry(&self) {
        let expires_s = self.in_use.load().expires_s.unwrap_or_default();
        metrics().node_certificate_expires.set(expires_s as f64);
    }
}

struct Watch {
    tls: Weak<NodeTls>,
    files: Arc<Files>,
    contents: Arc<Contents>,
    /// The error of the last look, and whether it was logged.
    trouble: Option<(String, bool)>,
}

impl Watch {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Some(tls) = self.tls.upgrade() else { return };
            self.look(&tls).await;
        }
    }

    async fn look(&mut self, tls: &NodeTls) {
        let files = self.files.clone();
        let before = self.contents.clone();
        let expires_s = tls.in_use.load().expires_s;
        let looked = blocking(move || {
            let contents = files.read()?;
            let now = UnixTime::now();
            if contents == *before {
                return files.check_time(expires_s, now).map(|()| None);
            }
            files.check(&contents, now).map(|configs| Some((contents, configs)))
        });
        match looked.await {
            Ok(Ok(None)) => {
                if let Some((_, true)) = self.trouble.take() {
                    tracing::info!("found the node's current TLS certificates again");
                }
            }
            Ok(Ok(Some((contents, configs)))) => {
                tls.in_use.store(Arc::new(configs));
                tls.record_expiry();
                self.contents = Arc::new(contents);
                self.trouble = None;
                tracing::info!("reloaded node TLS certificates");
            }
            Ok(Err(error)) => {
                let is_in_use =
                    tls.in_use.load().expires_s.is_none_or(|expires_s| UnixTime::now().as_secs() <= expires_s);
                self.note(Causes(&error).to_string(), is_in_use);
            }
            Err(_) => {}
        }
    }

    /// Logs trouble once. Files are replaced one after the other, so only an error that the next look repeats counts.
    /// `is_good` tells whether the certificate that is in use has not expired.
    fn note(&mut self, cause: String, is_good: bool) {
        let (is_same, is_told) = self.trouble.as_ref().map_or((false, false), |(last, told)| (*last == cause, *told));
        match is_same && !is_told {
            true if is_good => {
                tracing::warn!(
                    error = cause,
                    "failed to reload node TLS certificates; keeping the current certificates"
                );
            }
            true => tracing::error!(
                error = cause,
                "this node's certificate has expired, so other nodes are refusing its connections"
            ),
            false => {}
        }
        self.trouble = Some((cause, is_same));
    }
}

#[cfg(test)]
mod tests {
    use strata_testing::certificates::Certificates;

    use super::*;

    #[tokio::test]
    async fn changed_files_are_used_if_they_are_good() {
        let certificates = Certificates::make("127.0.0.");
        let others = Certificates::make("127.0.0.");
        let files = Files::new(&certificates.section(0)).expect("files");
        let (tls, mut watch) = NodeTls::watched(files).expect("good files");
        let first = tls.in_use.load_full();
        watch.look(&tls).await;
        assert!(Arc::ptr_eq(&first, &tls.in_use.load()) && watch.trouble.is_none(), "nothing has changed");
        let replace = |option: usize| {
            let path = |certificates: &Certificates| certificates.options(0)[option].1.clone();
            std::fs::copy(path(&others), path(&certificates)).expect("copied");
        };
        // The files do not match until all are replaced. An error that remains is logged once.
        for (option, cause) in [(0, "cluster.tls_key"), (1, "is not signed by")] {
            replace(option);
            for is_logged in [false, true, true] {
                watch.look(&tls).await;
                let (found, logged) = watch.trouble.clone().expect("trouble");
                assert!(found.contains(cause) && logged == is_logged, "{found}");
                assert!(Arc::ptr_eq(&first, &tls.in_use.load()), "the first certificates stay in use");
            }
        }
        replace(2);
        watch.look(&tls).await;
        assert!(watch.trouble.is_none() && !Arc::ptr_eq(&first, &tls.in_use.load()));
    }

    #[test]
    fn expired_certificate_in_use_is_an_error() {
        let files = Files::new(&Certificates::make("127.0.0.").section(0)).expect("files");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_000));
        assert!(files.check_time(None, now).is_ok() && files.check_time(Some(1_000), now).is_ok());
        let error = files.check_time(Some(999), now).expect_err("expired").to_string();
        assert!(error.ends_with("expired at 1970-01-01T00:16:39Z; use a valid one"), "{error}");
    }
}
