//! `lfs group_lock`: runs a command while the mount holds a group lock on a file, for programs that
//! do not call ioctl(2) themselves.
//!
//! For this file, the whole mount is a member of the group meanwhile. Lustre has no such command,
//! only the library call.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::Command,
};

use super::{
    getopt::{self, Item, Value},
    numbers::parse_unsigned,
    tool::{Tool, text},
    usage,
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "g:hn",
    long: &[("gid", Value::Required, "g"), ("help", Value::No, "h"), ("nonblock", Value::No, "n")],
};

/// Exit codes of shells: a command that cannot be run, a command that does not exist, and the
/// number that is added to a signal's number.
const EXIT_CANNOT_RUN: i32 = 126;
const EXIT_NOT_FOUND: i32 = 127;
const EXIT_SIGNAL: i32 = 128;

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let wrong = |tool: &mut Tool, what: &str| tool.usage(usage::GROUP_LOCK, format_args!("lfs group_lock: {what}"));
    let (mut gid, mut nonblock, mut at) = (0, false, 0);
    // The options of lfs end at the file. Later options belong to the command.
    while let Some(Item::Option { id, value, next }) = OPTIONS.parse(&args[at..]).into_iter().next()
        && args[at].as_encoded_bytes().starts_with(b"-")
    {
        let value = value.unwrap_or_default();
        match id {
            "g" => match parse_unsigned(text(&value)) {
                Some(number) if number > 0 => gid = number,
                _ => return wrong(tool, &format!("bad group id '{}'", value.display())),
            },
            "n" => nonblock = true,
            _ => return tool.help(usage::GROUP_LOCK),
        }
        at += next;
    }
    let rest = &args[at..];
    let rest = if rest.first().is_some_and(|arg| arg == "--") { &rest[1..] } else { rest };
    let [file, command @ ..] = rest else { return wrong(tool, "please give a file") };
    if file.as_encoded_bytes().starts_with(b"-") {
        return wrong(tool, &format!("unrecognized option '{}'", file.display()));
    }
    let command = if command.first().is_some_and(|arg| arg == "--") { &command[1..] } else { command };
    let [program, arguments @ ..] = command else { return wrong(tool, "please give a command to run") };
    if gid == 0 {
        return wrong(tool, "please give a group id");
    }
    let _ = tool.out.flush();
    let mut outcome = Ok(0);
    let mut work = || outcome = execute(program, arguments);
    if let Err(e) = tool.fs.in_group(Path::new(file), gid, nonblock, &mut work) {
        tool.complain(format_args!("lfs group_lock: cannot join group {gid} on '{}': {e}", file.display()));
        return e.0;
    }
    outcome.unwrap_or_else(|e| {
        tool.complain(format_args!("lfs group_lock: cannot run '{}': {e}", program.display()));
        if e.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_CANNOT_RUN }
    })
}

/// Runs a command and returns its exit code.
fn execute(program: &OsStr, arguments: &[OsString]) -> io::Result<i32> {
    let status = Command::new(program).args(arguments).status()?;
    Ok(status.code().unwrap_or_else(|| EXIT_SIGNAL + status.signal().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case, lfs};

    #[test]
    fn group_lock_runs_command_in_the_group() {
        let mut fake = Fake::new("/mnt/c1");
        fake.file("f", "[0x200000402:0x1:0x0]", None);
        check_case(&mut fake, "$ lfs group_lock -g 7 f true\n[exit 0]\n");
        check_case(&mut fake, "$ lfs group_lock --gid=0x10 -n f -- test -n ''\n[exit 1]\n");
        assert_eq!(fake.advised(), ["f group 7", "f group 16 or not at all"]);
        let (code, _, err) = lfs(&mut fake, "lfs group_lock -g 7 f /nowhere/to-be-found");
        assert!(code == 127 && err.starts_with("lfs group_lock: cannot run '/nowhere/to-be-found': "), "{code} {err}");
        check_case(
            &mut fake,
            "$ lfs group_lock -g 7 none true\n[exit 2]\n--- stderr
lfs group_lock: cannot join group 7 on 'none': No such file or directory
",
        );
    }

    #[test]
    fn group_lock_refuses_bad_calls() {
        let mut fake = Fake::new("/mnt/c1");
        fake.file("f", "[0x200000402:0x1:0x0]", None);
        for (line, what) in [
            ("lfs group_lock f true", "please give a group id"),
            ("lfs group_lock -g 0 f true", "bad group id '0'"),
            ("lfs group_lock -g x f true", "bad group id 'x'"),
            ("lfs group_lock -g 1", "please give a file"),
            ("lfs group_lock -g 1 f", "please give a command to run"),
            ("lfs group_lock -x -g 1 f true", "unrecognized option '-x'"),
        ] {
            let (code, out, err) = lfs(&mut fake, line);
            assert_eq!((code, err), (4, format!("lfs group_lock: {what}\n")), "{line}");
            assert!(out.contains("usage: group_lock"), "{out}");
        }
        assert!(fake.advised().is_empty());
    }
}
