//! Progress bars of imports, backups, and restores.

use std::sync::atomic::Ordering::Relaxed;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use strata_service::RefreshCounters;

use super::error::CliError;
use super::print_stdout;

/// A bar on standard error, removed when dropped.
pub(super) struct ProgressDisplay(ProgressBar);

impl ProgressDisplay {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Self(bar.with_finish(ProgressFinish::AndClear))
    }

    pub(super) fn for_files(doing: &str) -> Self {
        let display = Self::new();
        display.set_style(&format!("{doing} {{spinner}} {{bytes}} {{bytes_per_sec}}, {{msg}}"));
        display
    }

    fn set_style(&self, template: &str) {
        // The templates of progress bars are constants. An invalid template would show the default bar.
        self.0.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    }

    pub(super) fn show_import(&self, progress: &RefreshCounters) {
        let decoded = progress.entities_decoded.load(Relaxed);
        let written = progress.entities_written.load(Relaxed);
        let read_bytes = progress.bytes_read.load(Relaxed);
        let total_bytes = progress.bytes_total.load(Relaxed);
        let (style, length, position) = match (written, total_bytes) {
            (0, 0) => ("reading {spinner} {bytes} {bytes_per_sec}, {msg}", None, read_bytes),
            (0, _) => {
                ("reading {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {msg}", Some(total_bytes), read_bytes)
            }
            _ => ("writing {wide_bar} {human_pos}/{human_len} entities", Some(decoded), written),
        };
        self.set_style(style);
        match length {
            Some(length) => self.0.set_length(length),
            None => self.0.unset_length(),
        }
        self.0.set_message(format!("{} {}", HumanCount(decoded), if decoded == 1 { "entity" } else { "entities" }));
        self.0.set_position(position);
        self.0.tick();
    }

    pub(super) fn show_files(&self, files: u64, bytes: u64) {
        self.0.set_message(format!("{} {}", HumanCount(files), if files == 1 { "file" } else { "files" }));
        self.0.set_position(bytes);
    }

    pub(super) fn print(&self, text: &str) -> Result<(), CliError> {
        self.0.suspend(|| print_stdout(text))
    }
}
