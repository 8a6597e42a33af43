//! `sheen mount -o remount,…`: changes the flags of an existing mount.
//!
//! The kernel holds the flags; the process that serves the mount sees them change. Sheen's own
//! options (locks, threads) are fixed when the file system is mounted. A remount ignores them,
//! because mount(8) adds the options of /etc/fstab to it.

use std::{fs::File, path::Path};

use rustix::io::Errno;
use sheen_mount::MountFlags;

use crate::{
    args::MountArgs,
    commands::umount::is_mounted,
    error::{Context, Failure, Result},
    mount_options::{self, MountRequest},
};

/// Runs the command.
pub fn run(args: &MountArgs, asked: &MountRequest, mountpoint: &Path) -> Result {
    let at = mountpoint.display();
    let has = MountFlags::of(mountpoint).context("cannot read the mount table")?;
    let Some(has) = has.filter(|_| is_mounted(mountpoint)) else {
        return Err(Failure::new(format!("no Sheen file system is mounted at {at}"))
            .advise("`grep fuse.sheen /proc/mounts` lists the Sheen mounts of this host"));
    };
    let flags = mount_options::remounted(&args.options.mount_options, has);
    if args.fake {
        return Ok(());
    }
    sheen_mount::remount(mountpoint, flags, asked.bind).map_err(|e| refused(mountpoint, &e))?;
    if flags.read_only && !has.read_only {
        // The kernel does not ask a FUSE file system to write its dirty data.
        let synced = File::open(mountpoint).and_then(|root| root.sync_all());
        synced.context(format!(
            "{at} is read-only now, but some of its dirty data could not be written to the servers"
        ))?;
    }
    Ok(())
}

fn refused(mountpoint: &Path, e: &std::io::Error) -> Failure {
    let at = mountpoint.display();
    let failure = Failure::new(format!("cannot remount {at}: {e}"));
    match e.raw_os_error() {
        Some(code) if code == Errno::PERM.raw_os_error() => {
            failure.advise("only root may remount; unmount it, then mount it with the new options")
        }
        Some(code) if code == Errno::BUSY.raw_os_error() => {
            failure.advise("files are open for writing; stop the programs that have them open, then try again")
        }
        _ => failure,
    }
}
