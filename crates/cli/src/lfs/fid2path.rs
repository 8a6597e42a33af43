//! `lfs fid2path`: prints the paths of a FID.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sheen_wire::{Errno, Fid, Result, control};

use super::{
    getopt::{self, Item, Value},
    numbers::parse_unsigned,
    tool::{Tool, keep_first, text},
    usage,
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "0cfhl:n",
    long: &[
        ("print0", Value::No, "0"),
        ("print-link", Value::No, "c"),
        ("print-fid", Value::No, "f"),
        ("help", Value::No, "h"),
        ("link", Value::Required, "l"),
        ("name", Value::No, "n"),
    ],
};

/// The options of a call.
#[derive(Default)]
struct Fid2pathOptions {
    end_with_nul: bool,
    print_link: bool,
    print_fid: bool,
    /// Only the link of this number.
    link: Option<u64>,
    /// Only the last component of each path.
    name: bool,
}

/// The mount to ask, and the prefix that is printed before each path.
struct Root {
    mount: PathBuf,
    prefix: Vec<u8>,
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let mut asked = Fid2pathOptions::default();
    let mut operands = Vec::new();
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "h", .. } => return tool.help(usage::FID2PATH),
            Item::Option { id, value, .. } => match id {
                "0" => asked.end_with_nul = true,
                "c" => asked.print_link = true,
                "f" => asked.print_fid = true,
                "n" => asked.name = true,
                _ => {
                    let value = value.unwrap_or_default();
                    asked.link = parse_unsigned(text(&value));
                    if asked.link.is_none() {
                        let wrong = format_args!("lfs fid2path: invalid linkno '{}'", value.display());
                        return tool.usage(usage::FID2PATH, wrong);
                    }
                }
            },
            Item::Operand(operand) => operands.push(operand),
            Item::Unrecognized(arg) => {
                let wrong = format_args!("lfs fid2path: unrecognized option '{}'", arg.display());
                return tool.usage(usage::FID2PATH, wrong);
            }
        }
    }
    let Some((device, fids)) = operands.split_first().filter(|(_, fids)| !fids.is_empty()) else {
        return tool.usage(usage::FID2PATH, format_args!("Usage: lfs fid2path FSNAME|ROOT FID..."));
    };
    let Some(root) = find_root(tool, device) else {
        let e = Errno::ENODEV;
        tool.complain(format_args!("lfs fid2path: cannot resolve mount point for '{}': {e}", device.display()));
        return e.0;
    };
    let mut code = 0;
    for given in fids {
        let Ok(fid) = text(given).parse::<Fid>() else {
            tool.complain(format_args!("lfs fid2path: invalid FID '{}'", given.display()));
            keep_first(&mut code, Errno::EINVAL);
            continue;
        };
        if let Err(e) = fid2path(tool, &root, fid, &asked) {
            let (device, given) = (device.display(), given.display());
            tool.complain(format_args!("lfs fid2path: cannot find {device} {given}: {e}"));
            keep_first(&mut code, e);
        }
    }
    code
}

/// Finds the mount of an absolute path or of a file system's name. For a path, the mount point is
/// printed before each result.
fn find_root(tool: &mut Tool, device: &OsStr) -> Option<Root> {
    if Path::new(device).is_absolute() {
        let mount = PathBuf::from(tool.mount_of(Path::new(device)).ok()?.mountpoint);
        let mut prefix = mount.as_os_str().as_bytes().to_vec();
        if prefix.last() != Some(&b'/') {
            prefix.push(b'/');
        }
        return Some(Root { mount, prefix });
    }
    // If there is none, the caller reports that.
    tool.mount_named("fid2path", device).map(|mount| Root { mount, prefix: Vec::new() })
}

