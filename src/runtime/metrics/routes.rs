//! Metrics of requests by route. Each series is looked up only once, because a lookup costs more than counting.

use std::collections::HashMap;
use std::sync::LazyLock;

use ::metrics::{Counter, Histogram, SharedString};
use parking_lot::RwLock;

use crate::metrics::metrics;

/// The series of one route. Routes are never removed, because a router has a fixed set of them.
pub struct RouteMetrics {
    route: SharedString,
    pub response_start_seconds: Histogram,
    pub response_seconds: Histogram,
    pub sent_bytes: Counter,
    /// [`Metrics::requests`](super::Metrics::requests) by status and format, of which there are few.
    request_counters: RwLock<Vec<(StatusAndFormat, Counter)>>,
}

type StatusAndFormat = (Option<u16>, &'static str);

static ROUTE_METRICS: LazyLock<RwLock<HashMap<&'static str, &'static RouteMetrics, foldhash::fast::RandomState>>> =
    LazyLock::new(RwLock::default);

/// Returns the series of a route. `pattern` must come from a router, because each new pattern is stored until the
/// process ends.
pub fn route_metrics(pattern: &str) -> &'static RouteMetrics {
    let known = ROUTE_METRICS.read().get(pattern).copied();
    known.unwrap_or_else(|| {
        let mut routes = ROUTE_METRICS.write();
        let pattern: &'static str = String::leak(pattern.to_owned());
        routes.entry(pattern).or_insert_with(|| Box::leak(Box::new(RouteMetrics::new(pattern))))
    })
}

impl RouteMetrics {
    fn new(route: &'static str) -> RouteMetrics {
        let route = SharedString::const_str(route);
        RouteMetrics {
            response_start_seconds: metrics().response_start_seconds.with_label_values([route.clone()]),
            response_seconds: metrics().response_seconds.with_label_values([route.clone()]),
            sent_bytes: metrics().sent_bytes.with_label_values([route.clone()]),
            request_counters: RwLock::default(),
            route,
        }
    }

    pub fn count_request(&self, status: Option<u16>, format: &'static str) {
        let labels = (status, format);
        let known = self.request_counters.read();
        if let Some((_, counter)) = known.iter().find(|(known, _)| *known == labels) {
            return counter.increment(1);
        }
        drop(known);
        let status = match status {
            Some(status) => SharedString::from_owned(status.to_string()),
            None => SharedString::const_str("none"),
        };
        let counter = metrics().requests.with_label_values([self.route.clone(), status, format.into()]);
        counter.increment(1);
        let mut known = self.request_counters.write();
        // If another thread adds the same series concurrently, both entries share the value.
        known.push((labels, counter));
    }
}
