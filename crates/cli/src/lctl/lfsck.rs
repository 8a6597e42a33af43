//! `lctl lfsck_start`, `lfsck_stop` and `lfsck_query`: the scrub of an OST (Lustre's `-t scrub`),
//! and the check of an MDT (`-t namespace`), which covers what Lustre's `-t layout` does.

use std::ffi::OsString;
use std::io;

use sheen_wire::Errno;

use super::{devices, param, tool::Tool, usage};
use crate::lfs::getopt::{Item, Spec, Value};

const OPTIONS: Spec = Spec {
    short: "M:t:Ao",
    long: &[
        ("device", Value::Required, "M"),
        ("type", Value::Required, "t"),
        ("all", Value::No, "A"),
        ("orphan", Value::No, "o"),
        ("repair", Value::No, "repair"),
    ],
};
/// A check: its name for `-t`, and the kind of device that has it.
struct Check {
    name: &'static str,
    kind: &'static str,
}

const CHECKS: [Check; 2] = [Check { name: "namespace", kind: "mdt" }, Check { name: "scrub", kind: "obdfilter" }];
/// Lustre's name of a check that is a part of `namespace` here.
const LAYOUT: &str = "layout";
const ALL: &str = "all";
const START: &str = "lfsck_start";

/// A choice of repairs: the parameter that starts the check, after `lfsck_namespace_`, and the
/// option.
#[derive(Clone, Copy)]
struct Repairs {
    param: &'static str,
    option: &'static str,
}

const ORPHANS: Repairs = Repairs { param: "orphans", option: "-o" };
const ALL_REPAIRS: Repairs = Repairs { param: "repair", option: "--repair" };

/// Runs one of the three commands.
///
/// # Errors
/// The output cannot be written.
pub fn run(command: &str, args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let (mut device, mut types, mut repairs, mut wrong) = (None, ALL.to_owned(), None, None);
    for item in OPTIONS.parse(&args) {
        let text = |value: Option<OsString>| value.unwrap_or_default().to_string_lossy().into_owned();
        match item {
            Item::Option { id: "M", value, .. } => device = Some(text(value)),
            Item::Option { id: "t", value, .. } => types = text(value),
            // All repairs include those of orphans.
            Item::Option { id: "o", .. } if command == START => repairs = repairs.or(Some(ORPHANS)),
            Item::Option { id: "repair", .. } if command == START => repairs = Some(ALL_REPAIRS),
            Item::Option { id: "o", .. } => wrong = Some(ORPHANS.option.into()),
            Item::Option { id: "repair", .. } => wrong = Some(ALL_REPAIRS.option.into()),
            Item::Option { .. } => device = Some("*".to_owned()),
            Item::Operand(arg) | Item::Unrecognized(arg) => wrong = Some(arg),
        }
    }
    let Some(device) = device.filter(|_| wrong.is_none()) else {
        let reason = wrong.map_or_else(
            || "name an MDT or OST with -M, or all with -A".to_owned(),
            |arg| format!("unrecognized argument '{}'", arg.to_string_lossy()),
        );
        writeln!(tool.err, "error: {command}: {reason}")?;
        tool.out.write_all(usage::of(command).unwrap_or_default().as_bytes())?;
        return Ok(usage::EXIT);
    };
    let is_known = |word: &str| [ALL, LAYOUT].contains(&word) || CHECKS.iter().any(|check| check.name == word);
    if let Some(word) = types.split(',').find(|word| !is_known(word)) {
        writeln!(tool.err, "error: {command}: -t {word}: the checks are namespace, layout, scrub and all")?;
        return Ok(Errno::EINVAL.0);
    }
    let is_wanted = |check: &&Check| {
        types.split(',').any(|word| word == ALL || word == check.name || (word == LAYOUT && check.kind == "mdt"))
    };
    let mut checks: Vec<&Check> = CHECKS.iter().filter(is_wanted).collect();
    if let Some(Repairs { option, .. }) = repairs {
        checks.retain(|check| check.kind == "mdt");
        if checks.is_empty() {
            writeln!(tool.err, "error: {command}: {option}: only the check of an MDT repairs")?;
            return Ok(Errno::EINVAL.0);
        }
    }
    let mut name = device.clone();
    if device != "*" {
        let found = match devices::find(&device, command, tool)? {
            Ok(found) => found,
            Err(errno) => return Ok(errno.0),
        };
        checks.retain(|check| check.kind == found.kind);
        if checks.is_empty() {
            writeln!(tool.err, "error: {command}: '{}' of type {} has no such check", found.name, found.kind)?;
            return Ok(Errno::EINVAL.0);
        }
        name = found.name;
    }
    // A host may have MDTs or OSTs only. So one pattern stands for both checks.
    let [status, run] = match checks[..] {
        [only] => [format!("*.{name}.lfsck_{}", only.name), format!("*.{name}.lfsck_{}_run", only.name)],
        _ => [format!("*.{name}.lfsck_[ns]*[be]"), format!("*.{name}.lfsck_*_run")],
    };
    if command == "lfsck_query" {
        // Of several devices the names are printed, too.
        let options = if device == "*" { vec![] } else { vec!["-n".to_owned()] };
        return param::get(&[options, vec![status]].concat(), tool);
    }
    let run = repairs.map_or(run, |repairs| format!("mdt.{name}.lfsck_namespace_{}", repairs.param));
    let starts = command == START;
    let code = param::set(&["-n".to_owned(), format!("{run}={}", u8::from(starts))], tool)?;
    if code == 0 {
        let done = if starts { "Started" } else { "Stopped" };
        let names: Vec<&str> = checks.iter().map(|check| check.name).collect();
        let on = if device == "*" { "all devices".to_owned() } else { format!("the device {name}") };
        writeln!(tool.out, "{done} LFSCK on {on}: {}", names.join(" "))?;
    }
    Ok(code)
}
