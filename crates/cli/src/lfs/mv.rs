//! `lfs mv`: Lustre's older command for `lfs migrate -m`.

use std::{ffi::OsString, path::Path};

use sheen_wire::Errno;

use super::{
    getopt::{self, Item, Value},
    migrate,
    setdirstripe::mdt_list,
    tool::{Tool, keep_first, text},
};

/// `mv`
pub const USAGE: &str = "\
To move directories between MDTs. This command is deprecated, use \"migrate\" instead.\n\
usage: mv <directory|filename> [--mdt-index|-m MDT_INDEX] [--verbose|-v]\n\
";

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "hm:M:v",
    long: &[("help", Value::No, "h"), ("mdt-index", Value::Required, "m"), ("verbose", Value::No, "v")],
};

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut mdt, mut verbose, mut paths) = (None, false, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "h", .. } => return tool.help(USAGE),
            Item::Option { id: "v", .. } => verbose = true,
            Item::Option { value, .. } => {
                let value = value.unwrap_or_default();
                let Some(&[index]) = mdt_list(text(&value), 0).as_deref().filter(|list| **list != [-1_i64]) else {
                    return tool.usage(USAGE, format_args!("lfs mv: invalid MDT index '{}'", value.display()));
                };
                mdt = Some(index);
            }
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return tool.usage(USAGE, format_args!("lfs mv: unrecognized option '{}'", arg.display()));
            }
        }
    }
    let Some(mdt) = mdt else { return tool.usage(USAGE, format_args!("lfs mv: MDT index must be specified")) };
    if paths.is_empty() {
        return tool.usage(USAGE, format_args!("lfs mv: missing operand path"));
    }
    let mut code = 0;
    for path in &paths {
        match migrate::to_mdts(tool, Path::new(path), &[mdt], false) {
            Ok(()) if verbose => {
                tool.print_bytes(path.as_encoded_bytes());
                tool.print(format_args!("\n"));
            }
            Ok(()) => {}
            Err(e) => {
                let why = if e == Errno::EOPNOTSUPP { ": directories cannot be moved yet" } else { "" };
                tool.complain(format_args!("lfs mv: cannot migrate '{}' to MDT{mdt:04x}: {e}{why}", path.display()));
                keep_first(&mut code, e);
            }
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, lfs};

    #[test]
    fn mv_accepts_the_present_mdt_and_refuses_others() {
        let mut fake = Fake::new("/mnt/c1");
        fake.dir("d");
        fake.attribute("d", "sheen.mdt", b"0");
        for (line, code, out, err) in [
            ("d -m 0", 0, "", ""),
            ("--mdt-index=0 -v d", 0, "d\n", ""),
            ("-M 0 d", 0, "", ""),
            ("d -m 9", 19, "", "lfs mv: cannot migrate 'd' to MDT0009: No such device\n"),
            (
                "d -m 1",
                95,
                "",
                "lfs mv: cannot migrate 'd' to MDT0001: Operation not supported: directories cannot be moved yet\n",
            ),
            ("nosuch -m 0", 2, "", "lfs mv: cannot migrate 'nosuch' to MDT0000: No such file or directory\n"),
        ] {
            let said = lfs(&mut fake, &format!("lfs mv {line}"));
            assert_eq!(said, (code, out.to_owned(), err.to_owned()), "{line}");
        }
        for (line, err) in [
            ("d", "lfs mv: MDT index must be specified\n"),
            ("-m 0", "lfs mv: missing operand path\n"),
            ("-m 0,1 d", "lfs mv: invalid MDT index '0,1'\n"),
            ("-m x d", "lfs mv: invalid MDT index 'x'\n"),
        ] {
            let (code, out, said) = lfs(&mut fake, &format!("lfs mv {line}"));
            assert_eq!((code, said.as_str()), (4, err), "{line}");
            assert!(out.contains("usage: mv "), "{out}");
        }
    }
}
