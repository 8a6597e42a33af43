//! `lfs flushctx`: in Lustre, drops the Kerberos security contexts of the user.
//!
//! Sheen's mounts use no Kerberos tickets, so there is nothing to drop.

use std::{ffi::OsString, path::Path};

use super::{
    getopt::{self, Item, Value},
    tool::{Tool, keep_first},
};

const OPTIONS: getopt::Spec = getopt::Spec { short: "hkr", long: &[("help", Value::No, "h")] };

/// `flushctx`
pub const USAGE: &str = "\
Flush security context for current user.\n\
usage: flushctx [-k] [-r] [MOUNTPOINT ...]\n\
";

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut tickets, mut paths) = (false, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "h", .. } => return tool.help(USAGE),
            Item::Option { id: "k", .. } => tickets = true,
            Item::Option { .. } => {} // there are no keys to reap
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return tool.usage(USAGE, format_args!("lfs flushctx: unrecognized option '{}'", arg.display()));
            }
        }
    }
    let mut code = 0;
    for path in &paths {
        if let Err(e) = tool.mount_of(Path::new(path)) {
            let path = path.display();
            tool.complain(format_args!("lfs flushctx: '{path}' is not on a Lustre filesystem: {e} ({})", e.0));
            keep_first(&mut code, e);
        }
    }
    if tickets && code == 0 {
        tool.complain(format_args!("lfs flushctx: mounts use no Kerberos tickets; kdestroy(1) destroys them"));
    }
    code
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};

    #[test]
    fn flushctx_checks_paths_and_flushes_nothing() {
        let mut fake = Fake::new("/mnt/c1");
        for line in ["", " /mnt/c1", " -r /mnt/c1/t"] {
            check_case(&mut fake, &format!("$ lfs flushctx{line}\n[exit 0]\n"));
        }
        check_case(
            &mut fake,
            "$ lfs flushctx -k\n[exit 0]\n--- stderr\nlfs flushctx: mounts use no Kerberos tickets; kdestroy(1) destroys them\n",
        );
        check_case(
            &mut fake,
            "$ lfs flushctx -k /tmp\n[exit 25]\n--- stderr
lfs flushctx: '/tmp' is not on a Lustre filesystem: Inappropriate ioctl for device (25)
",
        );
        check_case(
            &mut fake,
            &format!(
                "$ lfs flushctx -x\n[exit 4]\n--- stdout\n{}--- stderr\nlfs flushctx: unrecognized option '-x'\n",
                super::USAGE
            ),
        );
    }
}
