//! The workloads, and their experiments by the names that the paper gives them: `IOR.4`,
//! `blast.10-12`, or `netflow` for all of a workload.

use clap::ValueEnum;

use crate::workloads::patterns::{BLAST, Experiment, IOR, NETFLOW};

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Workload {
    /// Tasks write and read one file, each its own part.
    Ior,
    /// Index a file of flow records, then read each record.
    Netflow,
    /// Search for proteins in a database.
    Blast,
}

/// Experiments of a workload: those that a name selects, or those that a run measures.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The workload.
    pub workload: Workload,
    /// The experiments in the order of the paper, at least one.
    pub experiments: Vec<&'static Experiment>,
}

impl Workload {
    /// All workloads, in their order.
    pub const ALL: [Workload; 3] = [Workload::Ior, Workload::Netflow, Workload::Blast];

    /// Returns its name in the paper, with which the names of its experiments begin.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Ior => "IOR",
            Workload::Netflow => "netflow",
            Workload::Blast => "blast",
        }
    }

    /// Returns its experiments, in the order of the paper.
    pub fn experiments(self) -> &'static [Experiment] {
        match self {
            Workload::Ior => IOR,
            Workload::Netflow => NETFLOW,
            Workload::Blast => BLAST,
        }
    }

    /// Returns all of its experiments, as its name alone selects them.
    pub fn whole(self) -> Selection {
        Selection { workload: self, experiments: self.experiments().iter().collect() }
    }

    /// Returns the steps of the progress bar for an experiment in a round: a write and a read, two
    /// variations, or a search.
    pub fn phases(self) -> usize {
        match self {
            Workload::Ior | Workload::Netflow => 2,
            Workload::Blast => 1,
        }
    }
}

/// Reads the name of an experiment (`IOR.4`), of several (`blast.10-12`) or of a workload
/// (`netflow`), in upper or lower case.
///
/// # Errors
/// A message for the user if the paper has no such experiment.
pub fn parse(text: &str) -> Result<Selection, String> {
    let (workload, numbers) = match text.split_once('.') {
        Some((workload, numbers)) => (workload, Some(numbers)),
        None => (text, None),
    };
    let known = |of: &Workload| of.name().eq_ignore_ascii_case(workload);
    let whole = Workload::ALL.into_iter().find(known).map(Workload::whole);
    let selected = match numbers {
        Some(numbers) => whole.and_then(|whole| part(whole, numbers)),
        None => whole,
    };
    selected.ok_or_else(|| {
        let of = |workload: Workload| format!("{}.1-{}", workload.name(), workload.experiments().len());
        format!("the paper has the experiments {}", Workload::ALL.map(of).join(", "))
    })
}

/// Returns the experiments with these numbers: `4`, or `4-6`.
fn part(whole: Selection, numbers: &str) -> Option<Selection> {
    let (low, high) = numbers.split_once('-').unwrap_or((numbers, numbers));
    let (low, high) = (low.parse::<usize>().ok()?, high.parse::<usize>().ok()?);
    let experiments = whole.experiments.get(low.checked_sub(1)?..high).filter(|some| !some.is_empty())?;
    Some(Selection { workload: whole.workload, experiments: experiments.to_vec() })
}

/// Merges selections by workload. If an experiment is dynamic, all static ones of its workload are
/// added: results are compared with the best of these.
pub fn select(selected: &[Selection]) -> Vec<Selection> {
    let of = |workload: Workload| {
        let is_selected = |experiment: &Experiment| {
            let same = selected.iter().filter(|selection| selection.workload == workload);
            same.flat_map(|selection| &selection.experiments).any(|other| other.name == experiment.name)
        };
        let all = workload.experiments();
        let has_dynamic = all.iter().any(|experiment| experiment.is_dynamic() && is_selected(experiment));
        let chosen =
            all.iter().filter(|experiment| is_selected(experiment) || (has_dynamic && !experiment.is_dynamic()));
        Selection { workload, experiments: chosen.collect() }
    };
    Workload::ALL.into_iter().map(of).filter(|selection| !selection.experiments.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(selections: &[Selection]) -> Vec<&'static str> {
        selections.iter().flat_map(|selection| &selection.experiments).map(|experiment| experiment.name).collect()
    }

    /// Returns the experiments that a run measures if the user gives these names.
    fn selected(words: &[&str]) -> Vec<&'static str> {
        let parsed: Vec<Selection> = words.iter().map(|word| parse(word).unwrap()).collect();
        names(&select(&parsed))
    }

    #[test]
    fn parse_accepts_experiments_ranges_and_workloads() {
        let parsed = |text: &str| -> Vec<&'static str> {
            parse(text).unwrap().experiments.iter().map(|experiment| experiment.name).collect()
        };
        assert_eq!(parsed("IOR.4"), ["IOR.4"]);
        assert_eq!(parsed("ior.2-3"), ["IOR.2", "IOR.3"]);
        assert_eq!(parsed("blast.17-18"), ["blast.17", "blast.18"]);
        assert_eq!(parsed("NETFLOW").len(), 6);
        for workload in Workload::ALL {
            for experiment in workload.experiments() {
                assert_eq!(parsed(experiment.name), [experiment.name]);
            }
        }
    }

    #[test]
    fn parse_lists_the_experiments_for_a_wrong_name() {
        let wrong = ["", "IOR.0", "IOR.7", "IOR.", "IOR.3-2", "IOR.6-7", "netflow.-1", "blast.1-", "IOR 4", "iozone.1"];
        for text in wrong {
            let message = parse(text).unwrap_err();
            assert_eq!(message, "the paper has the experiments IOR.1-6, netflow.1-6, blast.1-18", "{text}");
        }
    }

    #[test]
    fn select_adds_the_static_experiments_to_a_dynamic_one() {
        assert_eq!(selected(&["IOR.5"]), ["IOR.1", "IOR.2", "IOR.3", "IOR.5"]);
        assert_eq!(selected(&["blast.18"]).len(), 10);
        assert_eq!(selected(&["netflow.3", "IOR.2"]), ["IOR.2", "netflow.3"], "static ones alone");
        assert_eq!(selected(&["IOR", "IOR.2-4"]).len(), 6, "each once");
        assert!(select(&[]).is_empty());
    }
}
