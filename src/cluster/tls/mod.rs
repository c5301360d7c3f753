//! TLS between the servers of a service. Each shows a certificate that one of `cluster.tls_ca` has signed, whether it
//! asks or is asked.
//!
//! 1. Three files are read at the start (`files`). What is wrong with them ends it.
//! 2. They are looked at again every few seconds. New ones are used for new connections. If something is wrong with
//!    them, those before stay in use, and the log says so.
//! 3. No session is resumed: on each connection both certificates are shown, and checked with what is in use.

mod files;
#[cfg(test)]
pub(super) mod tests;

pub use files::TlsError;
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

use self::files::{Contents, Files, TlsConfigs};

const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The certificates of this server and of those that it trusts, as they are at the moment.
pub struct NodeTls {
    in_use: ArcSwap<TlsConfigs>,
}

impl NodeTls {
    /// With this configuration, within a runtime; `None` without certificates. The files are looked at until the last
    /// handle is dropped.
    pub fn open(cluster: &Cluster) -> Result<Option<Arc<NodeTls>>, TlsError> {
        let Some(files) = Files::of(cluster) else { return Ok(None) };
        let contents = files.read()?;
        let (tls, watch) = NodeTls::of(files, contents)?;
        tokio::spawn(watch.run());
        Ok(Some(tls))
    }

    fn of(files: Files, contents: Contents) -> Result<(Arc<NodeTls>, Watch), TlsError> {
        let configs = files.check(&contents, UnixTime::now())?;
        let tls = Arc::new(NodeTls { in_use: ArcSwap::from_pointee(configs) });
        tls.tell();
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
        // Slower without, and right.
        let _ = stream.set_nodelay(true);
        connector.connect(name, stream).await
    }

    fn tell(&self) {
        let expires_s = self.in_use.load().expires_s.unwrap_or_default();
        metrics().node_certificate_expires.set(expires_s as f64);
    }
}

struct Watch {
    tls: Weak<NodeTls>,
    files: Arc<Files>,
    /// What they held when they were last used.
    contents: Arc<Contents>,
    /// What was wrong at the last look, and whether the log has it.
    trouble: Option<(String, bool)>,
}

impl Watch {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Some(tls) = self.tls.upgrade() else { return };
            self.look(&tls).await;
        }
    }

    /// Uses the files if they are new, and nothing is wrong with them.
    async fn look(&mut self, tls: &NodeTls) {
        let (files, before, expires_s) = (self.files.clone(), self.contents.clone(), tls.in_use.load().expires_s);
        let looked = blocking(move || {
            let (contents, now) = (files.read()?, UnixTime::now());
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
                tls.tell();
                (self.contents, self.trouble) = (Arc::new(contents), None);
                tracing::info!("reloaded node TLS certificates");
            }
            Ok(Err(error)) => {
                let is_in_use =
                    tls.in_use.load().expires_s.is_none_or(|expires_s| UnixTime::now().as_secs() <= expires_s);
                self.note(Causes(&error).to_string(), is_in_use);
            }
            // The system has no thread. Next time it may.
            Err(_) => {}
        }
    }

    /// Logs trouble once. Files are replaced one after the other, so only what is still wrong at the next look counts.
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
