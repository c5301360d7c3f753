//! What is found out about the request at hand, for its log line: carried along by the task that handles it, so that no
//! function in between needs to know.

use std::fmt::Display;
use std::sync::{Arc, OnceLock};

/// Something that is turned into text only if it is logged.
type Lazy = Box<dyn Display + Send + Sync>;

/// What the log is to say of one request beside what its answer tells.
#[derive(Default)]
pub struct RequestLogContext {
    plan: OnceLock<Lazy>,
}

tokio::task_local! {
    static CURRENT: Arc<RequestLogContext>;
}

impl RequestLogContext {
    /// Runs the handling of a request, during which [`current`] gives this context.
    pub async fn scope<F: Future>(self: Arc<Self>, handling: F) -> F::Output {
        CURRENT.scope(self, handling).await
    }

    /// The plan of the request's query. The first one counts.
    pub fn set_plan(&self, plan: impl Display + Send + Sync + 'static) {
        let _ = self.plan.set(Box::new(plan));
    }

    pub fn plan(&self) -> Option<String> {
        self.plan.get().map(ToString::to_string)
    }
}

/// The context of the request that this task handles; work handed to other tasks takes them along by itself.
pub fn current() -> Option<Arc<RequestLogContext>> {
    CURRENT.try_with(Arc::clone).ok()
}
