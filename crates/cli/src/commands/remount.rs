//! `sheen mount -o remount,…`: other flags for a mount that is there.
//!
//! The kernel has the flags; the process that serves the mount sees them change. Options of Sheen's
//! own (locks, threads) are decided when it is mounted: a remount, to which mount(8) adds what
//! /etc/fstab says, leaves them as they are.

use std::{fs::File, path::Path};

use rustix::io::Errno;
use sheen_mount::MountFlags;

use crate::{
    args::MountArgs,
    commands::umount::is_mounted,
    error::{Context, Failure, Result},
    mount_options::{self, Asked},
};

/// Runs the command.
pub fn run(args: &MountArgs, asked: &Asked, mountpoint: &Path) -> Result {
    let at = mountpoint.display();
    let has = MountFlags::of(mountpoint).context("cannot read the mount table")?;
    let Some(has) = has.filter(|_| is_mounted(mountpoint)) else {
        return Err(Failure::new(format!("no Sheen file system is mounted at {at}"))
            .advise("`grep fuse.sheen /proc/mounts` lists what is mounted"));
    };
    let flags = mount_options::remounted(&args.options.mount_options, has);
    if args.fake {
        return Ok(());
    }
    sheen_mount::remount(mountpoint, flags, asked.bind).map_err(|e| refused(mountpoint, &e))?;
    if flags.read_only && !has.read_only {
        // The kernel does not tell a FUSE file system to write what it keeps.
        let synced = File::open(mountpoint).and_then(|root| root.sync_all());
        synced.context(format!("{at} is read-only now, but not all that was written before is on the servers"))?;
    }
    Ok(())
}

fn refused(mountpoint: &Path, e: &std::io::Error) -> Failure {
    let at = mountpoint.display();
    let failure = Failure::new(format!("cannot remount {at}: {e}"));
    match e.raw_os_error() {
        Some(code) if code == Errno::PERM.raw_os_error() => {
            failure.advise("only root may; unmount it, and mount it with the other options")
        }
        Some(code) if code == Errno::BUSY.raw_os_error() => {
            failure.advise("files are open for writing; end the programs that have them open")
        }
        _ => failure,
    }
}
