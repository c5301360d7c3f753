//! Heavy reads, handed over to the server that a version file belongs to: its caches hold what the read needs.
//!
//! 1. A version file belongs to the first of the living servers by its rank ([`crate::cluster::affinity`]): of those
//!    that answer requests, say where, and are of the same version.
//! 2. The read is sent there by HTTP, as its own URL with the version that was found, and a token. The token proves
//!    that it is from a server of the service, and says for whom the entities are read and which answer is meant. The
//!    client was admitted and counted before. What is handed over is not handed over again: one hop.
//! 3. Where the owner is late to connect, refuses, or fails before the first byte, the read is answered where it came.
//!
//! A token is good for a while, and for one URL. The secret itself never leaves a server.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::ACCEPT_ENCODING;
use reqwest::{Client, Response, StatusCode, Url};
use sha2::Sha256;

use crate::cluster::affinity::rank;
use crate::cluster::nodes::Nodes;
use crate::config::Config;
use crate::metrics::metrics;
use crate::model::node::Role;
use crate::model::secret::Secret;
use crate::net::internal_client;

/// The header that carries the token.
pub const TOKEN_HEADER: &str = "strata-handed-over";

/// How long a server may take to connect.
const CONNECT: Duration = Duration::from_millis(500);

/// How much longer than an owner may take it is waited for what it sends.
const SLACK_S: u64 = 30;

/// How often a server that does not answer yet is looked after.
const LOOK: Duration = Duration::from_secs(1);

/// How far the clocks of two servers may be apart, and how long a token is good, in seconds.
const GOOD_FOR_S: u64 = 60;

/// The handing over of reads.
pub struct HandOver {
    nodes: Arc<Nodes>,
    secret: Secret,
    client: Client,
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

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// As in [`HandedRead`].
    pub holder: String,
    /// As in [`HandedRead`].
    pub answer: String,
}

impl HandOver {
    /// With this configuration; `None` without a secret, or where the client cannot be made.
    pub fn new(config: &Config, nodes: Arc<Nodes>) -> Option<HandOver> {
        let secret = config.cluster.secret.as_ref()?.secret().clone();
        // No owner needs longer before its first byte, and between two parts of an answer that are waited for.
        let silence = config.query.timeout_s.saturating_add(config.query.heavy_wait_s).saturating_add(SLACK_S);
        let client = internal_client().connect_timeout(CONNECT).read_timeout(Duration::from_secs(silence)).build();
        let client = client.inspect_err(|error| tracing::error!(%error, "no read is handed over")).ok()?;
        Some(HandOver { nodes, secret, client })
    }

    /// The server that a version file belongs to; `None` if that is this one, or nobody.
    pub fn owner(&self, file: &str) -> Option<Owner> {
        let (own, living) = (self.nodes.own_name()?, self.nodes.living());
        let answers = |roles: &str| roles.split(',').any(|role| role == Role::Http.name());
        let able: Vec<(&str, &str)> = living
            .iter()
            .filter(|node| answers(&node.roles) && node.version == env!("CARGO_PKG_VERSION"))
            .filter_map(|node| Some((&*node.id, node.http_address.as_deref()?)))
            .collect();
        let names: Vec<&str> = able.iter().map(|(name, _)| *name).collect();
        let (name, address) = able[*rank(file.as_bytes(), &names).first()?];
        (name != own).then(|| Owner { name: name.to_owned(), address: address.to_owned() })
    }

    /// The answer of the owner as it begins; `None` if there is none.
    pub async fn ask(&self, owner: &Owner, read: HandedRead<'_>) -> Option<Response> {
        let counted = |outcome: &'static str| metrics().handed_over.of([outcome.into()]).increment(1);
        let url = Url::parse(&format!("http://{}{}", owner.address, read.target)).ok()?;
        // As it is sent.
        let target = target_of(&url);
        let token = token(&self.secret, &target, (&read.holder, &read.answer), now_s())?;
        let request = self.client.get(url).header(TOKEN_HEADER, token).header(ACCEPT_ENCODING, read.coding);
        let answered = tokio::select! {
            answered = request.send() => answered,
            () = self.lost(owner) => {
                counted("unreachable");
                return None;
            }
        };
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

    /// Completes when a server gives no signs of life any more.
    async fn lost(&self, owner: &Owner) {
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.nodes.living().iter().any(|node| node.id == owner.name) {
                return;
            }
        }
    }

