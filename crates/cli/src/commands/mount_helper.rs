//! The helper of mount(8), `mount.sheen` or `mount.fuse.sheen`: it serves `mount -t sheen` and the
//! entries of /etc/fstab.
//!
//! `mount.sheen SOURCE DIRECTORY [-sfnvrw] [-o OPTIONS] [-t TYPE]`

use std::ffi::OsString;

use clap::Parser;

use super::{finish, mount};
use crate::{
    args::{Cli, Command},
    mount_options,
};

/// Exit codes of mount(8): invalid call; mount failed.
const WRONG_CALL: i32 = 1;
const FAILED: i32 = 32;
/// Printed after an error in the arguments.
pub const USAGE: &str = "usage: mount.sheen SOURCE DIRECTORY [-sfnvrw] [-o OPTIONS] [-t TYPE]";

/// The parsed arguments of the helper.
#[derive(Debug, Default, PartialEq, Eq)]
struct HelperArgs {
    operands: Vec<OsString>,
    options: Vec<String>,
    /// `-s`: ignore unknown options.
    sloppy: bool,
    /// `-f`: mount nothing.
    fake: bool,
    /// `-v`: print the result.
    verbose: bool,
}

/// Runs the helper; returns the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let call = match parse(args.into_iter().skip(1)) {
        Ok(call) => call,
        Err(wrong) => {
            eprintln!("mount.sheen: {wrong}\n{USAGE}");
            return WRONG_CALL;
        }
    };
    let line = call.line();
    let args = match Cli::try_parse_from(&line) {
        Ok(Cli { command: Command::Mount(args) }) => args,
        Ok(_) => return WRONG_CALL,
        Err(e) => {
            let _ = e.print();
            return WRONG_CALL;
        }
    };
    if finish(mount::run(&args, line.get(1..).unwrap_or_default())) != 0 {
        return FAILED;
    }
    if call.verbose {
        let not = if call.fake { "not " } else { "" };
        println!("mount.sheen: {} is {not}mounted on {}", args.source, args.mountpoint.display());
    }
    0
}

impl HelperArgs {
    /// Returns the equivalent arguments of `sheen mount`.
    fn line(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["sheen".into(), "mount".into()];
        line.extend(self.operands.iter().cloned());
        let options = if self.sloppy { mount_options::known(self.options.clone()) } else { self.options.clone() };
        if !options.is_empty() {
            line.extend(["-o".into(), options.join(",").into()]);
        }
        if self.fake {
            line.push("--fake".into());
        }
        line
    }

    /// Parses the letters behind one `-`. The value of `-o` or `-t` may be the next argument in
    /// `rest`. The error is a message for the user.
    fn letters(&mut self, letters: &str, rest: &mut impl Iterator<Item = OsString>) -> Result<(), String> {
        for (at, letter) in letters.char_indices() {
            match letter {
                's' => self.sloppy = true,
                'f' => self.fake = true,
                'v' => self.verbose = true,
                'n' => {}
                'r' => self.options.push("ro".into()),
                'w' => self.options.push("rw".into()),
                'o' | 't' => {
                    let value = match &letters[at + 1..] {
                        "" => rest.next().ok_or(format!("option '-{letter}' requires a value"))?,
                        value => value.into(),
                    };
                    let value = value
                        .into_string()
                        .map_err(|value| format!("invalid value '{}': not UTF-8", value.display()))?;
                    if letter == 'o' {
                        self.options.extend(value.split(',').filter(|word| !word.is_empty()).map(str::to_owned));
                    }
                    return Ok(());
                }
                letter => return Err(format!("unknown option '-{letter}'")),
            }
        }
        Ok(())
    }
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<HelperArgs, String> {
    let (mut call, mut args) = (HelperArgs::default(), args.into_iter());
    while let Some(arg) = args.next() {
        match arg.to_str().and_then(|arg| arg.strip_prefix('-')).filter(|letters| !letters.is_empty()) {
            Some(letters) => call.letters(letters, &mut args)?,
            None => call.operands.push(arg),
        }
    }
    if call.operands.len() == 2 {
        return Ok(call);
    }
    Err(format!("expected SOURCE and DIRECTORY, got {}", listed(&call.operands)))
}

fn listed(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("'{}'", word.display())).collect();
    if words.is_empty() { "nothing".into() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(line: &str) -> Result<HelperArgs, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn line(call: &str) -> String {
        let words: Vec<_> = called(call).unwrap().line().into_iter().map(|word| word.into_string().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn mount_helper_parses_the_arguments_of_mount_8() {
        assert_eq!(line("n@tcp:/fs /m"), "sheen mount n@tcp:/fs /m");
        assert_eq!(line("n@tcp:/fs /m -n -v -o rw,noatime"), "sheen mount n@tcp:/fs /m -o rw,noatime");
        assert_eq!(line("n@tcp:/fs /m -f -o ro -t fuse.sheen"), "sheen mount n@tcp:/fs /m -o ro --fake");
        assert_eq!(line("-rfv n@tcp:/fs -oa=1,,b /m"), "sheen mount n@tcp:/fs /m -o ro,a=1,b --fake");
        assert_eq!(line("n@tcp:/fs /m -s -o ro,bogus,noexec,sync"), "sheen mount n@tcp:/fs /m -o ro,noexec");
        let call = called("-sv a b").unwrap();
        assert!(call.sloppy && call.verbose && !call.fake && call.options.is_empty());
    }

    #[test]
    fn mount_helper_reports_invalid_arguments() {
        for (call, wrong) in [
            ("", "expected SOURCE and DIRECTORY, got nothing"),
            ("a", "expected SOURCE and DIRECTORY, got 'a'"),
            ("a b c", "expected SOURCE and DIRECTORY, got 'a' 'b' 'c'"),
            ("a b -N 3", "unknown option '-N'"),
            ("a b -o", "option '-o' requires a value"),
        ] {
            assert_eq!(called(call).unwrap_err(), wrong);
        }
    }

    #[test]
    fn mount_helper_arguments_are_accepted_by_sheen_mount() {
        let line = called("n@tcp:/fs /m -fr -o rw,nosuid,remount").unwrap().line();
        let cli = Cli::try_parse_from(line).unwrap();
        let Command::Mount(args) = cli.command else { panic!("another command") };
        assert!(args.fake && args.options.mount_options == ["ro", "rw", "nosuid", "remount"]);
    }
}
