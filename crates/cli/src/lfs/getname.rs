//! `lfs getname`: prints the names of mounts that occur in parameter names.

use std::{ffi::OsString, path::Path};

use sheen_wire::control::{self, MountInfo};

use super::{
    getopt::{self, Item, Value},
    tool::{Tool, keep_first},
    usage,
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "hinu",
    long: &[
        ("help", Value::No, "h"),
        ("instance", Value::No, "i"),
        ("fsname", Value::No, "n"),
        ("uuid", Value::No, "u"),
    ],
};

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let mut what = "";
    let mut paths = Vec::new();
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "h", .. } => return tool.help(usage::GETNAME),
            Item::Option { id, .. } => what = id,
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return tool.usage(usage::GETNAME, format_args!("lfs: unrecognized option '{}'", arg.display()));
            }
        }
    }
    // A single path is not repeated in the output.
    let named = paths.len() != 1;
    let mut code = 0;
    if paths.is_empty() {
        paths = tool
            .responding_mounts("getname", control::MOUNT, None, &mut code)
            .into_iter()
            .map(OsString::from)
            .collect();
    }
    for path in paths {
        match tool.mount_of(Path::new(&path)) {
            Ok(info) if named => tool.print(format_args!("{} {}\n", name(&info, what), path.display())),
            Ok(info) => tool.print(format_args!("{}\n", name(&info, what))),
            Err(e) => {
                tool.complain(format_args!("lfs getname: cannot get lov name: {e} ({})", e.0));
                tool.complain(format_args!("cannot get instance for '{}': {e}", path.display()));
                keep_first(&mut code, e);
            }
        }
    }
    code
}

fn name(info: &MountInfo, what: &str) -> String {
    match what {
        "i" => info.instance.clone(),
        "n" => info.fsname.clone(),
        "u" => info.client_uuid.clone(),
        _ => format!("{}-{}", info.fsname, info.instance),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};

    #[test]
    fn getname_prints_names_like_lustre() {
        let mut fake = Fake::new("/mnt/c1");
        for case in [
            "$ lfs getname\n[exit 0]\n--- stdout\nlustre-ff3298de21e05800 /mnt/c1\n",
            "$ lfs getname /mnt/c1\n[exit 0]\n--- stdout\nlustre-ff3298de21e05800\n",
            "$ lfs getname -n /mnt/c1\n[exit 0]\n--- stdout\nlustre\n",
            "$ lfs getname -i /mnt/c1\n[exit 0]\n--- stdout\nff3298de21e05800\n",
            "$ lfs getname -u /mnt/c1\n[exit 0]\n--- stdout\na0804f4e-2ee2-4146-8b63-d3b44aeb271d\n",
            "$ lfs getname /tmp\n[exit 25]\n--- stderr
lfs getname: cannot get lov name: Inappropriate ioctl for device (25)
cannot get instance for '/tmp': Inappropriate ioctl for device
",
            "$ lfs getname -U /mnt/c1\n[exit 4]\n--- stdout
list instances and specified mount points [for specified path only]
Usage: getname [--help|-h] [--instance|-i] [--fsname|-n] [--uuid|-u]
\t\t [PATH ...]
--- stderr
lfs: unrecognized option '-U'
",
        ] {
            check_case(&mut fake, case);
        }
        fake.stop_mount("/mnt/stopped", "lustre");
        check_case(
            &mut fake,
            "$ lfs getname\n[exit 110]\n--- stdout\nlustre-ff3298de21e05800 /mnt/c1\n--- stderr
lfs getname: '/mnt/stopped' does not answer within 2 s and is left out: its process may be stopped, hang or wait for a server
",
        );
    }
}
