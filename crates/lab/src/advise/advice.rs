//! The advice: all candidates, the recommended one, and the reason.

use crate::{
    advise::{
        apply,
        args::AdviseArgs,
        candidates::{SMALL_BYTES, candidates, words},
        choice::{Rated, choose, is_worth, rate, reason},
        measure,
        plan::{Basis, Job, basis, job},
        present,
    },
    predict::{
        costs::Costs,
        load::{Direction, Workload},
        shape::Shape,
    },
};

/// Arguments of `lfs` for small files: the default layout.
const ON_MDT: &str = "-E 64K -L mdt -E 256M -c 1 -E 16G -c 4 -E -1 -c -1";
const SMALL: &str = "Files of at most 64 KiB are fastest on the MDT, which returns them with their names.";
const SMALL_THERE: &str = "Files of at most 64 KiB are on the MDT, where they are fastest: nothing is recommended.";

/// An advice.
pub struct Advice {
    /// The job.
    pub workload: Workload,
    /// The observation in words.
    pub observed: Option<String>,
    /// The model.
    pub basis: Basis,
    /// All candidates.
    pub all: Vec<Rated>,
    /// Index of the recommended one.
    mark: usize,
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
    /// Whether the files are so small that the recommended layout stores them on the MDT. The model
    /// says nothing about these.
    pub on_mdt: bool,
}

impl Advice {
    /// Checks the options, and chooses a layout.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(args: &AdviseArgs) -> Result<Advice, String> {
        // A job to be watched does not begin without a model, nor if its advice cannot be applied.
        let basis = basis(args)?;
        let loses = basis.system.as_ref().and_then(|_| present::loses(&args.path));
        if let (Some(what), true) = (loses, args.apply) {
            let path = args.path.display();
            return Err(format!(
                "--apply: {path} has {what}, which the recommended layout lacks: set a layout with lfs"
            ));
        }
        let Job { workload, directions, are_small, observed } = job(args)?;
        let basis = basis.only(&directions)?;
        measure::check(args, &workload, &basis)?;
        let costs: Vec<(Direction, &Costs)> = basis.costs.iter().map(|(of, costs)| (*of, costs)).collect();
        let rated = |shape: &Shape| rate(&workload, shape, basis.osts, &costs);
        let all: Vec<Rated> = candidates(&workload, basis.osts).iter().map(rated).collect();
        let mark = choose(&all).ok_or("there is no OST")?;
        let present = basis.system.as_ref().map(|_| present::shape(&args.path, &workload, basis.osts));
        let now = present.flatten().as_ref().map(rated);
        let is_unknown = present.is_some() && now.is_none();
        let (before, chosen) = (now.as_ref().unwrap_or(&all[0]), &all[mark]);
        let reason = match is_unknown {
            true => {
                "The bytes have no objects, or are on the MDT, which the model does not know: nothing is recommended."
                    .into()
            }
            false => reason(before, chosen),
        };
        // For new files of a directory. Those that have objects would gain little by a migration.
        let are_small = are_small && present.is_some() && args.path.is_dir();
        let small = Workload { tasks: 1, files: true, size: SMALL_BYTES, ..workload };
        let on_mdt = are_small && present::shape(&args.path, &small, basis.osts).is_some();
        if on_mdt && args.measure {
            return Err(format!("--measure: there is no model of small files to compare with. {SMALL}"));
        }
        let (layout, reason) = match on_mdt {
            true => (ON_MDT.split(' ').map(str::to_owned).collect(), SMALL.to_owned()),
            false if are_small => (Vec::new(), SMALL_THERE.to_owned()),
            false => (words(&chosen.shape), reason),
        };
        let place = if present.is_some() { args.path.display().to_string() } else { "DIRECTORY".into() };
        let changes = on_mdt || !are_small && !is_unknown && is_worth(before, chosen);
        let command = changes.then(|| apply::command(&args.path, &layout, &place));
        Ok(Advice { workload, observed, basis, all, mark, now, loses, layout, command, reason, on_mdt })
    }

    /// Returns the recommended candidate. `None`: the recommended layout stores files on the MDT.
    pub fn chosen(&self) -> Option<&Rated> {
        (!self.on_mdt).then_some(&self.all[self.mark])
    }

    /// Returns the rate with the recommended layout, divided by that with the present one.
    pub fn gain(&self) -> Option<f64> {
        Some(self.now.as_ref()?.seconds / self.chosen()?.seconds)
    }
}
