//! The server for tasks of other nodes, and the sessions in which the tasks run. Only nodes with `cluster.secret` can
//! send tasks ([`NodeAuth`]).

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
use strata_query::engine::WeakQueryEngine;
use strata_query::fields::field_scan::FieldScan;
use strata_query::scan::version_scan::VersionScan;
use strata_query::{HashedPrincipal, QueryEngine};
use strata_runtime::priority::ThreadPriority;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Server;
use tower::layer::layer_fn;
use tower::{ServiceExt, service_fn};

use super::auth::{NodeAuth, TENANT_HEADER};
use super::channels::{PING_INTERVAL, PING_TIMEOUT};
use super::connections::{self, NODE_CONNECTION_LIMITS};
use super::partial_scan::{PartialPlanCodec, PartialScanExec, ScanStorage};
use super::remote_task::{NodeTaskExec, TaskRunner};
use crate::tls::NodeTls;
use crate::token::PROGRAM_VERSION;

/// Limit for the serialized plan of a task. Plans are smaller, because request lengths and row groups are limited.
const MAX_PLAN_BYTES: usize = 16 << 20;
const MAX_STREAMS_PER_CONNECTION: u32 = 1_024;

#[derive(Clone)]
pub(super) struct TaskSessionBuilder {
    pub(super) engine: WeakQueryEngine,
    pub(super) storage: ScanStorage,
    pub(super) permits: FairLimit,
}

impl TaskSessionBuilder {
    pub(super) fn engine_for(&self, tenant: Option<HashedPrincipal>) -> Result<QueryEngine> {
        let Some(engine) = self.engine.upgrade() else { return exec_err!("this node is shutting down") };
        let engine = engine.with_priority(ThreadPriority::Heavy);
        Ok(match tenant {
            Some(tenant) => engine.for_principal(tenant),
            None => engine,
        })
    }

    pub(super) fn new_worker(&self, engine: &QueryEngine) -> Worker {
        // Each task uses its principal's memory and disk quotas. `datafusion-distributed` has no default limits.
        Worker::from_session_builder(self.clone())
            .with_runtime_env(engine.task_context().runtime_env())
            .with_version(PROGRAM_VERSION)
    }
}

#[async_trait]
impl WorkerSessionBuilder for TaskSessionBuilder {
    async fn build_session_state(&self, query: WorkerQueryContext) -> Result<SessionState, DataFusionError> {
        let WorkerQueryContext { mut builder, headers } = query;
        let tenant = parse_tenant(&headers)?;
        let engine = self.engine_for(tenant)?;
        let config = engine.configure_session(builder.config().take().unwrap_or_default());
        let runtime = engine.task_context().runtime_env();
        let principal = tenant.map_or(Principal::Operator, Principal::Hashed);
        let runner = TaskRunner { is_diff: false, permits: Some((self.permits.clone(), principal)), engine };
        let session = builder
            .with_config(config)
            .with_runtime_env(runtime)
            .with_distributed_user_codec(PartialPlanCodec { local: Some((runner, self.storage.clone())) })
            .with_distributed_worker_plan_rewrite_handler(check_task_plan);
        Ok(session.build())
    }
}

/// Rejects plans with operators that [`super::plan_split`] does not create, such as operators that write files.
fn check_task_plan(event: WorkerPlanRewriteEvent<'_>) -> Result<WorkerPlanRewriteEventResponse> {
    fn is_partial_plan(plan: &Arc<dyn ExecutionPlan>) -> bool {
        match plan.children().as_slice() {
            [] => plan.is::<PartialScanExec>() || plan.is::<VersionScan>() || plan.is::<FieldScan>(),
            [input] => (plan.is::<SortExec>() || plan.is::<AggregateExec>()) && is_partial_plan(input),
            _ => false,
        }
    }
    match event.plan.children().as_slice() {
        [input] if event.plan.is::<NodeTaskExec>() && is_partial_plan(input) => {
            Ok(WorkerPlanRewriteEventResponse::new(event.plan))
        }
        _ => exec_err!("the plan of a task is not part of a query"),
    }
}

pub(super) fn tenant_headers(tenant: Option<HashedPrincipal>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(HashedPrincipal { key, is_anonymous }) = tenant
        && let Ok(value) = HeaderValue::from_str(&format!("{key} {}", if is_anonymous { "anonymous" } else { "user" }))
    {
        headers.insert(TENANT_HEADER, value);
    }
    headers
}

fn parse_tenant(headers: &HeaderMap) -> Result<Option<HashedPrincipal>> {
    let Some(text) = headers.get(TENANT_HEADER) else { return Ok(None) };
    let parts = text.to_str().ok().and_then(|text| text.split_once(' '));
    let tenant = parts
        .filter(|(_, kind)| matches!(*kind, "anonymous" | "user"))
        .and_then(|(key, kind)| Some(HashedPrincipal { key: key.parse().ok()?, is_anonymous: kind == "anonymous" }));
    tenant.map(Some).ok_or_else(|| exec_datafusion_err!("{TENANT_HEADER} contains no valid tenant"))
}

pub(super) async fn serve(
    worker: Worker,
    auth: NodeAuth,
    tls: Option<Arc<NodeTls>>,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()> {
    let authenticated = move |inner: Routes| {
        let auth = auth.clone();
        service_fn(move |request: Request<Body>| {
            let result = auth.authenticate_request(&request);
            let inner = inner.clone();
            async move {
                match result {
                    Ok(()) => inner.oneshot(request).await,
                    Err(status) => Ok(status.into_http()),
                }
            }
        })
    };
    let server = Server::builder()
        .layer(layer_fn(authenticated))
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .http2_max_header_list_size(16 << 10)
        .add_service(worker.into_worker_server().max_decoding_message_size(MAX_PLAN_BYTES))
        .serve_with_incoming_shutdown(
            connections::incoming_connections(listener, NODE_CONNECTION_LIMITS, tls),
            stop.clone().cancelled_owned(),
        );
    const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        result = server => result.map_err(io::Error::other),
        () = drained => Ok(()),
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
    fn plan_that_is_not_part_of_query_is_rejected() {
        let session_config = &SessionConfig::new();
        let schema = Arc::new(Schema::empty());
        let plans: [Arc<dyn ExecutionPlan>; 2] =
            [Arc::new(EmptyExec::new(schema.clone())), Arc::new(PlaceholderRowExec::new(schema))];
        for plan in plans {
            let result = check_task_plan(WorkerPlanRewriteEvent { plan, session_config });
            assert!(result.is_err_and(|error| error.to_string().contains("not part of a query")));
        }
    }

    #[test]
    fn tenant_header_round_trips() {
        let user = HashedPrincipal { key: 0, is_anonymous: false };
        for tenant in [None, Some(user), Some(HashedPrincipal { key: u64::MAX, is_anonymous: true })] {
            assert_eq!(parse_tenant(&tenant_headers(tenant)).expect("a tenant"), tenant);
        }
        for text in ["", "7", "7 nobody", "-7 user", "user 7"] {
            let mut headers = HeaderMap::new();
            headers.insert(TENANT_HEADER, HeaderValue::from_static(text));
            assert!(parse_tenant(&headers).is_err(), "{text:?}");
        }
    }
}
