//! The values of all metrics, from the parameters of one or several processes.

use std::collections::{BTreeMap, BTreeSet};

use sheen_params::{JobSnapshot, Snapshot, TypedParam, Value};
use sheen_wire::glob::Glob;

use crate::point::{LabelSet, Point, PointValue, labels_of, with};
use crate::table::{FAMILIES, Family, Source, Take};
use crate::{quotas, statistics, status};

/// How many processes a scrape of this machine covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scrape {
    /// Processes that have answered.
    pub processes: u64,
    /// Processes that have not answered, and parameters that could not be read. They are left out.
    pub errors: u64,
}

/// A metric with its values.
#[derive(Debug)]
pub struct Collected {
    /// The metric.
    pub family: &'static Family,
    /// Its values, at least one. No two have the same labels.
    pub points: Vec<Point>,
}

/// Parameters by the last component of their names, with `/` between the components.
type ByField<'a> = BTreeMap<&'a str, Vec<(String, &'a TypedParam)>>;

/// Returns the metrics that have values. `scrape`: counts of processes, if there are several.
pub fn collect(params: &[TypedParam], scrape: Option<Scrape>) -> Vec<Collected> {
    let mut by_field = ByField::new();
    for param in params {
        let field = param.name.rsplit('.').next().unwrap_or(&param.name);
        by_field.entry(field).or_default().push((param.name.replace('.', "/"), param));
    }
    let values = |family: &'static Family| {
        let scraped = scrape.and_then(|scrape| scrape.get(family.name));
        let counts = scraped.map(|count| Point::number(LabelSet::new(), count));
        let found = family.sources.iter().flat_map(|source| of_source(source, &by_field));
        let points = unique(counts.into_iter().chain(found));
        Collected { family, points: with_summary(family, points) }
    };
    FAMILIES.iter().map(values).filter(|collected| !collected.points.is_empty()).collect()
}

impl Scrape {
    fn get(self, family: &str) -> Option<u64> {
        match family {
            "sheen_scrape_processes" => Some(self.processes),
            "sheen_scrape_errors" => Some(self.errors),
            _ => None,
        }
    }
}

fn of_source(source: &Source, by_field: &ByField<'_>) -> Vec<Point> {
    let pattern = Glob::of_params(source.param);
    let params = by_field.get(source.field()).into_iter().flatten();
    params.filter(|(path, _)| pattern.matches(path)).flat_map(|(_, param)| of_param(param, source)).collect()
}

fn of_param(param: &TypedParam, source: &Source) -> Vec<Point> {
    let (labels, take) = (labels_of(&param.labels, source.component), source.take);
    match &param.value {
        Value::Number(number) if take == Take::Number => vec![Point::number(labels, *number)],
        Value::Flag(on) if take == Take::Number => vec![Point::number(labels, *on)],
        Value::Number(_) | Value::Flag(_) => Vec::new(),
        Value::Text(text) => match take {
            Take::Quota(field) => quotas::points(text, field, param, source.component),
            _ => status::points(text, take, &param.labels, source.component, labels),
        },
        Value::Counters(stats) | Value::Histogram(stats) => statistics::points(stats, take, &labels),
        Value::Jobs(jobs) => jobs.iter().flat_map(|job| of_job(job, take, &labels)).collect(),
    }
}

/// Returns the points of a job. Counters without a sample are left out: there may be thousands of
/// jobs.
fn of_job(job: &JobSnapshot, take: Take, labels: &LabelSet) -> Vec<Point> {
    let used = job.counts.samples.iter().filter(|sample| sample.count > 0).cloned();
    let stats = Snapshot { samples: used.collect(), ..Snapshot::default() };
    statistics::points(&stats, take, &with(labels, "jobid", &job.job))
}

/// Returns the first point of each set of labels.
fn unique(points: impl Iterator<Item = Point>) -> Vec<Point> {
    let mut seen = BTreeSet::new();
    points.filter(|point| seen.insert(point.labels.clone())).collect()
}

/// Adds to the health of targets that of all, without labels, as lustrefs-exporter does.
fn with_summary(family: &Family, mut points: Vec<Point>) -> Vec<Point> {
    let is_health = family.sources.iter().any(|source| source.take == Take::Health);
    if is_health && !points.is_empty() {
        let all = points.iter().all(|point| point.value == PointValue::Number(1));
        points.insert(0, Point::number(LabelSet::new(), all));
    }
    points
}
