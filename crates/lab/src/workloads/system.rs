//! The file system that is measured: the user's, or one of the tool's own.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    machine,
    output::named,
    processes,
    program::Sheen,
    run_dir::RunDir,
    scratch::{self, Own, base_in_memory},
    size::human,
    user_mounts::UserMounts,
    workloads::args::WorkloadsArgs,
};

/// Name of directories of this tool.
const NAME: &str = "workloads";

/// A file system.
pub struct System {
    /// Its mounts.
    pub mounts: Vec<PathBuf>,
    /// The directory of the measured files on each mount.
    pub dirs: Vec<PathBuf>,
    /// Number of its OSTs.
    pub osts: u64,
    /// The program that reaches its processes.
    pub program: Sheen,
    /// Type and source of its mounts.
    pub described: Option<[String; 2]>,
    place: Place,
}

/// Owner of a file system.
enum Place {
    /// The tool.
    Own(Own),
    /// The user. The run has a directory in memory besides.
    User { user: UserMounts, run_dir: RunDir, is_here: bool },
}

impl System {
    /// Takes the user's mounts, or sets up a file system. `largest`: bytes of the largest file.
    ///
    /// # Errors
    /// A mount is not one of Sheen, the file does not fit, or the file system cannot be set up.
    pub fn new(args: &WorkloadsArgs, largest: u64) -> io::Result<System> {
        if !args.mounts.is_empty() {
            return System::of_user(args, largest);
        }
        args.scratch.check_space(largest)?;
        let own = Own::up(&args.scratch, NAME, args.osts.into(), args.nodes.into())?;
        let mounts = own.cluster.mounts.clone();
        Ok(System {
            dirs: mounts.clone(),
            osts: args.osts.into(),
            program: own.cluster.sheen.clone(),
            described: machine::mount_of(&mounts[0]),
            mounts,
            place: Place::Own(own),
        })
    }

    fn of_user(args: &WorkloadsArgs, largest: u64) -> io::Result<System> {
        let user = UserMounts::new(&args.mounts)?;
        let mounts = user.mounts.clone();
        let osts = processes::osts(&mounts[0])?.len() as u64;
        let space = rustix::fs::statvfs(&mounts[0])?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if largest > free {
            let [largest, free] = [largest, free].map(human);
            let text = format!("the largest file takes {largest}, and {free} are free: choose larger factors");
            return Err(io::Error::other(text));
        }
        let run_dir = RunDir::claim(&base_in_memory(), NAME, &std::env::current_exe()?)?;
        let name = format!("{NAME}.{}", std::process::id());
        let dirs: Vec<PathBuf> = mounts.iter().map(|mount| mount.join(&name)).collect();
        let (program, is_here) = (user.program.clone(), user.are_here()?);
        fs::create_dir(&dirs[0]).map_err(|e| named("create", &dirs[0], &e))?;
        let described = machine::mount_of(&mounts[0]);
        Ok(System { mounts, dirs, osts, program, described, place: Place::User { user, run_dir, is_here } })
    }

    /// Returns a directory of the run, outside of the file system.
    pub fn run_dir(&self) -> &Path {
        match &self.place {
            Place::Own(own) => own.dir(),
            Place::User { run_dir, .. } => run_dir.dir(),
        }
    }

    /// Returns a warning if the caches of the mounts cannot be emptied.
    pub fn warning(&self) -> Option<&'static str> {
        let is_hidden = matches!(self.place, Place::User { is_here: false, .. });
        is_hidden.then_some("not all mounts are processes of yours: reads may come from the caches of the others")
    }

    /// Empties the clients' caches. The tool's own mounts are made anew.
    ///
    /// # Errors
    /// Of a mount.
    pub fn empty_caches(&self) -> io::Result<()> {
        match &self.place {
            Place::Own(own) => (0..self.mounts.len()).try_for_each(|mount| own.cluster.remount(mount)),
            Place::User { user, is_here: true, .. } => user.empty_caches(),
            Place::User { .. } => Ok(()),
        }
    }

    /// Removes a file or directory, and waits for the OSTs if they can be asked.
    ///
    /// # Errors
    /// Of the removal.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        match &self.place {
            Place::Own(own) => own.cluster.remove(path),
            Place::User { user, .. } => {
                let stats = format!("obdfilter.{}-OST*.stats", user.fsname);
                scratch::remove(&self.program, &[stats.as_str()], path)
            }
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if matches!(self.place, Place::User { .. }) {
            // Also after a failure or an interruption.
            let _ = fs::remove_dir_all(&self.dirs[0]);
        }
    }
}
