//! The advice: all candidates, the recommended layout with the reason, and the RPC parameters.

use sheen_layout::{PROGRESSIVE_ON_MDT, PROGRESSIVE_OPTIONS};

use crate::{
    advise::{
        apply,
        args::AdviseArgs,
        candidates::{Common, candidates, words},
        choice::{Rated, choose, is_worth, rate, reason},
        measure, mount_rpcs,
        plan::{Basis, Job, basis, job},
        present,
        rpcs::RpcAdvice,
    },
    output::Outputs,
    predict::load::Workload,
    size::with_kib,
    stats::counted,
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
    /// about small files, of which the model says nothing. `may`: nothing forbids a layout.
    fn of(best: usize, are_small: bool, may: bool) -> Recommended {
        match (are_small, may) {
            (_, false) => Recommended::Nothing,
            (true, true) => Recommended::DefaultLayout,
            (false, true) => Recommended::Candidate(best),
        }
    }

    /// Returns the arguments of `lfs` for the layout; none if nothing is recommended.
    fn layout(self, all: &[Rated], common: &Common) -> Vec<String> {
        match self {
            Recommended::Candidate(index) => words(&all[index].shape, common),
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
    /// Arguments of `lfs` for the recommended layout.
    pub layout: Vec<String>,
    /// The command that sets it; `None`: a change is not worth it.
    pub command: Option<String>,
    /// The reason in a sentence.
    pub reason: String,
    /// Sentences on the pool and the mirrors of the recommended layout.
    pub notes: Vec<String>,
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
        mount_rpcs::check(args)?;
        let (job, outputs) = job(args)?;
        let basis = basis.only(&job.directions)?;
        measure::check(args, &job.workload, &basis)?;
        Ok((Advice::for_job(args, basis, job)?, outputs))
    }

    /// Chooses a layout for a job.
    fn for_job(args: &AdviseArgs, basis: Basis, job: Job) -> Result<Advice, String> {
        let Job { workload, are_small, observed, warning, .. } = job;
        let shapes = candidates(&workload, basis.site.osts, basis.common.mirrors);
        let all: Vec<Rated> = shapes.iter().map(|shape| rate(&workload, shape, &basis.site)).collect();
        let best = choose(&all).ok_or("there is no OST")?;
        let is_real = basis.system.is_some();
        let shape = |workload: &Workload| present::shape(&args.path, workload, basis.present.osts).filter(|_| is_real);
        let now = shape(&workload).map(|shape| rate(&workload, &shape, &basis.present));
        // For new files of a directory. Those that have objects would gain little by a migration.
        let are_small = are_small && is_real && args.path.is_dir();
        let small = Workload { tasks: 1, files: true, size: PROGRESSIVE_ON_MDT, ..workload };
        let have_objects = if are_small { shape(&small).is_some() } else { !is_real || now.is_some() };
        let obstacle = obstacle(&basis, are_small, have_objects);
        let recommended = Recommended::of(best, are_small, obstacle.is_none());
        let before = now.as_ref().unwrap_or(&all[0]);
        let reason = match recommended {
            Recommended::Candidate(index) => reason(before, &all[index]),
            Recommended::DefaultLayout => {
                let most = with_kib(PROGRESSIVE_ON_MDT);
                format!("Files of at most {most} are fastest on the MDT, which returns them with their names.")
            }
            Recommended::Nothing => obstacle.unwrap_or_default(),
        };
        if are_small && args.measure {
            return Err(format!("--measure: there is no model of small files to compare with. {reason}"));
        }
        let changes = match recommended {
            Recommended::Candidate(index) => is_worth(before, &all[index]),
            Recommended::DefaultLayout => true,
            Recommended::Nothing => false,
        };
        let layout = recommended.layout(&all, &basis.common);
        let place = if is_real { args.path.display().to_string() } else { "DIRECTORY".into() };
        let command = changes.then(|| apply::command(&args.path, &layout, &place));
        // With the layout that the files will have.
        let rated = match recommended {
            Recommended::Candidate(index) if changes || now.is_none() => Some((&all[index], &basis.site)),
            _ if are_small => None,
            _ => now.as_ref().map(|now| (now, &basis.present)),
        };
        let notes = rated.map_or_else(Vec::new, |(rated, _)| notes(&basis, rated));
        let rpcs = rated.map_or(Ok(None), |(rated, site)| mount_rpcs::advise(args, &workload, rated, site));
        Ok(Advice {
            workload,
            are_small,
            observed,
            warning,
            basis,
            all,
            recommended,
            now,
            layout,
            command,
            reason,
            notes,
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

/// Returns why nothing is recommended, if that is so. `have_objects`: the present layout stores the
/// bytes in objects, or is not considered.
fn obstacle(basis: &Basis, are_small: bool, have_objects: bool) -> Option<String> {
    if let Some(what) = basis.lost {
        return Some(format!("The present layout has {what}, which no other one would have: nothing is recommended."));
    }
    let most = with_kib(PROGRESSIVE_ON_MDT);
    let lacks = match () {
        () if basis.common.mirrors > 1 => Some("has no mirrors"),
        () => basis.common.pool.as_ref().map(|_| "is in no pool"),
    };
    match (are_small, have_objects, lacks) {
        (false, false, _) => Some(UNKNOWN.to_owned()),
        (true, false, _) => {
            Some(format!("Files of at most {most} are on the MDT, where they are fastest: nothing is recommended."))
        }
        (true, true, Some(lacks)) => Some(format!(
            "Files of at most {most} are fastest on the MDT, but the default layout {lacks}: nothing is recommended."
        )),
        (true, true, None) | (false, true, _) => None,
    }
}

/// Returns sentences on the pool and the mirrors of a layout.
fn notes(basis: &Basis, rated: &Rated) -> Vec<String> {
    let Common { mirrors, pool } = &basis.common;
    let osts = counted(basis.site.osts, "OST");
    let pool = pool.as_ref().map(|pool| format!("The advice is for pool {pool}, which has {osts}."));
    let mirrored = (*mirrors > 1).then(|| {
        let resync = match rated.resync_seconds {
            Some(seconds) if basis.site.mirrors.resync => {
                format!("a resync of the others takes {seconds:.1} s more, and is part of the job")
            }
            Some(seconds) => format!("a resync of the others takes {seconds:.1} s more"),
            None => "the model lacks reads, so the time of a resync is not known".to_owned(),
        };
        format!("The layout has {mirrors} mirrors, as before. Writes go to one of them; {resync}.")
    });
    let shared = (u32::from(*mirrors) > basis.site.osts && *mirrors > 1)
        .then(|| format!("The mirrors share OSTs: {osts} for {mirrors} mirrors."));
    pool.into_iter().chain(mirrored).chain(shared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advise::choice::Site,
        predict::{costs::Costs, load::Direction, mirrors::Mirrors, shape::Shape},
    };

    fn basis_with(common: Common, lost: Option<&'static str>) -> Basis {
        let costs = vec![(Direction::Write, Costs::TYPICAL)];
        let mirrors = Mirrors { count: common.mirrors, ..Mirrors::ONE };
        let site = Site { osts: 4, costs, mirrors };
        Basis {
            name: String::new(),
            present: site.clone(),
            site,
            left_out: Vec::new(),
            system: None,
            published: None,
            common,
            lost,
            warning: None,
        }
    }

    #[test]
    fn nothing_is_recommended_for_files_on_the_mdt() {
        assert_eq!(Recommended::of(3, false, true), Recommended::Candidate(3));
        assert_eq!(Recommended::of(3, true, true), Recommended::DefaultLayout);
        for are_small in [false, true] {
            let recommended = Recommended::of(3, are_small, false);
            let layout = recommended.layout(&[], &Common::NONE);
            assert_eq!((recommended, layout), (Recommended::Nothing, Vec::new()));
        }
        let plain = basis_with(Common::NONE, None);
        assert!(obstacle(&plain, true, false).unwrap().starts_with("Files of at most 64 KiB are on the MDT"));
        assert_eq!(obstacle(&plain, false, false).as_deref(), Some(UNKNOWN));
        assert_eq!((obstacle(&plain, true, true), obstacle(&plain, false, true)), (None, None));
    }

    #[test]
    fn default_layout_replaces_neither_mirrors_nor_a_pool() {
        let mirrors = basis_with(Common { mirrors: 2, pool: None }, None);
        assert!(obstacle(&mirrors, true, true).unwrap().contains("the default layout has no mirrors"));
        let pool = basis_with(Common { mirrors: 1, pool: Some("fast".into()) }, None);
        assert!(obstacle(&pool, true, true).unwrap().contains("the default layout is in no pool"));
        assert_eq!((obstacle(&mirrors, false, true), obstacle(&pool, false, true)), (None, None));
        let lost = basis_with(Common::NONE, Some("parts in different pools"));
        assert!(obstacle(&lost, false, true).unwrap().starts_with("The present layout has parts in different pools"));
    }

    #[test]
    fn notes_name_the_pool_and_the_cost_of_a_resync() {
        let mut basis = basis_with(Common { mirrors: 2, pool: Some("fast".into()) }, None);
        basis.site.mirrors.copy = Some((Costs::TYPICAL, Costs::TYPICAL));
        let job = Workload { tasks: 1, nodes: 1, transfer: 1 << 20, block: 1 << 20, size: 1 << 30, files: false };
        let shape = Shape { stripes: 1, osts: 1, stripe_size: 1 << 20, all_osts: None };
        let of = |basis: &Basis| notes(basis, &rate(&job, &shape, &basis.site));
        let known = of(&basis);
        assert_eq!(known[0], "The advice is for pool fast, which has 4 OSTs.");
        assert!(known[1].starts_with("The layout has 2 mirrors, as before.") && known[1].ends_with(" s more."));
        basis.site.mirrors.resync = true;
        assert!(of(&basis)[1].ends_with(" s more, and is part of the job."));
        basis.site.mirrors.copy = None;
        assert!(of(&basis)[1].contains("the model lacks reads"));
        basis.site.osts = 1;
        assert_eq!(of(&basis)[2], "The mirrors share OSTs: 1 OST for 2 mirrors.");
        assert!(of(&basis_with(Common::NONE, None)).is_empty());
    }
}
