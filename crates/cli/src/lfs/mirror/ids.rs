//! Ids of mirrors on the command line.

use std::ffi::OsStr;

use super::super::{numbers::parse_unsigned, tool::text};

/// Parses the id of a mirror.
pub fn id(value: Option<&OsStr>) -> Option<u16> {
    parse_unsigned(text(value?)).and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0)
}

/// Parses ids of mirrors, separated by commas.
pub fn ids(value: Option<&OsStr>) -> Option<Vec<u16>> {
    text(value?).split(',').map(|one| id(Some(OsStr::new(one)))).collect()
}
