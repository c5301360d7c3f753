//! Tests of the whole service under attack or without a resource that it needs: crashes, power failures, damaged files,
//! exhausted resources, hostile clients, and limits.

mod catalog_damage;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod catalog_faults;
mod catalog_unavailable;
mod crash;
mod damage;
mod disk_reserve;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod exhaustion;
mod fair;
mod faults;
mod hanging;
mod hostile_sources;
#[cfg(target_os = "linux")]
mod large_responses;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod leftovers;
mod limits;
mod nodes;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod power_loss;
mod shared_limits;
mod wide_tables;
