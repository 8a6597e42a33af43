//! The options of `lfs setstripe`, and its messages about wrong ones.

use std::{fmt, path::PathBuf};

use sheen_layout::{Count, POOL_NAME_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX};
use sheen_wire::{Errno, Result, mgs::NO_POOLS};

use super::{
    super::{
        getopt::{self, Value},
        getstripe::flag,
        numbers::{parse_signed, parse_size, parse_unsigned},
    },
    components::{Builder, Draft},
};

/// Lustre's options.
pub const OPTIONS: getopt::Spec = getopt::Spec {
    short: "c:C:dE:Fhi:I:L:m:N::o:p:s:S:vx:y:z:",
    long: &getopt::join::<{ LAYOUT_LONG.len() + OWN_LONG.len() }>(LAYOUT_LONG, OWN_LONG),
};

/// The long options that describe a layout, of `setstripe` and `migrate`.
pub const LAYOUT_LONG: &[getopt::Long] = &[
    ("stripe-count", Value::Required, "c"),
    ("stripe_count", Value::Required, "c"),
    ("count", Value::Required, "c"),
    ("overstripe-count", Value::Required, "C"),
    ("delete", Value::No, "d"),
    ("help", Value::No, "h"),
    ("stripe-index", Value::Required, "i"),
    ("stripe_index", Value::Required, "i"),
    ("index", Value::Required, "i"),
    ("layout", Value::Required, "L"),
    ("ost", Value::Required, "o"),
    ("ost-list", Value::Required, "o"),
    ("pool", Value::Required, "p"),
    ("stripe-size", Value::Required, "S"),
    ("stripe_size", Value::Required, "S"),
    ("size", Value::Required, "S"),
    ("verbose", Value::No, "v"),
    ("comp-add", Value::No, "add"),
    ("component-add", Value::No, "add"),
    ("comp-del", Value::No, "del"),
    ("component-del", Value::No, "del"),
    ("comp-set", Value::No, "set"),
    ("component-set", Value::No, "set"),
    ("comp-end", Value::Required, "E"),
    ("component-end", Value::Required, "E"),
    ("mirror-count", Value::Optional, "N"),
    ("ext-size", Value::Required, "z"),
    ("extension-size", Value::Required, "z"),
    ("copy", Value::Required, "copy"),
    ("yaml", Value::Required, "y"),
    ("foreign", Value::Optional, "foreign"),
    ("xattr", Value::Required, "x"),
];

/// The other long options of `setstripe`.
const OWN_LONG: &[getopt::Long] = &[
    ("destroy", Value::No, "d"),
    ("offset", Value::Required, "i"),
    ("mode", Value::Required, "mode"),
    ("ost_list", Value::Required, "o"),
    ("comp-flags", Value::Required, "comp-flags"),
    ("component-flags", Value::Required, "comp-flags"),
    ("comp-id", Value::Required, "I"),
    ("component-id", Value::Required, "I"),
    ("flags", Value::Required, "flags"),
];

/// Largest end of a component on the MDT, in bytes.
const MDT_END_MAX: u64 = 1 << 30;
/// A size below this number of bytes is taken as KiB, whatever its suffix.
const KIB_BELOW: u64 = 4096;
/// Largest id of a component.
const ID_MAX: u64 = 0x7fff_ffff;

/// The parsed options.
#[derive(Default)]
pub struct Call {
    /// The component that the options are describing.
    pub draft: Draft,
    /// The components that are complete.
    pub builder: Builder,
    /// `-d`.
    pub delete: bool,
    /// `--component-add`.
    pub add: bool,
    /// `--component-del`.
    pub del: bool,
    /// `--component-set`.
    pub set: bool,
    /// `-I`; 0 for none.
    pub id: u32,
    /// Flags of `--comp-flags` that begin with `^`.
    pub clear: u32,
    /// `--copy`.
    pub copy: Option<PathBuf>,
    /// `--yaml`.
    pub yaml: Option<PathBuf>,
    /// `--mode`.
    pub mode: Option<u32>,
    /// All pools that `-p` named.
    pub pools: Vec<String>,
    /// Whether there was any option except `-d`, `-v`, `--mode` and `-x`.
    pub sets: bool,
    /// Whether `-x` was given, which only foreign layouts use.
    pub xattr: bool,
}

