//! The file system that is measured: the user's, or one of the tool's own.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    counters::Counters,
    output::named,
    overstripe::{args::OverstripeArgs, plan::Plan},
    program::Sheen,
    scratch::{self, CALLBACKS, GRANTS, OWN, Own},
    user_mounts::UserMounts,
};

/// Name of the tool's own file system.
const FSNAME: &str = "sheen";

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
    /// Names of the OSTs that are measured.
    osts: Vec<String>,
    /// Whether all of them, and all mounts, are processes of this user on this host.
    pub is_here: bool,
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
        let user = UserMounts::new(&plan.mounts)?;
        let mut is_here = user.are_here()?;
        let UserMounts { mounts, fsname, program, .. } = user;
        let osts = names_of(plan, &fsname);
        for ost in &osts {
            is_here &= program.get_param(&format!("obdfilter.{ost}.uuid"))?.is_some();
        }
        Ok(System { mounts, dir: PathBuf::new(), program, fsname, osts, is_here, own: None })
    }

    fn own(args: &OverstripeArgs, plan: &Plan) -> io::Result<System> {
        let osts = plan.osts.iter().max().map_or(1, |index| *index as usize + 1);
        args.scratch.check_space(plan.largest())?;
        let own = Own::up(&args.scratch, "overstripe", osts, plan.nodes() as usize)?;
        let cluster = &own.cluster;
        Ok(System {
            mounts: cluster.mounts.clone(),
            dir: PathBuf::new(),
            program: cluster.sheen.clone(),
            fsname: FSNAME.into(),
            osts: names_of(plan, FSNAME),
            is_here: true,
            own: Some(own),
        })
    }

    /// Whether it is the tool's own.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns the counters of the OSTs; `None` if they cannot be asked.
    ///
    /// # Errors
    /// An OST lacks one of them.
    pub fn counters(&self) -> io::Result<Option<Counters>> {
        if !self.is_here {
            return Ok(None);
        }
        let of_locks = self.osts.iter().map(|ost| format!("ldlm.namespaces.filter-{ost}_UUID.stats"));
        let patterns: Vec<String> = self.stats().chain(of_locks).collect();
        let counters = self.program.counters(&patterns.iter().map(String::as_str).collect::<Vec<&str>>())?;
        match [GRANTS, CALLBACKS, OWN].into_iter().find(|name| !counters.has(name)) {
            Some(name) => Err(io::Error::other(format!("the locks of the OSTs have no counter {name}"))),
            None => Ok(Some(counters)),
        }
    }

    fn stats(&self) -> impl Iterator<Item = String> + use<'_> {
        self.osts.iter().map(|ost| format!("obdfilter.{ost}.stats"))
    }

    /// Empties the caches of the mounts, if they are the tool's own.
    ///
    /// # Errors
    /// Of a mount.
    pub fn empty_caches(&self) -> io::Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        (0..own.cluster.mounts.len()).try_for_each(|mount| own.cluster.remount(mount))
    }

    /// Removes a directory with its content, and waits for the OSTs if they can be asked.
    ///
    /// # Errors
    /// Of the removal.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let stats: Vec<String> = self.stats().collect();
        scratch::remove(&self.program, &stats.iter().map(String::as_str).collect::<Vec<&str>>(), path)
    }
}

/// Returns the names of the OSTs that are measured.
fn names_of(plan: &Plan, fsname: &str) -> Vec<String> {
    plan.osts.iter().map(|index| format!("{fsname}-OST{index:04x}")).collect()
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
