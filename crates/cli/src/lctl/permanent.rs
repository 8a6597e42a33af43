//! `lctl set_param -P` and `-d`: permanent settings; and `llog_print params`, which prints them.
//!
//! A value is first set on this machine, as without `-P`. A value that no parameter accepts is thus
//! refused at once and not stored. Then the MGS stores the setting. The process that serves it has
//! a parameter `mgs.MGS.live.params`, which shows the settings; writing to it changes them
//! (`sheen_mgs::settings`). A user who can reach the control socket of that process can therefore
//! change settings. Finally the command waits until the processes of this machine have received the
//! setting. Processes on other machines receive it a moment later.

use std::{io, thread, time::Duration};

use sheen_control::{Reply, Request};
use sheen_mgs::settings::{self, SettingChange};
use sheen_wire::Errno;
use sheen_wire::mgs::{SETTING_BYTES_MAX, SETTINGS_MAX};

use super::set_here::{SetHere, first, set_here, slashes};
use super::{tool::Tool, usage};
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

/// `llog_print params`
///
/// # Errors
/// The output cannot be written.
pub fn print(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let [log] = args else {
        tool.out.write_all(usage::of("llog_print").unwrap_or_default().as_bytes())?;
        return Ok(usage::EXIT);
    };
    if log != "params" {
        writeln!(tool.err, "llog_print: no log '{log}': the only log is 'params'")?;
        return Ok(Errno::ENOENT.0);
    }
    let mgs = match mgs_of("llog_print", None, tool)? {
        Ok(mgs) => mgs,
        Err(errno) => return Ok(errno.0),
    };
    for settings in values(&mgs.param, tool) {
        tool.out.write_all(settings.as_bytes())?;
    }
    Ok(0)
}

/// An MGS of this machine.
struct FoundMgs {
    /// Its parameter that shows the settings.
    param: String,
    /// The file systems that it knows.
    fsnames: Vec<String>,
}

fn one(change: SettingChange<'_>, quiet: bool, tool: &mut Tool<'_>) -> io::Result<Result<(), Errno>> {
    let (SettingChange::Set { pattern, .. } | SettingChange::Delete { pattern }) = change;
    let mgs = match mgs_of("set_param", Some(pattern), tool)? {
        Ok(mgs) => mgs,
        Err(errno) => return Ok(Err(errno)),
    };
    if let Some(fsname) = tool.fsname.as_ref().filter(|fsname| mgs.fsnames.len() > 1 && !names(pattern, fsname)) {
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
        match set_here(pattern, value, quiet, tool)? {
            SetHere { done: 0, refused: Some(errno) } => return Ok(Err(errno)),
            SetHere { done: 0, refused: None } => writeln!(
                tool.err,
                "warning: set_param: no parameter on this machine matches '{}' now; parameters elsewhere, and later ones, will be set",
                slashes(pattern)
            )?,
            SetHere { refused, .. } => partly = refused,
        }
    }
    let request = Request::Set { pattern: mgs.param.clone(), value: settings::write(change) };
    let results =
        tool.processes.ask(&request).into_iter().find_map(|r| if let Reply::Results(r) = r { Some(r) } else { None });
    let errno = results.and_then(|r| r.first().map(|set| Errno(set.errno))).unwrap_or(Errno::ENODEV);
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

/// Returns the MGS of this machine. If there are several, returns the one with the file system that
/// `--fsname` or the pattern names. On failure it has printed an error.
fn mgs_of(command: &str, pattern: Option<&str>, tool: &mut Tool<'_>) -> io::Result<Result<FoundMgs, Errno>> {
    let mut known: Vec<Vec<String>> = values("mgs.MGS.filesystems", tool)
        .iter()
        .map(|names| names.lines().map(ToString::to_string).collect())
        .collect();
    if let Some(fsname) = &tool.fsname {
        known.retain(|fsnames| fsnames.contains(fsname));
    }
    if let [fsnames] = &known[..] {
        let param = format!("mgs.MGS.live.{}", tool.fsname.as_deref().unwrap_or("params"));
        return Ok(Ok(FoundMgs { param, fsnames: fsnames.clone() }));
    }
    if known.is_empty() {
        let of = tool.fsname.as_ref().map(|fsname| format!(" of the file system '{fsname}'")).unwrap_or_default();
        writeln!(tool.err, "This command must be run on the MGS.\nerror: {command}: {}", Errno::ENODEV)?;
        writeln!(
            tool.err,
            "no MGS{of} that you can reach runs on this machine; run this command where 'sheen up' or 'sheen mgs' runs"
        )?;
        return Ok(Err(Errno::ENODEV));
    }
    let named = |fsname: &&String| pattern.is_some_and(|pattern| names(pattern, fsname));
    let mut meant = known.iter().filter_map(|fsnames| fsnames.iter().find(named).map(|fsname| (fsname, fsnames)));
    match (meant.next(), meant.next()) {
        (Some((fsname, fsnames)), None) => {
            Ok(Ok(FoundMgs { param: format!("mgs.MGS.live.{fsname}"), fsnames: fsnames.clone() }))
        }
        _ => {
            let hint =
                if pattern.is_some() { "name the file system in the pattern (osc.FSNAME-*.active), or " } else { "" };
            writeln!(
                tool.err,
                "error: {command}: several MGSs run on this machine; {hint}use --fsname or SHEEN_RUNTIME_DIR to select \
                 one"
            )?;
            Ok(Err(Errno::EINVAL))
        }
    }
}

/// Returns whether a component of the pattern names a target or mount of the file system.
fn names(pattern: &str, fsname: &str) -> bool {
    let is_of = |part: &str| part.strip_prefix(fsname).is_some_and(|rest| rest.starts_with('-'));
    // A server names its locks `filter-TARGET_UUID` or `mdt-TARGET_UUID`.
    let is_locks = |part: &str| ["filter-", "mdt-"].iter().any(|kind| part.strip_prefix(kind).is_some_and(is_of));
    pattern.split(['.', '/']).any(|part| is_of(part) || is_locks(part))
}

/// Waits until the processes of this machine that follow the MGS have applied its settings.
fn wait_until_received(mgs: &FoundMgs, tool: &mut Tool<'_>) -> io::Result<()> {
    let stored = values(&mgs.param, tool);
    for _ in 0..scaled(RECEIVE_TIMEOUT).as_millis() / POLL_INTERVAL.as_millis() {
        let heard = |fsname: &String| values(&format!("mgc/{fsname}/params"), tool).iter().all(|h| stored.contains(h));
        if mgs.fsnames.iter().all(heard) {
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
    }
    writeln!(tool.err, "warning: set_param: not all processes on this machine have received the setting yet")
}

fn values(pattern: &str, tool: &Tool<'_>) -> Vec<String> {
    let replies = tool.processes.ask(&Request::Get { pattern: pattern.to_string() });
    let found = replies.into_iter().flat_map(|reply| if let Reply::Values(found) = reply { found } else { Vec::new() });
    found.map(|f| f.value).collect()
}

#[cfg(test)]
mod tests;
