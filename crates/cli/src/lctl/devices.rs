//! `lctl dl`, `lctl list_nids`, `lctl device`, and `lctl --device DEVICE` with `activate`,
//! `deactivate` and `abort_recovery`.

use std::io::{self, Write};

use sheen_control::{Reply, Request};
use sheen_params::Device;
use sheen_wire::{Errno, mgs::data_name};

use super::options::{self, FSNAME};
use super::{tool::Tool, usage};
use crate::lfs::getopt::{Spec, Value};

const DL: Spec = Spec { short: "ty", long: &[("target", Value::No, "t"), ("yaml", Value::No, "y"), FSNAME] };
const LIST_NIDS: Spec = Spec { short: "", long: &[FSNAME] };

/// Prints the devices of all processes, numbered consecutively. Those of other users' processes
/// come last.
///
/// # Errors
/// The output cannot be written.
pub fn dl(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = options::parse("dl", &DL, args, tool)? else { return Ok(usage::EXIT) };
    let devices = devices(tool.ask_readable(Request::Devices));
    if given.has("y") {
        print_yaml(&devices, given.has("t"), tool.out)?;
        return Ok(0);
    }
    for (index, d) in devices.into_iter().enumerate() {
        write!(tool.out, "{index:3} {} {} {} {} {}", d.status, d.kind, d.name, d.uuid, d.refcount)?;
        match d.peer.filter(|_| given.has("t")) {
            Some(peer) => writeln!(tool.out, " {peer}")?,
            None => writeln!(tool.out)?,
        }
    }
    Ok(0)
}

/// Prints devices as YAML. `peers`: with the NIDs of their other ends.
fn print_yaml(devices: &[Device], peers: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "devices:")?;
    for (index, d) in devices.iter().enumerate() {
        writeln!(out, "- index: {index}\n  status: {}\n  type: {}\n  name: {}", d.status, d.kind, d.name)?;
        writeln!(out, "  uuid: {}\n  refcount: {}", d.uuid, d.refcount)?;
        if let Some(peer) = d.peer.as_ref().filter(|_| peers) {
            writeln!(out, "  nid: {peer}")?;
        }
    }
    Ok(())
}

/// `device DEVICE`: selects the device of the commands that follow in interactive mode. Lustre
/// accepts the name after `$` or `%` as well.
///
/// # Errors
/// The output cannot be written.
pub fn select(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let [device] = args else { return options::wrong("device", tool) };
    let found = match find(device.trim_start_matches(['$', '%']), "device", tool)? {
        Ok(found) => found,
        Err(errno) => return Ok(errno.0),
    };
    tool.device = Some(found.name);
    Ok(0)
}

/// Returns the devices in replies. Their places in the list are their numbers.
fn devices(replies: Vec<Reply>) -> Vec<Device> {
    replies.into_iter().flat_map(|reply| if let Reply::Devices(d) = reply { d } else { Vec::new() }).collect()
}

/// `--device DEVICE activate|deactivate`: sets `osc.DEVICE.active` until the process ends. `device`
/// is the name or the number of a connection to an OST.
///
/// # Errors
/// The output cannot be written.
pub fn set_active(device: &str, command: &str, tool: &mut Tool<'_>) -> io::Result<i32> {
    let set = Setting { kind: Some("osc"), field: "active", value: u8::from(command == "activate") };
    let other = "no connection to an OST; those have the type osc or osp";
    set_on(device, command, &set, other, tool)
}

/// `--device DEVICE abort_recovery`: an MDT, its data service, or an OST no longer waits for
/// clients that have not recovered.
///
/// # Errors
/// The output cannot be written.
pub fn abort_recovery(device: &str, tool: &mut Tool<'_>) -> io::Result<i32> {
    let set = Setting { kind: None, field: "abort_recovery", value: 1 };
    let other = "no MDT or OST; those have the types mdt and obdfilter";
    // The data service of an MDT is no device of Lustre's, so the list of devices lacks it.
    // The name becomes a pattern of parameters: it must not stand for several data services.
    if device.ends_with(&data_name("")) && !device.contains(['*', '?', '[', '\\']) {
        return set_field("dom", device, "abort_recovery", &set, other, tool);
    }
    set_on(device, "abort_recovery", &set, other, tool)
}

/// Returns the device of this name or number. Reports that there is none (ENODEV), or that it
/// belongs to a process that the user may not control (EACCES).
///
/// # Errors
/// The output cannot be written.
pub fn find(device: &str, command: &str, tool: &mut Tool<'_>) -> io::Result<Result<Device, Errno>> {
    let own = devices(tool.ask(Request::Devices));
    let first_of_others = own.len();
    let mut all = own.into_iter().chain(devices(tool.ask_public(Request::Devices))).enumerate();
    match all.find(|(i, d)| d.name == device || i.to_string() == device) {
        Some((index, found)) if index < first_of_others => Ok(Ok(found)),
        Some(_) => {
            let advice = "run lctl as that user or as root";
            writeln!(tool.err, "error: {command}: '{device}' belongs to a process of another user; {advice}")?;
            Ok(Err(Errno::EACCES))
        }
        None => {
            writeln!(tool.err, "error: {command}: no device '{device}'; 'lctl dl' lists names and numbers")?;
            Ok(Err(Errno::ENODEV))
        }
    }
}

/// A parameter `KIND.DEVICE.FIELD` and its new value. `kind`: the type of the device, if `None`.
struct Setting {
    kind: Option<&'static str>,
    field: &'static str,
    value: u8,
}

/// Sets a parameter of a device. `other`: what a device without this parameter is not.
fn set_on(device: &str, command: &str, setting: &Setting, other: &str, tool: &mut Tool<'_>) -> io::Result<i32> {
    let found = match find(device, command, tool)? {
        Ok(found) => found,
        Err(errno) => return Ok(errno.0),
    };
    set_field(setting.kind.unwrap_or(&found.kind), &found.name, command, setting, other, tool)
}

/// As [`set_on`], for a device of this kind and name.
fn set_field(
    kind: &str,
    device: &str,
    command: &str,
    setting: &Setting,
    other: &str,
    tool: &mut Tool<'_>,
) -> io::Result<i32> {
    let name = format!("{kind}.{device}.{}", setting.field);
    let set = Request::Set { pattern: name.clone(), value: setting.value.to_string() };
    let results = tool.ask(set).into_iter().flat_map(|r| if let Reply::Results(r) = r { r } else { Vec::new() });
    // Several processes may have a connection of this name; the first error counts.
    let Some(errno) = results.map(|r| r.errno).reduce(|first, next| if first == 0 { next } else { first }) else {
        writeln!(tool.err, "error: {command}: '{device}' is {other}")?;
        return Ok(Errno::EINVAL.0);
    };
    if errno != 0 {
        writeln!(tool.err, "error: {command}: setting {name}: {}", Errno(errno))?;
    }
    Ok(errno)
}

/// Prints the NIDs of all processes.
///
/// # Errors
/// The output cannot be written.
pub fn list_nids(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    if options::parse("list_nids", &LIST_NIDS, args, tool)?.is_none() {
        return Ok(usage::EXIT);
    }
    let replies = tool.ask(Request::Nids);
    let mut nids: Vec<String> =
        replies.into_iter().flat_map(|reply| if let Reply::Nids(n) = reply { n } else { Vec::new() }).collect();
    nids.sort();
    nids.dedup();
    for nid in nids {
        writeln!(tool.out, "{nid}")?;
    }
    Ok(0)
}
