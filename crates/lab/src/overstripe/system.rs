//! The file system that is measured: the user's, or one of the tool's own.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    counters::Counters,
    output::named,
    overstripe::{args::OverstripeArgs, plan::Plan},
    processes,
    program::Sheen,
    scratch::{self, CALLBACKS, GRANTS, OWN, Own},
};

/// A file system.
pub struct System {
    /// Its mounts.
    pub mounts: Vec<PathBuf>,
    /// Directory of the measured files, in the first mount.
    pub dir: PathBuf,
    /// The program that reaches its processes.
    pub program: Sheen,
    /// Its name.
    pub fsname: String,
    own: Option<Own>,
}

/// Counters of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Explained {
    /// Locks granted to clients.
    pub grants: f64,
    /// Blocking callbacks sent to clients.
    pub callbacks: f64,
    /// Locks that the OSTs took for themselves.
    pub own: f64,
    /// MiB written.
    pub mib: f64,
}

impl System {
    /// Takes the user's mounts, or sets up a file system. Creates the directory of the files.
    ///
    /// # Errors
    /// A mount is not one of Sheen; the file system cannot be set up.
    pub fn new(args: &OverstripeArgs, plan: &Plan) -> io::Result<System> {
        let mut system = if plan.mounts.is_empty() { System::own(args, plan)? } else { System::of_user(plan)? };
        system.dir = system.mounts[0].join(format!("overstripe.{}", std::process::id()));
        fs::create_dir(&system.dir).map_err(|e| named("create", &system.dir, &e))?;
        Ok(system)
    }

    fn of_user(plan: &Plan) -> io::Result<System> {
        let names = plan.mounts.iter().map(|mount| processes::mount_info(mount).map(|info| info.fsname));
        let names = names.collect::<io::Result<Vec<String>>>()?;
        if let Some(other) = names.iter().find(|name| **name != names[0]) {
            return Err(io::Error::other(format!("--mounts: {} and {other} are two file systems", names[0])));
        }
        let [dir, fsname] = [String::new(), names[0].clone()];
        Ok(System { mounts: plan.mounts.clone(), dir: dir.into(), program: Sheen::here()?, fsname, own: None })
    }

    fn own(args: &OverstripeArgs, plan: &Plan) -> io::Result<System> {
        let osts = plan.osts.iter().max().map_or(1, |index| *index as usize + 1);
        let own = Own::up(&args.scratch, "overstripe", osts, plan.nodes() as usize)?;
        let cluster = &own.cluster;
        Ok(System {
            mounts: cluster.mounts.clone(),
            dir: PathBuf::new(),
            program: cluster.sheen.clone(),
            fsname: "sheen".into(),
            own: Some(own),
        })
    }

    /// Whether it is the tool's own.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns the counters of the OSTs; `None` if no OST is a process of the user on this host.
    pub fn counters(&self) -> io::Result<Option<Counters>> {
        let patterns = [self.stats(), format!("ldlm.namespaces.filter-{}-OST*.stats", self.fsname)];
        let counters = self.program.counters(&patterns.each_ref().map(String::as_str))?;
        Ok([GRANTS, CALLBACKS, OWN].iter().all(|name| counters.has(name)).then_some(counters))
    }

    fn stats(&self) -> String {
        format!("obdfilter.{}-OST*.stats", self.fsname)
    }

    /// Removes a directory with its content, and waits for the OSTs if they can be asked.
    ///
    /// # Errors
    /// Of the removal.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        scratch::remove(&self.program, &[&self.stats()], path)
    }
}

impl Explained {
    /// Returns what has been counted between two times.
    pub fn between(before: Option<Counters>, after: Option<Counters>) -> Option<Explained> {
        let counters = after?.since(&before?);
        let count = |name: &str| counters.get(name).count as f64;
        Some(Explained {
            grants: count(GRANTS),
            callbacks: count(CALLBACKS),
            own: count(OWN),
            mib: counters.get("write_bytes").sum as f64 / f64::from(1 << 20),
        })
    }
}
