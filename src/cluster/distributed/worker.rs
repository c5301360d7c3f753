//! A node that helps: the sessions that tasks run in, and the server that hears of them. It serves no one without the
//! secret.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::{exec_datafusion_err, exec_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion_distributed::{
    DistributedExt, Worker, WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse, WorkerQueryContext,
    WorkerSessionBuilder,
};
use http::{HeaderMap, HeaderValue, Request};
use strata_limits::{FairLimit, Principal};
use strata_query::engine::WeakEngine;
use strata_query::fields::scan::FieldScan;
use strata_query::scan::version_scan::VersionScan;
use strata_query::{Engine, Tenant};
use strata_runtime::priority::Priority;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Server;
use tower::layer::layer_fn;
use tower::{ServiceExt, service_fn};

use super::VERSION;
use super::channels::{PING_ANSWERED_WITHIN, PING_EVERY};
use super::connections::{self, NODE_BOUNDS};
use super::guard::{Guard, TENANT_HEADER};
use super::part_scan::{Files, PartCodec, PartScan};
use super::task::{NodeTask, Runner};
use crate::tls::NodeTls;

/// Most bytes of the plan of a task: a request is shorter, and a file has fewer row groups.
const PLAN_BYTES: usize = 16 << 20;

/// Requests of one node at once: two for each task.
const STREAMS: u32 = 1_024;

#[derive(Clone)]
pub(super) struct Sessions {
    pub(super) engine: WeakEngine,
    pub(super) files: Files,
    pub(super) permits: FairLimit,
}

impl Sessions {
    pub(super) fn engine_of(&self, tenant: Option<Tenant>) -> Result<Engine> {
        let Some(engine) = self.engine.upgrade() else { return exec_err!("this node is shutting down") };
        let engine = engine.with_priority(Priority::Heavy);
        Ok(match tenant {
            Some(tenant) => engine.for_tenant(tenant),
            None => engine,
        })
    }

    pub(super) fn worker(&self, engine: &Engine) -> Worker {
        // Each session has the memory and the disk of its tenant. Without this the library has some without bounds.
        Worker::from_session_builder(self.clone())
            .with_runtime_env(engine.context().runtime_env())
            .with_version(VERSION)
    }
}

#[async_trait]
impl WorkerSessionBuilder for Sessions {
    async fn build_session_state(&self, query: WorkerQueryContext) -> Result<SessionState, DataFusionError> {
        let WorkerQueryContext { mut builder, headers } = query;
        let tenant = tenant_of(&headers)?;
        let engine = self.engine_of(tenant)?;
        let config = engine.settings(builder.config().take().unwrap_or_default());
        let runtime = engine.context().runtime_env();
        let principal = tenant.map_or(Principal::Operator, Principal::Hashed);
        let runner = Runner { is_of_diff: false, permits: Some((self.permits.clone(), principal)), engine };
        let session = builder
            .with_config(config)
            .with_runtime_env(runtime)
            .with_distributed_user_codec(PartCodec { here: Some((runner, self.files.clone())) })
            .with_distributed_worker_plan_rewrite_handler(only_parts);
        Ok(session.build())
    }
}

/// Refuses what is no part of a query ([`super::cut`]): DataFusion knows operators that read and write files.
fn only_parts(event: WorkerPlanRewriteEvent<'_>) -> Result<WorkerPlanRewriteEventResponse> {
    fn is_part(plan: &Arc<dyn ExecutionPlan>) -> bool {
        let is_known = plan.is::<SortExec>() || plan.is::<AggregateExec>();
        match plan.children().as_slice() {
            [] => plan.is::<PartScan>() || plan.is::<VersionScan>() || plan.is::<FieldScan>(),
            [input] => is_known && is_part(input),
            _ => false,
        }
    }
    match event.plan.children().as_slice() {
        [input] if event.plan.is::<NodeTask>() && is_part(input) => Ok(WorkerPlanRewriteEventResponse::new(event.plan)),
        _ => exec_err!("the plan of a task is not part of a query"),
    }
}

pub(super) fn tenant_headers(tenant: Option<Tenant>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(Tenant { key, anonymous }) = tenant
        && let Ok(value) = HeaderValue::from_str(&format!("{key} {}", if anonymous { "anonymous" } else { "user" }))
    {
        headers.insert(TENANT_HEADER, value);
    }
    headers
}

fn tenant_of(headers: &HeaderMap) -> Result<Option<Tenant>> {
    let Some(text) = headers.get(TENANT_HEADER) else { return Ok(None) };
    let parts = text.to_str().ok().and_then(|text| text.split_once(' '));
    let tenant = parts.and_then(|(key, kind)| {
        let anonymous = match kind {
            "anonymous" => true,
            "user" => false,
            _ => return None,
        };
        Some(Tenant { key: key.parse().ok()?, anonymous })
    });
    tenant.map(Some).ok_or_else(|| exec_datafusion_err!("{TENANT_HEADER} contains no valid tenant"))
}

pub(super) async fn serve(
    worker: Worker,
    guard: Guard,
    tls: Option<Arc<NodeTls>>,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()> {
    let guarded = move |inner: Routes| {
        let guard = guard.clone();
        service_fn(move |request: Request<Body>| {
            let checked = guard.check(&request);
            let inner = inner.clone();
            async move {
                match checked {
                    Ok(()) => inner.oneshot(request).await,
                    Err(refusal) => Ok(refusal.into_http()),
                }
            }
        })
    };
    let served = Server::builder()
        .layer(layer_fn(guarded))
        .max_concurrent_streams(STREAMS)
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PING_ANSWERED_WITHIN))
        .http2_max_header_list_size(16 << 10)
        .add_service(worker.into_worker_server().max_decoding_message_size(PLAN_BYTES))
        .serve_with_incoming_shutdown(
            connections::incoming(listener, NODE_BOUNDS, tls),
            stop.clone().cancelled_owned(),
        );
    /// What still runs when the node ends, runs again elsewhere.
    const DRAIN: Duration = Duration::from_secs(5);
    let ends = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = served => served.map_err(io::Error::other),
        () = ends => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
    use datafusion::prelude::SessionConfig;

    use super::*;

    #[test]
    fn plan_that_no_node_sends_is_refused() {
        let session_config = &SessionConfig::new();
        let schema = Arc::new(Schema::empty());
        let plans: [Arc<dyn ExecutionPlan>; 2] =
            [Arc::new(EmptyExec::new(schema.clone())), Arc::new(PlaceholderRowExec::new(schema))];
        for plan in plans {
            let refused = only_parts(WorkerPlanRewriteEvent { plan, session_config });
            assert!(refused.is_err_and(|error| error.to_string().contains("not part of a query")));
        }
    }

    #[test]
    fn tenant_header_is_read_as_written() {
        let user = Tenant { key: 0, anonymous: false };
        for tenant in [None, Some(user), Some(Tenant { key: u64::MAX, anonymous: true })] {
            assert_eq!(tenant_of(&tenant_headers(tenant)).expect("a tenant"), tenant);
        }
        for text in ["", "7", "7 nobody", "-7 user", "user 7"] {
            let mut headers = HeaderMap::new();
            headers.insert(TENANT_HEADER, HeaderValue::from_static(text));
            assert!(tenant_of(&headers).is_err(), "{text:?}");
        }
    }
}
