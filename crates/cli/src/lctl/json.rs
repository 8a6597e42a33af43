//! `lctl get_param --json`: typed parameters as JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use sheen_params::{Labels, Sample, Snapshot, TypedParam, Value};
use sheen_wire::Time;

/// A parameter.
#[derive(Serialize)]
struct Object<'a> {
    name: &'a str,
    labels: &'a Labels,
    kind: &'static str,
    unit: Option<&'a str>,
    writable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<f64>,
    /// By job: each has times of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<BTreeMap<&'a str, Times>>,
    value: Shown<'a>,
}

/// When the statistics of a job were read, and since when they count, in seconds since 1970.
#[derive(Serialize)]
struct Times {
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<f64>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Number(i128),
    Flag(bool),
    Text(&'a str),
    /// By name.
    Statistics(BTreeMap<&'a str, Statistic<'a>>),
    /// By job and name.
    Jobs(BTreeMap<&'a str, BTreeMap<&'a str, Statistic<'a>>>),
}

/// A sample of statistics. Numbers that are unknown are left out.
#[derive(Serialize)]
struct Statistic<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'a str,
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p90: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p999: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    buckets: Vec<Bucket>,
}

/// Values above the previous bucket's `upto` and up to this one.
#[derive(Serialize)]
struct Bucket {
    upto: u64,
    count: u64,
}

/// Returns the parameters as an array, with a newline at its end.
///
/// # Errors
/// A value cannot be written as JSON.
pub fn render(params: &[TypedParam]) -> serde_json::Result<String> {
    let objects: Vec<Object<'_>> = params.iter().map(object).collect();
    Ok(serde_json::to_string_pretty(&objects)? + "\n")
}

fn object(param: &TypedParam) -> Object<'_> {
    let stats = match &param.value {
        Value::Counters(stats) | Value::Histogram(stats) => Some(stats),
        Value::Number(_) | Value::Flag(_) | Value::Text(_) | Value::Jobs(_) => None,
    };
    Object {
        name: &param.name,
        labels: &param.labels,
        kind: param.value.kind(),
        unit: param.unit.as_deref(),
        writable: param.writable,
        snapshot_time: stats.and_then(|stats| stats.taken).map(seconds),
        start_time: stats.and_then(|stats| stats.since).map(seconds),
        times: match &param.value {
            Value::Jobs(jobs) => Some(jobs.iter().map(|of| (&of.job[..], times(&of.counts))).collect()),
            _ => None,
        },
        value: match &param.value {
            Value::Number(number) => Shown::Number(*number),
            Value::Flag(flag) => Shown::Flag(*flag),
            Value::Text(text) => Shown::Text(text),
            Value::Counters(stats) => Shown::Statistics(statistics(stats, false)),
            Value::Histogram(stats) => Shown::Statistics(statistics(stats, true)),
            Value::Jobs(jobs) => {
                Shown::Jobs(jobs.iter().map(|of| (&of.job[..], statistics(&of.counts, false))).collect())
            }
        },
    }
}

fn statistics(stats: &Snapshot, with_buckets: bool) -> BTreeMap<&str, Statistic<'_>> {
    stats.samples.iter().map(|sample| (&sample.name[..], statistic(sample, with_buckets))).collect()
}

fn statistic(sample: &Sample, with_buckets: bool) -> Statistic<'_> {
    let buckets = sample.buckets.iter().filter(|_| with_buckets);
    Statistic {
        unit: &sample.unit,
        count: sample.count,
        min: sample.min,
        max: sample.max,
        sum: sample.sum,
        p50: sample.percentile(500),
        p90: sample.percentile(900),
        p99: sample.percentile(990),
        p999: sample.percentile(999),
        buckets: buckets.map(|(upto, count)| Bucket { upto, count }).collect(),
    }
}

fn times(stats: &Snapshot) -> Times {
    Times { snapshot_time: stats.taken.map(seconds), start_time: stats.since.map(seconds) }
}

fn seconds(time: Time) -> f64 {
    time.sec as f64 + f64::from(time.nsec) / 1e9
}

#[cfg(test)]
mod tests {
    use sheen_params::{Histogram, JobSnapshot, Param, Params, Stats, Unit};

    use super::*;

    fn json(params: &Params, pattern: &str) -> String {
        render(&params.typed_of(pattern, None).unwrap()).unwrap()
    }

