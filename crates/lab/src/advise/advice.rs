//! The advice: all candidates, the recommended layout with the reason, and the RPC parameters.

use sheen_layout::{PROGRESSIVE_ON_MDT, PROGRESSIVE_OPTIONS};

use crate::{
    advise::{
        apply,
        args::AdviseArgs,
        candidates::{candidates, words},
        choice::{Rated, choose, is_worth, rate, reason},
        measure, mount_rpcs,
        plan::{Basis, Job, basis, job},
        present,
        rpcs::RpcAdvice,
    },
    output::Outputs,
    predict::{
        costs::Costs,
        load::{Direction, Workload},
        shape::Shape,
    },
    size::with_kib,
};

const UNKNOWN: &str =
    "The bytes have no objects, or are on the MDT, which the model does not know: nothing is recommended.";

/// A recommendation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recommended {
    /// The candidate with this index.
    Candidate(usize),
    /// The default layout of a new file system, which stores small files on the MDT.
    DefaultLayout,
    /// None.
    Nothing,
}

impl Recommended {
    /// Returns the recommendation. `best`: index of the best candidate. `are_small`: the job is
    /// about small files, of which the model says nothing. `have_objects`: the present layout
    /// stores the bytes in objects, or is not considered.
    fn of(best: usize, are_small: bool, have_objects: bool) -> Recommended {
        match (are_small, have_objects) {
            (_, false) => Recommended::Nothing,
            (true, true) => Recommended::DefaultLayout,
            (false, true) => Recommended::Candidate(best),
        }
    }

    /// Returns the arguments of `lfs` for the layout; none if nothing is recommended.
    fn layout(self, all: &[Rated]) -> Vec<String> {
        match self {
            Recommended::Candidate(index) => words(&all[index].shape),
            Recommended::DefaultLayout => PROGRESSIVE_OPTIONS.split(' ').map(str::to_owned).collect(),
            Recommended::Nothing => Vec::new(),
        }
    }
}

/// An advice.
pub struct Advice {
    /// The job.
    pub workload: Workload,
    /// Whether the job is about small files of a directory. The model says nothing about these.
    pub are_small: bool,
    /// The observation in words.
    pub observed: Option<String>,
    /// A warning about the observation.
    pub warning: Option<String>,
    /// The model.
    pub basis: Basis,
    /// All candidates.
    pub all: Vec<Rated>,
    /// The recommendation.
    pub recommended: Recommended,
    /// The present layout; `None`: it is not known, or on the MDT.
    pub now: Option<Rated>,
    /// A property of the present layout that the recommended one lacks.
    pub loses: Option<&'static str>,
    /// Arguments of `lfs` for the recommended layout.
    pub layout: Vec<String>,
    /// The command that sets it; `None`: a change is not worth it.
    pub command: Option<String>,
    /// The reason in a sentence.
    pub reason: String,
    /// The RPC parameters, or why there is no advice on them. `None`: the job needs none, or the
    /// round trip of a published system is not stated.
    pub rpcs: Result<Option<RpcAdvice>, String>,
}