    /// What a token says that came with a request for this path and query; `None` if it is no token of this service.
    pub fn accept(&self, token: &str, target: &str) -> Option<Handed> {
        accept(&self.secret, token, target, now_s())
    }
}

fn target_of(url: &Url) -> String {
    match url.query() {
        None => url.path().to_owned(),
        Some(query) => format!("{}?{query}", url.path()),
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A token: time, holder, answer and the code that proves them, with blanks between them.
fn token(secret: &Secret, target: &str, (holder, answer): (&str, &str), now_s: u64) -> Option<String> {
    let code = hex::encode(code(secret, target, (holder, answer), now_s)?.finalize().into_bytes());
    Some(format!("{now_s} {holder} {answer} {code}"))
}

fn accept(secret: &Secret, token: &str, target: &str, now_s: u64) -> Option<Handed> {
    let mut parts = token.split(' ');
    let (time, holder, answer, sent) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (time, sent) = (time.parse::<u64>().ok()?, hex::decode(sent).ok()?);
    // Takes the same time for all that are wrong.
    let is_ours = code(secret, target, (holder, answer), time)?.verify_slice(&sent).is_ok();
    let is_good = is_ours && now_s.abs_diff(time) <= GOOD_FOR_S && parts.next().is_none();
    is_good.then(|| Handed { holder: holder.to_owned(), answer: answer.to_owned() })
}

/// `None` never: HMAC takes keys of any length. The library's type has an error.
fn code(secret: &Secret, target: &str, (holder, answer): (&str, &str), time_s: u64) -> Option<Hmac<Sha256>> {
    let mut code = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).ok()?;
    // None of the parts before the last holds a blank.
    code.update(format!("strata hand-over {time_s} {holder} {answer} {target}").as_bytes());
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    const TARGET: &str = "/api/1/a/v1/?limit=1";

    fn secret(text: &str) -> Secret {
        Secret::from_stored(text.to_owned())
    }

    fn made() -> String {
        token(&secret("a secret of the nodes"), TARGET, ("user:7", "00ff"), NOW).expect("a token")
    }

    #[test]
    fn a_token_is_good_for_a_while_and_for_what_it_was_made_for() {
        let ours = secret("a secret of the nodes");
        let handed = Handed { holder: "user:7".to_owned(), answer: "00ff".to_owned() };
        for (now, good) in [(NOW, true), (NOW + 60, true), (NOW - 60, true), (NOW + 61, false), (NOW - 61, false)] {
            assert_eq!(accept(&ours, &made(), TARGET, now), good.then(|| handed.clone()), "{now}");
        }
        assert_eq!(accept(&ours, &made(), "/api/1/a/v1/?limit=2", NOW), None);
        assert_eq!(accept(&secret("another secret"), &made(), TARGET, NOW), None);
    }

    #[test]
    fn texts_that_are_no_tokens_are_refused() {
        let (ours, good) = (secret("a secret of the nodes"), made());
        let changed = [
            good.replacen("user:7", "user:8", 1),
            good.replacen("00ff", "00fe", 1),
            good.replacen("1700000000", "1700000001", 1),
            good.replacen(' ', "  ", 1),
            format!("{good} "),
            good[..good.len() - 2].to_owned(),
            format!("{}zz", &good[..good.len() - 2]),
        ];
        for wrong in changed.iter().map(String::as_str).chain(["", " ", "   ", "1700000000", "a b c d"]) {
            assert_eq!(accept(&ours, wrong, TARGET, NOW), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_proved_is_what_is_sent() {
        let url = Url::parse("http://h:1/api/1/wörld/v1/?a='b'&c=\"d\"").expect("a URL");
        assert_eq!(target_of(&url), "/api/1/w%C3%B6rld/v1/?a=%27b%27&c=%22d%22");
        assert_eq!(target_of(&Url::parse("http://h:1/api/1/a/v1/").expect("a URL")), "/api/1/a/v1/");
    }
}
