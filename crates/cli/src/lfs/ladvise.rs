//! `lfs ladvise`: tells the mount how a file will be used.

use std::{ffi::OsString, path::Path};

use sheen_wire::ioctl::{self, Ladvise};

use super::{
    getopt::{self, Item, Value},
    numbers::parse_size,
    tool::{Tool, keep_first, text},
    usage,
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "a:be:hl:m:s:u",
    long: &[
        ("advice", Value::Required, "a"),
        ("background", Value::No, "b"),
        ("end", Value::Required, "e"),
        ("help", Value::No, "h"),
        ("length", Value::Required, "l"),
        ("mode", Value::Required, "m"),
        ("start", Value::Required, "s"),
        ("unset", Value::No, "u"),
    ],
};

/// Names of the advice types, in the order of their numbers, from 1.
const ADVICES: [&str; 4] = ["willread", "dontneed", "noexpand", "lockahead"];

/// The parsed command line. Offsets are as given there, with an exclusive end.
#[derive(Default)]
struct Call {
    advice: u16,
    background: bool,
    mode: u16,
    start: u64,
    end: Option<u64>,
    length: Option<u64>,
    files: Vec<OsString>,
}

/// Reasons to give no advice.
enum Stop {
    Help,
    Wrong(String),
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (advice, files) = match read(args).and_then(|call| Ok((advice(&call)?, call.files))) {
        Ok(call) => call,
        Err(Stop::Help) => return tool.help(usage::LADVISE),
        Err(Stop::Wrong(what)) => return tool.usage(usage::LADVISE, format_args!("lfs ladvise: {what}")),
    };
    let mut code = 0;
    for file in files {
        if let Err(e) = tool.fs.advise(Path::new(&file), &advice) {
            let name = ADVICES[usize::from(advice.advice) - 1];
            let file = file.display();
            tool.complain(format_args!("lfs ladvise: cannot give advice '{name}' to file '{file}': {e}"));
            keep_first(&mut code, e);
        }
    }
    code
}

fn read(args: &[OsString]) -> Result<Call, Stop> {
    let mut call = Call::default();
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id, value, .. } => option(&mut call, id, text(&value.unwrap_or_default()))?,
            Item::Operand(file) => call.files.push(file),
            Item::Unrecognized(arg) => return Err(Stop::Wrong(format!("unrecognized option '{}'", arg.display()))),
        }
    }
    Ok(call)
}

fn option(call: &mut Call, id: &str, value: &str) -> Result<(), Stop> {
    let offset = |what: &str| parse_size(value).ok_or_else(|| Stop::Wrong(format!("bad {what} '{value}'")));
    match id {
        "a" => {
            let known = ADVICES.iter().zip(1..).find(|(name, _)| **name == value);
            let unknown = || Stop::Wrong(format!("invalid advice type '{value}'\nValid types: {}", ADVICES.join(" ")));
            call.advice = known.map(|(_, number)| number).ok_or_else(unknown)?;
        }
        "b" => call.background = true,
        "e" => call.end = Some(offset("end offset")?),
        "l" => call.length = Some(offset("length")?),
        "s" => call.start = offset("start offset")?,
        "m" => {
            call.mode = match value {
                "READ" => ioctl::MODE_READ,
                "WRITE" => ioctl::MODE_WRITE,
                _ => return Err(Stop::Wrong(format!("bad mode '{value}', valid modes are READ or WRITE"))),
            }
        }
        "u" => {} // belongs to noexpand, which is refused
        _ => return Err(Stop::Help),
    }
    Ok(())
}

