//! `lctl get_param`, `set_param` and `list_param`.

use std::io::{self, Write};

use sheen_control::{Reply, Request};
use sheen_params::{Found, Node, TypedParam};
use sheen_wire::Errno;

use super::options::{self, FSNAME, ParsedArgs};
use super::set_here::{SetHere, first, set_here, slashes};
use super::shown::{self, BLUE, RESET, Row};
use super::{json, permanent, tool::Tool, usage};
use crate::lfs::getopt::{self, Long, Spec, Value};

const GET: Spec = Spec {
    short: "nNFRtwyHprlLmMbc:o",
    long: &getopt::join::<{ GET_LONG.len() + COMMON_LONG.len() }>(GET_LONG, COMMON_LONG),
};
const GET_LONG: &[Long] = &[
    ("no-name", Value::No, "n"),
    ("only-name", Value::No, "N"),
    ("only-tunable", Value::No, "t"),
    ("yaml", Value::No, "y"),
    ("header", Value::No, "H"),
    ("color", Value::Required, "c"),
    ("json", Value::No, "json"),
];
const LIST: Spec = Spec {
    short: "FRDwprlLmMbc::o",
    long: &getopt::join::<{ LIST_LONG.len() + COMMON_LONG.len() }>(LIST_LONG, COMMON_LONG),
};
const LIST_LONG: &[Long] = &[("dir-only", Value::No, "D"), ("color", Value::Optional, "c")];
/// The long options of both `get_param` and `list_param`. There are neither links nor unreadable
/// parameters.
const COMMON_LONG: &[Long] = &[
    ("classify", Value::No, "F"),
    ("recursive", Value::No, "R"),
    ("writable", Value::No, "w"),
    ("path", Value::No, "p"),
    ("readable", Value::No, "r"),
    ("links", Value::No, "l"),
    ("no-links", Value::No, "L"),
    ("merge", Value::No, "m"),
    ("no-merge", Value::No, "M"),
    ("dshbak", Value::No, "b"),
    ("module", Value::No, "o"),
    FSNAME,
];
const SET: Spec = Spec {
    short: "nPdFC::",
    long: &[
        ("no-name", Value::No, "n"),
        ("permanent", Value::No, "P"),
        ("delete", Value::No, "d"),
        ("file", Value::No, "F"),
        ("client", Value::Optional, "C"),
        FSNAME,
    ],
};

/// Number of components that a recursive listing descends at most. No parameter is deeper.
const DEPTH_MAX: usize = 6;

/// Prints values.
///
/// # Errors
/// The output cannot be written.
pub fn get(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = patterns("get_param", &GET, args, tool)? else { return Ok(usage::EXIT) };
    let Some(colors) = shown::colors(&given, tool) else { return options::wrong("get_param", tool) };
    if given.has("o") {
        return shown::no_modules("get_param", &given, tool);
    }
    if given.has("json") {
        return get_json(&given, tool);
    }
    let mut code = 0;
    for pattern in &given.rest {
        let values = |reply| if let Reply::Values(values) = reply { Some(values) } else { None };
        let request = |pattern| Request::Get { pattern };
        let (mut found, error): (Vec<Found>, _) = ask("get_param", pattern, &given, tool, request, values)?;
        code = error.map_or(code, |error| first(code, error));
        found.sort_by(|a, b| a.name.cmp(&b.name));
        // Every process has a `version`. Equal lines are printed once.
        if !given.has("M") {
            found.dedup();
        }
        found.retain(|f| f.writable || !only_writable(&given));
        let rows = shown::rows(found, &given);
        // The values of a group have one name.
        let mut wanted = rows.iter().filter(|row| row.first.is_none() || !given.has("N"));
        wanted.try_for_each(|row| show(row, &given, colors, tool.out))?;
    }
    Ok(code)
}

/// `get_param --json`: prints one array for all patterns.
fn get_json(given: &ParsedArgs, tool: &mut Tool<'_>) -> io::Result<i32> {
    let (mut all, mut code, mut is_refused) = (Vec::new(), 0, false);
    for pattern in &given.rest {
        let values = |reply| match reply {
            Reply::Typed(values) => Some(values),
            Reply::Error { errno } => {
                is_refused |= errno == Errno::EPROTO.0;
                None
            }
            _ => None,
        };
        let request = |pattern| Request::GetTyped { pattern };
        let (mut found, error): (Vec<TypedParam>, _) = ask("get_param", pattern, given, tool, request, values)?;
        code = error.map_or(code, |error| first(code, error));
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup();
        all.extend(found.into_iter().filter(|f| f.writable || !only_writable(given)));
    }
    tool.out.write_all(json::render(&all)?.as_bytes())?;
    if is_refused {
        writeln!(
            tool.err,
            "warning: get_param: processes of an earlier release do not support --json and are left out"
        )?;
    }
    Ok(code)
}

