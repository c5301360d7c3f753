//! Captures the log of the service.

use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

/// Collects log lines.
#[derive(Clone)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

/// A second dispatcher that lives as long as the process. If a test's dispatcher is the only one, tracing asks the
/// dispatcher of the thread that first reaches a log statement. If that thread belongs to another test, it has no
/// dispatcher, and tracing disables the statement for all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

impl Default for CapturedLog {
    fn default() -> CapturedLog {
        LazyLock::force(&SECOND);
        CapturedLog(Arc::default())
    }
}

impl CapturedLog {
    /// Returns the captured lines.
    pub fn lines(&self) -> Vec<serde_json::Value> {
        parsed(self.0.lock().expect("poisoned lock").clone())
    }

    /// Returns the captured lines and clears them.
    pub fn take(&self) -> Vec<serde_json::Value> {
        parsed(std::mem::take(&mut *self.0.lock().expect("poisoned lock")))
    }
}

fn parsed(lines: Vec<u8>) -> Vec<serde_json::Value> {
    let text = String::from_utf8(lines).expect("invalid text");
    text.lines().map(|line| serde_json::from_str(line).expect("failed to parse JSON")).collect()
}

impl std::io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("poisoned lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for CapturedLog {
    type Writer = CapturedLog;

    fn make_writer(&'a self) -> CapturedLog {
        self.clone()
    }
}