/// Returns the advice that a call asks for.
fn advice(call: &Call) -> Result<Ladvise, Stop> {
    let wrong = |what: &str| Err(Stop::Wrong(what.to_owned()));
    let end = match (call.end, call.length.map(|length| call.start.saturating_add(length))) {
        (Some(end), Some(by_length)) if end != by_length => return wrong("conflicting arguments of -l and -e"),
        (end, by_length) => end.or(by_length).unwrap_or(u64::MAX),
    };
    let ahead = call.advice == ioctl::LOCKAHEAD;
    match call.advice {
        0 => return Err(Stop::Wrong(format!("please give an advice type\nValid types: {}", ADVICES.join(" ")))),
        ioctl::LOCKNOEXPAND => {
            return wrong("advice 'noexpand' applies to one open file and would have no effect from lfs");
        }
        _ if call.files.is_empty() => return wrong("please give one or more file names"),
        _ if end <= call.start => return Err(Stop::Wrong(format!("range [{}, {end}] is invalid", call.start))),
        _ if ahead && call.mode == 0 => return wrong("mode is required with advice 'lockahead'"),
        _ if !ahead && call.mode != 0 => return wrong("mode is only valid with advice 'lockahead'"),
        _ => {}
    }
    Ok(Ladvise {
        advice: call.advice,
        mode: call.mode,
        flags: if call.background { ioctl::ASYNC } else { 0 },
        start: call.start,
        last: if end == u64::MAX { end } else { end - 1 },
        ..Ladvise::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case, lfs};

    fn wrong(fake: &mut Fake, line: &str, what: &str) {
        let (code, out, err) = lfs(fake, line);
        assert_eq!((code, err), (4, format!("lfs ladvise: {what}\n")), "{line}");
        assert!(out.starts_with("Provide servers with advice"), "{out}");
    }

    #[test]
    fn ladvise_sends_advice_like_lustre() {
        let mut fake = Fake::new("/mnt/c1");
        fake.file("fa", "[0x200000402:0x1:0x0]", None);
        for case in [
            "$ lfs ladvise -a willread -s 0 -e 4M fa\n[exit 0]\n",
            "$ lfs ladvise -a dontneed fa\n[exit 0]\n",
            "$ lfs ladvise -a lockahead -m WRITE -s 1M --length=1M -b fa\n[exit 0]\n",
            "$ lfs ladvise -a lockahead --mode READ fa\n[exit 0]\n",
        ] {
            check_case(&mut fake, case);
        }
        let end = u64::MAX;
        assert_eq!(
            fake.advised(),
            [
                "fa 1 mode 0 flags 0 0..=4194303".to_owned(),
                format!("fa 2 mode 0 flags 0 0..={end}"),
                "fa 4 mode 2 flags 1 1048576..=2097151".to_owned(),
                format!("fa 4 mode 1 flags 0 0..={end}"),
            ]
        );
    }

    #[test]
    fn ladvise_refuses_bad_calls() {
        let mut fake = Fake::new("/mnt/c1");
        fake.file("fa", "[0x200000402:0x1:0x0]", None);
        let types = "Valid types: willread dontneed noexpand lockahead";
        wrong(&mut fake, "lfs ladvise fa", &format!("please give an advice type\n{types}"));
        wrong(&mut fake, "lfs ladvise -a hurry fa", &format!("invalid advice type 'hurry'\n{types}"));
        wrong(&mut fake, "lfs ladvise -a willread", "please give one or more file names");
        wrong(&mut fake, "lfs ladvise -a willread -s 4M -e 4M fa", "range [4194304, 4194304] is invalid");
        wrong(&mut fake, "lfs ladvise -a willread -s x fa", "bad start offset 'x'");
        wrong(&mut fake, "lfs ladvise -a willread -l 1M -e 2M fa", "conflicting arguments of -l and -e");
        wrong(&mut fake, "lfs ladvise -a lockahead fa", "mode is required with advice 'lockahead'");
        wrong(&mut fake, "lfs ladvise -a willread -m READ fa", "mode is only valid with advice 'lockahead'");
        wrong(&mut fake, "lfs ladvise -a lockahead -m rw fa", "bad mode 'rw', valid modes are READ or WRITE");
        wrong(&mut fake, "lfs ladvise -z fa", "unrecognized option '-z'");
        check_case(
            &mut fake,
            "$ lfs ladvise -a willread none fa /tmp\n[exit 2]\n--- stderr
lfs ladvise: cannot give advice 'willread' to file 'none': No such file or directory
lfs ladvise: cannot give advice 'willread' to file '/tmp': Inappropriate ioctl for device
",
        );
        assert_eq!(fake.advised().len(), 1, "only the existing file got the advice");
    }
}
