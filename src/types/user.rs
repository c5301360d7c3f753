//! Users and their plans.

use chrono::{DateTime, Utc};

use super::ids::UserId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UserPlan {
    Free,
    /// The plan with one webhook per dataset.
    Pro,
    /// The plan with one webhook per dataset, and the highest limits.
    Scale,
}

impl UserPlan {
    pub fn has_webhooks(self) -> bool {
        self != UserPlan::Free
    }
}

names!(
    UserPlan { Free = "free", Pro = "pro", Scale = "scale" },
    UnknownPlan,
    "{0:?} is not a plan; valid: free, pro, scale"
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub email: String,
    /// The Argon2id hash of the password, in PHC string format.
    pub password_hash: String,
    pub plan: UserPlan,
    pub created_at: DateTime<Utc>,
}

/// Trims and lowercases an email address. Almost all mail servers ignore case.
pub fn normalize_email(email: &str) -> String {
    email.trim().to_lowercase()
}
