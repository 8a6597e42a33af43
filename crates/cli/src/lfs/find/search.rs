//! The search that the options of `lfs find` describe.

use std::{ffi::OsStr, ops::RangeInclusive, os::unix::ffi::OsStrExt, path::Path};

use sheen_admin::find::{
    Query,
    entry::stat_of,
    facts::Stamp,
    test::{Bits, Hash, Perm, Property, Targets, Test},
};
use sheen_layout::{Composite, Pattern, flags};
use sheen_wire::{Errno, FileKind, Result, glob::Glob};

use super::{
    super::{host, numbers::parse_unsigned, tool::text},
    print::{ATTRIBUTES, Format, LS},
    range,
};

/// Most threads that may be requested.
const THREADS_MAX: u64 = 256;

/// A query and the command's own options.
#[derive(Clone, Debug)]
pub struct Search {
    /// The tests and bounds.
    pub query: Query,
    /// Output format.
    pub format: Format,
    /// Unknown directives of the format.
    pub unknown: Vec<String>,
    /// Number of threads; `None`: the program chooses.
    pub threads: Option<usize>,
}

/// A wrong value: the message for the user and the exit code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError(pub String, pub Errno);

impl Search {
    /// Creates a search for all entries. `now`: in seconds since the epoch.
    pub fn new(now: i64) -> Search {
        Search { query: Query::new(now), format: Format::path(b'\n'), unknown: Vec::new(), threads: None }
    }

