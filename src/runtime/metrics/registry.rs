//! Declaration of metrics as documented fields of a struct: the macro `registry!` and the types of its fields.

use std::marker::PhantomData;

use ::metrics::{Counter, Gauge, Histogram, Key, Label, Recorder, SharedString};

use super::{METRIC_METADATA, RECORDER};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    /// The values of each label, if there are few of them. All series then exist from the start.
    pub label_values: &'static [&'static [&'static str]],
    pub help: &'static str,
}

impl MetricDescription {
    /// Returns the label values of the series that exist from the start.
    pub(super) fn initial_label_values(&self) -> Vec<Vec<SharedString>> {
        let mut series = if self.label_values.is_empty() { Vec::new() } else { vec![Vec::new()] };
        for values in self.label_values {
            let longer = |begun: &Vec<SharedString>, value: &'static str| {
                begun.iter().cloned().chain([value.into()]).collect::<Vec<SharedString>>()
            };
            series = series.iter().flat_map(|begun| values.iter().map(|value| longer(begun, value))).collect();
        }
        series
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric without labels, or one series of a family.
pub(super) trait MetricHandle {
    const KIND: MetricKind;

    fn register(key: &Key) -> Self;
}

macro_rules! handles {
    ($($kind:ident: $register:ident),+) => { $(
        impl MetricHandle for $kind {
            const KIND: MetricKind = MetricKind::$kind;

            fn register(key: &Key) -> Self {
                RECORDER.$register(key, &METRIC_METADATA)
            }
        }
    )+ };
}

handles!(Counter: register_counter, Gauge: register_gauge, Histogram: register_histogram);

/// A metric with a series for each combination of label values.
pub struct MetricFamily<T> {
    name: &'static str,
    labels: &'static [&'static str],
    handle: PhantomData<fn() -> T>,
}

#[expect(private_bounds)]
impl<T: MetricHandle> MetricFamily<T> {
    /// Returns the series of these label values, in the order of the labels. The lookup takes some hundred nanoseconds.
    pub fn with_label_values<const N: usize>(&self, values: [SharedString; N]) -> T {
        let labels: Vec<Label> = self.labels.iter().zip(values).map(|(name, value)| Label::new(*name, value)).collect();
        T::register(&Key::from_parts(self.name, labels))
    }
}

/// A field of the registry: a metric without labels, or a family.
pub(super) trait RegistryField {
    const KIND: MetricKind;

    fn from_name(name: &'static str, labels: &'static [&'static str]) -> Self;
}

impl<T: MetricHandle> RegistryField for T {
    const KIND: MetricKind = T::KIND;

    fn from_name(name: &'static str, _: &'static [&'static str]) -> Self {
        T::register(&Key::from_static_name(name))
    }
}

impl<T: MetricHandle> RegistryField for MetricFamily<T> {
    const KIND: MetricKind = T::KIND;

    fn from_name(name: &'static str, labels: &'static [&'static str]) -> Self {
        MetricFamily { name, labels, handle: PhantomData }
    }
}

/// Declares [`Metrics`](super::Metrics) and its descriptions from documented fields.
macro_rules! registry {
    ($( $(#[doc = $doc:literal])+ $field:ident: $type:ty = $name:literal $([$($label:literal $(: $values:expr)?),+])?; )+) => {
        pub struct Metrics {
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        static METRIC_DESCRIPTIONS: &[MetricDescription] = &[$( MetricDescription {
            name: $name,
            kind: <$type as RegistryField>::KIND,
            labels: &[$($($label),+)?],
            label_values: &[$($($($values,)?)+)?],
            help: concat!($($doc),+),
        }, )+];

        impl Metrics {
            fn register() -> Metrics {
                for metric in METRIC_DESCRIPTIONS {
                    let name = KeyName::from_const_str(metric.name);
                    let about = metric.help.trim();
                    match metric.kind {
                        MetricKind::Counter => RECORDER.describe_counter(name, None, about.into()),
                        MetricKind::Gauge => RECORDER.describe_gauge(name, None, about.into()),
                        MetricKind::Histogram => RECORDER.describe_histogram(name, None, about.into()),
                    }
                    for values in metric.initial_label_values() {
                        let labels = metric.labels.iter().zip(values).map(|(name, value)| Label::new(*name, value));
                        let key = Key::from_parts(metric.name, labels.collect::<Vec<_>>());
                        match metric.kind {
                            MetricKind::Counter => drop(RECORDER.register_counter(&key, &METRIC_METADATA)),
                            MetricKind::Gauge => drop(RECORDER.register_gauge(&key, &METRIC_METADATA)),
                            MetricKind::Histogram => drop(RECORDER.register_histogram(&key, &METRIC_METADATA)),
                        }
                    }
                }
                Metrics { $( $field: RegistryField::from_name($name, &[$($($label),+)?]), )+ }
            }
        }
    };
}

pub(super) use registry;
