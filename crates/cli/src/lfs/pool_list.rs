//! `lfs pool_list`: lists the pools of a file system, or the OSTs of a pool.
//!
//! The mount returns the pools (`sheen.pools`), so the output shows the present state. If the mount
//! cannot, for example because there are too many for an attribute, `lfs` asks the MGS that the
//! mount names. `lctl pool_list` and `lfs df --pool` use the same source.

#[cfg(not(test))]
mod mgs;

use std::{
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
};

use sheen_admin::System;
use sheen_wire::{
    Errno, Result,
    control::{self, MountInfo},
    mgs::{Pool, TargetKind, target_name},
};

use super::tool::{EXIT_USAGE, Tool, text};

/// Returns the pools of a mount's file system.
pub(super) fn pools_of(tool: &Tool, mount: &MountInfo) -> Result<Vec<Pool>> {
    let said = tool.fs.get(Path::new(&mount.mountpoint), control::POOLS);
    match said.ok().and_then(|text| control::decode_pools(&text)) {
        Some(pools) => Ok(pools),
        None => mgs_pools_of(mount),
    }
}

#[cfg(not(test))]
use mgs::ask as mgs_pools_of;

/// Usage of the command.
pub const USAGE: &str = "\
List pools or pool OSTs\n\
usage: pool_list <fsname>[.<pool>] | <pathname>\n\
\n\
";

/// Runs the command.
pub(super) fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let [what] = args else {
        tool.print(format_args!("{USAGE}"));
        return EXIT_USAGE;
    };
    let what = text(what);
    let found = if what.contains('/') || matches!(what, "." | "..") {
        tool.mount_of(Path::new(what)).map(|mount| (mount, None))
    } else {
        let (fsname, pool) = what.split_once('.').map_or((what, None), |(fsname, pool)| (fsname, Some(pool)));
        match mounted(tool, fsname) {
            Ok(mount) => Ok((mount, pool)),
            // As in Lustre: no message if the file system is not mounted.
            Err(e) => return e.0,
        }
    };
    let result = found.and_then(|(mount, pool)| pools_of(tool, &mount).map(|pools| (mount.fsname, pool, pools)));
    let (fsname, pool, pools) = match result {
        Ok(found) => found,
        Err(e) => return failed(tool, what, e),
    };
    let Some(name) = pool else {
        tool.print(format_args!("{}", names(&fsname, &pools)));
        return 0;
    };
    tool.print(format_args!("Pool: {what}\n"));
    match pools.iter().find(|p| p.name == name) {
        Some(pool) => {
            tool.print(format_args!("{}", members(&fsname, pool)));
            0
        }
        None => failed(tool, what, Errno::ENOENT),
    }
}

/// Runs `lctl pool_list` for its operand.
pub fn for_lctl(what: &str, out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    run(&mut Tool { fs: &System, out, err }, &[what.into()])
}

/// Formats the list of pools.
pub fn names(fsname: &str, pools: &[Pool]) -> String {
    let line = |pool: &Pool| format!("{fsname}.{}\n", pool.name);
    format!("Pools from {fsname}:\n{}", pools.iter().map(line).collect::<String>())
}

/// Formats the OSTs of a pool, one per line, in the order in which they were added.
pub fn members(fsname: &str, pool: &Pool) -> String {
    pool.osts.iter().map(|ost| format!("{}_UUID\n", target_name(fsname, TargetKind::Ost, *ost))).collect()
}

fn failed(tool: &mut Tool, what: &str, e: Errno) -> i32 {
    let said = match e {
        Errno::ENOTTY => format!("'{what}' is not on a Lustre filesystem"),
        Errno::ETIMEDOUT => format!("the MGS of '{what}' does not answer"),
        _ => format!("cannot find '{what}'"),
    };
    tool.complain(format_args!("lfs pool_list: {said}: {e} ({})", e.0));
    e.0
}