impl Advice {
    /// Checks the options, and chooses a layout. Also returns the files for the results, which are
    /// open before a job to be watched begins.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(args: &AdviseArgs) -> Result<(Advice, Outputs), String> {
        // A job to be watched does not begin without a model, nor if its advice cannot be applied.
        let basis = basis(args)?;
        let loses = basis.system.as_ref().and_then(|_| present::loses(&args.path));
        if let (Some(what), true) = (loses, args.apply) {
            let path = args.path.display();
            return Err(format!(
                "--apply: {path} has {what}, which the recommended layout lacks: set a layout with lfs"
            ));
        }
        let (job, outputs) = job(args)?;
        let basis = basis.only(&job.directions)?;
        measure::check(args, &job.workload, &basis)?;
        Ok((Advice::for_job(args, basis, job, loses)?, outputs))
    }

    /// Chooses a layout for a job. `loses`: a property that only the present layout has.
    fn for_job(args: &AdviseArgs, basis: Basis, job: Job, loses: Option<&'static str>) -> Result<Advice, String> {
        let Job { workload, are_small, observed, warning, .. } = job;
        let costs: Vec<(Direction, &Costs)> = basis.costs.iter().map(|(of, costs)| (*of, costs)).collect();
        let rated = |shape: &Shape| rate(&workload, shape, basis.osts, &costs);
        let all: Vec<Rated> = candidates(&workload, basis.osts).iter().map(rated).collect();
        let best = choose(&all).ok_or("there is no OST")?;
        let present = basis.system.as_ref().map(|_| present::shape(&args.path, &workload, basis.osts));
        let now = present.flatten().as_ref().map(rated);
        // For new files of a directory. Those that have objects would gain little by a migration.
        let are_small = are_small && present.is_some() && args.path.is_dir();
        let small = Workload { tasks: 1, files: true, size: PROGRESSIVE_ON_MDT, ..workload };
        let have_objects = match are_small {
            true => present::shape(&args.path, &small, basis.osts).is_some(),
            false => present.is_none() || now.is_some(),
        };
        let recommended = Recommended::of(best, are_small, have_objects);
        let before = now.as_ref().unwrap_or(&all[0]);
        let reason = match recommended {
            Recommended::Candidate(index) => reason(before, &all[index]),
            Recommended::Nothing if !are_small => UNKNOWN.to_owned(),
            Recommended::DefaultLayout | Recommended::Nothing => reason_of_small(have_objects),
        };
        if are_small && args.measure {
            return Err(format!("--measure: there is no model of small files to compare with. {reason}"));
        }
        let changes = match recommended {
            Recommended::Candidate(index) => is_worth(before, &all[index]),
            Recommended::DefaultLayout => true,
            Recommended::Nothing => false,
        };
        let layout = recommended.layout(&all);
        let place = if present.is_some() { args.path.display().to_string() } else { "DIRECTORY".into() };
        let command = changes.then(|| apply::command(&args.path, &layout, &place));
        let loses = loses.filter(|_| recommended != Recommended::Nothing);
        let rpcs = match recommended {
            // With the layout that the files will have.
            Recommended::Candidate(index) => {
                let rated = now.as_ref().filter(|_| !changes).unwrap_or(&all[index]);
                mount_rpcs::advise(args, &basis, &workload, rated)
            }
            Recommended::DefaultLayout | Recommended::Nothing => Ok(None),
        };
        Ok(Advice {
            workload,
            are_small,
            observed,
            warning,
            basis,
            all,
            recommended,
            now,
            loses,
            layout,
            command,
            reason,
            rpcs,
        })
    }

    /// Returns the recommended candidate. `None`: nothing is recommended, or the default layout.
    pub fn chosen(&self) -> Option<&Rated> {
        match self.recommended {
            Recommended::Candidate(index) => self.all.get(index),
            Recommended::DefaultLayout | Recommended::Nothing => None,
        }
    }

    /// Returns the advice on RPC parameters, if there is one.
    pub fn rpcs(&self) -> Option<&RpcAdvice> {
        self.rpcs.as_ref().ok()?.as_ref()
    }

    /// Returns the rate with the recommended layout, divided by that with the present one.
    pub fn gain(&self) -> Option<f64> {
        Some(self.now.as_ref()?.seconds / self.chosen()?.seconds)
    }
}

/// Returns the reason of an advice for small files. `have_objects`: they are not on the MDT.
fn reason_of_small(have_objects: bool) -> String {
    let most = with_kib(PROGRESSIVE_ON_MDT);
    match have_objects {
        true => format!("Files of at most {most} are fastest on the MDT, which returns them with their names."),
        false => format!("Files of at most {most} are on the MDT, where they are fastest: nothing is recommended."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_recommended_for_files_on_the_mdt() {
        assert_eq!(Recommended::of(3, false, true), Recommended::Candidate(3));
        assert_eq!(Recommended::of(3, true, true), Recommended::DefaultLayout);
        for are_small in [false, true] {
            let recommended = Recommended::of(3, are_small, false);
            assert_eq!((recommended, recommended.layout(&[])), (Recommended::Nothing, Vec::new()));
        }
        assert!(reason_of_small(false).starts_with("Files of at most 64 KiB are on the MDT"));
    }
}
