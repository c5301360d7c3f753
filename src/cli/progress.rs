//! Progress on a terminal. Of an import: the source's bytes while it is read, then the entities while they are written.
//! Of a backup and a restore: the files that are done.

use std::sync::atomic::Ordering::Relaxed;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::error::CliError;
use super::print;
use crate::service::ImportProgress;

/// A bar on standard error, removed when dropped.
pub(super) struct ProgressDisplay {
    bar: ProgressBar,
    reading_all: ProgressStyle,
    reading_on: ProgressStyle,
    writing: ProgressStyle,
}

impl ProgressDisplay {
    pub(super) fn new() -> Self {
        Self {
            bar: bar(),
            reading_all: style("reading {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {msg} entities"),
            reading_on: style("reading {spinner} {bytes} {bytes_per_sec}, {msg} entities"),
            writing: style("writing {wide_bar} {human_pos}/{human_len} entities"),
        }
    }

    /// Draws how far the import has come.
    pub(super) fn show(&self, progress: &ImportProgress) {
        let (decoded, written) = (progress.entities_decoded.load(Relaxed), progress.entities_written.load(Relaxed));
        let (read_bytes, total_bytes) = (progress.bytes_read.load(Relaxed), progress.bytes_total.load(Relaxed));
        let (style, length, position) = match (written, total_bytes) {
            (0, 0) => (&self.reading_on, None, read_bytes),
            (0, _) => (&self.reading_all, Some(total_bytes), read_bytes),
            _ => (&self.writing, Some(decoded), written),
        };
        self.bar.set_style(style.clone());
        match length {
            Some(length) => self.bar.set_length(length),
            None => self.bar.unset_length(),
        }
        self.bar.set_message(HumanCount(decoded).to_string());
        self.bar.set_position(position);
        self.bar.tick();
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar for files, on standard error, removed when dropped.
pub(super) struct FilesDisplay(ProgressBar);

impl FilesDisplay {
    /// Without files; `doing` says what is done with them.
    pub(super) fn new(doing: &str) -> Self {
        let bar = bar();
        bar.set_style(style(&format!("{doing} {{spinner}} {{bytes}} {{bytes_per_sec}}, {{msg}} files")));
        Self(bar)
    }

    /// Draws how many files are done, and their bytes.
    pub(super) fn show(&self, files: u64, bytes: u64) {
        self.0.set_message(HumanCount(files).to_string());
        self.0.set_position(bytes);
    }

    /// Prints something on standard output, with the bar out of the way.
    pub(super) fn print(&self, text: &str) -> Result<(), CliError> {
        self.0.suspend(|| print(text))
    }
}

impl Drop for FilesDisplay {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn bar() -> ProgressBar {
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants. A wrong one would show the default bar, which does no harm.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