fn fid2path(tool: &mut Tool, root: &Root, fid: Fid, asked: &Fid2pathOptions) -> Result<()> {
    let value = tool.fs.get(&root.mount, &format!("{}{fid}", control::PATHS_PREFIX)).map_err(|e| match e {
        Errno::ENODATA => Errno::ENOENT,
        e => e,
    })?;
    let paths = control::decode_paths(&value);
    if paths.is_empty() {
        return Err(Errno::ENOENT);
    }
    // As in Lustre: a link number that does not exist prints the first path.
    let only = asked.link.map(|n| usize::try_from(n).ok().filter(|n| *n < paths.len()).unwrap_or(0));
    for (i, path) in paths.iter().enumerate().filter(|(i, _)| only.is_none_or(|only| only == *i)) {
        if asked.print_fid {
            tool.print(format_args!("{fid} "));
        }
        if asked.print_link {
            // As in Lustre: the number of the next link.
            tool.print(format_args!("{} ", (i + 1).min(paths.len() - 1)));
        }
        // The root's path is a slash, even after the slash of the mount point.
        let path = if path.is_empty() { &b"/"[..] } else { path };
        if asked.name {
            tool.print_bytes(path.rsplit(|b| *b == b'/').next().unwrap_or(path));
        } else {
            tool.print_bytes(&root.prefix);
            tool.print_bytes(path);
        }
        tool.print_bytes(if asked.end_with_nul { b"\0" } else { b"\n" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};

    #[test]
    fn fid2path_prints_paths_like_lustre() {
        let mut fake = Fake::new("/mnt/c1");
        let mut paths = |fid: &str, value: &[u8]| fake.attribute("/mnt/c1", &format!("sheen.paths.{fid}"), value);
        paths("[0x200000402:0x1b9:0x0]", b"u/fA\0u/fD/link\0");
        paths("[0x240000402:0x3d:0x0]", b"u/fD\0");
        paths("[0x200000007:0x1:0x0]", b"\0");
        for case in [
            "$ lfs fid2path /mnt/c1 [0x200000402:0x1b9:0x0]\n[exit 0]\n--- stdout\n/mnt/c1/u/fA\n/mnt/c1/u/fD/link\n",
            "$ lfs fid2path lustre [0x240000402:0x3d:0x0]\n[exit 0]\n--- stdout\nu/fD\n",
            "$ lfs fid2path -c /mnt/c1 [0x200000402:0x1b9:0x0]\n[exit 0]\n--- stdout
1 /mnt/c1/u/fA
1 /mnt/c1/u/fD/link
",
            "$ lfs fid2path --link 1 /mnt/c1 [0x200000402:0x1b9:0x0]\n[exit 0]\n--- stdout\n/mnt/c1/u/fD/link\n",
            "$ lfs fid2path --link 9 /mnt/c1 [0x200000402:0x1b9:0x0]\n[exit 0]\n--- stdout\n/mnt/c1/u/fA\n",
            "$ lfs fid2path -f /mnt/c1 [0x200000402:0x1b9:0x0]\n[exit 0]\n--- stdout
[0x200000402:0x1b9:0x0] /mnt/c1/u/fA
[0x200000402:0x1b9:0x0] /mnt/c1/u/fD/link
",
            "$ lfs fid2path -n /mnt/c1 0x240000402:0x3d:0x0\n[exit 0]\n--- stdout\nfD\n",
            "$ lfs fid2path --rec 0 /mnt/c1 [0x200000402:0x1b9:0x0]\n[exit 4]\n--- stdout
Resolve the full path(s) for given FID(s). For a specific hardlink specify link number <linkno>.
usage: fid2path [--print0|-0] [--print-fid|-f] [--print-link|-c] [--link|-l <linkno>] [--name|-n] <fsname|root> <fid>...
--- stderr
lfs fid2path: unrecognized option '--rec'
",
            "$ lfs fid2path /mnt/c1 [0x200000402:0x1b9:0x0] 0x240000402:0x3d:0x0\n[exit 0]\n--- stdout
/mnt/c1/u/fA
/mnt/c1/u/fD/link
/mnt/c1/u/fD
",
            "$ lfs fid2path . [0x200000402:0x1b9:0x0]\n[exit 19]\n--- stderr
lfs fid2path: cannot resolve mount point for '.': No such device
",
            "$ lfs fid2path /mnt/c1 [0x200000402:0xfffff:0x0]\n[exit 2]\n--- stderr
lfs fid2path: cannot find /mnt/c1 [0x200000402:0xfffff:0x0]: No such file or directory
",
            "$ lfs fid2path /mnt/c1 0x200000402:0xfffff:0x0\n[exit 2]\n--- stderr
lfs fid2path: cannot find /mnt/c1 0x200000402:0xfffff:0x0: No such file or directory
",
            "$ lfs fid2path /mnt/c1 fA 0x240000402:0x3d:0x0\n[exit 22]\n--- stdout
/mnt/c1/u/fD
--- stderr
lfs fid2path: invalid FID 'fA'
",
            "$ lfs fid2path -l first /mnt/c1 0x240000402:0x3d:0x0\n[exit 4]\n--- stdout
Resolve the full path(s) for given FID(s). For a specific hardlink specify link number <linkno>.
usage: fid2path [--print0|-0] [--print-fid|-f] [--print-link|-c] [--link|-l <linkno>] [--name|-n] <fsname|root> <fid>...
--- stderr
lfs fid2path: invalid linkno 'first'
",
            "$ lfs fid2path /mnt/c1 0x200000007:0x1:0x0\n[exit 0]\n--- stdout\n/mnt/c1//\n",
        ] {
            check_case(&mut fake, case);
        }
    }
}
