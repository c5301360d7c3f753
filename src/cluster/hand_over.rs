//! Heavy reads, handed over to the server that a version file belongs to: its caches hold what the read needs.
//!
//! 1. A version file belongs to the first of the living servers by its rank ([`crate::cluster::affinity`]): of those
//!    that answer requests, say where, and are of the same version.
//! 2. The read is sent there by HTTP, as its own URL with the version that was found. A header says for whom the
//!    entities are read and which answer is meant, and a token ([`crate::cluster::token`]) proves that all of this is
//!    from a server of the service. The client was admitted and counted before. What is handed over is not handed over
//!    again: one hop.
//! 3. Where the owner is late to connect, refuses, or fails before the first byte, the read is answered where it came.
//! 4. One that takes no connections is lost at once (`crate::cluster::reach`), and owns nothing for a while.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::ACCEPT_ENCODING;
use reqwest::{Client, Method, Response, StatusCode, Url};
use rustls::ClientConfig;

use crate::cluster::address;
use crate::cluster::affinity::rank;
use crate::cluster::nodes::Nodes;
use crate::cluster::reach::{Reach, Tried};
use crate::cluster::tls::NodeTls;
use crate::cluster::token::{Claim, NodeSecret, Purpose, TOKEN_HEADER, now_s};
use crate::config::Config;
use crate::metrics::metrics;
use crate::model::node::Role;
use crate::net::internal_client;

/// The header that says for whom a read is, and which answer is meant.
pub const HANDED_HEADER: &str = "strata-handed-over";

/// How long a server may take to connect.
const CONNECT: Duration = Duration::from_millis(500);

/// How much longer than an owner may take it is waited for what it sends.
const SLACK_S: u64 = 30;

/// How often a server that does not answer yet is looked after.
const LOOK: Duration = Duration::from_secs(1);

/// The handing over of reads.
pub struct HandOver {
    nodes: Arc<Nodes>,
    secret: NodeSecret,
    clients: Clients,
    reach: Reach,
}

/// A server that a version file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    name: String,
    address: String,
}

/// A read that is handed over.
pub struct HandedRead<'a> {
    /// Path and query of its URL.
    pub target: String,
    /// For whom it is: the name of a holder.
    pub holder: String,
    /// Which answer is meant: both servers must mean the same bytes.
    pub answer: String,
    /// The coding that the body should have.
    pub coding: &'a str,
}

/// What is said of a read that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// As in [`HandedRead`].
    pub holder: String,
    /// As in [`HandedRead`].
    pub answer: String,
}

impl HandOver {
    /// With this configuration; `None` without a secret, or where the client cannot be made.
    pub fn new(config: &Config, nodes: Arc<Nodes>, tls: Option<Arc<NodeTls>>) -> Option<HandOver> {
        let secret = NodeSecret::of(config)?;
        // No owner needs longer before its first byte, and between two parts of an answer that are waited for.
        let silence = config.query.timeout_s.saturating_add(config.query.heavy_wait_s).saturating_add(SLACK_S);
        let clients = Clients::new(tls, Duration::from_secs(silence));
        let clients = clients.inspect_err(|error| tracing::error!(%error, "no read is handed over")).ok()?;
        Some(HandOver { nodes, secret, clients, reach: Reach::default() })
    }

    /// The server that a version file belongs to; `None` if that is this one, or nobody.
    pub fn owner(&self, file: &str) -> Option<Owner> {
        let (own, living) = (self.nodes.own_name()?, self.nodes.living());
        let answers = |roles: &str| roles.split(',').any(|role| role == Role::Http.name());
        let able: Vec<(&str, &str)> = living
            .iter()
            .filter(|node| answers(&node.roles) && node.version == env!("CARGO_PKG_VERSION"))
            .filter(|node| node.id == own || !self.reach.is_lost(&node.id))
            .filter_map(|node| Some((&*node.id, node.http_address.as_deref()?)))
            .filter(|(_, address)| self.clients.tls.is_some() || !address::parts(address).1)
            .collect();
        let names: Vec<&str> = able.iter().map(|(name, _)| *name).collect();
        let (name, address) = able[*rank(file.as_bytes(), &names).first()?];
        (name != own).then(|| Owner { name: name.to_owned(), address: address.to_owned() })
    }

