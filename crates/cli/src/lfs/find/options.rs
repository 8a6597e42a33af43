//! Parsing of the arguments of `lfs find` like glibc's `getopt_long_only`, so that long options may
//! begin with one dash as in find(1).
//!
//! The consequences are those that users of Lustre know:
//! * `-size` is a long option, but `-s5M` is `-s 5M`.
//! * An abbreviation of one long option is accepted (`-na`). An ambiguous one is refused.
//! * An argument that is not a long option but begins with the letter of a short one is that short
//!   option. `-mmin` is therefore `-m min`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use super::super::getopt::Value;

/// One item of the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// An option, by the name in the last column of [`LONG`].
    Option(&'static str, Option<OsString>),
    /// `!`: negates the next option's test.
    Not,
    /// An argument that is not an option.
    Operand(OsString),
    /// An option that is unknown or ambiguous, or that lacks its value. Always the last item.
    Unrecognized(OsString),
}

const R: Value = Value::Required;

/// Long options: spelling, value, and name in this program.
pub(super) const LONG: &[(&str, Value, &str)] = &[
    ("atime", R, "atime"),
    ("attrs", R, "attrs"),
    ("blocks", R, "blocks"),
    ("btime", R, "btime"),
    ("Btime", R, "btime"),
    ("crtime", R, "btime"),
    ("comp-count", R, "component-count"),
    ("component-count", R, "component-count"),
    ("comp-flags", R, "component-flags"),
    ("component-flags", R, "component-flags"),
    ("comp-start", R, "component-start"),
    ("component-start", R, "component-start"),
    ("mirror-state", R, "mirror-state"),
    ("newer", R, "newermm"),
    ("neweraa", R, "neweraa"),
    ("neweram", R, "neweram"),
    ("newerac", R, "newerac"),
    ("newerab", R, "newerab"),
    ("newerma", R, "newerma"),
    ("newermm", R, "newermm"),
    ("newermc", R, "newermc"),
    ("newermb", R, "newermb"),
    ("newerca", R, "newerca"),
    ("newercm", R, "newercm"),
    ("newercc", R, "newercc"),
    ("newercb", R, "newercb"),
    ("newerba", R, "newerba"),
    ("newerbm", R, "newerbm"),
    ("newerbc", R, "newerbc"),
    ("newerbb", R, "newerbb"),
    ("newerBa", R, "newerba"),
    ("newerBm", R, "newerbm"),
    ("newerBc", R, "newerbc"),
    ("newerBB", R, "newerbb"),
    ("newerat", R, "newerat"),
    ("newermt", R, "newermt"),
    ("newerct", R, "newerct"),
    ("newerbt", R, "newerbt"),
    ("newerBt", R, "newerbt"),
    ("stripe-count", R, "stripe-count"),
    ("stripe_count", R, "stripe-count"),
    ("ctime", R, "ctime"),
    ("mindepth", R, "mindepth"),
    ("maxdepth", R, "maxdepth"),
    ("comp-end", R, "component-end"),
    ("component-end", R, "component-end"),
    ("foreign", Value::Optional, "foreign"),
    ("gid", R, "group"),
    ("group", R, "group"),
    ("help", Value::No, "help"),
    ("mdt-hash", R, "mdt-hash"),
    ("stripe-index", R, "stripe-index"),
    ("stripe_index", R, "stripe-index"),
    ("skip", R, "skip"),
    ("lazy", Value::No, "lazy"),
    ("layout", R, "layout"),
    ("links", R, "links"),
    ("ls", Value::No, "ls"),
    ("mdt", R, "mdt"),
    ("mdt-index", R, "mdt"),
    ("mdt_index", R, "mdt"),
    ("mtime", R, "mtime"),
    ("name", R, "name"),
    ("mirror-count", R, "mirror-count"),
    ("obd", R, "stripe-index"),
    ("ost", R, "stripe-index"),
    ("perm", R, "perm"),
    ("pool", R, "pool"),
    ("print0", Value::No, "print0"),
    ("threads", R, "threads"),
    ("print", Value::No, "print"),
    ("printf", R, "printf"),
    ("projid", R, "projid"),
    ("size", R, "size"),
    ("stripe-size", R, "stripe-size"),
    ("stripe_size", R, "stripe-size"),
    ("type", R, "type"),
    ("mdt-count", R, "mdt-count"),
    ("uid", R, "user"),
    ("user", R, "user"),
    ("xattr", R, "xattr"),
    ("extension-size", R, "extension-size"),
    ("ext-size", R, "extension-size"),
];

/// Short options: letter, value, and name in this program.
const SHORT: &[(u8, Value, &str)] = &[
    (b'0', Value::No, "print0"),
    (b'A', R, "atime"),
    (b'b', R, "blocks"),
    (b'B', R, "btime"),
    (b'c', R, "stripe-count"),
    (b'C', R, "ctime"),
    (b'd', R, "mindepth"),
    (b'D', R, "maxdepth"),
    (b'E', R, "component-end"),
    (b'g', R, "group"),
    (b'G', R, "group"),
    (b'h', Value::No, "help"),
    (b'H', R, "mdt-hash"),
    (b'i', R, "stripe-index"),
    (b'k', R, "skip"),
    (b'l', Value::No, "lazy"),
    (b'L', R, "layout"),
    (b'm', R, "mdt"),
    (b'M', R, "mtime"),
    (b'n', R, "name"),
    (b'N', R, "mirror-count"),
    (b'O', R, "stripe-index"),
    (b'P', Value::No, "print"),
    (b's', R, "size"),
    (b'S', R, "stripe-size"),
    (b't', R, "type"),
    (b'T', R, "mdt-count"),
    (b'u', R, "user"),
    (b'U', R, "user"),
    (b'z', R, "extension-size"),
];

