//! `lctl pool_new`, `pool_add`, `pool_remove`, `pool_destroy` and `pool_list`.
//!
//! The MGS makes each change. The process that serves it has a parameter `mgs.MGS.pools.FSNAME`,
//! which shows the pools; writing to it changes them (`sheen_mgs::pools`). A user who can reach the
//! control socket of that process can therefore change pools. After the change the command waits
//! until the MDTs of this machine have received it, so that the next command finds the pool. MDTs
//! on other machines receive it a moment later.

use std::fmt;
use std::io;

use sheen_mgs::pools;
use sheen_wire::Errno;
use sheen_wire::mgs::{NO_POOLS, Pool, PoolChange, TARGETS_MAX, TargetKind, parse_ost, target_name};

use super::{mgs, tool::Tool, usage};
use crate::lfs::pool_list;

/// `pool_new FSNAME.POOL`
///
/// # Errors
/// The output cannot be written.
pub fn new(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    one("pool_new", args, PoolChange::New, tool)
}

/// `pool_destroy FSNAME.POOL`
///
/// # Errors
/// The output cannot be written.
pub fn destroy(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    one("pool_destroy", args, PoolChange::Destroy, tool)
}

/// `pool_add FSNAME.POOL OST...`
///
/// # Errors
/// The output cannot be written.
pub fn add(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    several("pool_add", args, |ost| PoolChange::Add { ost }, tool)
}

/// `pool_remove FSNAME.POOL OST...`
///
/// # Errors
/// The output cannot be written.
pub fn remove(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    several("pool_remove", args, |ost| PoolChange::Remove { ost }, tool)
}

/// `pool_list FSNAME[.POOL] | PATH`: prints the pools that the MGS of this machine knows. Without
/// such an MGS, prints those of a mount.
///
/// # Errors
/// The output cannot be written.
pub fn list(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let [what] = args else { return wrong("pool_list", tool) };
    let (fsname, pool) = what.split_once('.').map_or((what.as_str(), None), |(fsname, pool)| (fsname, Some(pool)));
    let known = if pools::check_name(fsname).is_ok() { pools_of(fsname, tool) } else { Vec::new() };
    let Some(known) = known.into_iter().next() else {
        return Ok(pool_list::for_lctl(what, tool.out, tool.err));
    };
    let Some(name) = pool else {
        tool.out.write_all(pool_list::names(fsname, &known).as_bytes())?;
        return Ok(0);
    };
    writeln!(tool.out, "Pool: {what}")?;
    match known.iter().find(|p| p.name == name) {
        Some(pool) => {
            tool.out.write_all(pool_list::members(fsname, pool).as_bytes())?;
            Ok(0)
        }
        None => {
            tool.out.flush()?;
            writeln!(tool.err, "pool_list: pool {what} not found")?;
            Ok(Errno::ENOENT.0)
        }
    }
}

/// A pool name in a file system that the MGS of this machine knows.
struct PoolName {
    fsname: String,
    pool: String,
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.fsname, self.pool)
    }
}

fn one(command: &str, args: &[String], change: PoolChange, tool: &mut Tool<'_>) -> io::Result<i32> {
    let [name] = args else { return wrong(command, tool) };
    let named = match named(command, name, tool)? {
        Ok(named) => named,
        Err(errno) => return Ok(errno.0),
    };
    let code = make(command, &named, change, tool)?;
    wait_until_received(&named, tool)?;
    Ok(code)
}

fn several(command: &str, args: &[String], change: impl Fn(u32) -> PoolChange, tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some((name, osts)) = args.split_first().filter(|(_, osts)| !osts.is_empty()) else {
        return wrong(command, tool);
    };
    let Some(osts) = osts.iter().map(|list| expand(list)).collect::<Option<Vec<_>>>() else {
        return wrong(command, tool);
    };
    let named = match named(command, name, tool)? {
        Ok(named) => named,
        Err(errno) => return Ok(errno.0),
    };
    let mut code = 0;
    for ost in osts.iter().flatten() {
        let done = match parse_ost(&named.fsname, ost) {
            Some(index) => make(command, &named, change(index), tool)?,
            None => {
                let fsname = &named.fsname;
                writeln!(
                    tool.err,
                    "{command}: invalid OST '{ost}' of '{fsname}': expected OST0000 or {fsname}-OST0000"
                )?;
                Errno::EINVAL.0
            }
        };
        code = if code == 0 { done } else { code };
    }
    wait_until_received(&named, tool)?;
    Ok(code)
}

/// Prints the usage after an invalid call.
fn wrong(command: &str, tool: &mut Tool<'_>) -> io::Result<i32> {
    tool.out.write_all(usage::of(command).unwrap_or_default().as_bytes())?;
    Ok(usage::EXIT)
}