/// Returns a mount of the named file system. ENOENT: there is none. ETIMEDOUT: no mount answers,
/// which has been reported.
fn mounted(tool: &mut Tool, fsname: &str) -> Result<MountInfo> {
    let mut code = 0;
    let points = tool.responding_mounts("pool_list", control::MOUNT, Some(fsname), &mut code);
    let of = |at: PathBuf| tool.ask::<MountInfo>(&at, control::MOUNT).ok();
    let none = if code == 0 { Errno::ENOENT } else { Errno(code) };
    points.into_iter().find_map(of).ok_or(none)
}

/// Stands in for the MGS of [`super::testing::Fake`]. It has the pools of the captures, and an
/// empty one.
#[cfg(test)]
fn mgs_pools_of(mount: &MountInfo) -> Result<Vec<Pool>> {
    let pool = |name: &str, osts: &[u32]| Pool { name: name.into(), osts: osts.into() };
    match mount.fsname.as_str() {
        "lustre" => Ok(vec![pool("empty", &[]), pool("p1", &[0, 1]), pool("p2", &[3, 2])]),
        _ => Err(Errno::ENOENT),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};

    #[test]
    fn pool_list_prints_pools_like_lustre() {
        let mut fake = Fake::new("/mnt/c1");
        for what in ["lustre", "/mnt/c1", "/mnt/c1/t", "."] {
            let all = "Pools from lustre:\nlustre.empty\nlustre.p1\nlustre.p2\n";
            check_case(&mut fake, &format!("$ lfs pool_list {what}\n[exit 0]\n--- stdout\n{all}"));
        }
        for case in [
            "$ lfs pool_list lustre.p1\n[exit 0]\n--- stdout
Pool: lustre.p1
lustre-OST0000_UUID
lustre-OST0001_UUID
",
            "$ lfs pool_list lustre.p2\n[exit 0]\n--- stdout
Pool: lustre.p2
lustre-OST0003_UUID
lustre-OST0002_UUID
",
            "$ lfs pool_list lustre.empty\n[exit 0]\n--- stdout\nPool: lustre.empty\n",
            "$ lfs pool_list -v lustre.p1\n[exit 4]\n--- stdout
List pools or pool OSTs
usage: pool_list <fsname>[.<pool>] | <pathname>

",
            "$ lfs pool_list nosuch\n[exit 2]\n",
        ] {
            check_case(&mut fake, case);
        }
    }

    #[test]
    fn pool_list_reports_silent_mounts_of_that_file_system_only() {
        let mut fake = Fake::new("/mnt/c1");
        fake.stop_mount("/mnt/other", "other");
        check_case(&mut fake, "$ lfs pool_list lustre.empty\n[exit 0]\n--- stdout\nPool: lustre.empty\n");
        let named = "lfs pool_list: '/mnt/other' does not answer within 2 s and is left out: \
                     its process may be stopped, hang or wait for a server\n";
        check_case(&mut fake, &format!("$ lfs pool_list other\n[exit 110]\n--- stderr\n{named}"));
        fake.stop_mount("/mnt/again", "lustre");
        let named = named.replace("other", "again");
        let found = format!("[exit 0]\n--- stdout\nPool: lustre.empty\n--- stderr\n{named}");
        check_case(&mut fake, &format!("$ lfs pool_list lustre.empty\n{found}"));
    }

    #[test]
    fn pool_list_refuses_unknown_pool_and_foreign_path() {
        let mut fake = Fake::new("/mnt/c1");
        for case in [
            "$ lfs pool_list lustre.nosuch\n[exit 2]\n--- stdout\nPool: lustre.nosuch\n--- stderr
lfs pool_list: cannot find 'lustre.nosuch': No such file or directory (2)
",
            "$ lfs pool_list /tmp\n[exit 25]\n--- stderr
lfs pool_list: '/tmp' is not on a Lustre filesystem: Inappropriate ioctl for device (25)
",
        ] {
            check_case(&mut fake, case);
        }
    }
}
