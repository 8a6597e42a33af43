//! The commands that show nodemaps.

use std::io;
use std::net::IpAddr;

use sheen_lnet::Nid;
use sheen_mgs::nodemaps::{IdType, show};
use sheen_wire::Errno;
use sheen_wire::nodemap::{DEFAULT, Nodemap, Nodemaps, Rules};

use super::super::{options, tool::Tool, usage};
use super::stored;
use crate::lfs::getopt::{Spec, Value};

const INFO: Spec = Spec { short: "", long: &[] };
const TEST_NID: Spec = Spec { short: "n:", long: &[("nid", Value::Required, "n")] };
const TEST_ID: Spec = Spec {
    short: "n:t:i:",
    long: &[("nid", Value::Required, "n"), ("idtype", Value::Required, "t"), ("id", Value::Required, "i")],
};

/// `nodemap_info [list|all|NAME]`
///
/// # Errors
/// The output cannot be written.
pub fn info(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let command = "nodemap_info";
    let Some(given) = options::parse(command, &INFO, args, tool)? else { return Ok(usage::EXIT) };
    let what = match &given.rest[..] {
        [] => "list",
        [what] => what.as_str(),
        _ => return options::wrong(command, tool),
    };
    let all = match stored::nodemaps(command, tool)? {
        Ok(all) => all,
        Err(errno) => return Ok(errno.0),
    };
    let maps: Vec<Nodemap> = show::names(&all).into_iter().filter_map(|name| show::get(&all, name)).collect();
    if what == "list" {
        maps.iter().try_for_each(|map| writeln!(tool.out, "nodemap.{}", map.name))?;
        return Ok(0);
    }
    if what == "all" {
        writeln!(tool.out, "nodemap.active={}", u8::from(all.active))?;
    } else if maps.iter().all(|map| map.name != what) {
        writeln!(tool.err, "error: {command}: cannot find nodemap {what}: 'lctl {command}' lists all")?;
        return Ok(Errno::ENOENT.0);
    }
    for map in maps.iter().filter(|map| what == "all" || map.name == what) {
        for (param, value) in show::params(map) {
            // As `get_param` prints values of one line and of several.
            let separator = if value.ends_with('\n') { "\n" } else { "" };
            writeln!(tool.out, "nodemap.{}.{param}={separator}{}", map.name, value.trim_end_matches('\n'))?;
        }
    }
    Ok(0)
}

/// `nodemap_test_nid NID`: prints the nodemap of a client at this address whose key names none. The
/// answer is the same whether nodemaps are active or not.
///
/// # Errors
/// The output cannot be written.
pub fn test_nid(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let command = "nodemap_test_nid";
    let Some(given) = options::parse(command, &TEST_NID, args, tool)? else { return Ok(usage::EXIT) };
    let nid = match (given.value("n"), &given.rest[..]) {
        (Some(nid), []) => nid,
        (None, [nid]) => nid.as_str(),
        _ => return options::wrong(command, tool),
    };
    let map = match map_of(command, nid, tool)? {
        Ok(map) => map,
        Err(errno) => return Ok(errno.0),
    };
    writeln!(tool.out, "{}", map.name)?;
    Ok(0)
}

/// `nodemap_test_id --nid NID --idtype uid|gid --id ID`: prints the id of the file system to which
/// an id of a client at this address is mapped or squashed. Otherwise as [`test_nid`].
///
/// # Errors
/// The output cannot be written.
pub fn test_id(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let command = "nodemap_test_id";
    let Some(given) = options::parse(command, &TEST_ID, args, tool)? else { return Ok(usage::EXIT) };
    let (Some(nid), Some(id_type), Some(id), true) =
        (given.value("n"), given.value("t"), given.value("i"), given.rest.is_empty())
    else {
        return options::wrong(command, tool);
    };
    let Some((id_type, id)) = IdType::of_name(id_type).zip(id.parse::<u32>().ok()) else {
        writeln!(tool.err, "error: {command}: invalid {id_type} {id}: expected uid or gid, and a number")?;
        return Ok(Errno::EINVAL.0);
    };
    let map = match map_of(command, nid, tool)? {
        Ok(map) => map,
        Err(errno) => return Ok(errno.0),
    };
    let id = match id_type {
        IdType::Uid => map.uid_of(id).unwrap_or(map.squash_uid),
        IdType::Gid => map.gid_of(id).unwrap_or(map.squash_gid),
    };
    writeln!(tool.out, "{id}")?;
    Ok(0)
}

/// Returns the nodemap of a NID. On failure it has printed an error.
fn map_of(command: &str, nid: &str, tool: &mut Tool<'_>) -> io::Result<Result<Nodemap, Errno>> {
    let Some(address) = address(nid) else {
        writeln!(tool.err, "error: {command}: invalid NID '{nid}': expected an address such as 10.0.0.7@tcp")?;
        return Ok(Err(Errno::EINVAL));
    };
    Ok(stored::nodemaps(command, tool)?.map(|all| of_address(all, address)))
}

fn address(nid: &str) -> Option<IpAddr> {
    match nid.parse::<Nid>() {
        Ok(Nid::Tcp(at)) => Some(at.ip().to_canonical()),
        Ok(Nid::Lo) | Err(_) => None,
    }
}

fn of_address(all: Nodemaps, address: IpAddr) -> Nodemap {
    let all = Nodemaps { active: true, ..all };
    match all.of(None, Some(address)) {
        Rules::Of(map) => map.clone(),
        // Not returned for active nodemaps and a key that names none.
        Rules::None | Rules::Unknown => Nodemap::new(DEFAULT),
    }
}
