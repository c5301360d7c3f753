//! `[webhook]`: the POST after each refresh.

use super::option::section;

section! {
    /// The POST after each refresh.
    Webhook in "webhook" {
        /// Seconds that a receiver may take in total, from the look-up of its name to the head of its answer.
        timeout_s: u64 = 10, within 1..=300;
    }
}
