//! Common parts of the workloads: the file system, the turns of the patterns, and their results.

use std::{io, path::Path};

use crate::{
    session::Session,
    stop,
    workloads::{
        args::WorkloadsArgs,
        outcome::Outcome,
        patterns::{Experiment, Factors},
        system::System,
    },
};

/// A run of all workloads.
pub struct Setup<'a> {
    /// The options.
    pub args: &'a WorkloadsArgs,
    /// The file system.
    pub system: &'a System,
    /// The terminal.
    pub session: &'a mut Session,
    /// The results so far.
    pub outcome: &'a mut Outcome,
}

impl Setup<'_> {
    /// Returns the factors by which an experiment is smaller than the paper's.
    pub fn factors(&self, bytes: u64, widths: u64) -> Factors {
        Factors { bytes, widths, osts: self.system.osts }
    }

    /// Measures all experiments in each round. `measure` adds its results to the outcome.
    ///
    /// # Errors
    /// Of a measurement, or an interruption by the user.
    pub fn rounds(
        &mut self,
        experiments: &[&'static Experiment],
        mut measure: impl FnMut(&mut Setup<'_>, &'static Experiment) -> io::Result<()>,
    ) -> io::Result<()> {
        self.session.measure_noise();
        for round in 0..self.args.repetitions {
            for experiment in turns(experiments, round) {
                stop::check()?;
                self.session.part(experiment.name);
                measure(self, experiment)?;
            }
            self.session.measure_noise();
        }
        Ok(())
    }

    /// Sets the pattern of a file, or of the files that will be created in a directory.
    ///
    /// # Errors
    /// Of `lfs setstripe`.
    pub fn stripe(&self, path: &Path, experiment: &Experiment, factors: Factors) -> io::Result<()> {
        let words = experiment.words(factors);
        self.system.program.setstripe(path, &words.iter().map(String::as_str).collect::<Vec<&str>>())
    }

    /// Compares the layout of a file with the pattern.
    ///
    /// # Errors
    /// They differ.
    pub fn check(&self, path: &Path, experiment: &Experiment, factors: Factors) -> io::Result<()> {
        let shown = self.system.program.run(["lfs", "getstripe", &path.to_string_lossy()])?;
        experiment.check(factors, std::fs::metadata(path)?.len(), &shown)
    }
}

/// Returns the experiments in the order of a round. Each round begins with another one.
fn turns(experiments: &[&'static Experiment], round: u32) -> impl Iterator<Item = &'static Experiment> {
    let first = round as usize % experiments.len();
    experiments.iter().copied().cycle().skip(first).take(experiments.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::patterns::IOR;

    #[test]
    fn each_round_runs_all_experiments_and_starts_with_another() {
        let all: Vec<&'static Experiment> = IOR.iter().collect();
        for round in 0..7 {
            let mut names: Vec<&str> = turns(&all, round).map(|experiment| experiment.name).collect();
            assert_eq!(names[0], IOR[round as usize % IOR.len()].name);
            names.sort_unstable();
            assert_eq!(names, ["IOR.1", "IOR.2", "IOR.3", "IOR.4", "IOR.5", "IOR.6"]);
        }
    }
}
