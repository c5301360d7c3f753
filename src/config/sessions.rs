//! `[sessions]`: how long a log-in lasts.

use super::option::section;

section! {
    /// How long a log-in lasts.
    Sessions in "sessions" {
        /// Seconds without a request after which a session ends.
        idle_s: u64 = 1_209_600, within 60..=31_536_000;
        /// Seconds after its log-in at which a session ends, even if it is in use.
        absolute_s: u64 = 7_776_000, within 60..=31_536_000;
    }
}
