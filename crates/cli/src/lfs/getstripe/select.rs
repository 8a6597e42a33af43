//! Selection of components for `lfs getstripe`: `-I`, `--component-flags`, `--component-start`,
//! `--component-end`, `--mirror-id`, `--mirror-index`. A component is shown if it satisfies all of
//! them.

use super::{
    super::{
        numbers::{parse_size, parse_unsigned},
        show::ComponentView,
    },
    flag,
};

/// A bound: `N` (equal), `+N` (more) or `-N` (less).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bound {
    sign: Option<char>,
    number: u64,
    /// Unit in which the number was given. Without a sign, a value less than one unit below the
    /// number counts as equal.
    unit: u64,
}

impl Bound {
    /// Parses an offset in a file: a size with its unit, or `EOF` or `-1` for the end.
    fn offset(text: &str) -> Option<Bound> {
        if matches!(text, "-1" | "EOF" | "eof") {
            return Some(Bound { sign: None, number: u64::MAX, unit: 1 });
        }
        let (sign, rest) = split_sign(text);
        if matches!(rest, "EOF" | "eof") {
            return Some(Bound { sign, number: u64::MAX, unit: 1 });
        }
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let unit = if unit.len() == 1 { parse_size(&format!("1{unit}"))? } else { 1 };
        Some(Bound { sign, number: parse_size(rest)?, unit })
    }

    /// Parses the number of a mirror, from 1.
    fn mirror(text: &str) -> Option<Bound> {
        let (sign, rest) = split_sign(text);
        let number = parse_unsigned(rest).filter(|n| (1..=u64::from(u16::MAX)).contains(n))?;
        Some(Bound { sign, number, unit: 1 })
    }

    fn admits(self, value: u64) -> bool {
        match self.sign {
            Some('+') => value > self.number,
            Some(_) => value < self.number,
            None => value <= self.number && self.number - value < self.unit,
        }
    }
}

fn split_sign(text: &str) -> (Option<char>, &str) {
    match text.chars().next() {
        Some(sign @ ('+' | '-')) => (Some(sign), &text[1..]),
        _ => (None, text),
    }
}

/// The given selectors. Without any, all components are selected.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    id: Option<u64>,
    flags: Option<flag::Wanted>,
    start: Option<Bound>,
    end: Option<Bound>,
    /// The bound, and whether it is negated.
    mirror_id: Option<(Bound, bool)>,
    mirror_index: Option<(Bound, bool)>,
}

impl Selection {
    /// Adds the selector `option`. `not`: a `!` stood before it. The error is the message for the
    /// user.
    pub fn add(&mut self, option: &str, value: &str, not: bool) -> Result<(), String> {
        let wrong = |what| format!("lfs getstripe: bad {what} '{value}'");
        match option {
            "I" => self.id = Some(parse_unsigned(value).ok_or_else(|| wrong("component id"))?),
            "comp-flags" => {
                self.flags = Some(flag::parse(value).map_err(|name| match name {
                    Some(name) => format!("lfs: component flag '{name}' not supported"),
                    None => wrong("component flags"),
                })?);
            }
            "comp-start" => self.start = Some(Bound::offset(value).ok_or_else(|| wrong("component start"))?),
            "E" => self.end = Some(Bound::offset(value).ok_or_else(|| wrong("component end"))?),
            "mirror-id" => self.mirror_id = Some((Bound::mirror(value).ok_or_else(|| wrong("mirror id"))?, not)),
            _ => self.mirror_index = Some((Bound::mirror(value).ok_or_else(|| wrong("mirror index"))?, not)),
        }
        Ok(())
    }

    /// Whether no selector was given.
    pub fn is_everything(&self) -> bool {
        *self == Selection::default()
    }

    /// Whether a selector was given that applies only to components.
    pub fn is_of_components(&self) -> bool {
        self.id.is_some() || self.flags.is_some() || self.start.is_some() || self.end.is_some()
    }

    /// Whether component `i` of `parts` is selected.
    pub fn picks(&self, parts: &[ComponentView], i: usize) -> bool {
        let part = &parts[i];
        // Mirrors are numbered from 1 in the order of their components. A file without mirrors has
        // only mirror 0.
        let mirror_index = || parts[..=i].windows(2).filter(|w| w[0].mirror() != w[1].mirror()).count() + first(parts);
        let admits = |bound: Option<(Bound, bool)>, value: u64| bound.is_none_or(|(b, not)| b.admits(value) != not);
        self.id.is_none_or(|id| u64::from(part.id) == id)
            && self.flags.is_none_or(|(set, clear)| part.flags & set == set && part.flags & clear == 0)
            && self.start.is_none_or(|b| b.admits(part.start))
            && self.end.is_none_or(|b| b.admits(part.end))
            && admits(self.mirror_id, u64::from(part.mirror()))
            && admits(self.mirror_index, mirror_index() as u64)
    }
}

/// Returns the index of the first mirror.
fn first(parts: &[ComponentView]) -> usize {
    usize::from(parts.first().is_some_and(|p| p.mirror() != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(text: &str, value: u64) -> bool {
        Bound::offset(text).unwrap().admits(value)
    }

    #[test]
    fn offset_bounds_compare_with_precision_of_unit() {
        assert!(admits("1M", 1 << 20) && admits("1048576", 1 << 20) && !admits("1048577", 1 << 20));
        assert!(admits("4M", (3 << 20) + 1) && !admits("4M", 3 << 20), "a whole unit is meant");
        assert!(admits("+1M", (1 << 20) + 1) && !admits("+1M", 1 << 20));
        assert!(admits("-1M", 0) && !admits("-1M", 1 << 20));
        assert!(admits("EOF", u64::MAX) && admits("-1", u64::MAX) && !admits("eof", 1 << 40));
        assert!(admits("-EOF", 1 << 40) && !admits("-EOF", u64::MAX));
        assert_eq!(Bound::offset("abc"), None);
        assert_eq!(Bound::offset(""), None);
        assert_eq!(Bound::mirror("0"), None);
    }
}
