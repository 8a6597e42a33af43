//! Groups (`--dshbak`) and colours (`--color`) in the output of `get_param` and `list_param`.

use std::collections::BTreeMap;
use std::io;

use sheen_params::Found;
use sheen_wire::Errno;

use super::options::ParsedArgs;
use super::set_here::slashes;
use super::tool::Tool;

/// Colour of the directories that `list_param` prints, as in Lustre.
pub const BLUE: &str = "\x1b[94m";
/// Colour of the parts of a value that differ from the first value of its group.
const RED: &str = "\x1b[91m";
/// Ends a colour.
pub const RESET: &str = "\x1b[0m";
/// The kinds of targets in names, before a hexadecimal index of four digits.
const TARGETS: [&str; 3] = ["OST", "MDT", "QMT"];

/// A value to print.
#[derive(PartialEq, Eq, Debug)]
pub struct Row {
    /// Name and value.
    pub found: Found,
    /// The first value of the group. `None`: this is the first one.
    pub first: Option<String>,
}

impl Row {
    /// Returns the value. With `colors`, what differs from the first value of the group is red.
    pub fn value(&self, colors: bool) -> String {
        match &self.first {
            Some(first) if colors => marked(&self.found.value, first),
            _ => self.found.value.clone(),
        }
    }
}

/// Returns whether to print colours. `None`: `--color` has an invalid value.
pub fn colors(given: &ParsedArgs, tool: &Tool<'_>) -> Option<bool> {
    if !given.has("c") {
        return Some(tool.colors);
    }
    match given.value("c") {
        None | Some("always" | "yes") => Some(true),
        Some("never" | "no") => Some(false),
        Some("auto") => Some(tool.colors),
        Some(_) => None,
    }
}

/// Returns the values one by one or, with `--dshbak`, by group. A group has the values of all
/// targets. Equal values are printed once.
pub fn rows(found: Vec<Found>, given: &ParsedArgs) -> Vec<Row> {
    if !given.has("b") {
        return found.into_iter().map(|found| Row { found, first: None }).collect();
    }
    let (mut groups, mut places) = (Vec::<Vec<Found>>::new(), BTreeMap::new());
    for found in found {
        let name = group_name(&found.name);
        let place = *places.entry(name.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        let group = &mut groups[place];
        if group.iter().all(|known| known.value != found.value) {
            group.push(Found { name, ..found });
        }
    }
    let rows = |group: Vec<Found>| {
        let first = group.first().map(|found| found.value.clone());
        let row = move |(i, found): (usize, Found)| Row { found, first: first.clone().filter(|_| i > 0) };
        group.into_iter().enumerate().map(row)
    };
    groups.into_iter().flat_map(rows).collect()
}

/// Returns the name of a group: a parameter's name with `*` for the indices of targets, and for the
/// address of the MGS.
pub fn group_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        if let Some((kind, after)) = TARGETS.into_iter().find_map(|kind| Some((kind, after_index(rest, kind)?))) {
            out.push_str(kind);
            out.push('*');
            rest = after;
        } else if let Some((_, after)) = rest.strip_prefix("MGC").and_then(|address| address.split_once('@')) {
            out.push_str("MGC*@");
            rest = after;
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// Returns what follows a kind of target and an index.
fn after_index<'a>(text: &'a str, kind: &str) -> Option<&'a str> {
    let index = text.strip_prefix(kind)?;
    index.get(..4)?.bytes().all(|b| b.is_ascii_hexdigit()).then_some(&index[4..])
}

/// Returns `value` with the characters in red that are not the same in `first`.
fn marked(value: &str, first: &str) -> String {
    let (mut out, mut is_red, mut of_first) = (String::new(), false, first.chars());
    for c in value.chars() {
        let differs = of_first.next() != Some(c);
        if differs != is_red {
            out.push_str(if differs { RED } else { RESET });
            is_red = differs;
        }
        out.push(c);
    }
    if is_red {
        // A newline stays the last character.
        let end = if out.ends_with('\n') { out.len() - 1 } else { out.len() };
        out.insert_str(end, RESET);
    }
    out
}

/// Reports that there are no parameters of kernel modules, which `--module` selects. Returns the
/// exit code.
///
/// # Errors
/// The output cannot be written.
pub fn no_modules(command: &str, given: &ParsedArgs, tool: &mut Tool<'_>) -> io::Result<i32> {
    let errno = Errno::ENOENT;
    for pattern in &given.rest {
        writeln!(tool.err, "error: {command}: param_path '{}': {errno}", slashes(pattern))?;
    }
    writeln!(tool.err, "Sheen has no kernel modules; leave out --module")?;
    Ok(errno.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_names_have_no_indices() {
        for (name, group) in [
            ("osc.a-OST0000-osc-ff00.active", "osc.a-OST*-osc-ff00.active"),
            ("osp.a-OST00ff-osc-MDT0001.active", "osp.a-OST*-osc-MDT*.active"),
            ("mgc.MGC10.0.0.1:7988@tcp.active", "mgc.MGC*@tcp.active"),
            ("llite.OSTS-ff00.é", "llite.OSTS-ff00.é"),
            ("OST00", "OST00"),
            ("MGC", "MGC"),
        ] {
            assert_eq!(group_name(name), group);
        }
    }

    #[test]
    fn different_characters_are_red() {
        assert_eq!(marked("16", "16"), "16");
        assert_eq!(marked("128\n", "16\n"), format!("1{RED}28{RESET}\n"));
        assert_eq!(marked("a5c", "abc"), format!("a{RED}5{RESET}c"));
    }
}
