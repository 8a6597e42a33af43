//! A value of a metric, with its labels.

use sheen_params::Labels;

use crate::table::Component;

/// Names and values of labels, in the order in which they are written. The values are escaped.
pub type LabelSet = Vec<(&'static str, String)>;

/// A value with its labels.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The labels.
    pub labels: LabelSet,
    /// The value.
    pub value: PointValue,
}

/// The value of a point.
#[derive(Clone, PartialEq, Debug)]
pub enum PointValue {
    /// A number.
    Number(i128),
    /// A histogram.
    Histogram {
        /// Sum of all values.
        sum: f64,
        /// Number of values.
        count: u64,
        /// Upper bounds, ascending, and the number of values between each one and the one before
        /// it. The last bound is infinite, which prometheus-client writes as the largest f64.
        buckets: Vec<(f64, u64)>,
    },
    /// None: the information is in the labels.
    Info,
}

impl Point {
    /// Creates a point with a number.
    pub fn number(labels: LabelSet, number: impl Into<i128>) -> Point {
        Point { labels, value: PointValue::Number(number.into()) }
    }
}

/// Returns the labels of a parameter of this component.
pub fn labels_of(labels: &Labels, component: Component) -> LabelSet {
    let mut set = LabelSet::new();
    if let Some(name) = component.name() {
        set.push(("component", name.to_owned()));
        add_place(&mut set, labels, component);
    }
    set
}

/// Adds the labels that say which file system, target and device a value belongs to.
pub fn add_place(set: &mut LabelSet, labels: &Labels, component: Component) {
    let (target, device) = match component {
        Component::Client | Component::Osp => (&labels.device, &None),
        Component::Osc | Component::Mdc => (&labels.target, &labels.device),
        Component::Ost | Component::Mdt | Component::Dom | Component::Qmt => (&labels.target, &None),
        Component::Process => (&None, &None),
    };
    for (name, value) in [("fsname", &labels.fsname), ("target", target), ("device", device)] {
        set.extend(value.as_ref().map(|value| (name, escaped(value))));
    }
}

/// Returns the labels and one more.
pub fn with(labels: &LabelSet, name: &'static str, value: &str) -> LabelSet {
    let mut set = labels.clone();
    set.push((name, escaped(value)));
    set
}

/// Escapes a value as OpenMetrics requires, which prometheus-client does not do.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}
