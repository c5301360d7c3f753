//! Users and their plans.

use std::fmt;
use std::str::FromStr;

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
    /// Every plan, from the smallest to the largest.
    pub const ALL: [Plan; 3] = [Plan::Free, Plan::Pro, Plan::Scale];

    /// The plan's name: `free`, `pro` or `scale`.
    pub fn name(self) -> &'static str {
        match self {
            Plan::Free => "free",
            Plan::Pro => "pro",
            Plan::Scale => "scale",
        }
    }

    /// Whether its users may register webhooks.
    pub fn has_webhooks(self) -> bool {
        match self {
            Plan::Free => false,
            Plan::Pro | Plan::Scale => true,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A text that names no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a plan; valid: free, pro, scale")]
pub struct UnknownPlan(pub String);

impl FromStr for Plan {
    type Err = UnknownPlan;

    /// Parses a plan's exact, lower-case name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Plan::ALL.into_iter().find(|plan| plan.name() == text).ok_or_else(|| UnknownPlan(text.to_owned()))
    }
}

/// A person who owns datasets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    /// The e-mail address as it was given.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_parses_and_prints_as_the_same_text() {
        for plan in Plan::ALL {
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
        for text in ["", "Free", "PRO", "scale ", "enterprise"] {
            assert_eq!(text.parse::<Plan>(), Err(UnknownPlan(text.to_owned())));
        }
    }

    #[test]
    fn addresses_that_differ_in_case_have_one_key() {
        assert_eq!(email_key(" Ada@Example.TEST\n"), "ada@example.test");
        assert_eq!(email_key("ÄRA@b.test"), email_key("ära@B.test"));
    }
}
