//! Points from parameters that are text: health, states, and the status of a recovery.

use sheen_params::Labels;

use crate::point::{LabelSet, Point, PointValue, add_place, with};
use crate::table::{Component, RecoveryField, Take};

/// Value of `mdt.*.health` of an MDT without problems.
const HEALTHY: &str = "healthy";
/// State of an import through which requests go.
const CONNECTED: &str = "FULL";
/// State of an import that was not used yet.
const UNUSED: &str = "NEW";

/// Returns the points that `take` selects. `labels`: those of the parameter, as a set in `set`.
pub fn points(text: &str, take: Take, labels: &Labels, component: Component, set: LabelSet) -> Vec<Point> {
    let point = match take {
        Take::Health => Some(Point::number(set, text.trim() == HEALTHY)),
        Take::Connected | Take::ConnectedIfUsed => {
            let state = field(text, "current_state");
            let state = state.filter(|&state| take == Take::Connected || state != UNUSED);
            state.map(|state| Point::number(set, state == CONNECTED))
        }
        Take::Version => Some(Point { labels: with(&set, "version", text), value: PointValue::Info }),
        Take::Recovery(what) => {
            let set = recovery_labels(labels, component);
            recovery(text, what).map(|number| Point::number(set, number))
        }
        Take::Number
        | Take::Quota(_)
        | Take::Since
        | Take::One(..)
        | Take::Each(..)
        | Take::Seconds
        | Take::Bytes
        | Take::Pages
        | Take::Sizes(_) => None,
    };
    point.into_iter().collect()
}

/// Returns the labels of lustrefs-exporter, which has `kind` here instead of `component`.
fn recovery_labels(labels: &Labels, component: Component) -> LabelSet {
    let kind = component.name().map(|name| ("kind", name.to_uppercase()));
    let mut set = LabelSet::from_iter(kind);
    add_place(&mut set, labels, component);
    set
}

/// Returns a number of `recovery_status`. The text has only the lines of its state.
fn recovery(text: &str, what: RecoveryField) -> Option<u64> {
    match what {
        RecoveryField::Status => field(text, "status").map(state),
        RecoveryField::Completed => part(text, "completed_clients", 0),
        RecoveryField::Connected => part(text, "connected_clients", 0),
        RecoveryField::Clients => part(text, "completed_clients", 1).or_else(|| part(text, "connected_clients", 1)),
        RecoveryField::Evicted => part(text, "evicted_clients", 0),
        RecoveryField::Duration => part(text, "recovery_duration", 0),
        RecoveryField::TimeRemaining => part(text, "time_remaining", 0),
    }
}

/// Returns the number of lustrefs-exporter for a state.
fn state(name: &str) -> u64 {
    match name {
        "COMPLETE" => 0,
        "INACTIVE" => 1,
        "WAITING" => 2,
        "WAITING_FOR_CLIENTS" => 3,
        "RECOVERING" => 4,
        _ => 5,
    }
}

/// Returns one number of a value such as `3/4`.
fn part(text: &str, name: &str, at: usize) -> Option<u64> {
    field(text, name)?.split('/').nth(at)?.trim().parse().ok()
}

/// Returns the value of a line `name: value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim())
}
