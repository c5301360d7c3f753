//! What lets requests of nodes of this service through to the worker, and no others: each carries a token
//! ([`crate::token`]) for this node, its path and the tenant that it names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderMap, HeaderValue, Request};
use strata_runtime::metrics::metrics;
use tonic::Status;

use super::connections::Proof;
use crate::token::{Claim, NodeSecret, TOKEN_HEADER, now_s};

pub(super) const TENANT_HEADER: &str = "strata-tenant";

/// Who signs the requests of a node, and checks those to it.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    secret: NodeSecret,
    own: Arc<str>,
}

impl Guard {
    pub(super) fn new(secret: NodeSecret, own: &str) -> Guard {
        Guard { secret, own: own.into() }
    }

    pub(super) fn sign<B>(&self, receiver: &str, mut request: Request<B>) -> Request<B> {
        let token = claim(receiver, &request).and_then(|claim| self.secret.token(&self.own, &claim, now_s()));
        if let Some(token) = token.and_then(|token| HeaderValue::from_str(&token).ok()) {
            request.headers_mut().insert(TOKEN_HEADER, token);
        }
        request
    }

    /// Lets a request of a node through, or says why not.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Status> {
        if self.accepts(request) {
            if let Some(proof) = request.extensions().get::<Proof>() {
                proof.store(true, Ordering::Relaxed);
            }
            return Ok(());
        }
        metrics().node_tasks.of(["refused".into()]).increment(1);
        Err(Status::unauthenticated("the sender is not a node of this cluster, or its strata version is different"))
    }

    fn accepts<B>(&self, request: &Request<B>) -> bool {
        let sender = || {
            let token = text(request.headers(), TOKEN_HEADER)?;
            self.secret.sender(token, &claim(&self.own, request)?, now_s())
        };
        sender().is_some()
    }
}

/// What a request is; `None` if its tenant is no text.
fn claim<'a, B>(receiver: &'a str, request: &'a Request<B>) -> Option<Claim<'a>> {
    let headers = request.headers();
    let said = if headers.contains_key(TENANT_HEADER) { text(headers, TENANT_HEADER)? } else { "" };
    Some(Claim { receiver, method: request.method().as_str(), target: request.uri().path(), said })
}

/// The value of a header that is there once.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use strata_types::secret::Secret;

    use super::*;

    #[test]
    fn request_with_two_tenants_is_refused() {
        let guard = |name| Guard::new(NodeSecret::new(Secret::from_stored("a secret of the nodes".to_owned())), name);
        let request = Request::post("http://10.0.0.1:8081/worker.WorkerService/ExecuteTask");
        let request = request.header(TENANT_HEADER, "7 user").body(()).expect("a request");
        let mut signed = guard("n1").sign("n2", request);
        assert!(guard("n2").accepts(&signed) && !guard("n3").accepts(&signed));
        signed.headers_mut().append(TENANT_HEADER, HeaderValue::from_static("8 user"));
        assert!(!guard("n2").accepts(&signed));
    }
}
