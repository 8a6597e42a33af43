//! `lctl lfsck_start`, `lfsck_stop` and `lfsck_query`: the scrub of an OST, Lustre's `-t scrub`.
//! Lustre's other checks, `namespace` and `layout`, do not exist here.

use std::ffi::OsString;
use std::io;

use sheen_wire::Errno;

use super::{devices, param, tool::Tool, usage};
use crate::lfs::getopt::{Item, Spec, Value};

const OPTIONS: Spec = Spec {
    short: "M:t:A",
    long: &[("device", Value::Required, "M"), ("type", Value::Required, "t"), ("all", Value::No, "A")],
};
/// The only check.
const SCRUB: &str = "scrub";

/// Runs one of the three commands.
///
/// # Errors
/// The output cannot be written.
pub fn run(command: &str, args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let (mut device, mut kinds, mut wrong) = (None, SCRUB.to_owned(), None);
    for item in OPTIONS.parse(&args) {
        let text = |value: Option<OsString>| value.unwrap_or_default().to_string_lossy().into_owned();
        match item {
            Item::Option { id: "M", value, .. } => device = Some(text(value)),
            Item::Option { id: "t", value, .. } => kinds = text(value),
            Item::Option { .. } => device = Some("*".to_owned()),
            Item::Operand(arg) | Item::Unrecognized(arg) => wrong = Some(arg),
        }
    }
    let Some(device) = device.filter(|_| wrong.is_none()) else {
        let reason = wrong.map_or_else(
            || "name an OST with -M, or all with -A".to_owned(),
            |arg| format!("unrecognized argument '{}'", arg.to_string_lossy()),
        );
        writeln!(tool.err, "error: {command}: {reason}")?;
        tool.out.write_all(usage::of(command).unwrap_or_default().as_bytes())?;
        return Ok(usage::EXIT);
    };
    if kinds.split(',').any(|kind| kind != SCRUB) {
        writeln!(tool.err, "error: {command}: -t {kinds}: the only check is {SCRUB}")?;
        return Ok(Errno::EINVAL.0);
    }
    if command == "lfsck_query" {
        return param::get(&["-n".to_owned(), format!("obdfilter.{device}.lfsck_scrub")], tool);
    }
    let starts = command == "lfsck_start";
    if device == "*" {
        let setting = format!("obdfilter.*.lfsck_scrub_run={}", u8::from(starts));
        return param::set(&["-n".to_owned(), setting], tool);
    }
    let code = devices::set_scrub(&device, command, starts, tool)?;
    if code == 0 {
        let done = if starts { "Started" } else { "Stopped" };
        writeln!(tool.out, "{done} LFSCK on the device {device}: {SCRUB}")?;
    }
    Ok(code)
}
