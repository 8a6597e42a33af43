//! `lfs mv`: Lustre's older command for `lfs migrate -m`.

use std::{ffi::OsString, path::PathBuf};

use super::{
    getopt::{self, Item, Value},
    migrate::{Job, Names, run_on_mdts},
    tool::{Tool, text},
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
    let (mut job, mut paths) = (Job::default(), Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "h", .. } => return tool.help(USAGE),
            Item::Option { id, value, .. } => {
                let id = if id == "M" { "m" } else { id };
                if let Some(Err(_)) = job.option(id, value.as_deref().map(text)) {
                    let value = value.unwrap_or_default();
                    return tool.usage(USAGE, format_args!("lfs mv: invalid MDT index '{}'", value.display()));
                }
            }
            Item::Operand(path) => paths.push(PathBuf::from(path)),
            Item::Unrecognized(arg) => {
                return tool.usage(USAGE, format_args!("lfs mv: unrecognized option '{}'", arg.display()));
            }
        }
    }
    if job.mdts.len() != 1 {
        return tool.usage(USAGE, format_args!("lfs mv: one MDT index must be specified"));
    }
    if paths.is_empty() {
        return tool.usage(USAGE, format_args!("lfs mv: missing operand path"));
    }
    run_on_mdts(tool, "mv", Names::Operands(paths), &job, false)
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
            ("d -m -1", 0, "", ""),
            ("d -m 9", 19, "", "lfs mv: d migrate failed: No such device (19)\n"),
            (
                "d -m 1",
                95,
                "",
                "lfs mv: d migrate failed: Operation not supported (95): directories cannot be moved or restriped yet\n",
            ),
            ("nosuch -m 0", 2, "", "lfs mv: nosuch migrate failed: No such file or directory (2)\n"),
        ] {
            let said = lfs(&mut fake, &format!("lfs mv {line}"));
            assert_eq!(said, (code, out.to_owned(), err.to_owned()), "{line}");
        }
        for (line, err) in [
            ("d", "lfs mv: one MDT index must be specified\n"),
            ("-m 0", "lfs mv: missing operand path\n"),
            ("-m 0,1 d", "lfs mv: one MDT index must be specified\n"),
            ("-m x d", "lfs mv: invalid MDT index 'x'\n"),
        ] {
            let (code, out, said) = lfs(&mut fake, &format!("lfs mv {line}"));
            assert_eq!((code, said.as_str()), (4, err), "{line}");
            assert!(out.contains("usage: mv "), "{out}");
        }
    }
}
