//! The query that the options of `lfs find` describe.

use std::{ffi::OsStr, ops::RangeInclusive, os::unix::ffi::OsStrExt, path::Path};

use sheen_layout::{Composite, Pattern, flags};
use sheen_wire::{Errno, FileKind, Result, entries};

use super::{
    super::{numbers::parse_unsigned, text},
    entry,
    facts::{Cost, Facts, Stamp},
    glob::Glob,
    host,
    predicate::{Bits, Hash, Perm, Targets, Test, What},
    print::{ATTRIBUTES, Format, LS},
    range::Range,
};

/// Most threads that may be requested.
const THREADS_MAX: u64 = 256;

/// The tests, bounds and output format of a search.
#[derive(Clone, Debug)]
pub struct Query {
    /// Tests that must all hold, cheapest first.
    tests: Vec<Test>,
    /// Start of the search in seconds since the epoch, from which ages are measured.
    now: i64,
    /// Entries at fewer levels below an operand are not printed.
    pub min_depth: u32,
    /// Entries at more levels below an operand are not visited.
    pub max_depth: u32,
    /// Output format.
    pub format: Format,
    /// Unknown directives of the format.
    pub unknown: Vec<String>,
    /// Whether cached attributes are accepted, however old.
    pub lazy: bool,
    /// Percentage of the found entries that is not printed.
    pub skip: u64,
    /// Number of threads; `None`: the program chooses.
    pub threads: Option<usize>,
}

/// A wrong value: the message for the user and the exit code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong(pub String, pub Errno);

impl Query {
    /// Creates a query for all entries. `now`: in seconds since the epoch.
    pub fn new(now: i64) -> Query {
        Query {
            tests: Vec::new(),
            now,
            min_depth: 0,
            max_depth: u32::MAX,
            format: Format::path(b'\n'),
            unknown: Vec::new(),
            lazy: false,
            skip: 0,
            threads: None,
        }
    }

