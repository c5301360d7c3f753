//! Users and their plans.

use chrono::{DateTime, Utc};

use super::ids::UserId;

/// A user's plan. It decides limits and whether webhooks are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    Free,
    /// One webhook per dataset.
    Pro,
    /// One webhook per dataset, and the highest limits.
    Scale,
}

impl Plan {
    pub fn has_webhooks(self) -> bool {
        self != Plan::Free
    }
}

names!(
    Plan { Free = "free", Pro = "pro", Scale = "scale" },
    UnknownPlan,
    "{0:?} is not a plan; valid: free, pro, scale"
);

/// A person who owns datasets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub email: String,
    /// The Argon2id hash of the password, in PHC string form.
    pub password_hash: String,
    pub plan: Plan,
    /// When the user was added, to the microsecond.
    pub created_at: DateTime<Utc>,
}

/// The form of an e-mail address for comparisons: blanks around it removed, lower case.
///
/// Addresses that differ only in case reach the same mailbox almost everywhere, so they name the same user.
pub fn email_key(email: &str) -> String {
    email.trim().to_lowercase()
}
