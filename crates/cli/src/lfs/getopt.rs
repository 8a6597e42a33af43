//! Command line parsing like glibc's `getopt_long`, for `lfs` and `lctl`.
//!
//! Users' scripts mix options and operands, abbreviate long options, and glue values to short
//! options. Error messages name the argument that was not recognized.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, os::unix::ffi::OsStringExt};

/// Whether a long option takes a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// `--name`.
    No,
    /// `--name VALUE` or `--name=VALUE`.
    Required,
    /// `--name` or `--name=VALUE`.
    Optional,
}

/// The options of a command.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Short options in getopt's syntax: each letter, followed by `:` for a required and `::` for
    /// an optional value.
    pub short: &'static str,
    /// Long options.
    pub long: &'static [Long],
}

/// A long option: name, value, and the reported id. The id is the short option's letter, or a name
/// of its own.
pub type Long = (&'static str, Value, &'static str);

/// Joins two lists of long options. `N`: the sum of their lengths.
pub const fn join<const N: usize>(one: &[Long], other: &[Long]) -> [Long; N] {
    let mut all = [("", Value::No, ""); N];
    let mut i = 0;
    while i < N {
        all[i] = if i < one.len() { one[i] } else { other[i - one.len()] };
        i += 1;
    }
    all
}

/// One item of the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// An option.
    Option {
        /// The short option's letter, or the id from [`Spec::long`].
        id: &'static str,
        /// The option's value.
        value: Option<OsString>,
        /// Index of the argument after the option.
        next: usize,
    },
    /// An argument that is not an option.
    Operand(OsString),
    /// An option that the command does not have, that is ambiguous, or that lacks its value. Always
    /// the last item.
    Unrecognized(OsString),
}

impl Spec {
    /// Parses `args` (without the command's name) in order, up to the first error.
    pub fn parse(&self, args: &[OsString]) -> Vec<Item> {
        let mut items = Vec::new();
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            at += 1;
            let bytes = arg.as_bytes();
            let understood = match bytes {
                b"--" => {
                    items.extend(args[at..].iter().cloned().map(Item::Operand));
                    return items;
                }
                [b'-', b'-', name @ ..] => self.long(name, args, &mut at, &mut items),
                [b'-', letters @ ..] if !letters.is_empty() => self.letters(letters, args, &mut at, &mut items),
                _ => {
                    items.push(Item::Operand(arg.clone()));
                    Some(())
                }
            };
            if understood.is_none() {
                items.push(Item::Unrecognized(arg.clone()));
                return items;
            }
        }
        items
    }

    /// Parses `--name[=value]`. The name is exact or an unambiguous abbreviation.
    fn long(&self, arg: &[u8], args: &[OsString], at: &mut usize, items: &mut Vec<Item>) -> Option<()> {
        let (name, glued) = match arg.iter().position(|b| *b == b'=') {
            Some(i) => (&arg[..i], Some(OsString::from_vec(arg[i + 1..].to_vec()))),
            None => (arg, None),
        };
        let exact = self.long.iter().find(|(n, ..)| n.as_bytes() == name);
        let (_, takes, id) = match exact {
            Some(option) => *option,
            None => {
                let mut candidates = self.long.iter().filter(|(n, ..)| n.as_bytes().starts_with(name));
                let first = candidates.next()?;
                // Several spellings of the same option are not ambiguous.
                candidates.all(|c| c.2 == first.2).then_some(*first)?
            }
        };
        let value = match (takes, glued) {
            (Value::No, Some(_)) => return None,
            (Value::Required, None) => Some(take(args, at)?),
            (_, glued) => glued,
        };
        items.push(Item::Option { id, value, next: *at });
        Some(())
    }

    /// Parses `-abc` or `-aVALUE`.
    fn letters(&self, letters: &[u8], args: &[OsString], at: &mut usize, items: &mut Vec<Item>) -> Option<()> {
        for (i, letter) in letters.iter().enumerate() {
            let place = self.short.bytes().position(|c| c == *letter && c != b':')?;
            let id = self.short.get(place..place + 1)?;
            let takes = self.short[place + 1..].bytes().take_while(|c| *c == b':').count();
            if takes == 0 {
                items.push(Item::Option { id, value: None, next: *at });
                continue;
            }
            let glued = &letters[i + 1..];
            let value = match (glued.is_empty(), takes) {
                (false, _) => Some(OsString::from_vec(glued.to_vec())),
                (true, 1) => Some(take(args, at)?),
                (true, _) => None,
            };
            items.push(Item::Option { id, value, next: *at });
            break;
        }
        Some(())
    }
}

fn take(args: &[OsString], at: &mut usize) -> Option<OsString> {
    let value = args.get(*at)?.clone();
    *at += 1;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: Spec = Spec {
        short: "c:dN::v",
        long: &[
            ("stripe-count", Value::Required, "c"),
            ("stripe_count", Value::Required, "c"),
            ("delete", Value::No, "d"),
            ("destroy", Value::No, "d"),
            ("mirror-count", Value::Optional, "N"),
            ("mirror-id", Value::Required, "mirror-id"),
        ],
    };

    fn parse(line: &str) -> String {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let show = |item: &Item| match item {
            Item::Option { id, value, .. } => match value {
                Some(v) => format!("{id}={}", v.display()),
                None => (*id).to_owned(),
            },
            Item::Operand(arg) => format!("'{}'", arg.display()),
            Item::Unrecognized(arg) => format!("?{}", arg.display()),
        };
        SPEC.parse(&args).iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn getopt_parses_like_getopt_long() {
        for (line, want) in [
            ("-c 4 f", "c=4 'f'"),
            ("f -c4 -dv g", "'f' c=4 d v 'g'"),
            ("-c -1 f", "c=-1 'f'"),
            ("-dc2", "d c=2"),
            ("-N f -N3", "N 'f' N=3"),
            ("--stripe-count=4 --stripe_count 5", "c=4 c=5"),
            ("--stripe 3", "c=3"),
            ("--de --mirror-i=7", "d mirror-id=7"),
            ("--mirror-c --mirror-count=2", "N N=2"),
            ("--mirror 2", "?--mirror"),
            ("-d -- -c --x", "d '-c' '--x'"),
            ("-", "'-'"),
            ("-dx f", "d ?-dx"),
            ("-c", "?-c"),
            ("--stripe-count", "?--stripe-count"),
            ("--delete=1", "?--delete=1"),
            ("--bogus -c 1", "?--bogus"),
            ("-:", "?-:"),
        ] {
            assert_eq!(parse(line), want, "{line}");
        }
    }
}