    #[test]
    fn json_of_numbers_flags_and_text_has_kind_and_unit() {
        let params = Params::new();
        params.register("osc.sheen-OST0000-osc-ff00.max_dirty_mb", Param::u64_ro(|| 64).unit(Unit::Mib));
        let want = r#"[
  {
    "name": "osc.sheen-OST0000-osc-ff00.max_dirty_mb",
    "labels": {
      "fsname": "sheen",
      "target": "sheen-OST0000",
      "device": "sheen-OST0000-osc-ff00"
    },
    "kind": "number",
    "unit": "MiB",
    "writable": false,
    "value": 64
  }
]
"#;
        assert_eq!(json(&params, "osc.*.*"), want);
        params.register("a", Param::text(|| "two\nlines".into()));
        params.register("b", Param::bool(|| true, |_| Ok(())));
        params.register("c", Param::u64_ro(|| u64::MAX));
        params.register("d", Param::i64(-1..=1, || -1, |_| Ok(())));
        let text = json(&params, "[a-d]");
        let values: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let shown = values.iter().map(|v| format!("{} {} {}", v["kind"], v["unit"], v["value"])).collect::<Vec<_>>();
        let want = [
            r#""text" null "two\nlines""#,
            r#""flag" null true"#,
            r#""number" null 18446744073709551615"#,
            r#""number" null -1"#,
        ];
        assert_eq!(shown, want);
        assert_eq!(render(&[]).unwrap(), "[]\n");
    }

    #[test]
    fn json_of_statistics_has_percentiles() {
        let params = Params::new();
        let stats = Stats::new(&[("open", "usecs"), ("close", "usecs")], Time { sec: 10, nsec: 0 });
        (0..1000).for_each(|_| stats.record("open", 100));
        stats.record("open", 9000);
        let snapshot = move || stats.snapshot(Time { sec: 12, nsec: 500_000_000 });
        params.register("mdt.sheen-MDT0000.md_stats", Param::counters(snapshot, Snapshot::stats_text, || Ok(())));
        let found: Vec<serde_json::Value> = serde_json::from_str(&json(&params, "mdt.*.*")).unwrap();
        let (stats, open) = (&found[0], &found[0]["value"]["open"]);
        assert_eq!((&stats["kind"], &stats["writable"]), (&"counters".into(), &true.into()));
        assert_eq!((&stats["start_time"], &stats["snapshot_time"]), (&10.0.into(), &12.5.into()));
        assert!(stats["value"].get("close").is_none());
        let numbers = ["count", "min", "max", "sum"].map(|name| open[name].as_u64().unwrap());
        assert_eq!(numbers, [1001, 100, 9000, 109_000]);
        let percentiles = ["p50", "p90", "p99", "p999"].map(|name| open[name].as_u64().unwrap());
        assert!(percentiles.is_sorted() && percentiles.iter().all(|p| (100..=128).contains(p)), "{percentiles:?}");
        assert_eq!((&open["unit"], open.get("buckets")), (&"usecs".into(), None));
    }

    #[test]
    fn json_of_jobs_has_times_by_job() {
        let params = Params::new();
        let at = |sec| Some(Time { sec, nsec: 500_000_000 });
        let samples = vec![Sample::of_count("open", "usecs", 3)];
        let job = JobSnapshot { job: "dd.1000".into(), counts: Snapshot { taken: at(9), since: at(7), samples } };
        params.register("mdt.a.job_stats", Param::jobs(move || vec![job.clone()], |_| Ok(())));
        let found: Vec<serde_json::Value> = serde_json::from_str(&json(&params, "mdt.*.*")).unwrap();
        assert_eq!(found[0]["value"]["dd.1000"]["open"]["count"], 3);
        let times = &found[0]["times"]["dd.1000"];
        assert_eq!((&times["snapshot_time"], &times["start_time"]), (&9.5.into(), &7.5.into()));
        assert!(found[0].get("start_time").is_none());
    }

    #[test]
    fn json_of_histograms_has_buckets() {
        let params = Params::new();
        let histogram = Histogram::default();
        [1, 3, 4].into_iter().for_each(|pages| histogram.record(pages));
        let buckets = histogram.buckets();
        let read = Sample { buckets, ..Sample::of_count("read", "pages", 3) };
        let stats = Snapshot { samples: vec![read], ..Snapshot::default() };
        params.register("osc.a.rpc_stats", Param::histogram(move || stats.clone(), Snapshot::stats_text, || Ok(())));
        let found: Vec<serde_json::Value> = serde_json::from_str(&json(&params, "osc.*.*")).unwrap();
        let read = &found[0]["value"]["read"];
        let buckets: Vec<_> = read["buckets"].as_array().unwrap().iter().map(|b| (&b["upto"], &b["count"])).collect();
        let number = |n: u64| serde_json::Value::from(n);
        let want = [(1, 1), (2, 0), (4, 2)].map(|(upto, count)| (number(upto), number(count)));
        assert!(buckets.into_iter().eq(want.iter().map(|(upto, count)| (upto, count))));
        assert!(read.get("min").is_none() && read["p50"].is_u64());
    }
}