/// Parses `FSNAME.POOL` and checks that exactly one MGS of this machine knows the file system. On
/// failure it has printed an error.
fn named(command: &str, name: &str, tool: &mut Tool<'_>) -> io::Result<Result<PoolName, Errno>> {
    let Some((fsname, pool)) = name.split_once('.') else {
        return refuse(command, Errno::EINVAL, Errno::EINVAL.text(), tool);
    };
    match pools::check_name(fsname).and_then(|()| pools::check_name(pool)) {
        Ok(()) => {}
        Err(Errno::ENAMETOOLONG) => {
            writeln!(tool.err, "{command}: poolname is too long")?;
            return refuse(command, Errno::ENAMETOOLONG, Errno::ENAMETOOLONG.text(), tool);
        }
        Err(errno) => {
            let text = "can contain only alphanumeric characters, underscores, and dashes besides the required '.'";
            return refuse(command, errno, text, tool);
        }
    }
    match mgs::value_of(&param(fsname), fsname, tool) {
        Ok(_) => Ok(Ok(PoolName { fsname: fsname.to_string(), pool: pool.to_string() })),
        Err((errno, why)) => refuse(command, errno, &why, tool),
    }
}

fn refuse(command: &str, errno: Errno, what: &str, tool: &mut Tool<'_>) -> io::Result<Result<PoolName, Errno>> {
    writeln!(tool.err, "{command}: {what}")?;
    Ok(Err(errno))
}

/// Makes the MGS apply a change, and prints the result.
fn make(command: &str, named: &PoolName, change: PoolChange, tool: &mut Tool<'_>) -> io::Result<i32> {
    let value = pools::write(&named.fsname, &named.pool, change);
    let errno = mgs::order(&param(&named.fsname), value, tool);
    let ost = |ost| format!("{}_UUID", target_name(&named.fsname, TargetKind::Ost, ost));
    let text = match (errno, change) {
        (Errno(0), PoolChange::New) => format!("Pool {named} created"),
        (Errno(0), PoolChange::Destroy) => format!("Pool {named} destroyed"),
        (Errno(0), PoolChange::Add { ost: index }) => format!("OST {} added to pool {named}", ost(index)),
        (Errno(0), PoolChange::Remove { ost: index }) => format!("OST {} removed from pool {named}", ost(index)),
        (errno, change) => {
            let why = match (errno, change) {
                (Errno::EEXIST, PoolChange::New) => format!("pool {named} already exists"),
                (Errno::EEXIST, PoolChange::Add { ost: index }) => format!("{} is already in pool {named}", ost(index)),
                (Errno::ENODEV, PoolChange::Add { ost: index }) => {
                    format!("{} is not part of the '{}' fs.", ost(index), named.fsname)
                }
                (pools::ENOMEDIUM, _) | (Errno::ENOENT, PoolChange::Destroy) => format!("pool {named} not found"),
                (Errno::ENOENT, PoolChange::Remove { ost: index }) => {
                    format!("{} not found in pool {named}", ost(index))
                }
                (Errno::EINVAL, PoolChange::New) if NO_POOLS.contains(&named.pool.as_str()) => {
                    format!("poolname cannot be '{}': the name is reserved and means no pool", named.pool)
                }
                (errno, _) => errno.to_string(),
            };
            format!("{command}: {why}")
        }
    };
    writeln!(tool.err, "{text}")?;
    Ok(errno.0)
}

/// Waits until the MDTs of this machine have the same version of the pool as the MGS.
fn wait_until_received(named: &PoolName, tool: &mut Tool<'_>) -> io::Result<()> {
    let PoolName { fsname, pool } = named;
    let mdts = mgs::values(&format!("lod.{fsname}-MDT*-mdtlov.numobd"), tool).len();
    let known = pools_of(fsname, tool).into_iter().next().unwrap_or_default();
    let known = known.iter().find(|p| p.name == *pool).map(|p| pool_list::members(fsname, p));
    let received = mgs::wait_for_mdts(|| {
        let seen = mgs::values(&format!("lov.{fsname}-MDT*-mdtlov.pools.{pool}"), tool);
        match &known {
            Some(members) => seen.iter().filter(|value| *value == members).count() >= mdts,
            None => seen.is_empty(),
        }
    });
    if received {
        return Ok(());
    }
    writeln!(tool.err, "Warning, not all MDTs have received the change of pool {named} yet")
}

/// Returns the parameter of an MGS that shows the pools of a file system.
fn param(fsname: &str) -> String {
    format!("mgs.*.pools.{fsname}")
}

/// Returns the pools of a file system, once per MGS of this machine that knows it.
pub fn pools_of(fsname: &str, tool: &Tool<'_>) -> Vec<Vec<Pool>> {
    let texts = mgs::values(&param(fsname), tool);
    texts.iter().map(|text| pools::parse(fsname, text)).collect()
}

/// Expands a list of OSTs such as `OST[0-3,8]` or `sheen-OST[0-10/2]_UUID`. Indices are
/// hexadecimal, as in the names themselves; the step is decimal. Returns the text itself if it has
/// no brackets. Returns `None` if the list is invalid, or longer than the number of possible OSTs.
fn expand(list: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = list.split_once('[') else { return Some(vec![list.to_string()]) };
    let (ranges, after) = rest.split_once(']')?;
    let mut names = Vec::new();
    for range in ranges.split(',') {
        let (range, step) = match range.split_once('/') {
            Some((range, step)) => (range, step.parse::<usize>().ok().filter(|step| *step > 0)?),
            None => (range, 1),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let index = |text| u32::from_str_radix(text, 16).ok().filter(|i| (*i as usize) < TARGETS_MAX);
        let (first, last) = (index(first)?, index(last)?);
        if last < first {
            return None;
        }
        names.extend((first..=last).step_by(step).map(|i| format!("{before}{i:04x}{after}")));
        if names.len() > TARGETS_MAX {
            return None;
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests;