/// Sends a request for a pattern and, with `-R`, for the names below it. Returns the values of all
/// replies. Reports and returns an error if no process has a match, or if one sends no values.
fn ask<T>(
    command: &str,
    pattern: &str,
    given: &ParsedArgs,
    tool: &mut Tool<'_>,
    request: impl Fn(String) -> Request,
    mut values: impl FnMut(Reply) -> Option<Vec<T>>,
) -> io::Result<(Vec<T>, Option<Errno>)> {
    let (mut all, mut unsent) = (None, None);
    for pattern in deeper(pattern, given.has("R")) {
        for reply in tool.ask_readable(request(pattern)) {
            unsent = unsent.or(why_unsent(&reply));
            if let Some(found) = values(reply) {
                all.get_or_insert_with(Vec::new).extend(found);
            }
        }
    }
    let error = match (unsent, &all) {
        (Some((errno, advice)), _) => Some(incomplete(command, pattern, errno, advice, tool)?),
        (None, Some(_)) => None,
        (None, None) => Some(missing(command, pattern, tool)?),
    };
    Ok((all.unwrap_or_default(), error))
}

fn only_writable(given: &ParsedArgs) -> bool {
    given.has("w") || given.has("t")
}

fn show(row: &Row, given: &ParsedArgs, colors: bool, out: &mut dyn Write) -> io::Result<()> {
    let Found { name, writable, .. } = &row.found;
    let name = shown_name(name, given);
    let class = if given.has("F") && *writable { "=" } else { "" };
    let all = row.value(colors);
    let value = all.strip_suffix('\n').unwrap_or(&all);
    let lines = all.contains('\n');
    match (given.has("N"), given.has("n"), given.has("y")) {
        (true, _, _) => writeln!(out, "{name}{class}"),
        (_, true, _) => writeln!(out, "{value}"),
        _ if given.has("H") => value.split('\n').try_for_each(|line| writeln!(out, "{name}{class}={line}")),
        (_, _, true) if lines => {
            writeln!(out, "{name}: |")?;
            value.lines().try_for_each(|line| writeln!(out, "  {line}"))
        }
        (_, _, true) => writeln!(out, "{name}: {value}"),
        _ if lines => writeln!(out, "{name}{class}=\n{value}"),
        _ => writeln!(out, "{name}{class}={value}"),
    }
}

/// Returns a name as the options demand it: with `-p` as a path, which is also a pattern that
/// matches the parameter.
fn shown_name(name: &str, given: &ParsedArgs) -> String {
    if given.has("p") { slashes(name) } else { name.to_owned() }
}

/// Sets values.
///
/// # Errors
/// The output cannot be written.
pub fn set(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = patterns("set_param", &SET, args, tool)? else { return Ok(usage::EXIT) };
    if given.has("d") && given.has("F") {
        writeln!(tool.err, "set_param: -d cannot be combined with -F")?;
        return options::wrong("set_param", tool);
    }
    if given.has("C") {
        let errno = Errno::EOPNOTSUPP;
        writeln!(tool.err, "error: set_param: -C: {errno}: clients store no settings of their own")?;
        writeln!(tool.err, "use 'lctl set_param -P' on the MGS, or run 'lctl set_param' after each mount")?;
        return Ok(errno.0);
    }
    if given.has("d") && !given.has("P") {
        writeln!(tool.err, "warning: setting '-P' option with '-d'")?;
    }
    if given.has("F") {
        return permanent::set_from_files(&given.rest, given.has("n"), tool);
    }
    if given.has("P") || given.has("d") {
        return permanent::set(&given.rest, given.has("d"), given.has("n"), tool);
    }
    let mut code = 0;
    for arg in &given.rest {
        let Some((pattern, value)) = arg.split_once('=') else {
            writeln!(tool.err, "error: set_param: setting {arg}: {}", Errno::EINVAL)?;
            code = first(code, Errno::EINVAL);
            continue;
        };
        let set = set_here(pattern, value, given.has("n"), Tool::ask_readable, tool)?;
        if set == (SetHere { done: 0, refused: None }) {
            let errno = missing("set_param", pattern, tool)?;
            writeln!(tool.err, "error: set_param: setting '{}'='{value}': {errno}", slashes(pattern))?;
            code = first(code, errno);
        }
        if let Some(errno) = set.refused {
            code = first(code, errno);
        }
    }
    Ok(code)
}

