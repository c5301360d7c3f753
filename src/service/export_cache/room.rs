//! The shares of holders in the cache of exports.
//!
//! - What somebody reads, or makes, cannot be taken away. So of that a holder has at most `fair.space_percent` of what
//!   the others leave, and anonymous holders together leave `fair.user_percent` to users.
//! - Anything else is room. It is taken from the holder that has most, if that is more than the one that needs it would
//!   have: its own files then go first to whoever takes too much. What is kept for users goes to no anonymous holder.

use std::collections::HashMap;

use strata_config as config;

use crate::admission::holder::Holder;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    pub bytes: u64,
    pub files: u64,
}

pub(crate) struct Room {
    capacity: Space,
    space_percent: u64,
    anonymous_percent: u64,
    all: Space,
    by_holder: HashMap<Holder, Space>,
}

fn percent(all: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(all) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

impl Room {
    pub(crate) fn new(bytes: u64, files: usize, fair: &config::Fair) -> Room {
        Room {
            capacity: Space { bytes, files: files as u64 },
            space_percent: fair.space_percent,
            anonymous_percent: 100 - fair.user_percent,
            all: Space::default(),
            by_holder: HashMap::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.all.bytes
    }

    /// Bytes that a holder can have while nobody else has any.
    pub(crate) fn most_bytes(&self, holder: Holder) -> u64 {
        percent(self.kind_bytes(holder), self.space_percent)
    }

    /// Bytes that all holders of the same kind may have in use.
    fn kind_bytes(&self, holder: Holder) -> u64 {
        match holder.is_anonymous() {
            true => percent(self.capacity.bytes, self.anonymous_percent),
            false => self.capacity.bytes,
        }
    }

    pub(crate) fn bytes_by_holder(&self) -> impl Iterator<Item = (Holder, u64)> {
        self.by_holder.iter().map(|(holder, space)| (*holder, space.bytes))
    }

    /// Whether there is room that the holder may take; `in_use` tells what of each holder cannot be taken away.
    pub(crate) fn is_there(
        &self,
        holder: Holder,
        wanted: Space,
        in_use: impl FnOnce() -> HashMap<Holder, u64>,
    ) -> bool {
        let all = Space { bytes: self.all.bytes.saturating_add(wanted.bytes), files: self.all.files + wanted.files };
        if all.bytes > self.capacity.bytes || all.files > self.capacity.files || self.capacity.bytes == 0 {
            return false;
        }
        let own = self.by_holder.get(&holder).copied().unwrap_or_default();
        if wanted.bytes > 0 && !self.is_within_share(holder, own.bytes, self.all.bytes - own.bytes, wanted.bytes) {
            // It may be within it, as far as nobody uses what there is.
            let in_use = in_use();
            let of = |kind: bool| {
                let others = in_use.iter().filter(|(other, _)| **other != holder && (!kind || other.is_anonymous()));
                others.map(|(_, bytes)| bytes).sum::<u64>()
            };
            let own = in_use.get(&holder).copied().unwrap_or_default();
            let others = of(false);
            let anonymous = if holder.is_anonymous() { of(true) } else { 0 };
            let left = (self.capacity.bytes - others.min(self.capacity.bytes))
                .min(self.kind_bytes(holder).saturating_sub(anonymous));
            if own.saturating_add(wanted.bytes) > percent(left, self.space_percent) {
                return false;
            }
        }
        true
    }

    pub(crate) fn take(&mut self, holder: Holder, wanted: Space) {
        let own = self.by_holder.entry(holder).or_default();
        for space in [own, &mut self.all] {
            space.bytes += wanted.bytes;
            space.files += wanted.files;
        }
    }

    /// Whether that is so even if everything there is was in use, by holders of its kind.
    fn is_within_share(&self, holder: Holder, own: u64, others: u64, wanted: u64) -> bool {
        let left = self.kind_bytes(holder).saturating_sub(others);
        own.saturating_add(wanted) <= percent(left, self.space_percent)
    }

    pub(crate) fn give_back(&mut self, holder: Holder, space: Space) {
        if let Some(own) = self.by_holder.get_mut(&holder) {
            own.bytes -= space.bytes;
            own.files -= space.files;
            self.all.bytes -= space.bytes;
            self.all.files -= space.files;
            if *own == Space::default() {
                self.by_holder.remove(&holder);
            }
        }
    }

    pub(crate) fn weight(&self, holder: Holder, wanted: Space) -> u64 {
        let space = self.by_holder.get(&holder).copied().unwrap_or_default();
        if wanted.files > 0 { space.files } else { space.bytes }
    }

    /// Whether files that nobody uses may be dropped for another one.
    pub(crate) fn may_take_from(&self, asker: Holder, wanted: Space, from: Holder) -> bool {
        if asker == from {
            return true;
        }
        let anonymous = |(holder, space): (&Holder, &Space)| if holder.is_anonymous() { space.bytes } else { 0 };
        let anonymous: u64 = self.by_holder.iter().map(anonymous).sum();
        let most_anonymous = percent(self.capacity.bytes, self.anonymous_percent);
        match (asker.is_anonymous(), from.is_anonymous()) {
            (false, true) if anonymous > most_anonymous => return true,
            (true, false) if anonymous.saturating_add(wanted.bytes) > most_anonymous => return false,
            _ => {}
        }
        let own = self.weight(asker, wanted) + if wanted.files > 0 { wanted.files } else { wanted.bytes };
        self.weight(from, wanted) > own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limit::Client;
    use strata_types::ids::UserId;

    const FAIR: config::Fair = config::Fair { share_percent: 50, user_percent: 25, space_percent: 75 };

    fn user(number: u64) -> Holder {
        Holder::User(UserId::new(number))
    }

    fn anonymous(number: u8) -> Holder {
        Holder::Anonymous(Client::V4([192, 0, 2, number]))
    }

    fn bytes(bytes: u64) -> Space {
        Space { bytes, files: 0 }
    }

    fn took(room: &mut Room, holder: Holder, wanted: Space, in_use: &HashMap<Holder, u64>) -> bool {
        let is_there = room.is_there(holder, wanted, || in_use.clone());
        if is_there {
            room.take(holder, wanted);
        }
        is_there
    }

    #[test]
    fn what_is_in_use_leaves_room_for_others() {
        let mut room = Room::new(1_000, 10, &FAIR);
        let mut used: HashMap<Holder, u64> = HashMap::new();
        let mut most = |room: &mut Room, holder: Holder| {
            while took(room, holder, bytes(1), &used) {
                *used.entry(holder).or_default() += 1;
            }
            used[&holder]
        };
        // Three quarters of three quarters, three quarters of what that leaves, and so on.
        assert_eq!(most(&mut room, anonymous(1)), 562);
        assert_eq!(most(&mut room, anonymous(2)), 141);
        assert_eq!(most(&mut room, user(1)), 222);
        assert_eq!((room.most_bytes(user(1)), room.most_bytes(anonymous(1))), (750, 562));
    }

    #[test]
    fn what_nobody_uses_may_be_all_of_it_and_goes_for_whoever_has_less() {
        let mut room = Room::new(1_000, 10, &FAIR);
        let idle = HashMap::new();
        for _ in 0..10 {
            assert!(took(&mut room, anonymous(1), Space { bytes: 100, files: 1 }, &idle));
        }
        assert!(!took(&mut room, anonymous(2), bytes(100), &idle));
        for asker in [anonymous(1), anonymous(2), user(1)] {
            assert!(room.may_take_from(asker, bytes(100), anonymous(1)), "{asker:?}");
        }
        room.give_back(anonymous(1), Space { bytes: 200, files: 2 });
        assert!(took(&mut room, user(1), Space { bytes: 200, files: 1 }, &idle));
        // Users keep what is theirs, and who has less keeps it against who has more.
        assert!(!room.may_take_from(anonymous(1), bytes(1), user(1)));
        assert!(!room.may_take_from(anonymous(2), bytes(1), user(1)));
        assert!(room.may_take_from(user(2), bytes(1), user(1)));
        assert!(!room.may_take_from(user(2), bytes(200), user(1)));
        // Files are counted as bytes are.
        assert!(room.may_take_from(user(2), Space { bytes: 0, files: 1 }, anonymous(1)));
        assert!(!room.may_take_from(user(2), Space { bytes: 0, files: 1 }, user(1)));
    }

    #[test]
    fn nothing_is_kept_where_nothing_may_be() {
        let mut room = Room::new(0, 10, &FAIR);
        assert!(!took(&mut room, user(1), Space { bytes: 0, files: 1 }, &HashMap::new()));
    }
}