/// Errors of a call.
pub enum Wrong {
    /// A usage error: prints the usage and this message.
    Call(String),
    /// A wrong value: prints this message and exits with the errno.
    Value(String, Errno),
}

/// Returns a usage error with Lustre's prefix.
pub fn call(text: impl fmt::Display) -> Wrong {
    Wrong::Call(format!("lfs setstripe setstripe: {text}"))
}

/// Returns the error of an impossible value: EINVAL.
pub fn invalid(text: impl fmt::Display) -> Wrong {
    Wrong::Value(text.to_string(), Errno::EINVAL)
}

impl Call {
    /// Takes an option. `next` is the argument after it.
    pub fn option(&mut self, id: &str, given: Option<&str>, next: &str) -> Result<(), Wrong> {
        let value = given.unwrap_or("");
        self.sets |= !matches!(id, "d" | "v" | "mode" | "x");
        match id {
            "E" => component_end(self, value)?,
            "N" => mirror(self, given)?,
            "add" => self.add = true,
            "del" => self.del = true,
            "set" => self.set = true,
            "I" => {
                let id = parse_unsigned(value).filter(|id| (1..=ID_MAX).contains(id));
                self.id = id.ok_or_else(|| call(format_args!("invalid component ID '{value}'")))? as u32;
            }
            "comp-flags" => (self.draft.flags, self.clear) = flags(value)?,
            "flags" => mirror_flags(self, value)?,
            "copy" => self.copy = Some(value.into()),
            "y" => self.yaml = Some(value.into()),
            "mode" => {
                let mode = u32::from_str_radix(value, 8).ok().filter(|m| *m <= 0o7777);
                self.mode = Some(mode.ok_or_else(|| call(format_args!("invalid mode '{value}'")))?);
            }
            "d" => self.delete = true,
            "v" => {}
            "x" => self.xattr = true,
            "p" => {
                let pool = pool_name(value)?;
                self.pools.extend(Some(pool.clone()).filter(|p| !p.is_empty()));
                self.draft.pool = Some(pool);
            }
            "L" => match value {
                "raid0" => {}
                "mdt" => on_mdt(self)?,
                // Like Lustre, names the argument after the wrong one.
                _ => {
                    let text = format_args!("error: layout '{next}' is unknown, supported layouts are: 'mdt', 'raid0'");
                    return Err(invalid(text));
                }
            },
            _ => return striping(&mut self.draft, id, value),
        }
        Ok(())
    }

    /// Refuses options that exclude each other. `shaped`: some options describe a layout. `flags`:
    /// the component flags. `on_dir`: the first operand is a directory.
    pub fn check(&self, shaped: bool, flags: u32, on_dir: bool) -> Result<(), Wrong> {
        let Call { delete, add, del, set, id, .. } = *self;
        let from = self.copy.is_some() || self.yaml.is_some();
        if set && id == 0 {
            return Err(call("--component-set doesn't have component-id set"));
        }
        if [delete, add, del, set].iter().filter(|given| **given).count() > 1 {
            return Err(call(
                "options --component-set, --component-del, --component-add and -d are mutually exclusive",
            ));
        }
        if delete && self.sets {
            return Err(call("option -d is mutually exclusive with -s, -c, -o, -p, -I, -F and -E options"));
        }
        if (set || del) && shaped {
            return Err(call(
                "options --component-del and --component-set are mutually exclusive when used with -c, -E, -o, -p, or -s",
            ));
        }
        if del && id != 0 && flags | self.clear != 0 {
            return Err(call("options -I and -F are mutually exclusive when used with --component-del"));
        }
        if add || del {
            if on_dir {
                return Err(call("cannot use --component-add or --component-del for directory"));
            }
            if self.builder.is_mirrored() {
                let what = "error: lfs setstripe: can't use --component-add or --component-del for mirror operation";
                return Err(Wrong::Call(what.to_owned()));
            }
        }
        if add && self.builder.is_empty() {
            return Err(call("option -E must be specified with --component-add"));
        }
        if self.copy.is_some() && self.yaml.is_some() {
            return Err(Wrong::Call("lfs setstripe: can't specify --yaml and --copy together".to_owned()));
        }
        if from && shaped {
            let what = "error: setstripe: can't specify --yaml or --copy with -c, -S, -i, -o, -p or -E options.";
            return Err(Wrong::Call(what.to_owned()));
        }
        if id != 0 && !del && !set {
            let what = "option -I can only be used with --component-del or --component-set or lfs mirror split";
            return Err(Wrong::Call(format!("lfs setstripe: {what}")));
        }
        Ok(())
    }
}