/// Prints names.
///
/// # Errors
/// The output cannot be written.
pub fn list(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = patterns("list_param", &LIST, args, tool)? else { return Ok(usage::EXIT) };
    let Some(colors) = shown::colors(&given, tool) else { return options::wrong("list_param", tool) };
    if given.has("o") {
        return shown::no_modules("list_param", &given, tool);
    }
    let mut code = 0;
    for pattern in &given.rest {
        let nodes = |reply| if let Reply::Nodes(nodes) = reply { Some(nodes) } else { None };
        let request = |pattern| Request::List { pattern };
        let (mut nodes, error): (Vec<Node>, _) = ask("list_param", pattern, &given, tool, request, nodes)?;
        code = error.map_or(code, |error| first(code, error));
        if given.has("b") {
            nodes.iter_mut().for_each(|node| node.name = shown::group_name(&node.name));
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        if !given.has("M") || given.has("b") {
            nodes.dedup_by(|a, b| a.name == b.name);
        }
        for node in nodes.iter().filter(|node| is_listed(node, &given)) {
            let class = match given.has("F") {
                true if node.dir => "/",
                true if node.writable => "=",
                _ => "",
            };
            let name = shown_name(&node.name, &given);
            if colors && node.dir {
                writeln!(tool.out, "{BLUE}{name}{class}{RESET}")?;
            } else {
                writeln!(tool.out, "{name}{class}")?;
            }
        }
    }
    Ok(code)
}

/// Returns whether the options of `list_param` select this name. A directory is neither readable
/// nor writable.
fn is_listed(node: &Node, given: &ParsedArgs) -> bool {
    if node.dir {
        return !given.has("r") && !given.has("w");
    }
    !given.has("D") && (node.writable || !given.has("w"))
}

/// Parses options and at least one pattern. Returns `None` after a usage error.
fn patterns(command: &str, spec: &Spec, args: &[String], tool: &mut Tool<'_>) -> io::Result<Option<ParsedArgs>> {
    let Some(given) = options::parse(command, spec, args, tool)? else { return Ok(None) };
    if given.rest.is_empty() {
        tool.out.write_all(usage::of(command).unwrap_or_default().as_bytes())?;
        return Ok(None);
    }
    Ok(Some(given))
}

/// Returns the pattern and, if `recursive`, the patterns of the names below it.
fn deeper(pattern: &str, recursive: bool) -> Vec<String> {
    let below = if recursive { DEPTH_MAX } else { 0 };
    (0..=below).map(|n| format!("{pattern}{}", ".*".repeat(n))).collect()
}

/// Returns why a process sent no values although some may match, and what to do.
fn why_unsent(reply: &Reply) -> Option<(Errno, &'static str)> {
    let Reply::Error { errno } = reply else { return None };
    match Errno(*errno) {
        errno @ Errno::EMSGSIZE => {
            Some((errno, "a process has a value that is too long, or too many values; use a narrower pattern"))
        }
        errno @ Errno::EBUSY => Some((errno, "a process serves too many requests of other users now; try again")),
        _ => None,
    }
}

/// Reports that a process sent no values. Returns the error.
fn incomplete(command: &str, pattern: &str, errno: Errno, advice: &str, tool: &mut Tool<'_>) -> io::Result<Errno> {
    writeln!(tool.err, "error: {command}: param_path '{}': {errno}\n{advice}", slashes(pattern))?;
    Ok(errno)
}

/// Reports that no parameter matches. Returns the error: EACCES if there may be one in a process
/// that this user may not query, or only read in part.
fn missing(command: &str, pattern: &str, tool: &mut Tool<'_>) -> io::Result<Errno> {
    let is_reached = tool.ask(Request::Nids).iter().any(|reply| matches!(reply, Reply::Nids(_)));
    // They refuse the request, but they are there.
    let has_public = !tool.processes.ask_public(&Request::Nids).is_empty();
    let is_denied = !is_reached && (has_public || tool.processes.denied());
    let errno = if is_denied { Errno::EACCES } else { Errno::ENOENT };
    writeln!(tool.err, "error: {command}: param_path '{}': {errno}", slashes(pattern))?;
    if is_reached {
        if has_public {
            writeln!(tool.err, "processes of other users show only a part of their parameters")?;
        }
        return Ok(errno);
    }
    match &tool.fsname {
        _ if is_denied => {
            writeln!(tool.err, "the Sheen processes here belong to other users; run lctl as their user or as root")?;
        }
        Some(fsname) => {
            writeln!(tool.err, "no Sheen process that you can reach here serves or mounts the file system '{fsname}'")?;
        }
        None if tool.processes.silent().is_empty() => {
            let hint = "start one with 'sheen up' or 'sheen mount'";
            writeln!(tool.err, "no Sheen process that you can reach runs here; {hint}")?;
        }
        // The caller reports these processes at the end.
        None => {}
    }
    Ok(errno)
}
