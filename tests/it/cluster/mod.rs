//! Clusters of three nodes behind a load balancer, from the point of view of clients, owners and operators, with and
//! without attacks.
//!
//! | Module | Contents |
//! |---|---|
//! | `harness` | clusters with real PostgreSQL, Redis, object store and HAProxy |
//! | `history` | a checker for the consistency of recorded requests and responses |
//! | `chaos` | attacks on nodes and shared services while clients send requests |

mod answers;
mod balancing;
mod chaos;
mod delta_versions;
mod distributed;
mod downloads;
mod exports;
mod figures;
mod harness;
mod history;
mod promptness;
mod rates;
mod replacing;
mod seeded_random;
mod tls;