/// Parses `args` (without the command's name) in order, up to the first error.
pub fn parse(args: &[OsString]) -> Vec<Word> {
    let mut words = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let understood = match arg.as_bytes() {
            b"!" => {
                words.push(Word::Not);
                Some(())
            }
            b"--" => {
                words.extend(rest.map(|arg| Word::Operand(arg.clone())));
                return words;
            }
            [b'-', b'-', name @ ..] => long(name, &mut rest, &mut words),
            // A single letter is the short option, if there is one.
            [b'-', letter] if short(*letter).is_some() => letters(&[*letter], &mut rest, &mut words),
            [b'-', name @ ..] if !name.is_empty() => match find(name_of(name)) {
                Found::One(..) => long(name, &mut rest, &mut words),
                Found::None => letters(name, &mut rest, &mut words),
                Found::Several => None,
            },
            _ => {
                words.push(Word::Operand(arg.clone()));
                Some(())
            }
        };
        if understood.is_none() {
            words.push(Word::Unrecognized(arg.clone()));
            return words;
        }
    }
    words
}

enum Found {
    None,
    One(Value, &'static str),
    Several,
}

/// Returns the long option of this name, or the only one that begins with it.
fn find(name: &[u8]) -> Found {
    if let Some((_, takes, id)) = LONG.iter().find(|(long, ..)| long.as_bytes() == name) {
        return Found::One(*takes, id);
    }
    let mut matches = LONG.iter().filter(|(long, ..)| long.as_bytes().starts_with(name));
    match (matches.next(), matches.next()) {
        (None, _) => Found::None,
        (Some((_, takes, id)), None) => Found::One(*takes, id),
        // As in glibc, even two spellings of the same option are ambiguous.
        (Some(_), Some(_)) => Found::Several,
    }
}

fn short(letter: u8) -> Option<(Value, &'static str)> {
    SHORT.iter().find(|(short, ..)| *short == letter).map(|(_, takes, id)| (*takes, *id))
}

/// Returns the part before `=`.
fn name_of(arg: &[u8]) -> &[u8] {
    arg.split(|b| *b == b'=').next().unwrap_or(arg)
}

type Rest<'a> = std::slice::Iter<'a, OsString>;

/// Parses `name` or `name=value`.
fn long(arg: &[u8], rest: &mut Rest<'_>, words: &mut Vec<Word>) -> Option<()> {
    let name = name_of(arg);
    let Found::One(takes, id) = find(name) else { return None };
    let glued = arg.get(name.len() + 1..).map(|value| OsStr::from_bytes(value).to_owned());
    let value = match (takes, glued) {
        (Value::No, Some(_)) => return None,
        (Value::Required, None) => Some(rest.next()?.clone()),
        (_, glued) => glued,
    };
    words.push(Word::Option(id, value));
    Some(())
}

/// Parses `abc` or `aVALUE`.
fn letters(letters: &[u8], rest: &mut Rest<'_>, words: &mut Vec<Word>) -> Option<()> {
    for (i, letter) in letters.iter().enumerate() {
        let (takes, id) = short(*letter)?;
        if takes == Value::No {
            words.push(Word::Option(id, None));
            continue;
        }
        let glued = &letters[i + 1..];
        let value = if glued.is_empty() { rest.next()?.clone() } else { OsString::from_vec(glued.to_vec()) };
        words.push(Word::Option(id, Some(value)));
        break;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let show = |word: &Word| match word {
            Word::Option(id, Some(value)) => format!("{id}={}", value.display()),
            Word::Option(id, None) => (*id).to_owned(),
            Word::Not => "!".to_owned(),
            Word::Operand(arg) => format!("'{}'", arg.display()),
            Word::Unrecognized(arg) => format!("?{}", arg.display()),
        };
        parse(&args).iter().map(show).collect::<Vec<_>>().join(" ")
    }

    /// The expected results are those of the captured Lustre.
    #[test]
    fn find_options_parse_like_getopt_long_only() {
        for (line, want) in [
            (". -name one -print0", "'.' name=one print0"),
            ("-size +1M --size=+1M -s +1M -s+1M", "size=+1M size=+1M size=+1M size=+1M"),
            (". ! -type d", "'.' ! type=d"),
            ("-c 2 -stripe_count 2 --stripe-count=2", "stripe-count=2 stripe-count=2 stripe-count=2"),
            ("-iname O*", "stripe-index=name 'O*'"),
            ("-mmin -10 -name two", "mdt=min ?-10"),
            ("-not -name one", "name=ot name=one"),
            ("-delete", "mindepth=elete"),
            ("-bogus", "blocks=ogus"),
            ("-p findp", "?-p"),
            ("-name one -o -name two", "name=one ?-o"),
            ("-name one -and", "name=one ?-and"),
            ("-empty", "?-empty"),
            ("-exec echo", "?-exec"),
            ("-overstripe-count 8", "?-overstripe-count"),
            (". -size", "'.' ?-size"),
            ("-newer one -newerBt 5 --newermt 6", "newermm=one newerbt=5 newermt=6"),
            ("--foreign x --foreign=1", "foreign 'x' foreign=1"),
            ("-na x -mi 3", "name=x ?-mi"),
            ("-0P -lh", "print0 print lazy help"),
            ("-ls -l -links 1", "ls lazy links=1"),
            ("--lazy=1", "?--lazy=1"),
            ("-- -name", "'-name'"),
            ("-", "'-'"),
        ] {
            assert_eq!(read(line), want, "{line}");
        }
    }
}
