//! The advice: all candidates, the recommended one, and the reason.

use crate::{
    advise::{
        apply,
        args::AdviseArgs,
        candidates::{candidates, words},
        choice::{Rated, choose, is_worth, rate, reason},
        measure,
        plan::{Basis, basis, workload},
        present::Present,
    },
    predict::{
        costs::Costs,
        load::{Direction, Workload},
        shape::Shape,
    },
};

/// An advice.
pub struct Advice {
    /// The job.
    pub workload: Workload,
    /// The model.
    pub basis: Basis,
    /// All candidates.
    pub all: Vec<Rated>,
    /// Index of the recommended one.
    pub mark: usize,
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
}

impl Advice {
    /// Checks the options, and chooses a layout.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(args: &AdviseArgs) -> Result<Advice, String> {
        let (workload, basis) = (workload(args)?, basis(args)?);
        measure::check(args, &workload, &basis)?;
        let costs: Vec<(Direction, &Costs)> = basis.costs.iter().map(|(of, costs)| (*of, costs)).collect();
        let rated = |shape: &Shape| rate(&workload, shape, basis.osts, &costs);
        let all: Vec<Rated> = candidates(&workload, basis.osts).iter().map(rated).collect();
        let mark = choose(&all).ok_or("there is no OST")?;
        let present = basis.system.as_ref().map(|_| Present::of(&args.path, &workload, basis.osts));
        let loses = present.and_then(|present| present.loses);
        if let (Some(what), true) = (loses, args.apply) {
            let path = args.path.display();
            return Err(format!(
                "--apply: {path} has {what}, which the recommended layout lacks: set a layout with lfs"
            ));
        }
        let now = present.and_then(|present| present.shape).as_ref().map(rated);
        let is_unknown = present.is_some() && now.is_none();
        let (before, chosen) = (now.as_ref().unwrap_or(&all[0]), &all[mark]);
        let reason = match is_unknown {
            true => {
                "The bytes have no objects, or are on the MDT, which the model does not know: nothing is recommended."
                    .into()
            }
            false => reason(before, chosen),
        };
        let layout = words(&chosen.shape);
        let place = if present.is_some() { args.path.display().to_string() } else { "DIRECTORY".into() };
        let changes = !is_unknown && is_worth(before, chosen);
        let command = changes.then(|| apply::command(&args.path, &layout, &place));
        Ok(Advice { workload, basis, all, mark, now, loses, layout, command, reason })
    }

    /// Returns the recommended layout.
    pub fn chosen(&self) -> &Rated {
        &self.all[self.mark]
    }

    /// Returns the rate with the recommended layout, divided by that with the present one.
    pub fn gain(&self) -> Option<f64> {
        self.now.as_ref().map(|now| now.seconds / self.chosen().seconds)
    }
}
