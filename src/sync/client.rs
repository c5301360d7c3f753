//! The HTTP requests of a sync.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, Response, StatusCode};
use strata_ingest::egress::{AddressPolicy, EgressClient, describe_connection_failure, error_causes};
use strata_types::error_chain::join_errors;
use strata_types::version::VersionNumber;
use url::Url;

use super::local_copy::CopyDigest;
use super::{SyncError, SyncUrl, parse_version};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without any byte, also before the first one, because a server compares versions before it responds.
const READ_TIMEOUT: Duration = Duration::from_secs(900);
/// Maximum bytes of an error text that are shown.
const MAX_ERROR_TEXT_BYTES: usize = 1 << 10;

const X_DATASET_VERSION: &str = "X-Dataset-Version";
const REPR_DIGEST: &str = "Repr-Digest";

pub(crate) struct SyncClient {
    client: Client,
}

/// A response with all entities of a version as JSON Lines.
pub(crate) struct WholeVersion {
    pub(crate) version: VersionNumber,
    pub(crate) digest: CopyDigest,
    pub(crate) body: SyncBody,
}

pub(crate) struct SyncBody(Response);

impl SyncBody {
    pub(crate) async fn next_bytes(&mut self) -> Result<Option<Bytes>, SyncError> {
        let chunk = self.0.chunk().await;
        chunk.map_err(|error| SyncError::Interrupted { reason: describe_failure(&error) })
    }
}

impl SyncClient {
    pub(crate) fn new(key: Option<&str>) -> Result<SyncClient, SyncError> {
        // The user of the command chooses the server, so all addresses are allowed.
        let any = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let egress_client = EgressClient::new(AddressPolicy::new(any));
        let mut headers = HeaderMap::new();
        // The digest covers the bytes before a compression.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(key) = key {
            let bearer = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| SyncError::InvalidKey)?;
            headers.insert(AUTHORIZATION, bearer);
        }
        let client = egress_client
            .client_builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .build()
            .map_err(SyncError::Client)?;
        Ok(SyncClient { client })
    }

    /// Requests the changes since a version. Returns `None` if the server does not have it.
    pub(crate) async fn changes(&self, url: &SyncUrl, since: VersionNumber) -> Result<Option<SyncBody>, SyncError> {
        let response = self.send(&url.changes_url(since)).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Ok(Some(SyncBody(check_status(response).await?)))
    }

    pub(crate) async fn whole_version(&self, url: &SyncUrl) -> Result<WholeVersion, SyncError> {
        let response = check_status(self.send(url.file_url()).await?).await?;
        let header = |name: &'static str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let version = header(X_DATASET_VERSION).and_then(parse_version);
        let version = version.ok_or(SyncError::MissingHeader(X_DATASET_VERSION))?;
        let digest = header(REPR_DIGEST).and_then(parse_repr_digest).ok_or(SyncError::MissingHeader(REPR_DIGEST))?;
        Ok(WholeVersion { version, digest, body: SyncBody(response) })
    }

    async fn send(&self, url: &Url) -> Result<Response, SyncError> {
        let sent = self.client.get(url.clone()).send().await;
        sent.map_err(|error| SyncError::Connect { reason: describe_failure(&error) })
    }
}

fn describe_failure(error: &reqwest::Error) -> String {
    describe_connection_failure(error)
        .unwrap_or_else(|| join_errors(error_causes(error).iter().map(ToString::to_string)))
}

/// Returns the SHA-256 in a `Repr-Digest` header, such as `sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:`.
fn parse_repr_digest(header: &str) -> Option<CopyDigest> {
    let digests = header.split(',').map(str::trim);
    let digest = digests.filter_map(|digest| digest.strip_prefix("sha-256=:")?.strip_suffix(':')).next()?;
    Some(CopyDigest::new(&STANDARD.decode(digest).ok()?))
}

async fn check_status(mut response: Response) -> Result<Response, SyncError> {
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(response);
    }
    if let Some(location) = response.headers().get(LOCATION).filter(|_| status.is_redirection()) {
        return Err(SyncError::Redirect { location: String::from_utf8_lossy(location.as_bytes()).into_owned() });
    }
    let mut text = Vec::new();
    while text.len() < MAX_ERROR_TEXT_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => text.extend_from_slice(&chunk),
            // The status is reported even if the text is incomplete.
            Ok(None) | Err(_) => break,
        }
    }
    text.truncate(MAX_ERROR_TEXT_BYTES);
    let text = String::from_utf8_lossy(&text);
    let text = text.lines().next().unwrap_or_default().chars().filter(|char| !char.is_control()).collect();
    Err(SyncError::Status { status: status.as_u16(), text })
}
