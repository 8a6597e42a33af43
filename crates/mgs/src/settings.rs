//! Permanent settings (`lctl set_param -P`): their changes, and the line of text in which `lctl`
//! requests a change.
//!
//! Invariants:
//! * Settings are sorted by index.
//! * A pattern has at most one setting. There are at most [`SETTINGS_MAX`] settings.
//! * A pattern that is set again moves to the end, as in Lustre's log. If several settings match a
//!   parameter, the last one counts, now and after every start.
//! * A refused change changes nothing.

use sheen_wire::mgs::{SETTING_BYTES_MAX, SETTINGS_MAX, Setting};
use sheen_wire::{Errno, Result};

/// A change of a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingChange<'a> {
    /// Parameters of this pattern have this value from now on.
    Set {
        /// The pattern.
        pattern: &'a str,
        /// The value.
        value: &'a str,
    },
    /// Deletes the pattern's setting. Parameters that have its value retain it until their process
    /// ends.
    Delete {
        /// The pattern.
        pattern: &'a str,
    },
}

/// Changes the settings. `last` is the largest index that any setting ever had.
///
/// # Errors
/// * EINVAL: the pattern is empty, has a space or `=`, or names the MGS's own parameters (writing
///   to those is a command, not a value). Or the value is empty or has several lines.
/// * ENAMETOOLONG: the pattern or the value is longer than [`SETTING_BYTES_MAX`].
/// * ENOSPC: there are already [`SETTINGS_MAX`] settings.
/// * ENOENT: the pattern to be deleted has no setting.
pub fn apply(settings: &mut Vec<Setting>, last: &mut u64, change: SettingChange<'_>) -> Result<()> {
    match change {
        SettingChange::Set { pattern, value } => {
            check(pattern, value)?;
            let others = settings.iter().filter(|s| s.pattern != pattern).count();
            if others >= SETTINGS_MAX {
                return Err(Errno::ENOSPC);
            }
            settings.retain(|s| s.pattern != pattern);
            *last += 1;
            settings.push(Setting { index: *last, pattern: pattern.to_string(), value: value.to_string() });
        }
        SettingChange::Delete { pattern } => {
            let at = settings.iter().position(|s| s.pattern == pattern).ok_or(Errno::ENOENT)?;
            settings.remove(at);
        }
    }
    Ok(())
}

/// Checks whether this can be a setting.
///
/// # Errors
/// As [`apply`].
pub fn check(pattern: &str, value: &str) -> Result<()> {
    if pattern.len() > SETTING_BYTES_MAX || value.len() > SETTING_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let word = |c: char| !c.is_whitespace() && !c.is_control() && c != '=';
    let ours = pattern.split(['.', '/']).next() == Some("mgs");
    let fine = !pattern.is_empty() && pattern.chars().all(word) && !ours;
    if fine && !value.is_empty() && !value.contains(char::is_control) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Returns a change as text, for the parameter `mgs.MGS.live.params`: `set PATTERN=VALUE`,
/// `delete PATTERN`.
pub fn write(change: SettingChange<'_>) -> String {
    match change {
        SettingChange::Set { pattern, value } => format!("set {pattern}={value}"),
        SettingChange::Delete { pattern } => format!("delete {pattern}"),
    }
}

/// Parses what [`write`] wrote.
///
/// # Errors
/// EINVAL: anything else.
pub fn read(text: &str) -> Result<SettingChange<'_>> {
    if let Some(pattern) = text.strip_prefix("delete ") {
        return Ok(SettingChange::Delete { pattern });
    }
    let (pattern, value) = text.strip_prefix("set ").and_then(|text| text.split_once('=')).ok_or(Errno::EINVAL)?;
    Ok(SettingChange::Set { pattern, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &mut Vec<Setting>, last: &mut u64, pattern: &str, value: &str) -> Result<()> {
        apply(settings, last, SettingChange::Set { pattern, value })
    }

    #[test]
    fn setting_a_pattern_again_moves_it_to_the_end() {
        let (mut all, mut last) = (Vec::new(), 0);
        for (pattern, value) in [("osc.*.a", "1"), ("osc.x.a", "2"), ("osc.*.a", "1")] {
            set(&mut all, &mut last, pattern, value).unwrap();
        }
        let seen: Vec<_> = all.iter().map(|s| (s.index, &s.pattern[..], &s.value[..])).collect();
        assert_eq!(seen, [(2, "osc.x.a", "2"), (3, "osc.*.a", "1")]);
        apply(&mut all, &mut last, SettingChange::Delete { pattern: "osc.*.a" }).unwrap();
        set(&mut all, &mut last, "b", "x=y z").unwrap();
        assert_eq!((all.len(), all[1].index), (2, 4), "no index comes twice");
    }

    #[test]
    fn refused_settings_change_nothing() {
        let (mut all, mut last) = (Vec::new(), 0);
        set(&mut all, &mut last, "a", "1").unwrap();
        let (before, long) = (all.clone(), "x".repeat(SETTING_BYTES_MAX + 1));
        for (pattern, value, errno) in [
            ("", "1", Errno::EINVAL),
            ("a b", "1", Errno::EINVAL),
            ("a=b", "1", Errno::EINVAL),
            ("a", "", Errno::EINVAL),
            ("a", "1\n2", Errno::EINVAL),
            ("mgs.MGS.live.params", "set a=1", Errno::EINVAL),
            ("mgs/MGS/pools/x", "pool_new p", Errno::EINVAL),
            (&long, "1", Errno::ENAMETOOLONG),
            ("a", &long, Errno::ENAMETOOLONG),
        ] {
            assert_eq!(set(&mut all, &mut last, pattern, value), Err(errno), "{pattern} {value}");
        }
        assert_eq!(apply(&mut all, &mut last, SettingChange::Delete { pattern: "b" }), Err(Errno::ENOENT));
        assert_eq!((&all, last), (&before, 1));
    }

    #[test]
    fn settings_beyond_the_limit_are_refused() {
        let (mut all, mut last) = (Vec::new(), 0);
        for i in 0..SETTINGS_MAX {
            set(&mut all, &mut last, &format!("p{i}"), "1").unwrap();
        }
        assert_eq!(set(&mut all, &mut last, "more", "1"), Err(Errno::ENOSPC));
        set(&mut all, &mut last, "p0", "2").unwrap();
        apply(&mut all, &mut last, SettingChange::Delete { pattern: "p1" }).unwrap();
        set(&mut all, &mut last, "more", "1").unwrap();
    }

    #[test]
    fn setting_changes_roundtrip_through_text() {
        for change in
            [SettingChange::Set { pattern: "osc.*.a", value: "a=b c" }, SettingChange::Delete { pattern: "osc.*.a" }]
        {
            assert_eq!(read(&write(change)), Ok(change));
        }
        for text in ["", "set", "set a", "delete", "make a=b"] {
            assert_eq!(read(text), Err(Errno::EINVAL), "{text}");
        }
    }
}
