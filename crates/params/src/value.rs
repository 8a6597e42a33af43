//! Typed values of parameters, and their units.

use serde::{Deserialize, Serialize};

use crate::job_stats::JobSnapshot;
use crate::snapshot::Snapshot;

/// Value of a parameter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// A number. i128 holds every u64 and i64.
    Number(i128),
    /// A switch.
    Flag(bool),
    /// Text.
    Text(String),
    /// Statistics: counts, and times or sizes with their spread.
    Counters(Snapshot),
    /// Statistics of which the histograms are the point, such as the sizes of requests.
    Histogram(Snapshot),
    /// Statistics of each job.
    Jobs(Vec<JobSnapshot>),
}

impl Value {
    /// Returns the name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Number(_) => "number",
            Value::Flag(_) => "flag",
            Value::Text(_) => "text",
            Value::Counters(_) => "counters",
            Value::Histogram(_) => "histogram",
            Value::Jobs(_) => "jobs",
        }
    }
}

/// Unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// 1024 bytes.
    Kib,
    /// 1024² bytes.
    Mib,
    /// 4096 bytes.
    Pages,
    /// Hundredths; the text of the value ends with `%`.
    Percent,
    /// Microseconds.
    Usecs,
    /// Milliseconds.
    Msecs,
    /// Seconds.
    Secs,
}

impl Unit {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Kib => "KiB",
            Unit::Mib => "MiB",
            Unit::Pages => "pages",
            Unit::Percent => "%",
            Unit::Usecs => "usecs",
            Unit::Msecs => "msecs",
            Unit::Secs => "secs",
        }
    }

    /// Returns by how many bytes a size such as `4M` is divided to get a number in this unit.
    pub(crate) fn bytes(self) -> i128 {
        match self {
            Unit::Kib => 1 << 10,
            Unit::Mib => 1 << 20,
            Unit::Pages => 4096,
            Unit::Bytes | Unit::Percent | Unit::Usecs | Unit::Msecs | Unit::Secs => 1,
        }
    }

    /// Returns what follows a number in its text.
    pub(crate) fn suffix(self) -> &'static str {
        if self == Unit::Percent { "%" } else { "" }
    }
}
