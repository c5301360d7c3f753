//! What the service logs.

use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

/// Collects log lines.
#[derive(Clone)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// A second dispatcher that lives as long as the process. If the dispatcher of a test is the only one, tracing asks the
/// thread that reaches a log statement first. If this thread belongs to another test, it has no dispatcher, and the
/// statement is off for all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

impl Default for Log {
    fn default() -> Log {
        LazyLock::force(&SECOND);
        Log(Arc::default())
    }
}

impl Log {
    /// The lines so far.
    pub fn lines(&self) -> Vec<serde_json::Value> {
        parsed(self.0.lock().expect("not poisoned").clone())
    }

    /// The lines so far, which are forgotten.
    pub fn take(&self) -> Vec<serde_json::Value> {
        parsed(std::mem::take(&mut *self.0.lock().expect("not poisoned")))
    }
}

fn parsed(lines: Vec<u8>) -> Vec<serde_json::Value> {
    let text = String::from_utf8(lines).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}
