//! `lfs data_version`: prints a number that changes whenever a file's data changes.

use std::{ffi::OsString, path::Path};

use sheen_wire::{Errno, ioctl};

use super::{
    getopt::{self, Item, Value},
    tool::{Tool, keep_first},
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "hnrsw",
    long: &[
        ("help", Value::No, "h"),
        ("nosync", Value::No, "n"),
        ("read", Value::No, "r"),
        ("read-lock", Value::No, "r"),
        ("set-hsm", Value::No, "s"),
        ("write", Value::No, "w"),
        ("write-lock", Value::No, "w"),
    ],
};

/// `data_version`
pub const USAGE: &str = "\
Display file data version for a given path.\n\
usage: data_version [--nosync|-n] [--read|-r] [--write|-w] FILENAME ...\n\
";

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut flush, mut paths) = (ioctl::READ_FLUSH, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "n", .. } => flush = 0,
            Item::Option { id: "r", .. } => flush = ioctl::READ_FLUSH,
            Item::Option { id: "w", .. } => flush = ioctl::WRITE_FLUSH,
            Item::Option { id: "s", .. } => {
                let e = Errno::EOPNOTSUPP;
                tool.complain(format_args!("lfs data_version: --set-hsm: Sheen has no HSM: {e} ({})", e.0));
                return e.0;
            }
            Item::Option { .. } => return tool.help(USAGE),
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return tool.usage(USAGE, format_args!("lfs data_version: unrecognized option '{}'", arg.display()));
            }
        }
    }
    if paths.is_empty() {
        return tool.usage(USAGE, format_args!("lfs data_version: FILE must be specified"));
    }
    let mut code = 0;
    for path in &paths {
        match tool.fs.data_version(Path::new(path), flush) {
            Ok(version) => tool.print(format_args!("{version}\n")),
            Err(e) => {
                tool.complain(format_args!("lfs data_version: cannot get version for '{}': {e}", path.display()));
                keep_first(&mut code, e);
            }
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case, lfs};

    #[test]
    fn data_version_prints_versions_and_refuses_bad_calls() {
        let mut fake = Fake::new("/mnt/c1");
        fake.file("c2", "[0x200000402:0x1:0x0]", None);
        for options in ["", "-n ", "-r ", "--write-lock ", "--nosync "] {
            check_case(&mut fake, &format!("$ lfs data_version {options}c2\n[exit 0]\n--- stdout\n0\n"));
        }
        assert_eq!(fake.advised(), [1, 0, 1, 2, 0].map(|flush| format!("c2 data version, flush {flush}")));
        check_case(
            &mut fake,
            "$ lfs data_version nosuch c2\n[exit 2]\n--- stdout\n0\n--- stderr
lfs data_version: cannot get version for 'nosuch': No such file or directory
",
        );
        for (line, what) in [
            ("lfs data_version", "lfs data_version: FILE must be specified\n"),
            ("lfs data_version -x c2", "lfs data_version: unrecognized option '-x'\n"),
        ] {
            let (code, out, err) = lfs(&mut fake, line);
            assert_eq!((code, out.as_str(), err.as_str()), (4, super::USAGE, what));
        }
        assert_eq!(lfs(&mut fake, "lfs data_version -s c2").0, 95);
    }
}