    /// The answer of the owner as it begins; `None` if there is none.
    pub async fn ask(&self, owner: &Owner, read: HandedRead<'_>) -> Option<Response> {
        let counted = |outcome: &'static str| metrics().handed_over.of([outcome.into()]).increment(1);
        let url = Url::parse(&format!("{}{}", address::url(&owner.address), read.target)).ok()?;
        // As it is sent.
        let target = target_of(&url);
        let said = format!("{} {}", read.holder, read.answer);
        let token =
            self.secret.token(self.nodes.own_name()?, &claim(&owner.name, &Method::GET, &target, &said), now_s())?;
        let request = self.clients.current().get(url).header(HANDED_HEADER, said).header(TOKEN_HEADER, token);
        let request = request.header(ACCEPT_ENCODING, read.coding);
        let answered = tokio::select! {
            answered = request.send() => answered,
            () = self.lost(owner) => {
                counted("unreachable");
                return None;
            }
        };
        let tried = answered.as_ref().map_or_else(Tried::of_request, |_| Tried::Connected);
        self.reach.note(&owner.name, tried);
        match answered {
            Ok(response) if response.status() == StatusCode::OK => Some(response),
            Ok(response) => {
                tracing::debug!(status = response.status().as_u16(), node = owner.name, "a read was not taken over");
                counted("refused");
                None
            }
            Err(error) => {
                tracing::debug!(%error, node = owner.name, "a read could not be handed over");
                counted("unreachable");
                None
            }
        }
    }

    /// Completes when a server gives no signs of life any more, or takes no connections.
    async fn lost(&self, owner: &Owner) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.reach.look_after(&owner.name, address::parts(&owner.address).0, CONNECT).await;
            if self.reach.is_lost(&owner.name) || !self.nodes.living().iter().any(|node| node.id == owner.name) {
                return;
            }
        }
    }

    /// What is said of a read that came with this method, and this path and query; `None` if its token is none of
    /// this service, or was made for something else.
    pub fn accept(&self, (token, said): (&str, &str), method: &Method, target: &str) -> Option<Handed> {
        let claim = claim(self.nodes.own_name()?, method, target, said);
        let sender = self.secret.sender(token, &claim, now_s())?;
        tracing::debug!(node = sender, "a read was handed over to this server");
        let (holder, answer) = said.split_once(' ')?;
        Some(Handed { holder: holder.to_owned(), answer: answer.to_owned() })
    }
}

/// The client that asks other servers. It is another one when certificates were renewed.
struct Clients {
    tls: Option<Arc<NodeTls>>,
    /// How long nothing may come of an answer.
    silence: Duration,
    /// The last one, and what it shows and trusts.
    made: Mutex<(Client, Option<Arc<ClientConfig>>)>,
}

impl Clients {
    fn new(tls: Option<Arc<NodeTls>>, silence: Duration) -> reqwest::Result<Clients> {
        let made = Clients::make(tls.as_deref().map(NodeTls::http_client), silence)?;
        Ok(Clients { tls, silence, made: Mutex::new(made) })
    }

    fn make(tls: Option<Arc<ClientConfig>>, silence: Duration) -> reqwest::Result<(Client, Option<Arc<ClientConfig>>)> {
        let builder = internal_client().connect_timeout(CONNECT).read_timeout(silence);
        let builder = match &tls {
            Some(tls) => builder.tls_backend_preconfigured(ClientConfig::clone(tls)),
            None => builder,
        };
        Ok((builder.build()?, tls))
    }

    fn current(&self) -> Client {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(tls), Some(before)) = (&self.tls, &made.1) {
            let tls = tls.http_client();
            if !Arc::ptr_eq(&tls, before) {
                match Clients::make(Some(tls), self.silence) {
                    Ok(renewed) => *made = renewed,
                    Err(error) => tracing::error!(%error, "reads are handed over with former certificates"),
                }
            }
        }
        made.0.clone()
    }
}

