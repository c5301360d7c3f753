//! Bounds the look-ups of names: their number at the same time, in total and for one user, and their time.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::resolver::LookUp;

/// The limits of one process's look-ups.
#[derive(Clone, Copy, Debug)]
pub struct LookUpLimits {
    /// At the same time, in total (`net.look_ups`).
    pub at_once: usize,
    /// At the same time, for one user (`net.user_look_ups`).
    pub at_once_for_one: usize,
    /// For one, with the wait for its permit (`net.look_up_timeout_s`).
    pub timeout: Duration,
}

impl Default for LookUpLimits {
    fn default() -> Self {
        LookUpLimits { at_once: 256, at_once_for_one: 16, timeout: Duration::from_secs(5) }
    }
}

/// Counts look-ups, in total and by user. A user whose names do not resolve delays only their own look-ups.
///
/// A free permit goes to the user who has fewest, not to the look-up that has waited longest. Otherwise some users with
/// the most permits that one user may have would keep all others waiting.
pub(super) struct LookUps {
    limits: LookUpLimits,
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// By user, where nobody in particular counts as one. Users without permits are left out.
    held: HashMap<Option<u64>, usize>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

struct Waiting {
    user: Option<u64>,
    tell: oneshot::Sender<Permit>,
}

struct Permit {
    look_ups: Arc<LookUps>,
    user: Option<u64>,
}

impl LookUps {
    pub(super) fn new(limits: LookUpLimits) -> Arc<LookUps> {
        let state = State { free: limits.at_once, held: HashMap::new(), waiting: Vec::new() };
        Arc::new(LookUps { limits, state: Mutex::new(state) })
    }

    /// The addresses of a name, for a user or for nobody in particular.
    pub(super) async fn look_up(
        self: &Arc<Self>,
        resolver: &dyn LookUp,
        name: &str,
        user: Option<u64>,
    ) -> io::Result<Vec<IpAddr>> {
        let looked_up = async {
            let _permit = self.take(user).await.map_err(io::Error::other)?;
            resolver.look_up(name).await
        };
        let late = |_| {
            let seconds = self.limits.timeout.as_secs();
            io::Error::new(io::ErrorKind::TimedOut, format!("the name did not resolve within {seconds} s"))
        };
        tokio::time::timeout(self.limits.timeout, looked_up).await.map_err(late)?
    }

    /// Waits for a permit. Cancel safe.
    async fn take(self: &Arc<Self>, user: Option<u64>) -> Result<Permit, oneshot::error::RecvError> {
        let (tell, told) = oneshot::channel();
        self.change(|state| state.waiting.push(Waiting { user, tell }));
        told.await
    }

    /// Makes a change, and then gives free permits to waiting look-ups.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut granted = Vec::new();
        {
            // Nothing panics between two changes that belong together.
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            state.waiting.retain(|waiting| !waiting.tell.is_closed());
            while state.free > 0
                && let Some(next) = state.next(self.limits.at_once_for_one)
            {
                let waiting = state.waiting.remove(next);
                state.free -= 1;
                *state.held.entry(waiting.user).or_default() += 1;
                granted.push(waiting);
            }
        }
        for Waiting { user, tell } in granted {
            // If the look-up has just left, dropping the permit gives it back.
            let _ = tell.send(Permit { look_ups: self.clone(), user });
        }
    }
}

impl State {
    /// Of those whose user has fewest, and fewer than one user may have, the first.
    fn next(&self, at_once_for_one: usize) -> Option<usize> {
        let held = |at: &usize| self.held.get(&self.waiting[*at].user).copied().unwrap_or(0);
        let may_have = |at: &usize| self.waiting[*at].user.is_none() || held(at) < at_once_for_one;
        (0..self.waiting.len()).filter(may_have).min_by_key(held)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.look_ups.change(|state| {
            state.free += 1;
            if let Some(held) = state.held.get_mut(&self.user) {
                *held -= 1;
                if *held == 0 {
                    state.held.remove(&self.user);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;

    /// Never answers for names that begin with `silent`.
    #[derive(Default)]
    struct Silent(Arc<AtomicUsize>);

    impl LookUp for Silent {
        fn look_up(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            let asked = self.0.clone();
            let silent = name.starts_with("silent");
            async move {
                asked.fetch_add(1, Ordering::SeqCst);
                match silent {
                    true => std::future::pending().await,
                    false => Ok(vec![IpAddr::from([192, 0, 2, 1])]),
                }
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn silent_name_servers_of_one_user_keep_no_other_waiting() {
        let limits = LookUpLimits { at_once: 3, at_once_for_one: 2, timeout: Duration::from_secs(1) };
        let look_ups = LookUps::new(limits);
        let resolver = Arc::new(Silent::default());
        let hostile: Vec<_> = (0..10)
            .map(|number| {
                let look_ups = look_ups.clone();
                let resolver = resolver.clone();
                tokio::spawn(async move { look_ups.look_up(&*resolver, &format!("silent{number}"), Some(1)).await })
            })
            .collect();
        while resolver.0.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        // Nobody of the ten has ended, or the next two would have been asked.
        let found = look_ups.look_up(&*resolver, "honest", Some(2)).await.expect("resolved");
        assert_eq!((found.len(), resolver.0.load(Ordering::SeqCst)), (1, 3));
        // Each ends in its time, the wait for its turn included.
        for waiting in hostile {
            let error = waiting.await.expect("no panic").expect_err("late");
            assert_eq!(error.to_string(), "the name did not resolve within 1 s");
        }
        let state = look_ups.state.lock().expect("not poisoned");
        assert_eq!((state.free, state.held.len()), (3, 0));
    }

    #[tokio::test]
    async fn a_permit_goes_to_the_user_who_has_fewest() {
        let look_ups = LookUps::new(LookUpLimits { at_once: 4, ..LookUpLimits::default() });
        let take = |user| Box::pin(look_ups.take(Some(user)));
        // Two users have all permits, and more than one look-up that waits.
        let mut held = Vec::new();
        for user in [1, 1, 2, 2] {
            held.push(take(user).await.expect("free"));
        }
        let mut waiting: Vec<_> = [1, 2, 1, 2].map(take).into();
        assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        let mut left = take(3);
        assert!((&mut left).now_or_never().is_none());
        drop(left);
        let mut honest = take(4);
        assert!((&mut honest).now_or_never().is_none());
        held.remove(0);
        let honest = (&mut honest).now_or_never().expect("the first permit that is free").expect("given");
        // Then the one that came first, whose user has none any more.
        held.remove(0);
        assert!((&mut waiting[0]).now_or_never().is_some() && (&mut waiting[1]).now_or_never().is_none());
        drop((honest, held, waiting));
        let state = look_ups.state.lock().expect("not poisoned");
        assert_eq!((state.free, state.held.len()), (4, 0));
    }
}
