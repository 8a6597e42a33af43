//! The results of IOR as JSON: IOR's own keys, and what a report needs.

use serde_json::{Value, json};

use crate::{
    ior::{
        outcome::{Outcome, Phase},
        plan::Plan,
        prediction::Predictions,
        step::Access,
    },
    stats::{median, range},
};

/// Returns the fields of IOR in the record of a run.
pub fn fields(plan: &Plan, outcome: &Outcome, predictions: &Predictions) -> Value {
    let path = plan.path(0, 0, 0);
    let results: Vec<Value> = outcome.phases.iter().map(|phase| result(plan, phase)).collect();
    json!({
        "tests": [{
            "TestID": 0,
            "Path": path,
            "Parameters": plan,
            "Results": results,
            "removeTime": outcome.removals,
            "errors": outcome.errors,
        }],
        "summary": summary(outcome),
        "predictions": predictions.compared,
        "no prediction": predictions.missing,
    })
}

fn result(plan: &Plan, phase: &Phase) -> Value {
    json!({
        "access": phase.name(),
        "iter": phase.repetition,
        "bwMiB": phase.bandwidth(),
        "blockKiB": plan.block as f64 / 1024.0,
        "xferKiB": plan.transfer as f64 / 1024.0,
        "bytes": phase.bytes,
        "iops": phase.iops,
        "latency": phase.latency,
        "openTime": phase.open,
        "wrRdTime": phase.transfer,
        "closeTime": phase.close,
        "totalTime": phase.total,
        "errors": phase.errors,
        "stonewallTime": phase.until_stonewall().map(|(seconds, _)| seconds),
        "stonewallBwMiB": phase.until_stonewall().map(|(_, bandwidth)| bandwidth),
    })
}

fn summary(outcome: &Outcome) -> Vec<Value> {
    let accesses = [(Access::Write, "write"), (Access::Read, "read")];
    let row = |(access, name): (Access, &str)| {
        let rates: Vec<f64> = outcome.of(access).map(Phase::bandwidth).collect();
        let (min, max) = range(&rates);
        (!rates.is_empty())
            .then(|| json!({ "operation": name, "bwMaxMIB": max, "bwMinMIB": min, "bwMedianMIB": median(&rates) }))
    };
    accesses.into_iter().filter_map(row).collect()
}
