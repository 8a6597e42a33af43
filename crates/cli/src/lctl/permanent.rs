//! `lctl set_param -P`, `-d` and `-F`: permanent settings.
//!
//! A value is first set on this machine, as without `-P`. A value that no parameter accepts is thus
//! refused at once and not stored. Then the MGS stores the setting. The process that serves it has
//! a parameter `mgs.MGS.live.params`, which shows the settings; writing to it changes them
//! (`sheen_mgs::settings`). A user who can reach the control socket of that process can therefore
//! change settings. Finally the command waits until the processes of this machine have received the
//! setting. Processes on other machines receive it a moment later.

use std::{fs, io, thread, time::Duration};

use sheen_mgs::settings::{self, SettingChange};
use sheen_wire::Errno;
use sheen_wire::mgs::{SETTING_BYTES_MAX, SETTINGS_MAX};

use super::mgs::{self, FoundMgs};
use super::set_here::{SetHere, first, set_here, slashes};
use super::tool::Tool;
use crate::time_limits::scaled;

/// Time limit for the processes of this machine to receive a setting.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// `set_param -P PATTERN=VALUE...`; with `delete`: `set_param -P -d PATTERN...`. An empty value
/// deletes the setting, too.
///
/// # Errors
/// The output cannot be written.
pub fn set(args: &[String], delete: bool, quiet: bool, tool: &mut Tool<'_>) -> io::Result<i32> {
    let mut code = 0;
    for arg in args {
        let change = match arg.split_once('=') {
            Some((pattern, value)) if !delete && !value.is_empty() => SettingChange::Set { pattern, value },
            Some((pattern, _)) => SettingChange::Delete { pattern },
            None if delete => SettingChange::Delete { pattern: arg },
            None => {
                writeln!(tool.err, "error: set_param: setting {arg}: {}", Errno::EINVAL)?;
                code = first(code, Errno::EINVAL);
                continue;
            }
        };
        if let Err(errno) = one(change, quiet, tool)? {
            code = first(code, errno);
        }
    }
    Ok(code)
}

/// `set_param -F FILE...`: sets the permanent settings that `llog_print params` printed.
///
/// # Errors
/// The output cannot be written.
pub fn set_from_files(files: &[String], quiet: bool, tool: &mut Tool<'_>) -> io::Result<i32> {
    let mut code = 0;
    for file in files {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) => {
                let errno = Errno::from(e);
                writeln!(tool.err, "error: set_param: cannot read '{file}': {errno}")?;
                code = first(code, errno);
                continue;
            }
        };
        let settings: Vec<String> = text.lines().filter_map(setting_of_record).collect();
        if settings.is_empty() {
            writeln!(tool.err, "warning: set_param: '{file}' has no line with 'event: set_param'")?;
        }
        let done = set(&settings, false, quiet, tool)?;
        code = if code == 0 { done } else { code };
    }
    Ok(code)
}

/// Returns `PATTERN=VALUE` of a line of `llog_print`. `None`: the record is not a setting.
fn setting_of_record(line: &str) -> Option<String> {
    let (_, record) = line.trim_end().strip_suffix(" }")?.split_once("event: set_param,")?;
    let (pattern, value) = record.split_once("parameter: ")?.1.split_once(", value: ")?;
    Some(format!("{pattern}={value}"))
}

/// Returns the parameter of an MGS that shows its settings.
pub fn param(mgs: &FoundMgs) -> String {
    format!("mgs.MGS.live.{}", mgs.fsname.as_deref().unwrap_or("params"))
}

fn one(change: SettingChange<'_>, quiet: bool, tool: &mut Tool<'_>) -> io::Result<Result<(), Errno>> {
    let (SettingChange::Set { pattern, .. } | SettingChange::Delete { pattern }) = change;
    let mgs = match mgs::find("set_param", Some(pattern), tool)? {
        Ok(mgs) => mgs,
        Err(errno) => return Ok(Err(errno)),
    };
    if let Some(fsname) = tool.fsname.as_ref().filter(|fsname| mgs.fsnames.len() > 1 && !mgs::names(pattern, fsname)) {
        writeln!(
            tool.err,
            "error: set_param: the MGS would set '{}' in its other file systems, too: include '{fsname}' in the pattern \
             (osc.{fsname}-*.active)",
            slashes(pattern)
        )?;
        return Ok(Err(Errno::EINVAL));
    }
    // If some parameters accept the value and others do not, it is stored for those that do.
    let mut partly = None;
    if let SettingChange::Set { pattern, value } = change {
        if let Err(errno) = settings::check(pattern, value) {
            return refuse(change, errno, tool);
        }
        match set_here(pattern, value, quiet, Tool::ask, tool)? {
            SetHere { done: 0, refused: Some(errno) } => return Ok(Err(errno)),
            SetHere { done: 0, refused: None } => writeln!(
                tool.err,
                "warning: set_param: no parameter on this machine matches '{}' now; parameters elsewhere, and later ones, will be set",
                slashes(pattern)
            )?,
            SetHere { refused, .. } => partly = refused,
        }
    }
    let errno = mgs::order(&param(&mgs), settings::write(change), tool);
    if errno != Errno(0) {
        return refuse(change, errno, tool);
    }
    wait_until_received(&mgs, tool)?;
    Ok(partly.map_or(Ok(()), Err))
}

fn refuse(change: SettingChange<'_>, errno: Errno, tool: &mut Tool<'_>) -> io::Result<Result<(), Errno>> {
    let why = match (change, errno) {
        (SettingChange::Delete { .. }, Errno::ENOENT) => {
            "it has no permanent setting; 'lctl llog_print params' lists all settings".to_owned()
        }
        (_, Errno::ENOSPC) => format!("the MGS already stores {SETTINGS_MAX} settings; delete some with -d"),
        (_, Errno::ENAMETOOLONG) => format!("more than {SETTING_BYTES_MAX} characters"),
        (_, Errno::EINVAL) => {
            "it names a parameter of the MGS itself, or the pattern or value has unsupported characters".to_owned()
        }
        (_, Errno::ETIMEDOUT) => "the MGS waits for its disk; the setting is stored when the disk responds".to_owned(),
        (_, errno) => errno.to_string(),
    };
    let (SettingChange::Set { pattern, .. } | SettingChange::Delete { pattern }) = change;
    let what = if matches!(change, SettingChange::Set { .. }) { "storing" } else { "deleting" };
    writeln!(tool.err, "error: set_param: {what} '{}': {why}", slashes(pattern))?;
    Ok(Err(errno))
}

/// Waits until the processes of this machine that follow the MGS have applied its settings.
fn wait_until_received(mgs: &FoundMgs, tool: &mut Tool<'_>) -> io::Result<()> {
    let stored = mgs::values(&param(mgs), tool);
    for _ in 0..scaled(RECEIVE_TIMEOUT).as_millis() / POLL_INTERVAL.as_millis() {
        let heard =
            |fsname: &String| mgs::values(&format!("mgc/{fsname}/params"), tool).iter().all(|h| stored.contains(h));
        if mgs.fsnames.iter().all(heard) {
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
    }
    writeln!(tool.err, "warning: set_param: not all processes on this machine have received the setting yet")
}

#[cfg(test)]
mod tests;
