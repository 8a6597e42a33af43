//! Metrics for Prometheus: the parameters of Sheen processes as OpenMetrics text, and an HTTP
//! endpoint that serves it.
//!
//! Where lustrefs-exporter has a name for a value, the metric and its labels have that name, so
//! that dashboards for Lustre work. Other metrics begin with `sheen_`. Every sample of a file
//! system has the label `fsname` as well.
//!
//! * `table`: all metrics, and the parameters that they come from;
//! * `point`: a value with its labels; `statistics`, `status`, `quotas`: values of statistics and
//!   of texts;
//! * `collect`: the values of all metrics; `exposition`: their text;
//! * `serve`: the endpoint.
//!
//! Invariants:
//! * A metric exists only if the table lists it. No name of a file leaves a process.
//! * No two samples of a metric have the same labels. If several processes have a parameter, the
//!   first one counts.
//! * A histogram has the same buckets in every process and at every time, so that sums over
//!   processes are right.
//! * No bytes of a peer make the endpoint panic or wait for longer than its time limits.
//! * The metrics are read for one request at a time, also after its time limit.

mod collect;
mod exposition;
mod point;
mod quotas;
mod serve;
mod statistics;
mod status;
mod table;
#[cfg(test)]
mod tests;

pub use collect::Scrape;
pub use exposition::{text, text_of};
pub use serve::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_TIMEOUT, METRICS_TIMEOUT, serve};
pub use table::patterns;
