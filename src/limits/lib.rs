//! Limits that users and client networks share fairly: permits (queries, streams) and bytes (memory, disk).
//!
//! Problem: a service has a fixed number of units, for example 8 permits for heavy queries or 1 GiB of query memory. A
//! client that requests a thousand of them at once must not stop the other clients. A [`FairLimit`] charges each unit
//! to a [`Principal`] and lets one principal have a share of the units that no other principal uses ([`FairShares`]):
//!
//! ```
//! # use strata_limits::{FairLimit, FairShares, Principal};
//! # use strata_types::ids::UserId;
//! let memory = FairLimit::new_quota(FairShares::new(1_000, 75, 0));
//! let users = [1, 2].map(|id| Principal::User(UserId::new(id)));
//! assert!(memory.try_reserve(users[0], 750).is_ok());
//! // A first user has 75 %, a second one has 75 % of the rest.
//! assert_eq!(memory.try_reserve(users[0], 1).unwrap_err().max_units, 750);
//! assert!(memory.try_reserve(users[1], 187).is_ok());
//! memory.release(users[0], 750);
//! ```
//!
//! There are two ways to get units. [`FairLimit::acquire`] waits in a fair queue and returns a [`Permit`].
//! [`FairLimit::try_acquire`] and [`FairLimit::try_reserve`] never wait.
//!
//! Invariants:
//! - Only [`FairLimit::reserve`] exceeds the limit. Granted units are never taken back.
//! - All anonymous principals together leave `user_percent` of the units to users.
//! - A principal without units waits for a bounded number of grants, regardless of other requests.

mod fair_limit;
mod principal;
mod queue;
mod shares;

pub use fair_limit::{FairLimit, LimitName, Overloaded, Permit};
pub use principal::{ClientNetwork, HashedPrincipal, Principal};
pub use queue::{DenialReason, UnitsDenied};
pub use shares::{BeyondShare, FairShares, UnitsOfOthers};
