//! Facts about the current request for its log line. The Tokio task carries them, so that functions need no parameter.

use std::fmt::Display;
use std::sync::{Arc, OnceLock};

/// A value that is formatted only if it is logged.
type LazyDisplay = Box<dyn Display + Send + Sync>;

#[derive(Default)]
pub struct RequestLogContext {
    query_plan: OnceLock<LazyDisplay>,
}

tokio::task_local! {
    static CURRENT_CONTEXT: Arc<RequestLogContext>;
}

impl RequestLogContext {
    /// Handles a request in this context, which [`current_context`] returns during the handling.
    pub async fn run_scoped<F: Future>(self: Arc<Self>, handling: F) -> F::Output {
        CURRENT_CONTEXT.scope(self, handling).await
    }

    /// Sets the plan of the request's query. Only the first call has an effect.
    pub fn set_query_plan(&self, plan: impl Display + Send + Sync + 'static) {
        let _ = self.query_plan.set(Box::new(plan));
    }

    pub fn query_plan(&self) -> Option<String> {
        self.query_plan.get().map(ToString::to_string)
    }
}

/// Returns the context of the request that this task handles. Spawned tasks do not inherit the context.
pub fn current_context() -> Option<Arc<RequestLogContext>> {
    CURRENT_CONTEXT.try_with(Arc::clone).ok()
}
