//! Authentication between nodes: each request has a token ([`crate::token`]) for receiver, path, and hashed principal.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderMap, HeaderValue, Request};
use strata_runtime::metrics::metrics;
use tonic::Status;

use super::connections::AuthenticatedFlag;
use crate::token::{NodeSecret, RequestClaims, TOKEN_HEADER, unix_now_s};

pub(super) const TENANT_HEADER: &str = "strata-tenant";

#[derive(Clone, Debug)]
pub(super) struct NodeAuth {
    secret: NodeSecret,
    local_node: Arc<str>,
}

impl NodeAuth {
    pub(super) fn new(secret: NodeSecret, local_node: &str) -> NodeAuth {
        NodeAuth { secret, local_node: local_node.into() }
    }

    pub(super) fn sign<B>(&self, receiver: &str, mut request: Request<B>) -> Request<B> {
        let token = request_claims(receiver, &request)
            .and_then(|claims| self.secret.create_token(&self.local_node, &claims, unix_now_s()));
        if let Some(token) = token.and_then(|token| HeaderValue::from_str(&token).ok()) {
            request.headers_mut().insert(TOKEN_HEADER, token);
        }
        request
    }

    pub(super) fn authenticate_request<B>(&self, request: &Request<B>) -> Result<(), Status> {
        if self.is_authorized(request) {
            if let Some(is_authenticated) = request.extensions().get::<AuthenticatedFlag>() {
                is_authenticated.store(true, Ordering::Relaxed);
            }
            return Ok(());
        }
        metrics().node_tasks.with_label_values(["refused".into()]).increment(1);
        Err(Status::unauthenticated("the sender is not a node of this cluster, or its strata version is different"))
    }

    fn is_authorized<B>(&self, request: &Request<B>) -> bool {
        let sender = || {
            let token = single_header(request.headers(), TOKEN_HEADER)?;
            self.secret.verify_sender(token, &request_claims(&self.local_node, request)?, unix_now_s())
        };
        sender().is_some()
    }
}

/// Returns the claims that the token of a request must match; `None` if the tenant header is repeated or not ASCII.
fn request_claims<'a, B>(receiver: &'a str, request: &'a Request<B>) -> Option<RequestClaims<'a>> {
    let headers = request.headers();
    let tenant = if headers.contains_key(TENANT_HEADER) { single_header(headers, TENANT_HEADER)? } else { "" };
    Some(RequestClaims { receiver, method: request.method().as_str(), target: request.uri().path(), tenant })
}

fn single_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use strata_types::secret::Secret;

    use super::*;

    #[test]
    fn request_with_two_tenants_is_rejected() {
        let auth = |name| NodeAuth::new(NodeSecret::new(Secret::from_stored("a secret of the nodes".to_owned())), name);
        let request = Request::post("http://10.0.0.1:8081/worker.WorkerService/ExecuteTask");
        let request = request.header(TENANT_HEADER, "7 user").body(()).expect("a request");
        let mut signed = auth("n1").sign("n2", request);
        assert!(auth("n2").is_authorized(&signed) && !auth("n3").is_authorized(&signed));
        signed.headers_mut().append(TENANT_HEADER, HeaderValue::from_static("8 user"));
        assert!(!auth("n2").is_authorized(&signed));
    }
}
