//! `[plans]`: what each plan includes.

use super::option::section;
use crate::model::user::Plan;

section! {
    /// What each plan includes.
    Plans in "plans" {
        /// Datasets that a user on the plan free may have. Frozen ones do not count.
        free_active_datasets: u64 = 3;
        /// Datasets that a user on the plan pro may have. Frozen ones do not count.
        pro_active_datasets: u64 = 50;
        /// Datasets that a user on the plan scale may have. Frozen ones do not count.
        scale_active_datasets: u64 = 1_000;
    }
}

impl Plans {
    /// How many active datasets a plan allows.
    pub fn active_datasets(&self, plan: Plan) -> u64 {
        match plan {
            Plan::Free => self.free_active_datasets,
            Plan::Pro => self.pro_active_datasets,
            Plan::Scale => self.scale_active_datasets,
        }
    }
}
