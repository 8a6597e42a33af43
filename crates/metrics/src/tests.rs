//! Text of handmade parameters; the table, the page that documents it, and the dashboard.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use sheen_params::{Histogram, JobSnapshot, Labels, Param, Params, Sample, Snapshot, Stats, TypedParam, Value};
use sheen_wire::Time;

use crate::table::{FAMILIES, Kind};
use crate::{Scrape, patterns, text, text_of};

const PAGE: &str = include_str!("../../../docs/monitoring.md");
const DASHBOARD: &str = include_str!("../../../docs/monitoring/sheen.json");

fn number(params: &Params, name: &str, value: u64) {
    params.register(name, Param::u64_ro(move || value));
}

fn words(params: &Params, name: &str, value: &'static str) {
    params.register(name, Param::text(move || value.to_owned()));
}

fn counters(params: &Params, name: &str, snapshot: Snapshot) {
    params.register(name, Param::counters(move || snapshot.clone(), Snapshot::stats_text, || Ok(())));
}

/// Returns the number of the sample that begins with this name and these labels.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Returns the samples: the lines that are not comments.
fn samples_of(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

fn typed(name: &str, target: &str, value: Value) -> TypedParam {
    let labels = Labels { fsname: Some("sheen".into()), target: Some(target.into()), device: Some(target.into()) };
    TypedParam { name: name.into(), labels, unit: None, writable: false, value }
}

#[test]
fn numbers_become_gauges_with_the_labels_of_their_component() {
    let params = Params::default();
    number(&params, "obdfilter.sheen-OST0000.kbytestotal", 100);
    number(&params, "mdt.sheen-MDT0000.kbytestotal", 50);
    number(&params, "osp.sheen-OST0001-osc-MDT0000.max_create_count", 20_000);
    number(&params, "osc.sheen-OST0000-osc-ff00.cur_dirty_bytes", u64::MAX);
    number(&params, "llite.a-b-ff00.open_files", 3);
    number(&params, "ldlm.namespaces.filter-sheen-OST0000_UUID.lock_timeouts", 2);
    number(&params, "ldlm.namespaces.filter-sheen-MDT0000-dom_UUID.lock_count", 4);
    number(&params, "ldlm.namespaces.sheen-MDT0000-mdc-ff00.lock_count", 5);
    number(&params, "obdfilter.sheen-OST0000.blocksize", 4096);
    params.register("osp.sheen-OST0001-osc-MDT0000.active", Param::bool(|| true, |_| Ok(())));
    let want = r##"# HELP lustre_capacity_kilobytes Size of the target's disk in KiB.
# TYPE lustre_capacity_kilobytes gauge
lustre_capacity_kilobytes{component="ost",fsname="sheen",target="sheen-OST0000"} 100
lustre_capacity_kilobytes{component="mdt",fsname="sheen",target="sheen-MDT0000"} 50
"##;
    let text = text_of(&params);
    assert!(text.starts_with(want), "{text}");
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let want = [
        r#"lustre_osp_active{component="ost",fsname="sheen",target="sheen-OST0001-osc-MDT0000"} 1"#,
        r#"lustre_osp_max_create_count{component="ost",fsname="sheen",target="sheen-OST0001-osc-MDT0000"} 20000"#,
        r#"lustre_lock_count_total{component="dom",fsname="sheen",target="sheen-MDT0000"} 4"#,
        r#"lustre_lock_timeout_total{component="ost",fsname="sheen",target="sheen-OST0000"} 2"#,
        r#"sheen_open_files{component="client",fsname="a-b",target="a-b-ff00"} 3"#,
    ];
    let found = samples_of(&text);
    assert_eq!(found[2..7], want, "{text}");
    assert!(text.contains("# TYPE lustre_lock_timeout counter\n"), "{text}");
    let device = r#"fsname="sheen",target="sheen-OST0000",device="sheen-OST0000-osc-ff00""#;
    let dirty = value(&text, &format!("sheen_dirty_bytes{{component=\"osc\",{device}}}"));
    assert_eq!(dirty, Some(u64::MAX as f64), "{text}");
    let locks = r#"{component="mdc",fsname="sheen",target="sheen-MDT0000",device="sheen-MDT0000-mdc-ff00"}"#;
    assert_eq!(value(&text, &format!("sheen_client_locks{locks}")), Some(5.0), "{text}");
    assert_eq!(found.len(), 9, "a parameter that the table does not list becomes no metric: {text}");
}

#[test]
fn quotas_become_gauges_for_each_id() {
    let params = Params::default();
    let limits = "global_pool0_dt_usr\n- id:      7\n  limits:  { hard: 9, soft: 8, granted: 5, time: 0 }\n";
    words(&params, "qmt.sheen-QMT0000.dt-0x0.glb-usr", limits);
    words(&params, "qmt.sheen-QMT0000.md-0x0.glb-usr", "global_pool0_md_usr\n");
    words(&params, "qmt.sheen-QMT0000.dt-fast.glb-prj", limits);
    let usage = "grp_accounting:\n- id:      3\n  usage:   { inodes: 2, kbytes: 40 }\n";
    for target in ["sheen-OST0000", "sheen-MDT0000", "sheen-MDT0000-dom"] {
        words(&params, &format!("osd-sheen.{target}.quota_slave.acct_group"), usage);
    }
    let text = text_of(&params);
    let of = |component: &str, target: &str| {
        format!(r#"{{component="{component}",fsname="sheen",target="{target}",accounting="group",id="3"}}"#)
    };
    let qmt = r#"{fsname="sheen",target="sheen-QMT0000",manager="dt","#;
    for (series, want) in [
        (format!(r#"lustre_quota_hard{qmt}pool="",accounting="user",id="7"}}"#), 9.0),
        (format!(r#"lustre_quota_soft{qmt}pool="fast",accounting="project",id="7"}}"#), 8.0),
        (format!(r#"lustre_quota_granted{qmt}pool="",accounting="user",id="7"}}"#), 5.0),
        (format!("lustre_quota_used_kbytes{}", of("ost", "sheen-OST0000")), 40.0),
        (format!("lustre_quota_used_inodes{}", of("mdt", "sheen-MDT0000")), 2.0),
        (format!("lustre_quota_used_inodes{}", of("dom", "sheen-MDT0000")), 2.0),
    ] {
        assert_eq!(value(&text, &series), Some(want), "{series}\n{text}");
    }
    assert_eq!(samples_of(&text).len(), 12, "{text}");
}

#[test]
fn statistics_become_counters_by_operation() {
    let params = Params::default();
    let start = Time { sec: 1000, nsec: 7 };
    let stats = Stats::new(&[("open", "usecs"), ("read_bytes", "bytes")], start);
    [10, 30].into_iter().for_each(|usecs| stats.record("open", usecs));
    [4096, 8192].into_iter().for_each(|bytes| stats.record("read_bytes", bytes));
    let snapshot = stats.snapshot(start);
    for name in ["mdt.sheen-MDT0000.md_stats", "obdfilter.sheen-OST0000.stats", "llite.sheen-ff00.stats"] {
        counters(&params, name, snapshot.clone());
    }
    let callbacks = Snapshot::of_counts([("granted", 9), ("waiting", 1), ("ldlm_bl_callback", 4)]);
    counters(&params, "ldlm.namespaces.mdt-sheen-MDT0000_UUID.stats", callbacks);
    counters(&params, "llite.sheen-ff00.statahead_stats", Snapshot::of_counts([("readdir pages", 6)]));
    let text = text_of(&params);
    let (mdt, ost) = (
        r#"{component="mdt",fsname="sheen",target="sheen-MDT0000""#,
        r#"{component="ost",fsname="sheen",target="sheen-OST0000""#,
    );
    let mount = r#"{component="client",fsname="sheen",target="sheen-ff00""#;
    for (series, want) in [
        (format!("lustre_stats_total{mdt},operation=\"open\"}}"), 2.0),
        (format!("lustre_stats_time_min{mdt},operation=\"open\"}}"), 10.0),
        (format!("lustre_stats_time_max{mdt},operation=\"open\"}}"), 30.0),
        (format!("lustre_stats_time_total{mdt},operation=\"open\"}}"), 40.0),
        (format!("lustre_stats_start_time{mdt}}}"), 1000.0),
        (format!("lustre_stats_total{ost},operation=\"open\"}}"), 2.0),
        (format!("lustre_read_samples_total{ost},operation=\"read\"}}"), 2.0),
        (format!("lustre_read_bytes_total{ost},operation=\"read\"}}"), 12_288.0),
        (format!("lustre_read_minimum_size_bytes{ost},operation=\"read\"}}"), 4096.0),
        (format!("lustre_read_maximum_size_bytes{ost},operation=\"read\"}}"), 8192.0),
        (format!("lustre_client_stats{mount},operation=\"read_bytes\"}}"), 2.0),
        (format!("sheen_statahead_stats_total{mount},operation=\"readdir_pages\"}}"), 6.0),
        (format!("sheen_locks_waiting{mdt}}}"), 1.0),
        (format!("sheen_lock_stats_total{mdt},operation=\"ldlm_bl_callback\"}}"), 4.0),
    ] {
        assert_eq!(value(&text, &series), Some(want), "{series}\n{text}");
    }
    assert!(text.contains("# TYPE lustre_client_stats unknown\n"), "{text}");
    for absent in [
        format!("lustre_stats_total{ost},operation=\"read_bytes\"}}"),
        format!("sheen_lock_stats_total{mdt},operation=\"granted\"}}"),
    ] {
        assert_eq!(value(&text, &absent), None, "{absent}\n{text}");
    }
}

#[test]
fn histograms_are_cumulative_and_have_fixed_buckets() {
    let params = Params::default();
    let stats = Stats::new(&[("read", "usecs"), ("write_bytes", "bytes")], Time::default());
    let usecs = [1, 16, 17, 1_000_000, 3_600_000_000];
    usecs.into_iter().for_each(|usecs| stats.record("read", usecs));
    stats.record("write_bytes", 1 << 20);
    counters(&params, "obdfilter.sheen-OST0000.stats", stats.snapshot(Time::default()));
    let text = text_of(&params);
    let buckets = |name: &str| -> Vec<f64> {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}_bucket{{")));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect()
    };
    let times = buckets("sheen_operation_seconds");
    assert_eq!((times.len(), times[0], times[1], times[16], times[20], times[21]), (22, 2.0, 3.0, 4.0, 4.0, 5.0));
    assert!(times.is_sorted(), "{times:?}");
    let labels = r#"component="ost",fsname="sheen",target="sheen-OST0000",operation="read""#;
    let of = |series: String| value(&text, &series);
    assert_eq!(of(format!("sheen_operation_seconds_bucket{{le=\"1.048576\",{labels}}}")), Some(4.0), "{text}");
    assert_eq!(of(format!("sheen_operation_seconds_bucket{{le=\"+Inf\",{labels}}}")), Some(5.0), "{text}");
    assert_eq!(of(format!("sheen_operation_seconds_count{{{labels}}}")), Some(5.0), "{text}");
    let sum = of(format!("sheen_operation_seconds_sum{{{labels}}}")).unwrap();
    assert!((sum - 3_601.000_034).abs() < 1e-6, "{sum}");
    let sizes = buckets("sheen_io_size_bytes");
    assert_eq!(sizes, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0], "{text}");
}

#[test]
fn histograms_of_any_counts_do_not_overflow() {
    let json = format!("[{}]", vec![u64::MAX.to_string(); 90].join(","));
    let buckets = serde_json::from_str(&json).unwrap();
    let sample = Sample { sum: Some(u64::MAX), buckets, ..Sample::of_count("read", "usecs", 1) };
    let snapshot = Snapshot { samples: vec![sample], ..Snapshot::default() };
    let text = text(&[typed("obdfilter.a.stats", "a", Value::Counters(snapshot))], None);
    assert!(text.contains("le=\"+Inf\"") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn sizes_of_requests_are_counted_by_pages() {
    let params = Params::default();
    let histogram = Histogram::default();
    [1, 200, 256].into_iter().for_each(|pages| histogram.record(pages));
    let buckets = histogram.buckets();
    let write = Sample { buckets, ..Sample::of_count("write", "pages", 3) };
    let samples = vec![Sample::of_count("in_flight", "reqs", 7), write];
    counters(&params, "dom.sheen-MDT0000-dom-ff00.rpc_stats", Snapshot { samples, ..Snapshot::default() });
    let text = text_of(&params);
    let labels = r#"component="osc",fsname="sheen",target="sheen-MDT0000",device="sheen-MDT0000-dom-ff00""#;
    assert_eq!(value(&text, &format!("sheen_rpcs_in_flight{{{labels}}}")), Some(7.0), "{text}");
    for (pages, count) in [(1, 1.0), (128, 0.0), (256, 2.0)] {
        let series = format!("sheen_rpc_pages_total{{{labels},operation=\"write\",pages=\"{pages}\"}}");
        assert_eq!(value(&text, &series), Some(count), "{series}\n{text}");
    }
}

#[test]
fn block_statistics_are_counted_by_size() {
    let params = Params::default();
    let of = |name: &str, unit: &str, values: &[u64]| {
        let histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        Sample { buckets: histogram.buckets(), ..Sample::of_count(name, unit, values.len() as u64) }
    };
    let samples = vec![
        of("read_pages", "pages", &[1, 200]),
        of("read_in_flight", "ios", &[1]),
        of("read_time", "msecs", &[0]),
        of("read_io_size", "bytes", &[4096, 5000]),
        of("write_io_size", "bytes", &[1 << 20]),
    ];
    counters(&params, "obdfilter.sheen-OST0000.brw_stats", Snapshot { samples, ..Snapshot::default() });
    let text = text_of(&params);
    for (name, operation, size, want) in [
        ("lustre_pages_per_bulk_rw_total", "read", 256, 1.0),
        ("sheen_disk_io_in_flight_total", "read", 1, 1.0),
        ("lustre_io_time_milliseconds_total", "read", 1, 1.0),
        ("lustre_disk_io_total", "read", 4096, 1.0),
        ("lustre_disk_io_total", "read", 8192, 1.0),
        ("lustre_disk_io_total", "write", 1 << 20, 1.0),
    ] {
        let labels = r#"component="ost",fsname="sheen",target="sheen-OST0000""#;
        let series = format!("{name}{{{labels},operation=\"{operation}\",size=\"{size}\"}}");
        assert_eq!(value(&text, &series), Some(want), "{series}\n{text}");
    }
}

#[test]
fn statistics_of_jobs_have_the_label_jobid() {
    let bytes = Sample { min: Some(1), max: Some(9), sum: Some(10), ..Sample::of_count("write_bytes", "bytes", 2) };
    let samples = vec![bytes, Sample::of_count("write", "usecs", 2), Sample::of_count("read", "usecs", 0)];
    let job = JobSnapshot { job: "dd \"x\".1000".into(), counts: Snapshot { samples, ..Snapshot::default() } };
    let text = text(&[typed("obdfilter.sheen-OST0000.job_stats", "sheen-OST0000", Value::Jobs(vec![job]))], None);
    let labels = r#"component="ost",fsname="sheen",target="sheen-OST0000",jobid="dd \"x\".1000""#;
    for (name, operation, want) in [
        ("lustre_job_write_samples_total", "write_bytes", 2.0),
        ("lustre_job_write_bytes_total", "write_bytes", 10.0),
        ("lustre_job_write_minimum_size_bytes", "write_bytes", 1.0),
        ("lustre_job_write_maximum_size_bytes", "write_bytes", 9.0),
        ("lustre_job_stats_total", "write", 2.0),
    ] {
        let series = format!("{name}{{{labels},operation=\"{operation}\"}}");
        assert_eq!(value(&text, &series), Some(want), "{series}\n{text}");
    }
    assert_eq!(samples_of(&text).len(), 5, "a counter without a sample is left out: {text}");
}

#[test]
fn health_and_states_become_numbers() {
    let params = Params::default();
    words(&params, "mdt.sheen-MDT0000.health", "healthy");
    words(&params, "osc.sheen-OST0000-osc-ff00.state", "current_state: FULL\n");
    words(&params, "osc.sheen-OST0001-osc-ff00.state", "current_state: DISCONN\n");
    words(&params, "osc.sheen-OST0002-osc-ff00.state", "current_state: NEW\n");
    words(&params, "dom.sheen-MDT0000-dom-ff00.state", "current_state: NEW\n");
    words(&params, "dom.sheen-MDT0000-dom-ff01.state", "current_state: FULL\n");
    words(&params, "version", "0.1.0");
    let healthy = text_of(&params);
    assert_eq!(value(&healthy, "lustre_health_healthy"), Some(1.0), "{healthy}");
    assert_eq!(value(&healthy, r#"sheen_build_info{version="0.1.0"}"#), Some(1.0), "{healthy}");
    for (target, kind, client, connected) in [
        ("OST0000", "osc", "ff00", Some(1.0)),
        ("OST0001", "osc", "ff00", Some(0.0)),
        ("OST0002", "osc", "ff00", Some(0.0)),
        ("MDT0000", "dom", "ff00", None),
        ("MDT0000", "dom", "ff01", Some(1.0)),
    ] {
        let labels = format!(r#"target="sheen-{target}",device="sheen-{target}-{kind}-{client}""#);
        let series = format!("sheen_import_connected{{component=\"osc\",fsname=\"sheen\",{labels}}}");
        assert_eq!(value(&healthy, &series), connected, "{series}\n{healthy}");
    }
    words(&params, "mdt.b-MDT0000.health", "read-only: the store is damaged");
    let text = text_of(&params);
    assert_eq!(value(&text, "lustre_health_healthy"), Some(0.0), "{text}");
    for (fsname, health) in [("sheen", 1.0), ("b", 0.0)] {
        let series =
            format!("lustre_health_healthy{{component=\"mdt\",fsname=\"{fsname}\",target=\"{fsname}-MDT0000\"}}");
        assert_eq!(value(&text, &series), Some(health), "{text}");
    }
}

#[test]
fn recovery_status_becomes_numbers() {
    let params = Params::default();
    words(
        &params,
        "obdfilter.sheen-OST0000.recovery_status",
        "status: COMPLETE\nrecovery_start: 17\nrecovery_duration: 12\ncompleted_clients: 3/4\nreplayed_requests: 0\n",
    );
    words(
        &params,
        "mdt.sheen-MDT0000.recovery_status",
        "status: RECOVERING\ntime_remaining: 59\nconnected_clients: 2/5\ncompleted_clients: 1\nevicted_clients: 0\n",
    );
    words(&params, "mdt.b-MDT0000.recovery_status", "status: INACTIVE\n");
    words(&params, "mdt.c-MDT0000.recovery_status", "");
    let text = text_of(&params);
    let ost = r#"{kind="OST",fsname="sheen",target="sheen-OST0000"}"#;
    let mdt = r#"{kind="MDT",fsname="sheen",target="sheen-MDT0000"}"#;
    for (name, labels, want) in [
        ("recovery_status", ost, 0.0),
        ("recovery_status_completed_clients", ost, 3.0),
        ("recovery_status_total_clients", ost, 4.0),
        ("recovery_status_duration_seconds", ost, 12.0),
        ("recovery_status", mdt, 4.0),
        ("recovery_status_connected_clients", mdt, 2.0),
        ("recovery_status_total_clients", mdt, 5.0),
        ("recovery_status_completed_clients", mdt, 1.0),
        ("recovery_status_evicted_clients", mdt, 0.0),
        ("recovery_status_time_remaining_seconds", mdt, 59.0),
        ("recovery_status", r#"{kind="MDT",fsname="b",target="b-MDT0000"}"#, 1.0),
    ] {
        assert_eq!(value(&text, &format!("{name}{labels}")), Some(want), "{name}{labels}\n{text}");
    }
    assert_eq!(samples_of(&text).len(), 11, "{text}");
}

#[test]
fn values_of_labels_are_escaped() {
    let odd = typed("obdfilter.a.kbytestotal", "a\"b\\c\nd", Value::Number(1));
    let text = text(&[odd], None);
    let want = r#"lustre_capacity_kilobytes{component="ost",fsname="sheen",target="a\"b\\c\nd"} 1"#;
    assert_eq!(samples_of(&text), [want]);
}

#[test]
fn first_of_equal_samples_wins_and_each_metric_has_one_heading() {
    let mut params = Vec::new();
    for process in 1..=3 {
        for target in ["sheen-OST0000", "sheen-OST0001"] {
            for field in ["kbytestotal", "kbytesfree"] {
                params.push(typed(&format!("obdfilter.{target}.{field}"), target, Value::Number(process)));
            }
        }
        params.push(typed("version", "", Value::Text("0.1.0".into())));
    }
    let text = text(&params, Some(Scrape { processes: 3, errors: 1 }));
    let found = samples_of(&text);
    let distinct: BTreeSet<&str> = found.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    assert_eq!((found.len(), distinct.len()), (7, 7), "{text}");
    assert!(found.iter().filter(|line| line.starts_with("lustre_")).all(|line| line.ends_with(" 1")), "{text}");
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let distinct: BTreeSet<&&str> = headings.iter().collect();
    assert_eq!((headings.len(), distinct.len()), (5, 5), "{text}");
    assert_eq!(value(&text, "sheen_scrape_processes"), Some(3.0), "{text}");
    assert_eq!(value(&text, "sheen_scrape_errors"), Some(1.0), "{text}");
}

#[test]
fn no_parameters_become_an_empty_text() {
    assert_eq!(text(&[], None), "# EOF\n");
}

#[test]
fn names_and_texts_of_the_table_are_valid() {
    let names: BTreeSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), FAMILIES.len(), "each metric has one entry");
    for family in FAMILIES {
        let name = family.name;
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        let is_ours = ["lustre_", "sheen_", "recovery_"].iter().any(|prefix| name.starts_with(prefix));
        assert!(is_ours, "{name}");
        assert_eq!(family.kind == Kind::Info, name.ends_with("_info"), "{name}");
        assert!(family.kind != Kind::Counter || name.ends_with("_total"), "{name}");
        assert!(family.help.ends_with('.') && !family.help.contains(['\n', '\\', '"']), "{name}: {}", family.help);
        assert_eq!(family.sources.is_empty(), name.starts_with("sheen_scrape_"), "{name}");
        let patterns: BTreeSet<&str> = family.sources.iter().map(|source| source.param).collect();
        assert_eq!(patterns.len(), family.sources.len(), "{name}: each parameter once");
    }
    let patterns: Vec<&str> = patterns().collect();
    assert!(patterns.is_sorted() && patterns.contains(&"mdt.*.md_stats"), "{patterns:?}");
}

#[test]
fn monitoring_page_lists_every_metric() {
    for family in FAMILIES {
        assert!(PAGE.contains(&format!("| `{}` |", family.name)), "docs/monitoring.md lacks {}", family.name);
    }
}

/// Returns the names of all samples that can be written.
fn names_of_samples() -> BTreeSet<String> {
    let names = FAMILIES.iter().flat_map(|family| {
        let suffixes: &[&str] = if family.kind == Kind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        suffixes.iter().map(move |suffix| format!("{}{suffix}", family.name))
    });
    names.collect()
}

/// Adds the texts of all fields with one of these names, at any depth.
fn texts<'a>(json: &'a Json, fields: &[&str], found: &mut Vec<&'a str>) {
    match json {
        Json::Object(object) => {
            for (name, value) in object {
                found.extend(value.as_str().filter(|_| fields.contains(&name.as_str())));
                texts(value, fields, found);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| texts(item, fields, found)),
        _ => {}
    }
}

#[test]
fn dashboard_uses_only_metrics_that_exist() {
    let dashboard: Json = serde_json::from_str(DASHBOARD).unwrap();
    let (known, mut queries) = (names_of_samples(), Vec::new());
    texts(&dashboard, &["expr", "query", "definition"], &mut queries);
    let words = queries.iter().flat_map(|query| query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let is_metric = |word: &&str| ["lustre_", "sheen_", "recovery_"].iter().any(|prefix| word.starts_with(prefix));
    let used: BTreeSet<&str> = words.filter(is_metric).collect();
    assert!(used.len() > 20, "found too few metrics: {used:?}");
    let unknown: Vec<&&str> = used.iter().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "the dashboard uses metrics that do not exist: {unknown:?}");
}