    /// Takes an option. `negated`: it follows a `!`.
    pub fn option(&mut self, id: &'static str, value: Option<&OsStr>, negated: bool) -> Result<(), Wrong> {
        let value = value.unwrap_or_default();
        match id {
            "lazy" => self.lazy = true,
            "print" => self.format = Format::path(b'\n'),
            "print0" => self.format = Format::path(0),
            "ls" => self.format = Format::new(LS.as_bytes()).0,
            "printf" => (self.format, self.unknown) = Format::new(value.as_bytes()),
            _ => {
                let bad = || Wrong(format!("error: bad {id} '{}'", value.display()), Errno::EINVAL);
                let number = |most: u64| parse_unsigned(text(value)).filter(|n| *n <= most).ok_or_else(bad);
                match id {
                    "mindepth" => self.min_depth = number(u64::from(u32::MAX))? as u32,
                    "maxdepth" => self.max_depth = number(u64::from(u32::MAX))? as u32,
                    "skip" => self.skip = number(100)?,
                    "threads" => {
                        self.threads = Some(number(THREADS_MAX).ok().filter(|n| *n > 0).ok_or_else(bad)? as usize)
                    }
                    _ => {
                        let what = match id.strip_prefix("newer") {
                            Some(xy) => newer(xy, value, self.now)?,
                            None => what(id, value).ok_or_else(bad)?,
                        };
                        self.add(Test { what, negated });
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, test: Test) {
        self.tests.retain(|other| !test.replaces(other));
        let place = self.tests.partition_point(|other| other.cost() <= test.cost());
        self.tests.insert(place, test);
    }

    /// Whether directories alone return all that the tests and the format need.
    pub fn is_free(&self) -> bool {
        self.format.is_free() && self.tests.iter().all(|test| test.cost() == Cost::Entry)
    }

    /// Whether the tests or the format need creation times.
    pub fn wants_birth(&self) -> bool {
        let tested = |test: &Test| matches!(test.what, What::Age(Stamp::Birth, _) | What::Newer(Stamp::Birth, _));
        self.format.wants_birth() || self.tests.iter().any(tested)
    }

    /// Returns the flags of the request to directories that return attributes of their entries
    /// ([`sheen_wire::entries`]). `None`: such a request would save no call.
    ///
    /// If names are tested as well, the flags leave out the OSTs, which are then asked only for
    /// entries with a matching name.
    pub fn wants(&self) -> Option<u32> {
        let (stat, layouts) = self.format.wants();
        let costs = |cost| self.tests.iter().any(|test| test.cost() == cost);
        let (stat, layouts) = (stat || costs(Cost::Stat), layouts || costs(Cost::Layout));
        let named = self.tests.iter().any(|test| matches!(test.what, What::Name(_)) && !test.negated);
        let flag = |flag, set| if set { flag } else { 0 };
        let flags = flag(entries::SIZES, self.needs_sizes() && !named)
            | flag(entries::LAZY, self.lazy)
            | flag(entries::LAYOUTS, layouts);
        (stat || layouts).then_some(flags)
    }

    /// Whether tests of attributes or layouts can exclude entries with data from the MDT alone.
    pub fn is_narrowed_by_mdt(&self) -> bool {
        self.tests.iter().any(Test::is_of_mdt)
    }

    /// Whether an entry passes the tests that the MDT alone decides. A test that fails with an
    /// error counts as passed, and the other tests decide.
    pub fn passes_by_mdt(&self, entry: &mut impl Facts) -> bool {
        let passes = |test: &Test| !test.is_of_mdt() || test.passes(entry, self.now).unwrap_or(true);
        self.tests.iter().all(passes)
    }

    /// Whether the query needs attributes that only the OSTs know: sizes and times of writes.
    pub fn needs_sizes(&self) -> bool {
        self.format.needs_sizes() || self.tests.iter().any(Test::needs_sizes)
    }

    /// Whether an entry passes the tests that need no request, so that the other tests are
    /// worthwhile.
    pub fn is_worth_it(&self, entry: &mut impl Facts) -> bool {
        let free = self.tests.iter().take_while(|test| test.cost() == Cost::Entry);
        // An error here counts as passed: the test is repeated later and its error reported then.
        free.map(|test| test.passes(entry, self.now)).all(|passed| passed.unwrap_or(true))
    }

    /// Whether an entry passes all tests.
    ///
    /// # Errors
    /// The errno of a failed request.
    pub fn matches(&self, entry: &mut impl Facts) -> Result<bool> {
        for test in &self.tests {
            if !test.passes(entry, self.now)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the targets that must be looked up by name, and whether they are OSTs or MDTs.
    pub fn named(&mut self) -> impl Iterator<Item = (bool, &mut Targets)> {
        let targets = self.tests.iter_mut().filter_map(|test| match &mut test.what {
            What::Ost(targets) => Some((true, targets)),
            What::Mdt(targets) => Some((false, targets)),
            _ => None,
        });
        targets.filter(|(_, targets)| !targets.names.is_empty())
    }
}

/// Returns the property that an option with a value tests.
fn what(id: &str, value: &OsStr) -> Option<What> {
    let text = text(value);
    Some(match id {
        "name" => What::Name(Glob::new(value.as_bytes())),
        "type" => What::Type(kind(text)?),
        "size" => What::Size(Range::size(text, 1)?),
        // Numbers without a suffix are KiB, as in du(1).
        "blocks" => What::Blocks(Range::size(text, 1024)?),
        "atime" => What::Age(Stamp::Access, Range::age(text)?),
        "btime" => What::Age(Stamp::Birth, Range::age(text)?),
        "ctime" => What::Age(Stamp::Change, Range::age(text)?),
        "mtime" => What::Age(Stamp::Modify, Range::age(text)?),
        "perm" => What::Perm(perm(text)?),
        "links" => What::Links(Range::count(text)?),
        "user" => What::User(host::user(text)?),
        "group" => What::Group(host::group(text)?),
        "projid" => What::Project(text.parse().ok()?),
        "attrs" => What::Attributes(bits(text, |name| {
            ATTRIBUTES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name)).map(|(_, bit, _)| *bit)
        })?),
        "mdt" => What::Mdt(targets(text)?),
        "mdt-count" => What::MdtCount(Range::count(text)?),
        "mdt-hash" => mdt_hash(text)?,
        "stripe-count" => What::StripeCount(Range::count(text)?),
        "stripe-size" => What::StripeSize(Range::size(text, 1)?),
        "stripe-index" => What::Ost(targets(text)?),
        "pool" => What::Pool(text.to_owned()),
        "layout" => What::Layout(pattern(text)?),
        "component-count" => What::ComponentCount(Range::count(text)?),
        "component-start" => What::ComponentStart(Range::offset(text)?),
        "component-end" => What::ComponentEnd(Range::offset(text)?),
        "component-flags" => What::ComponentFlags(bits(text, component_flag)?),
        "mirror-count" => What::MirrorCount(Range::count(text)?),
        "mirror-state" => mirror_state(text)?,
        "extension-size" => What::ExtensionSize(Range::size(text, 1)?),
        "foreign" => What::Foreign,
        "xattr" => match text.split_once('=') {
            Some((name, value)) => What::Xattr(name.to_owned(), Some(Glob::new(value.as_bytes()))),
            None => What::Xattr(text.to_owned(), None),
        },
        _ => return None,
    })
}

/// Parses `-newerXY`: time X of an entry must be later than time Y of the named file, or than the
/// given time.
fn newer(xy: &str, value: &OsStr, now: i64) -> Result<What, Wrong> {
    let stamp = |letter: &str| match letter {
        "a" => Some(Stamp::Access),
        "b" => Some(Stamp::Birth),
        "c" => Some(Stamp::Change),
        "m" => Some(Stamp::Modify),
        _ => None,
    };
    let (x, y) = xy.split_at_checked(1).unwrap_or_default();
    let this = stamp(x).ok_or_else(|| Wrong(format!("error: bad newer '{xy}'"), Errno::EINVAL))?;
    let than = match stamp(y) {
        Some(stamp) => {
            let failed = |e: Errno| Wrong(format!("error: find: cannot stat '{}': {e}", value.display()), e);
            let stat = entry::stat_of(Path::new(value)).map_err(failed)?;
            stat.time(stamp).ok_or_else(|| failed(Errno::EOPNOTSUPP))?
        }
        None => {
            let (given, formats) = (value.display(), host::TIME_FORMATS);
            let wrong =
                || Wrong(format!("lfs: invalid time '{given}'\nsupported formats are:\n  {formats}"), Errno::EINVAL);
            (host::time(text(value), now).ok_or_else(wrong)?, 0)
        }
    };
    Ok(What::Newer(this, than))
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

fn mirror_state(text: &str) -> Option<What> {
    let name = text.strip_prefix('^');
    let state = match name.unwrap_or(text) {
        "ro" => Composite::READ_ONLY,
        "wp" => Composite::WRITE_PENDING,
        "sp" => Composite::SYNC_PENDING,
        _ => return None,
    };
    Some(What::MirrorState(state, name.is_some()))
}

/// Parses hash functions and flags of striped directories. A `^` excludes one.
fn mdt_hash(text: &str) -> Option<What> {
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
    Some(What::MdtHash(wanted))
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
