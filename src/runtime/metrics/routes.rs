//! The metrics of requests by the pattern of their path. Looking a series up costs more than counting, so each is
//! looked up once.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use ::metrics::{Counter, Histogram, SharedString};

use crate::metrics::metrics;

/// The series of one route. The routes of a process are those of its router: none is ever forgotten.
pub struct RouteMetrics {
    route: SharedString,
    pub answer_start_seconds: Histogram,
    pub answer_seconds: Histogram,
    pub sent_bytes: Counter,
    /// [`Metrics::requests`](super::Metrics::requests), by status and format: a few.
    requests: RwLock<Vec<(Answered, Counter)>>,
}

type Answered = (Option<u16>, &'static str);

static ROUTES: LazyLock<RwLock<HashMap<&'static str, &'static RouteMetrics, foldhash::fast::RandomState>>> =
    LazyLock::new(RwLock::default);

/// The series of the route of this pattern, one of a router's.
pub fn of_route(pattern: &str) -> &'static RouteMetrics {
    let known = ROUTES.read().unwrap_or_else(PoisonError::into_inner).get(pattern).copied();
    known.unwrap_or_else(|| {
        let mut routes = ROUTES.write().unwrap_or_else(PoisonError::into_inner);
        let pattern: &'static str = String::leak(pattern.to_owned());
        routes.entry(pattern).or_insert_with(|| Box::leak(Box::new(RouteMetrics::new(pattern))))
    })
}

impl RouteMetrics {
    fn new(route: &'static str) -> RouteMetrics {
        let route = SharedString::const_str(route);
        RouteMetrics {
            answer_start_seconds: metrics().answer_start_seconds.of([route.clone()]),
            answer_seconds: metrics().answer_seconds.of([route.clone()]),
            sent_bytes: metrics().sent_bytes.of([route.clone()]),
            requests: RwLock::default(),
            route,
        }
    }

    /// Counts a request whose answer has ended.
    pub fn count_request(&self, status: Option<u16>, format: &'static str) {
        let answered = (status, format);
        let known = self.requests.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counter)) = known.iter().find(|(known, _)| *known == answered) {
            return counter.increment(1);
        }
        drop(known);
        let status = match status {
            Some(status) => SharedString::from_owned(status.to_string()),
            None => SharedString::const_str("none"),
        };
        let counter = metrics().requests.of([self.route.clone(), status, format.into()]);
        counter.increment(1);
        let mut known = self.requests.write().unwrap_or_else(PoisonError::into_inner);
        // Another one may have been as fast: both hold the same series.
        known.push((answered, counter));
    }
}