/// Takes an option that describes the striping of a component.
fn striping(draft: &mut Draft, id: &str, value: &str) -> Result<(), Wrong> {
    match id {
        "C" | "o" if draft.is_mdt => {
            let option = if id == "C" { "-C|--overstripe-count" } else { "-o|--ost" };
            return Err(call(format_args!("{option} incompatible with DoM layout")));
        }
        "c" | "C" => {
            let least = if id == "C" { -32 } else { -1 };
            let number = parse_signed(value).filter(|n| (least..=STRIPES_MAX as i64).contains(n));
            let number = number.ok_or_else(|| call(format_args!("invalid stripe count '{value}'")))?;
            // The last of -c and -C wins.
            draft.spec.count = Count::from_number(number).ok().flatten();
            draft.spec.overstripe = id == "C" && number != 0;
            draft.count = Some(number);
        }
        "S" | "s" => {
            draft.spec.stripe_size = stripe_size(value)?;
            draft.size = draft.spec.stripe_size;
        }
        "i" => {
            let number = parse_signed(value).filter(|n| (-1..i64::from(u16::MAX)).contains(n));
            let number = number.ok_or_else(|| call(format_args!("invalid stripe offset '{value}'")))?;
            draft.spec.start = u32::try_from(number).ok();
        }
        "o" => {
            let list = ost_list(value).ok_or_else(|| call(format_args!("invalid OST target(s) '{value}'")))?;
            draft.spec.osts.extend(list);
            if draft.spec.osts.len() > STRIPES_MAX {
                return Err(call(format_args!("invalid OST target(s) '{value}'")));
            }
        }
        "z" => {
            let size = parse_size(value).ok_or_else(|| call(format_args!("invalid extension size '{value}'")))?;
            draft.extension = Some(size);
        }
        "foreign" => {
            let e = Errno::EOPNOTSUPP;
            let text = format!("lfs setstripe: foreign layouts are not supported: {e} ({})", e.0);
            return Err(Wrong::Value(text, e));
        }
        _ => return Err(call(format_args!("-{id} is valid only for migrate command"))),
    }
    Ok(())
}

/// `-E`: completes the previous component and sets the end of the next one.
fn component_end(asked: &mut Call, value: &str) -> Result<(), Wrong> {
    if asked.draft.end != 0 {
        let invalid = |what| Wrong::Call(format!("{what}\nlfs setstripe: invalid layout"));
        asked.builder.complete(&mut asked.draft).map_err(invalid)?;
    }
    asked.draft.end = if ["-1", "EOF", "eof"].iter().any(|eof| value.starts_with(eof)) {
        u64::MAX
    } else {
        let end = size_in_kib(value).filter(|end| end.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)));
        end.ok_or_else(|| call(format_args!("invalid component end '{value}'")))?
    };
    Ok(())
}

