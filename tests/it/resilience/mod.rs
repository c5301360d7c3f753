//! The whole service under attack, or without what it needs: crashes, lost power, damage, exhaustion, hostile
//! neighbours, limits.

pub mod catalog_damage;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub mod catalog_faults;
pub mod catalog_unavailable;
pub mod crash;
pub mod damage;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub mod exhaustion;
pub mod fair;
pub mod faults;
pub mod hostile_sources;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub mod leftovers;
pub mod limits;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub mod power_loss;
