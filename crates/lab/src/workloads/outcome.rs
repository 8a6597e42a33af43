//! Results of the workloads.

use serde::Serialize;

use crate::{
    stats::{median, range, ratios},
    workloads::patterns::Experiment,
};

/// A quantity that was measured of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Quantity {
    /// Its name, such as `write`.
    pub name: &'static str,
    /// Its unit; seconds are better if there are fewer of them.
    pub unit: &'static str,
    /// How the workload was run; empty if there is only one way.
    pub variation: &'static str,
}

/// The values of a quantity of an experiment: one for each round.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Its striping in the words of the paper.
    pub striping: &'static str,
    /// The quantity.
    pub quantity: Quantity,
    /// The values.
    pub values: Vec<f64>,
    /// Better than the first experiment by this factor, in each round.
    pub gains: Vec<f64>,
    /// Better than the best static experiment by this factor, in each round.
    pub static_gains: Vec<f64>,
}

impl Quantity {
    fn is_better_if_less(self) -> bool {
        self.unit == "s"
    }
}

impl Measured {
    /// Returns the factors by which the values are better than those of `base`, in each round.
    fn gains_over(&self, base: &Measured) -> Vec<f64> {
        match self.quantity.is_better_if_less() {
            true => ratios(&base.values, &self.values),
            false => ratios(&self.values, &base.values),
        }
    }

    /// Returns median, minimum and maximum.
    pub fn summary(&self) -> [f64; 3] {
        let (low, high) = range(&self.values);
        [median(&self.values), low, high]
    }
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its shape, for the title of its chart.
    pub title: String,
    /// Its experiments, in the order of the paper.
    pub experiments: Vec<&'static Experiment>,
    /// Its results, in the order in which they came.
    measured: Vec<Measured>,
}

/// All results.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The workloads.
    pub groups: Vec<Group>,
    /// Seconds of each workload with its preparation, by its name. The last one may have failed.
    pub durations: Vec<(&'static str, f64)>,
    /// Seconds of the run, with the setup and the removal of the file system.
    pub seconds: f64,
}

impl Outcome {
    /// Begins a workload.
    pub fn begin(&mut self, title: String, experiments: &[&'static Experiment]) {
        self.groups.push(Group { title, experiments: experiments.to_vec(), measured: Vec::new() });
    }

    /// Adds a value to the last workload.
    pub fn add(&mut self, experiment: &Experiment, quantity: Quantity, value: f64) {
        let Some(group) = self.groups.last_mut() else { return };
        let same = |m: &&mut Measured| m.experiment == experiment.name && m.quantity == quantity;
        match group.measured.iter_mut().find(same) {
            Some(measured) => measured.values.push(value),
            None => group.measured.push(Measured {
                experiment: experiment.name,
                striping: experiment.striping,
                quantity,
                values: vec![value],
                gains: Vec::new(),
                static_gains: Vec::new(),
            }),
        }
    }
}

impl Group {
    /// Returns the quantities, in the order in which they were measured first.
    pub fn quantities(&self) -> Vec<Quantity> {
        let mut all: Vec<Quantity> = Vec::new();
        for measured in &self.measured {
            if !all.contains(&measured.quantity) {
                all.push(measured.quantity);
            }
        }
        all
    }

    /// Returns the results by quantity, and for each in the order of the experiments.
    pub fn results(&self) -> Vec<Measured> {
        let of = |quantity: Quantity| {
            self.experiments.iter().filter_map(move |experiment| self.get(experiment.name, quantity))
        };
        self.quantities().into_iter().flat_map(of).collect()
    }

    /// Returns the values of a quantity of an experiment, and its gains.
    pub fn get(&self, experiment: &str, quantity: Quantity) -> Option<Measured> {
        let measured = self.find(experiment, quantity)?;
        let gains = |base: Option<&str>| {
            let base = base.and_then(|name| self.find(name, quantity));
            base.map_or_else(Vec::new, |base| measured.gains_over(base))
        };
        Some(Measured {
            gains: gains(self.experiments.first().map(|first| first.name)),
            static_gains: gains(self.best(quantity, false)),
            ..measured.clone()
        })
    }

    /// Returns the name of the dynamic, or static, experiment with the best median of a quantity.
    pub fn best(&self, quantity: Quantity, dynamic: bool) -> Option<&'static str> {
        let kind = self.experiments.iter().filter(|experiment| experiment.is_dynamic() == dynamic);
        let medians = kind.filter_map(|experiment| {
            let middle = median(&self.find(experiment.name, quantity)?.values);
            Some((experiment.name, if quantity.is_better_if_less() { -middle } else { middle }))
        });
        medians.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(name, _)| name)
    }

    fn find(&self, experiment: &str, quantity: Quantity) -> Option<&Measured> {
        self.measured.iter().find(|m| m.experiment == experiment && m.quantity == quantity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::patterns::{BLAST, IOR};

    #[test]
    fn gain_is_relative_to_the_first_experiment_in_the_same_round() {
        let mut outcome = Outcome::default();
        outcome.begin("BLAST".into(), &BLAST.iter().collect::<Vec<_>>());
        let time = Quantity { name: "time", unit: "s", variation: "" };
        let hits = Quantity { name: "hits", unit: "1/s", variation: "" };
        for (experiment, values) in [(&BLAST[1], [1.0, 6.0]), (&BLAST[0], [2.0, 3.0])] {
            for value in values {
                outcome.add(experiment, time, value);
                outcome.add(experiment, hits, value);
            }
        }
        let results = outcome.groups[0].results();
        let gains: Vec<(&str, &[f64])> = results.iter().map(|m| (m.experiment, &m.gains[..])).collect();
        let [first, more, less] = [[1.0, 1.0], [2.0, 0.5], [0.5, 2.0]];
        assert_eq!(gains, [("blast.1", &first[..]), ("blast.2", &more), ("blast.1", &first), ("blast.2", &less)]);
        assert_eq!(results[1].summary(), [3.5, 1.0, 6.0]);
    }

    #[test]
    fn static_gain_is_relative_to_the_static_experiment_with_the_best_median() {
        let mut outcome = Outcome::default();
        outcome.begin("IOR".into(), &IOR.iter().collect::<Vec<_>>());
        let read = Quantity { name: "read", unit: "MiB/s", variation: "" };
        let time = Quantity { name: "time", unit: "s", variation: "" };
        for (experiment, values) in [(&IOR[0], [4.0, 2.0]), (&IOR[1], [5.0, 4.0]), (&IOR[4], [10.0, 2.0])] {
            for value in values {
                outcome.add(experiment, read, value);
                outcome.add(experiment, time, value);
            }
        }
        let group = &outcome.groups[0];
        assert_eq!((group.best(read, false), group.best(read, true)), (Some("IOR.2"), Some("IOR.5")));
        assert_eq!(group.get("IOR.5", read).unwrap().static_gains, [2.0, 0.5]);
        assert_eq!(group.best(time, false), Some("IOR.1"), "less time is better");
        assert_eq!(group.get("IOR.5", time).unwrap().static_gains, [0.4, 1.0]);
        assert!(group.get("IOR.6", read).is_none(), "not measured");
    }
}
