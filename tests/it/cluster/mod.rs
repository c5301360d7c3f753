//! Several processes as one service: what a client, an owner or an operator sees of three servers behind a balancer, in
//! quiet and under attack.
//!
//! | Module | Holds |
//! |---|---|
//! | `harness` | the service, of real parts |
//! | `history` | what clients asked and were told, and whether one service could have told it |
//! | `chaos` | servers killed and stopped, and the parts that they share restarted, while clients go on |

mod answers;
mod balancing;
mod chaos;
mod dice;
mod distributed;
mod downloads;
mod exports;
mod figures;
mod harness;
mod history;
mod promptness;
mod rates;
mod replacing;
mod tls;