    /// Takes an option. `negated`: it follows a `!`.
    pub fn option(&mut self, id: &'static str, value: Option<&OsStr>, negated: bool) -> Result<(), OptionError> {
        let value = value.unwrap_or_default();
        match id {
            "lazy" => self.query.lazy = true,
            "print" => self.format = Format::path(b'\n'),
            "print0" => self.format = Format::path(0),
            "ls" => self.format = Format::new(LS.as_bytes()).0,
            "printf" => (self.format, self.unknown) = Format::new(value.as_bytes()),
            _ => {
                let bad = || OptionError(format!("error: bad {id} '{}'", value.display()), Errno::EINVAL);
                let number = |most: u64| parse_unsigned(text(value)).filter(|n| *n <= most).ok_or_else(bad);
                match id {
                    "mindepth" => self.query.min_depth = number(u64::from(u32::MAX))? as u32,
                    "maxdepth" => self.query.max_depth = number(u64::from(u32::MAX))? as u32,
                    "skip" => self.query.skip = number(100)?,
                    "threads" => {
                        self.threads = Some(number(THREADS_MAX).ok().filter(|n| *n > 0).ok_or_else(bad)? as usize)
                    }
                    _ => {
                        let property = match id.strip_prefix("newer") {
                            Some(xy) => newer(xy, value, self.query.now())?,
                            None => property(id, value).ok_or_else(bad)?,
                        };
                        self.query.add(Test { property, negated });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the property that an option with a value tests.
fn property(id: &str, value: &OsStr) -> Option<Property> {
    let text = text(value);
    Some(match id {
        "name" => Property::Name(Glob::of_names(value.as_bytes())),
        "type" => Property::Type(kind(text)?),
        "size" => Property::Size(range::size(text, 1)?),
        // Numbers without a suffix are KiB, as in du(1).
        "blocks" => Property::Blocks(range::size(text, 1024)?),
        "atime" => Property::Age(Stamp::Access, range::age(text)?),
        "btime" => Property::Age(Stamp::Birth, range::age(text)?),
        "ctime" => Property::Age(Stamp::Change, range::age(text)?),
        "mtime" => Property::Age(Stamp::Modify, range::age(text)?),
        "perm" => Property::Perm(perm(text)?),
        "links" => Property::Links(range::count(text)?),
        "user" => Property::User(host::user(text)?),
        "group" => Property::Group(host::group(text)?),
        "projid" => Property::Project(text.parse::<u32>().ok().or_else(|| host::project(text))?),
        "attrs" => Property::Attributes(bits(text, |name| {
            ATTRIBUTES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name)).map(|(_, bit, _)| *bit)
        })?),
        "mdt" => Property::Mdt(targets(text)?),
        "mdt-count" => Property::MdtCount(range::count(text)?),
        "mdt-hash" => mdt_hash(text)?,
        "stripe-count" => Property::StripeCount(range::count(text)?),
        "stripe-size" => Property::StripeSize(range::size(text, 1)?),
        "stripe-index" => Property::Ost(targets(text)?),
        "pool" => Property::Pool(text.to_owned()),
        "layout" => Property::Layout(pattern(text)?),
        "component-count" => Property::ComponentCount(range::count(text)?),
        "component-start" => Property::ComponentStart(range::offset(text)?),
        "component-end" => Property::ComponentEnd(range::offset(text)?),
        "component-flags" => Property::ComponentFlags(bits(text, component_flag)?),
        "mirror-count" => Property::MirrorCount(range::count(text)?),
        "mirror-state" => mirror_state(text)?,
        "extension-size" => Property::ExtensionSize(range::size(text, 1)?),
        "foreign" => Property::Foreign,
        "xattr" => match text.split_once('=') {
            Some((name, value)) => Property::Xattr(name.to_owned(), Some(Glob::of_names(value.as_bytes()))),
            None => Property::Xattr(text.to_owned(), None),
        },
        _ => return None,
    })
}

/// Parses `-newerXY`: time X of an entry must be later than time Y of the named file, or than the
/// given time.
fn newer(xy: &str, value: &OsStr, now: i64) -> Result<Property, OptionError> {
    let stamp = |letter: &str| match letter {
        "a" => Some(Stamp::Access),
        "b" => Some(Stamp::Birth),
        "c" => Some(Stamp::Change),
        "m" => Some(Stamp::Modify),
        _ => None,
    };
    let (x, y) = xy.split_at_checked(1).unwrap_or_default();
    let this = stamp(x).ok_or_else(|| OptionError(format!("error: bad newer '{xy}'"), Errno::EINVAL))?;
    let than = match stamp(y) {
        Some(stamp) => {
            let failed = |e: Errno| OptionError(format!("error: find: cannot stat '{}': {e}", value.display()), e);
            let stat = stat_of(Path::new(value)).map_err(failed)?;
            stat.time(stamp).ok_or_else(|| failed(Errno::EOPNOTSUPP))?
        }
        None => {
            let (given, formats) = (value.display(), host::TIME_FORMATS);
            let wrong = || {
                OptionError(format!("lfs: invalid time '{given}'\nsupported formats are:\n  {formats}"), Errno::EINVAL)
            };
            (host::time(text(value), now).ok_or_else(wrong)?, 0)
        }
    };
    Ok(Property::Newer(this, than))
}

fn kind(text: &str) -> Option<FileKind> {
    Some(match text {
        "b" => FileKind::Block,
        "c" => FileKind::Char,
        "d" => FileKind::Dir,
        "f" => FileKind::Regular,
        "l" => FileKind::Symlink,
        "p" => FileKind::Fifo,
        "s" => FileKind::Socket,
        _ => return None,
    })
}

/// Parses `[/-]MODE`, in octal or like `u+x,go=r`.
fn perm(text: &str) -> Option<Perm> {
    Some(match text.as_bytes().first()? {
        b'/' => Perm::Any(mode(&text[1..])?),
        b'-' => Perm::All(mode(&text[1..])?),
        _ => Perm::Exactly(mode(text)?),
    })
}

/// Parses permissions in octal, or as symbolic changes to no permissions.
fn mode(text: &str) -> Option<u32> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    }
    text.split(',').try_fold(0, |mode, clause| {
        let at = clause.find(['+', '-', '='])?;
        let (who, what) = clause.split_at(at);
        let mask = who.chars().try_fold(0, |mask, c| {
            Some(
                mask | match c {
                    'u' => 0o4700,
                    'g' => 0o2070,
                    'o' => 0o1007,
                    'a' => 0o7777,
                    _ => return None,
                },
            )
        })?;
        let mask = if who.is_empty() { 0o7777 } else { mask };
        let bits = what[1..].chars().try_fold(0, |bits, c| {
            Some(
                bits | match c {
                    'r' => 0o444,
                    'w' => 0o222,
                    'x' => 0o111,
                    's' => 0o6000,
                    't' => 0o1000,
                    _ => return None,
                },
            )
        })?;
        Some(match what.as_bytes()[0] {
            b'+' => mode | (bits & mask),
            b'-' => mode & !(bits & mask),
            _ => mode & !mask | (bits & mask),
        })
    })
}

/// Parses `NAME,^NAME,…`.
fn bits<T>(text: &str, of: impl Fn(&str) -> Option<T>) -> Option<Bits<T>>
where
    T: Default + std::ops::BitOrAssign,
{
    let mut bits = Bits::default();
    for name in text.split(',') {
        match name.strip_prefix('^') {
            Some(name) => bits.clear |= of(name)?,
            None => bits.set |= of(name)?,
        }
    }
    Some(bits)
}

fn component_flag(name: &str) -> Option<u32> {
    /// The component must not be used. Lustre shows this flag, and Sheen stores it as given.
    const OFFLINE: u32 = 8;
    Some(match name {
        "init" => flags::INIT,
        "stale" => flags::STALE,
        "prefer" => flags::PREF_RD | flags::PREF_WR,
        "prefrd" => flags::PREF_RD,
        "prefwr" => flags::PREF_WR,
        "offline" => OFFLINE,
        "nosync" => flags::NOSYNC,
        "extension" => flags::EXTENSION,
        _ => return None,
    })
}

/// Parses a list of `released`, `raid0`, `mdt`, `overstriping` and `foreign`. All listed patterns
/// must be set.
fn pattern(text: &str) -> Option<u32> {
    /// Data that exists only in an archive.
    const RELEASED: u32 = 0x8000_0000;
    text.split(',').try_fold(0, |bits, name| {
        Some(
            bits | match name {
                "raid0" => Pattern::RAID0.0,
                "mdt" => Pattern::MDT.0,
                "overstriping" | "overstriped" => Pattern::OVERSTRIPING.0,
                "foreign" => Pattern::FOREIGN.0,
                "released" => RELEASED,
                _ => return None,
            },
        )
    })
}

fn mirror_state(text: &str) -> Option<Property> {
    let name = text.strip_prefix('^');
    let state = match name.unwrap_or(text) {
        "ro" => Composite::READ_ONLY,
        "wp" => Composite::WRITE_PENDING,
        "sp" => Composite::SYNC_PENDING,
        _ => return None,
    };
    Some(Property::MirrorState(state, name.is_some()))
}

/// Parses hash functions and flags of striped directories. A `^` excludes one.
fn mdt_hash(text: &str) -> Option<Property> {
    const HASHES: [&str; 4] = ["all_char", "fnv_1a_64", "crush", "crush2"];
    const FLAGS: [(&str, &str); 5] =
        [("b", "bad_type"), ("l", "lost_lmv"), ("m", "migrating"), ("o", "overstriped"), ("f", "fixed")];
    let mut wanted = Hash::default();
    for part in text.split(',') {
        let (name, list) = match part.strip_prefix('^') {
            Some(name) => (name, Some(&mut wanted.none)),
            None => (part, None),
        };
        if let Some(hash) = HASHES.iter().find(|hash| **hash == name) {
            list.unwrap_or(&mut wanted.any).push(hash);
        } else {
            let (_, flag) = FLAGS.iter().find(|(short, long)| *short == name || *long == name)?;
            list.unwrap_or(&mut wanted.flags).push(flag);
        }
    }
    Some(Property::MdtHash(wanted))
}

/// Parses `0,2-5,fsname-OST0007_UUID`.
fn targets(text: &str) -> Option<Targets> {
    let mut targets = Targets::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        match indices(part) {
            Some(range) => targets.indices.push(range),
            None => targets.names.push(part.to_owned()),
        }
    }
    (!targets.indices.is_empty() || !targets.names.is_empty()).then_some(targets)
}

fn indices(part: &str) -> Option<RangeInclusive<u32>> {
    let number = |text: &str| u32::try_from(parse_unsigned(text)?).ok();
    match part.split_once('-') {
        Some((first, last)) => Some(number(first)?..=number(last)?),
        None => number(part).map(|index| index..=index),
    }
}
