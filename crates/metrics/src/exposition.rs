//! Metrics as OpenMetrics text, written by prometheus-client.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::Registry,
};
use sheen_params::{Params, TypedParam};

use crate::collect::{Collected, Scrape, collect};
use crate::point::{Point, PointValue};
use crate::table::{Kind, patterns};

/// Returns the metrics of parameters. They are those of one process, or of several ones behind each
/// other. `scrape`: counts of the processes, if there are several.
pub fn text(params: &[TypedParam], scrape: Option<Scrape>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition(collect(params, scrape))));
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut out, &registry);
    out
}

/// Returns the metrics of this process. It reads parameters, which may wait for a disk.
pub fn text_of(params: &Params) -> String {
    let found = patterns().flat_map(|pattern| params.typed_of(pattern, None).unwrap_or_default());
    text(&found.collect::<Vec<_>>(), None)
}

/// The metrics that prometheus-client writes.
#[derive(Debug)]
struct Exposition(Vec<Collected>);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|collected| collected.encode(&mut encoder))
    }
}

impl Collected {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = self.family.kind;
        let name = kind.base_name(self.family.name);
        let mut metric = encoder.encode_descriptor(name, self.family.help, None, kind.metric_type())?;
        self.points.iter().try_for_each(|point| put(&mut metric, kind, point))
    }
}

fn put(metric: &mut MetricEncoder<'_>, kind: Kind, point: &Point) -> fmt::Result {
    match &point.value {
        PointValue::Info => metric.encode_info(&point.labels),
        // Otherwise it would write empty braces.
        value if point.labels.is_empty() => put_value(metric, kind, value),
        value => put_value(&mut metric.encode_family(&point.labels)?, kind, value),
    }
}

fn put_value(metric: &mut MetricEncoder<'_>, kind: Kind, value: &PointValue) -> fmt::Result {
    match value {
        PointValue::Number(number) if kind == Kind::Counter => {
            let count = u64::try_from(*number).unwrap_or_default();
            metric.encode_counter::<NoLabelSet, u64, u64>(&count, None)
        }
        PointValue::Number(number) => match i64::try_from(*number) {
            Ok(number) => metric.encode_gauge(&number),
            Err(_) => metric.encode_gauge(&(*number as f64)),
        },
        PointValue::Histogram { sum, count, buckets } => {
            metric.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
        }
        PointValue::Info => Ok(()),
    }
}

impl Kind {
    /// Returns the name of a metric without the suffix that prometheus-client adds.
    fn base_name(self, name: &str) -> &str {
        let suffix = match self {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Unknown | Kind::Histogram => "",
        };
        name.strip_suffix(suffix).unwrap_or(name)
    }

    fn metric_type(self) -> MetricType {
        match self {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Unknown => MetricType::Unknown,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        }
    }
}