fn claim<'a>(receiver: &'a str, method: &'a Method, target: &'a str, said: &'a str) -> Claim<'a> {
    Claim { receiver, purpose: Purpose::Read, method: method.as_str(), target, said }
}

fn target_of(url: &Url) -> String {
    match url.query() {
        None => url.path().to_owned(),
        Some(query) => format!("{}?{query}", url.path()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::catalog::{Catalog, NewNode};

    /// One of two servers, in a catalog that does not change. The other one is at this address.
    async fn one_of_two(address: String) -> (HandOver, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite://{}", directory.path().join("catalog.db").display());
        let catalog = Catalog::open(&url).await.expect("a catalog");
        let other = NewNode {
            id: "other".to_owned(),
            process: "other".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            roles: "http".to_owned(),
            internal_address: None,
            http_address: Some(address),
        };
        catalog.register_node(&other).await.expect("registered");
        let options = "secret = \"a secret of the nodes\"\nhttp_address = \"own:1\"\nlost_after_s = 3600";
        let cluster = toml::from_str(options).expect("a configuration");
        let config = Config { cluster, ..Config::default() };
        let nodes = Arc::new(Nodes::new(&config, catalog, Some(("own".to_owned(), "own".to_owned()))));
        tokio::spawn(nodes.clone().run(CancellationToken::new()));
        while nodes.living().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (HandOver::new(&config, nodes, None).expect("with a secret"), directory)
    }

    /// A file that belongs to the other one.
    fn others(hand_over: &HandOver) -> (String, Owner) {
        let files = (0..100).map(|number| format!("versions/{number}.parquet"));
        files.into_iter().find_map(|file| Some((file.clone(), hand_over.owner(&file)?))).expect("half of them are")
    }

    fn read() -> HandedRead<'static> {
        let (target, holder) = ("/api/1/a/v1/".to_owned(), "operator".to_owned());
        HandedRead { target, holder, answer: "00ff".to_owned(), coding: "identity" }
    }

    #[tokio::test]
    async fn an_owner_that_refuses_connections_is_lost_whatever_the_list_says() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (hand_over, _directory) = one_of_two(address).await;
        let (file, owner) = others(&hand_over);
        // It takes the read, says nothing, and takes no further connection.
        let taken = async {
            let (taken, _) = listener.accept().await.expect("a connection");
            drop(listener);
            taken
        };
        let (answer, _taken) = tokio::join!(hand_over.ask(&owner, read()), taken);
        assert!(answer.is_none());
        assert_eq!(hand_over.owner(&file), None, "it belongs to this one meanwhile");
    }

    #[tokio::test]
    async fn an_owner_where_nothing_listens_is_not_asked_again_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (hand_over, _directory) = one_of_two(address).await;
        let (file, owner) = others(&hand_over);
        drop(listener);
        assert!(hand_over.ask(&owner, read()).await.is_none());
        assert_eq!(hand_over.owner(&file), None);
        // What connects again is there again.
        hand_over.reach.note(&owner.name, Tried::Connected);
        assert_eq!(hand_over.owner(&file), Some(owner));
    }

    #[tokio::test]
    async fn an_owner_behind_tls_is_left_alone_without_certificates() {
        let (hand_over, _directory) = one_of_two("https://127.0.0.1:1".to_owned()).await;
        assert!((0..100).all(|number| hand_over.owner(&format!("versions/{number}.parquet")).is_none()));
    }

    #[test]
    fn what_is_proved_is_what_is_sent() {
        let url = Url::parse("http://h:1/api/1/wörld/v1/?a='b'&c=\"d\"").expect("a URL");
        assert_eq!(target_of(&url), "/api/1/w%C3%B6rld/v1/?a=%27b%27&c=%22d%22");
        assert_eq!(target_of(&Url::parse("http://h:1/api/1/a/v1/").expect("a URL")), "/api/1/a/v1/");
    }
}