/// `-N`: completes the previous mirror and begins new ones.
fn mirror(asked: &mut Call, count: Option<&str>) -> Result<(), Wrong> {
    let bad = |count| invalid(format_args!("error: lfs setstripe: bad mirror count: {count}"));
    let count = match count {
        None => 1,
        Some(count) => parse_unsigned(count).filter(|n| *n != 0).ok_or_else(|| bad(count))?,
    };
    let wrong = |what| invalid(format_args!("{what}\nerror: lfs setstripe: invalid layout"));
    asked.builder.begin_mirror(&mut asked.draft, count).map_err(wrong)
}

fn flags(value: &str) -> Result<flag::Wanted, Wrong> {
    flag::parse(value).map_err(|name| match name {
        Some(name) => Wrong::Call(format!("lfs setstripe: component flag '{name}' not supported")),
        None => call(format_args!("invalid component flags '{value}'")),
    })
}

/// `--flags` after `-N`: sets the flags of all components of the mirror.
fn mirror_flags(asked: &mut Call, value: &str) -> Result<(), Wrong> {
    if !asked.builder.is_mirrored() {
        return Err(call("hex flags must be specified with --foreign option"));
    }
    let (set, clear) = flags(value)?;
    if clear != 0 {
        return Err(Wrong::Call("lfs setstripe: inverted flags are not supported".to_owned()));
    }
    if set & !flag::PREFER != 0 {
        return Err(invalid(format_args!("lfs setstripe: unsupported mirror flags: {value}")));
    }
    asked.builder.set_mirror_flags(set);
    Ok(())
}

/// `-L mdt`.
fn on_mdt(asked: &mut Call) -> Result<(), Wrong> {
    if asked.builder.has_first() {
        return Err(invalid("error: 'mdt' layout can be only the first one"));
    }
    if asked.draft.end > MDT_END_MAX {
        const EFBIG: Errno = Errno(27);
        return Err(Wrong::Value("error: 'mdt' layout size is too big".to_owned(), EFBIG));
    }
    asked.draft.is_mdt = true;
    (asked.draft.spec.stripe_size, asked.draft.size) = (None, None);
    Ok(())
}

/// Parses a size in bytes. A small number is taken as KiB.
fn size_in_kib(value: &str) -> Option<u64> {
    let size = parse_size(value)?;
    Some(if size < KIB_BELOW { size * 1024 } else { size })
}

/// Parses `-S`. 0 is the default.
fn stripe_size(value: &str) -> Result<Option<u32>, Wrong> {
    let size = size_in_kib(value).filter(|n| n.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)));
    let size = size.ok_or_else(|| call(format_args!("invalid stripe size '{value}'")))?;
    let size = u32::try_from(size).map_err(|_| {
        let e = Errno::EINVAL;
        invalid(format_args!("lfs setstripe: error: stripe size '{size}' over 4GB limit: {e} ({})", e.0))
    })?;
    Ok((size != 0).then_some(size))
}

/// Parses `0,2`, `0-3`, `0x1,2`. An impossible index such as `-1` is left for the MDT to refuse.
fn ost_list(value: &str) -> Option<Vec<u32>> {
    let mut list = Vec::new();
    for part in value.split(',') {
        if let Some(index) = parse_signed(part) {
            list.push(index as u32);
            continue;
        }
        let (first, last) = part.split_once('-')?;
        let (first, last) = (parse_unsigned(first)?, parse_unsigned(last)?);
        if last < first || last - first >= STRIPES_MAX as u64 {
            return None;
        }
        list.extend((first..=last).map(|i| i as u32));
    }
    (list.len() <= STRIPES_MAX).then_some(list)
}

/// Parses `[FSNAME.]POOL`. An empty result means no pool.
fn pool_name(value: &str) -> Result<String, Wrong> {
    let name = value.split_once('.').map_or(value, |(_, pool)| pool);
    if name.len() > POOL_NAME_MAX {
        let e = Errno::EINVAL;
        return Err(invalid(format_args!("lfs setstripe: Invalid Poolname '{value}': {e} ({})", e.0)));
    }
    Ok(if NO_POOLS.contains(&name) { String::new() } else { name.to_owned() })
}
